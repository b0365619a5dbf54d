"""The compiled loops of the linear engine. Everything here is plain loops over arrays, for Numba.

A few clients walk in step, so that the processor works on one while it waits for another; threads share the clients of a round.
"""

from typing import NamedTuple

import numba
import numpy as np

IN_STEP = 4  # clients that a thread walks side by side


class Rows(NamedTuple):
    """A CSR matrix in the types that the kernels read fastest."""

    starts: np.ndarray  # (n + 1,) uint32
    columns: np.ndarray  # (nnz,) uint16 or uint32
    values: np.ndarray  # (nnz,)
    targets: np.ndarray  # (n,)


class Sampling(NamedTuple):
    """Where minibatches come from: the rows that JAX drew, or, where there are none, the same random bits made here."""

    drawn: np.ndarray  # (R, S, K, B)
    shares: np.ndarray  # (R, S, K, B) weights of the examples; empty where all minibatches are full
    clients: np.ndarray  # (R, S)
    starts: np.ndarray  # (M,)
    sizes: np.ndarray  # (M,)
    seed: np.uint32
    first: np.uint32  # round
    steps: int


class ServerStep(NamedTuple):
    """S = start V before and V <- keep V + take mean(S) after the local steps."""

    start: np.ndarray
    keep: np.ndarray
    take: np.ndarray


class Lazy(NamedTuple):
    """The powers of the linear part: S = A^k U for k < period, then U is renewed."""

    query: np.ndarray  # (period, s) query' A^k
    gain: np.ndarray  # (period, s) A^-(k+1) gain
    renew: np.ndarray  # (s, s) A^period
    finish: np.ndarray  # (s, s) A^(K mod period)
    free_query: np.ndarray  # (s,) the intercept has no penalty and is not kept aside
    free_transition: np.ndarray  # (s, s)
    free_gain: np.ndarray  # (s,)


@numba.njit(cache=True)
def run_rounds(rows, sampling, lazy, server, weights, vectors, logistic, intercept, pair, several, threads):
    """Run the rounds; `vectors` holds the server's vectors before and after. Returns after how many it stopped."""
    size, width = server.start.shape[0], vectors.shape[1]
    sums = np.zeros((threads, size, width), vectors.dtype)
    beginning = np.empty((size, width), vectors.dtype)
    number = server.start.shape[1]
    after = np.empty(number)
    for r in range(weights.shape[0]):
        for i in range(size):
            for j in range(width):
                value = 0.0
                for h in range(number):
                    value += server.start[i, h] * vectors[h, j]
                beginning[i, j] = value
        _walk_all(rows, sampling, lazy, weights[r], beginning, sums, r, logistic, intercept, pair, several)
        finite = True
        for j in range(width):
            for i in range(number):
                after[i] = 0.0
                for h in range(number):
                    after[i] += server.keep[i, h] * vectors[h, j]
                for h in range(size):
                    for t in range(threads):
                        after[i] += server.take[i, h] * sums[t, h, j]
            for i in range(number):
                vectors[i, j] = after[i]
                finite = finite and np.isfinite(vectors[i, j])
        if not finite:
            return r + 1
    return weights.shape[0]


@numba.njit(cache=True, parallel=True)
def _walk_all(rows, sampling, lazy, weights, beginning, sums, r, logistic, intercept, pair, several):
    """The clients of round r, shared among threads."""
    threads, clients = sums.shape[0], weights.shape[0]
    for t in numba.prange(threads):
        low, high = clients * t // threads, clients * (t + 1) // threads
        _walk(rows, sampling, lazy, weights, beginning, sums[t], r, low, high, logistic, intercept, pair, several)


@numba.njit(cache=True, fastmath=True, boundscheck=False)
def _walk(rows, sampling, lazy, weights, beginning, total, r, low, high, logistic, intercept, pair, several):
    """Clients low..high of round r: `total` becomes the sum of weight times their last vectors.

    `pair` and `several` are None for methods of one vector and for minibatches of one example.
    """
    starts, columns, values, targets = rows
    query, gain = lazy.query, lazy.gain
    steps, period = sampling.steps, query.shape[0]
    if several is None:  # noqa: SIM108  (the compiler removes a branch, not an expression)
        batch = 1
    else:
        batch = several
    if pair is None:  # noqa: SIM108
        size = 1
    else:
        size = 2
    width = beginning.shape[1]
    dimension = width - 1 if intercept else width
    number = values.dtype.type
    one, zero = number(1), number(0)
    states = np.empty((IN_STEP, size, width), beginning.dtype)
    drawn = np.empty((IN_STEP, steps * batch), np.uint32)
    changes = np.empty((IN_STEP, batch), beginning.dtype)
    for i in range(size):
        for j in range(width):
            total[i, j] = 0
    for m in range(low, high, IN_STEP):
        group = min(IN_STEP, high - m)
        for g in range(group):
            for i in range(size):
                for j in range(width):
                    states[g, i, j] = beginning[i, j]
            if sampling.drawn.shape[0] > 0:
                for k in range(steps):
                    for b in range(batch):
                        drawn[g, k * batch + b] = sampling.drawn[r, m + g, k, b]
            else:
                draw_rows(sampling, r, m + g, drawn[g])
        for k in range(steps):
            p = k % period
            if k > 0 and p == 0:
                for g in range(group):
                    _mix(states[g], lazy.renew, dimension)
            for g in range(group):
                first, second = states[g, 0], states[g, size - 1]
                offset = zero
                if intercept:
                    for i in range(size):
                        offset += lazy.free_query[i] * states[g, i, dimension]
                for b in range(batch):
                    example = np.uint64(drawn[g, k * batch + b])
                    z = zero
                    begin, end = np.uint64(starts[example]), np.uint64(starts[example + np.uint64(1)])
                    if size == 1:
                        for j in range(begin, end):
                            z += values[j] * first[columns[j]]
                        z *= query[p, 0]
                    else:
                        for j in range(begin, end):
                            z += values[j] * (query[p, 0] * first[columns[j]] + query[p, 1] * second[columns[j]])
                    changes[g, b] = z + offset
            for g in range(group):
                for b in range(batch):
                    y, z = targets[drawn[g, k * batch + b]], changes[g, b]
                    slope = -y / (one + np.exp(y * z)) if logistic else (z - y) + (z - y)
                    share = sampling.shares[r, m + g, k, b] if sampling.shares.shape[0] > 0 else one / number(batch)
                    changes[g, b] = slope * share
            for g in range(group):
                slopes = zero
                for b in range(batch):
                    example = np.uint64(drawn[g, k * batch + b])
                    begin, end = np.uint64(starts[example]), np.uint64(starts[example + np.uint64(1)])
                    slopes += changes[g, b]
                    for i in range(size):
                        if gain[p, i] != 0:
                            vector, change = states[g, i], gain[p, i] * changes[g, b]
                            for j in range(begin, end):
                                vector[columns[j]] -= change * values[j]
                if intercept:
                    _step_intercept(states[g], lazy, slopes, dimension)
        for g in range(group):
            _mix(states[g], lazy.renew if steps % period == 0 else lazy.finish, dimension)
            share = number(weights[m + g])
            for i in range(size):
                for j in range(width):
                    total[i, j] += share * states[g, i, j]


@numba.njit(cache=True, fastmath=True, boundscheck=False)
def _mix(state, matrix, dimension):
    """state <- matrix @ state in the first `dimension` columns; state has one or two rows."""
    if state.shape[0] == 1:
        for j in range(dimension):
            state[0, j] *= matrix[0, 0]
    else:
        for j in range(dimension):
            a, b = state[0, j], state[1, j]
            state[0, j] = matrix[0, 0] * a + matrix[0, 1] * b
            state[1, j] = matrix[1, 0] * a + matrix[1, 1] * b


@numba.njit(cache=True, boundscheck=False)
def _step_intercept(state, lazy, slope, place):
    """One step of the intercept, which has no penalty and is not kept aside."""
    size = state.shape[0]
    first, second = state[0, place], state[size - 1, place]
    for i in range(size):
        linear = lazy.free_transition[i, 0] * first
        if size == 2:
            linear += lazy.free_transition[i, 1] * second
        state[i, place] = linear - lazy.free_gain[i] * slope


@numba.njit(cache=True, boundscheck=False)
def draw_rows(sampling, r, s, out):
    """Rows with replacement for the s-th client of a round: the bits of `Plan.draws`, which are JAX's Threefry."""
    client = sampling.clients[r, s]
    a, b = _threefry(np.uint32(0), sampling.seed, np.uint32(0), np.uint32(sampling.first + np.uint32(r)))
    a, b = _threefry(a, b, np.uint32(0), client)
    start, size = sampling.starts[client], sampling.sizes[client]
    for i in range(out.shape[0]):
        x, y = _threefry(a, b, np.uint32(0), np.uint32(i))
        out[i] = x ^ y
    for i in range(out.shape[0]):
        out[i] = start + out[i] % size


@numba.njit(cache=True)
def _threefry(k0, k1, x0, x1):
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011)."""
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


@numba.njit(cache=True)
def _four(x0, x1, a, b, c, d):
    x0, x1 = _mixed(x0, x1, a)
    x0, x1 = _mixed(x0, x1, b)
    x0, x1 = _mixed(x0, x1, c)
    return _mixed(x0, x1, d)


@numba.njit(cache=True)
def _mixed(x0, x1, turn):
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32(x1 << np.uint32(turn)) | np.uint32(x1 >> np.uint32(32 - turn))
    return x0, np.uint32(x1 ^ x0)
