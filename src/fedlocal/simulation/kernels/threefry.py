"""JAX's random bits, made in compiled loops: Threefry-2x32 with 20 rounds (Salmon et al., 2011)."""

import numpy as np

from fedlocal.simulation.kernels.jit import entry, internal


@entry
def round_key(seed, r):
    """The key of round r: that of `Plan.round_key`."""
    return _threefry(np.uint32(0), seed, np.uint32(0), r)


@entry
def draw_rows(key, client, start, size, out, place, count):
    """`count` rows of a client with replacement, those of `Plan.draws`, to out[place], out[place + 1], ..."""
    a, b = _threefry(key[0], key[1], np.uint32(0), client)
    for i in range(count):
        x, y = _threefry(a, b, np.uint32(0), np.uint32(i))
        out[place + i] = x ^ y
    for i in range(place, place + count):
        out[i] = start + out[i] % size


@internal
def _threefry(k0, k1, x0, x1):
    k2 = np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1)
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(1))
    x0, x1 = _four(x0, x1, 17, 29, 16, 24)
    x0, x1 = np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(2))
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1 + np.uint32(3))
    x0, x1 = _four(x0, x1, 17, 29, 16, 24)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(4))
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    return np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(5))


@internal
def _four(x0, x1, a, b, c, d):
    x0, x1 = _mixed(x0, x1, a)
    x0, x1 = _mixed(x0, x1, b)
    x0, x1 = _mixed(x0, x1, c)
    return _mixed(x0, x1, d)


@internal
def _mixed(x0, x1, turn):
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32(x1 << np.uint32(turn)) | np.uint32(x1 >> np.uint32(32 - turn))
    return x0, np.uint32(x1 ^ x0)
