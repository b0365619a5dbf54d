"""Small matrix products of the network engine, whose operands stay in the registers of the processor.

A shape is a tuple of three tuples, whose lengths the compiler knows: R, the examples of a tile; the lanes of a vector; the
vectors of a panel. An operand is a tuple of a float32 array, a place in it (counted in numbers), and, where it is a matrix, how
far apart its rows are. A panel holds some neighbouring columns of a matrix of weights: row k is at k times the panel's width. The
inputs of a tile are packed: number k of example b is at k R + b. Behind them their tuple has an array and a place of a list:
which row of the weights belongs to which input, since those that are zero in all examples are left out.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from fedlocal.simulation.kernels.networks.emitter import Emitter, Tile
from fedlocal.simulation.kernels.simd import intrinsic

UNROLLED = 4  # vectors that are added up side by side
BLOCK = 32  # as many of them are added up in float32
PAIR = types.UniTuple(types.float64, 2)


def _tile(context: Any, builder: Any, kinds: Any, values: Any) -> Tile:
    """The tile of a microkernel whose first arguments are shape, inputs, weights, count."""
    shape, inputs, weights, count = kinds[:4]
    emit = Emitter(context, builder, shape[1].count)
    return Tile(
        emit,
        shape,
        (emit.pointer(inputs, values[1]), emit.pointer(inputs, values[1], 2)),
        emit.pointer(weights, values[2]),
        emit.place(count, values[3]),
    )


@intrinsic
def forward(_: Any, shape: Any, inputs: Any, weights: Any, count: Any, out: Any) -> Any:
    """out[b] = sum over i < count of inputs[i, b] weights[k], for each example b and the columns of a panel; k is in place i of
    the list."""

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        tile = _tile(context, builder, signature.args, a)
        tile.forward(tile.emit.pointer(out, a[4]), tile.emit.part(out, a[4], 2), lambda k, w: w)
        return context.get_dummy_value()

    return types.none(shape, inputs, weights, count, out), code


@intrinsic
def forward_shrunk(
    _: Any, shape: Any, inputs: Any, weights: Any, count: Any, out: Any, threshold: Any, points: Any
) -> Any:
    """The same with weights that are nearer to zero by the threshold, which are stored in `points`."""

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        tile = _tile(context, builder, signature.args, a)
        emit = tile.emit
        level, target = emit.spread(emit.number(threshold, a[5])), emit.pointer(points, a[6])
        step = emit.part(points, a[6], 2)

        def shrunk(i: Any, w: list[Any]) -> list[Any]:
            w, row = [emit.soft(vector, level) for vector in w], builder.mul(emit.listed(tile.listed, i), step)
            for c, vector in enumerate(w):
                emit.store(vector, emit.at(target, row, c))
            return w

        tile.forward(emit.pointer(out, a[4]), emit.part(out, a[4], 2), shrunk)
        return context.get_dummy_value()

    return types.none(shape, inputs, weights, count, out, threshold, points), code


@intrinsic
def update(_: Any, shape: Any, inputs: Any, weights: Any, count: Any, slopes: Any, factor: Any) -> Any:
    """weights[k] += factor times the sum over examples b of inputs[i, b] slopes[b], for i < count and the columns of a panel."""

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        tile = _tile(context, builder, signature.args, a)
        emit = tile.emit
        tile.update(emit.pointer(slopes, a[4]), emit.part(slopes, a[4], 2), emit.number(factor, a[5]))
        return context.get_dummy_value()

    return types.none(shape, inputs, weights, count, slopes, factor), code


@intrinsic
def beyond(_: Any, lanes: Any, weights: Any, vectors: Any, step: Any, threshold: Any) -> Any:
    """The sum of max(|w| - threshold, 0) over every `step`-th of so many vectors, and how many numbers are beyond it.

    Sums of a block are taken in float32, those over the blocks in float64.
    """

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        emit = Emitter(context, builder, lanes.count)
        level, found, total = emit.spread(emit.number(threshold, a[4])), emit.variables(UNROLLED), emit.sum()
        counts = [cgutils.alloca_once_value(builder, emit.index(0)) for _ in range(UNROLLED)]
        pointer, stride = emit.pointer(weights, a[1]), emit.place(step, a[3])
        count, apart = builder.sdiv(emit.place(vectors, a[2]), stride), builder.mul(stride, emit.index(emit.lanes))

        def look(k: Any, c: int) -> None:
            emit.add_beyond(found[c], counts[c], emit.load(emit.at(pointer, builder.mul(k, apart))), level)

        with emit.counting(builder.sdiv(count, emit.index(UNROLLED * BLOCK))) as i:
            with emit.counting(emit.index(BLOCK)) as j:
                block = builder.add(builder.mul(i, emit.index(BLOCK)), j)
                for c in range(UNROLLED):
                    look(builder.add(builder.mul(block, emit.index(UNROLLED)), emit.index(c)), c)
            emit.flush(found, total)
        with emit.counting(builder.srem(count, emit.index(UNROLLED * BLOCK))) as i:
            look(builder.sub(builder.sub(count, emit.index(1)), i), 0)
        emit.flush(found, total)
        number = builder.load(counts[0])
        for other in counts[1:]:
            number = builder.add(number, builder.load(other))
        parts = [emit.added_up(total), builder.sitofp(number, ir.DoubleType())]
        return context.make_tuple(builder, PAIR, parts)

    return PAIR(lanes, weights, vectors, step, threshold), code


@intrinsic
def shrunk(_: Any, x: Any, threshold: Any) -> Any:
    """A vector nearer to zero by the threshold."""

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        emit = Emitter(context, builder, x.count)
        return emit.soft(a[0], emit.spread(emit.number(threshold, a[1])))

    return x(x, threshold), code


@intrinsic
def reduced(_: Any, x: Any) -> Any:
    """The largest number of a vector, and the sum of its numbers."""
    pair = types.UniTuple(types.float32, 2)

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        emit = Emitter(context, builder, x.count)
        return context.make_tuple(builder, pair, [emit.reduced("fmax", a[0]), emit.reduced("fadd", a[0])])

    return pair(x), code


@intrinsic
def pack(_: Any, shape: Any, source: Any, which: Any, out: Any) -> Any:
    """Transpose one vector of numbers of each example: out[k, b] = source[which[b], k].

    What is behind the last example of row k of `out` is overwritten, with zeros, up to whole vectors.
    """

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        emit = Emitter(context, builder, shape[1].count)
        (begin, stride), place = (emit.pointer(source, a[1]), emit.part(source, a[1], 2)), emit.pointer(which, a[2])
        target, step = emit.pointer(out, a[3]), emit.part(out, a[3], 2)
        rows = []
        for b in range(shape[0].count):
            row = builder.zext(builder.load(builder.gep(place, [emit.index(b)])), stride.type)
            rows.append(emit.load(emit.at(begin, builder.mul(row, stride))))
        rows += [emit.zero] * (-len(rows) % emit.lanes)
        groups = [emit.transposed(rows[g : g + emit.lanes]) for g in range(0, len(rows), emit.lanes)]
        for k in range(emit.lanes):
            row = builder.mul(step, emit.index(k))
            for g, group in enumerate(groups):
                emit.store(group[k], emit.at(target, row, g))
        return context.get_dummy_value()

    return types.none(shape, source, which, out), code


@intrinsic
def compact(_: Any, shape: Any, packed: Any, count: Any, out: Any, listed: Any, others: Any) -> Any:
    """Copy those of so many packed inputs that are not zero in all examples; list them, and the others; return how many."""

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        rows, emit = shape[0].count, Emitter(context, builder, shape[1].count)
        source, target = emit.pointer(packed, a[1]), emit.pointer(out, a[3])
        lists, bits = [emit.pointer(listed, a[4]), emit.pointer(others, a[5])], ir.IntType(emit.lanes)
        found = cgutils.alloca_once_value(builder, emit.index(0))
        with emit.counting(emit.place(count, a[2])) as k:
            i, any_bits = builder.load(found), ir.Constant(bits, 0)
            first, place = builder.mul(k, emit.index(rows)), builder.mul(i, emit.index(rows))
            for g in range(-(-rows // emit.lanes)):
                x = emit.load(emit.at(source, first, g))
                emit.store(x, emit.at(target, place, g))
                filled = builder.bitcast(builder.fcmp_unordered("!=", x, emit.zero), bits)
                own = ir.Constant(bits, (1 << min(emit.lanes, rows - g * emit.lanes)) - 1)
                any_bits = builder.or_(any_bits, builder.and_(filled, own))
            number = builder.trunc(k, ir.IntType(32))
            builder.store(number, builder.gep(lists[0], [i]))
            builder.store(number, builder.gep(lists[1], [builder.sub(k, i)]))
            more = builder.zext(builder.icmp_unsigned("!=", any_bits, ir.Constant(bits, 0)), i.type)
            builder.store(builder.add(i, more), found)
        return builder.load(found)

    return types.intp(shape, packed, count, out, listed, others), code


@intrinsic
def back(
    _: Any, shape: Any, slopes: Any, weights: Any, fan_in: Any, fan_out: Any, factor: Any, seen: Any, out: Any
) -> Any:
    """For as many rows k of weights as there are lanes: out[b, k] = factor sum_c weights[k, c] slopes[c, b] where seen[b, k] > 0.

    `slopes` is packed, padded to whole vectors. `weights` is row k of the first panel of a matrix of these sizes.
    """

    def code(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        rows, lanes, width = (part.count for part in shape)
        emit = Emitter(context, builder, lanes)
        inputs, outputs = emit.place(fan_in, a[3]), emit.place(fan_out, a[4])
        full, groups = width * lanes, -(-rows // lanes)
        factors, panel = emit.spread(emit.number(factor, a[5])), builder.mul(inputs, emit.index(full))
        panels, rest = builder.sdiv(outputs, emit.index(full)), builder.srem(outputs, emit.index(full))
        narrow = builder.icmp_signed("<=", rest, emit.index(lanes))
        last = builder.select(narrow, emit.index(lanes), emit.index(full))
        for g in range(groups):
            sums, slope = emit.variables(lanes), emit.at(emit.pointer(slopes, a[1]), emit.index(g * lanes))

            def add_columns(
                first: Any, matrix: Any, step: Any, count: Any, sums: Any = sums, slope: Any = slope
            ) -> None:
                places = [builder.mul(step, emit.index(j)) for j in range(lanes)]
                with emit.counting(count) as c:
                    place = builder.mul(builder.add(first, c), emit.index(groups * lanes))
                    examples = emit.load(emit.at(slope, place))
                    for variable, row in zip(sums, places, strict=True):
                        w = emit.broadcast(builder.gep(matrix, [builder.add(row, c)]))
                        emit.add_product(variable, w, examples)

            matrix = emit.pointer(weights, a[2])
            with emit.counting(panels) as p:
                first = builder.mul(p, emit.index(full))
                add_columns(first, emit.at(matrix, builder.mul(p, panel)), emit.index(full), emit.index(full))
            # row k of a narrow last panel begins elsewhere
            shift = builder.mul(emit.part(weights, a[2], 2), builder.sub(emit.index(full), last))
            ends = emit.at(matrix, builder.sub(builder.mul(panels, panel), shift))
            add_columns(builder.mul(panels, emit.index(full)), ends, last, rest)
            columns = emit.transposed([builder.load(variable) for variable in sums])
            for b in range(g * lanes, min(rows, (g + 1) * lanes)):
                row = builder.mul(emit.part(seen, a[6], 2), emit.index(b))
                mask = builder.fcmp_ordered(">", emit.load(emit.at(emit.pointer(seen, a[6]), row)), emit.zero)
                value = builder.select(mask, builder.fmul(columns[b - g * lanes], factors), emit.zero)
                row = builder.mul(emit.part(out, a[7], 2), emit.index(b))
                emit.store(value, emit.at(emit.pointer(out, a[7]), row))
        return context.get_dummy_value()

    return types.none(shape, slopes, weights, fan_in, fan_out, factor, seen, out), code
