"""How compiled loops read arrays: without Numba's checks for negative indices, and before the numbers are needed."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from fedlocal.simulation.kernels.simd import intrinsic


@intrinsic
def begin_of(_: Any, starts: Any, example: Any, dimension: Any) -> Any:
    """Where an example's values begin: as `starts` says, or, where it is None, after those of as many full rows."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = context.cast(builder, arguments[1], example, types.intp)
        if isinstance(starts, types.NoneType):
            return builder.mul(row, context.cast(builder, arguments[2], dimension, types.intp))
        return _entry(context, builder, starts, arguments[0], row)

    return types.intp(starts, example, dimension), code


@intrinsic
def column(_: Any, columns: Any, j: Any, begin: Any) -> Any:
    """The column of value j of a row that begins at `begin`."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if isinstance(columns, types.NoneType):
            return builder.sub(arguments[1], arguments[2])
        return _entry(context, builder, columns, arguments[0], arguments[1])

    return types.intp(columns, j, begin), code


@intrinsic
def prefetch(_: Any, array: Any, place: Any) -> Any:
    """Ask for an entry of an array before it is needed."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not isinstance(array, types.NoneType):
            data = context.make_array(array)(context, builder, arguments[0]).data
            byte = ir.IntType(8).as_pointer()
            kinds = [byte, *[ir.IntType(32)] * 3]
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0"
            )
            flags = [ir.Constant(ir.IntType(32), n) for n in (0, 3, 1)]  # to read, and to keep
            builder.call(function, [builder.bitcast(builder.gep(data, [arguments[1]]), byte), *flags])
        return context.get_dummy_value()

    return types.none(array, place), code


@intrinsic
def value_of(_: Any, values: Any, targets: Any, j: Any) -> Any:
    """Value j, in the precision of the targets: as `values` says, or, where it is None, one."""
    number = targets.dtype

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if isinstance(values, types.NoneType):
            return ir.Constant(context.get_value_type(number), 1.0)
        data = context.make_array(values)(context, builder, arguments[0]).data
        return context.cast(builder, builder.load(builder.gep(data, [arguments[2]])), values.dtype, number)

    return number(values, targets, j), code


@intrinsic
def at(_: Any, array: Any, place: Any) -> Any:
    """An entry of a contiguous array by its flat index, which Numba would check for being negative."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [context.cast(builder, arguments[1], place, types.intp)]))

    return array.dtype(array, place), code


def _entry(context: Any, builder: Any, array: Any, value: Any, place: Any) -> Any:
    """An unsigned entry of an array as a signed integer."""
    data = context.make_array(array)(context, builder, value).data
    return builder.zext(builder.load(builder.gep(data, [place])), context.get_value_type(types.intp))
