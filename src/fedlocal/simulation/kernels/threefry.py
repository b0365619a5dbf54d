"""JAX's random bits, made in compiled loops: Threefry-2x32 with 20 rounds (Salmon et al., 2011).

A client's numbers are made sixteen at a time in a vector register. The compiler would vectorise a plain loop, too, but takes
seconds to do it.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from fedlocal.simulation.kernels.jit import entry, internal
from fedlocal.simulation.kernels.simd import Vector, intrinsic, splat

WIDTH = 16  # numbers made together
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


@entry
def round_key(seed, r):
    """The key of round r: that of `Plan.round_key`."""
    return _hash(np.uint32(0), seed, r)


@entry
def draw_rows(key, client, start, size, out, place, count):
    """`count` rows of a client with replacement, those of `Plan.draws`, to out[place], out[place + 1], ..."""
    a, b = _hash(key[0], key[1], client)
    whole = count - count % WIDTH
    for i in range(0, whole, WIDTH):
        _store(out, place + i, _bits(a, b, np.uint32(i)))
    if whole < count:
        rest = _bits(a, b, np.uint32(whole))
        for i in range(whole, count):
            out[place + i] = _lane(rest, i - whole)
    for i in range(place, place + count):
        out[i] = start + out[i] % size


@internal
def _bits(a, b, first):
    """The random numbers `first`, `first + 1`, ..., as many as a vector holds."""
    return _hash_vector(a, b, first)


@intrinsic
def _hash(_: Any, a: Any, b: Any, x: Any) -> Any:
    """The two words that Threefry makes of the key (a, b) and the counter (0, x)."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = [context.cast(builder, v, t, types.uint32) for v, t in zip(arguments, (a, b, x), strict=True)]
        return context.make_tuple(builder, signature.return_type, _threefry(builder, *words))

    return types.UniTuple(types.uint32, 2)(a, b, x), code


@intrinsic
def _hash_vector(_: Any, a: Any, b: Any, first: Any) -> Any:
    """The two words of the counters (0, first), (0, first + 1), ..., combined by exclusive or."""
    kind = Vector(types.uint32, WIDTH)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = [splat(builder, word, ir.VectorType(ir.IntType(32), WIDTH)) for word in arguments]
        counters = builder.add(words[2], ir.Constant(words[2].type, list(range(WIDTH))))
        return builder.xor(*_threefry(builder, words[0], words[1], counters))

    return kind(a, b, first), code


def _threefry(builder: Any, a: Any, b: Any, x: Any) -> tuple[Any, Any]:
    """Instructions for the key (a, b) and the counter (0, x), which are words or vectors of them."""
    count = getattr(x.type, "count", None)

    def constant(n: int) -> Any:
        return ir.Constant(x.type, n if count is None else [n] * count)

    keys = (a, b, builder.xor(builder.xor(a, b), constant(PARITY)))
    x, y = keys[0], builder.add(x, keys[1])
    for i in range(5):
        for turn in ROTATIONS[i % 2]:
            x = builder.add(x, y)
            y = builder.or_(builder.shl(y, constant(turn)), builder.lshr(y, constant(32 - turn)))
            y = builder.xor(y, x)
        x = builder.add(x, keys[(i + 1) % 3])
        y = builder.add(y, builder.add(keys[(i + 2) % 3], constant(i + 1)))
    return x, y


@intrinsic
def _store(_: Any, out: Any, place: Any, vector: Any) -> Any:
    """Write a vector to out[place], out[place + 1], ..."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(out)(context, builder, arguments[0]).data
        begin = builder.gep(data, [context.cast(builder, arguments[1], place, types.intp)])
        builder.store(arguments[2], builder.bitcast(begin, arguments[2].type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.none(out, place, vector), code


@intrinsic
def _lane(_: Any, vector: Any, lane: Any) -> Any:
    """One number of a vector."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(arguments[0], context.cast(builder, arguments[1], lane, types.int32))

    return vector.number(vector, lane), code
