"""Vectors in the processor's registers, for compiled loops in which several runs walk side by side: one number per lane.

With one lane they are plain numbers, and the compiler is free to use its vectors elsewhere. How many lanes there are is the
length of a tuple, which the compiler knows.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.extending import lower_builtin, models, overload, register_model, type_callable

intrinsic: Any = extending.intrinsic  # what it decorates is called with one argument less than it has
FAST = ("contract", "reassoc", "nsz", "arcp")  # nan and inf are what they are
EXACT = ("contract",)


class Vector(types.Type):
    """A vector of `count` numbers."""

    def __init__(self, number: Any, count: int):
        self.number, self.count = number, count
        super().__init__(f"Vector({number}, {count})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector):
        number = manager.lookup(vector.number).get_value_type()
        super().__init__(manager, vector, ir.VectorType(number, vector.count))


def _type(number: Any, count: int) -> Any:
    return number if count == 1 else Vector(number, count)


def _place(context: Any, builder: Any, array: Any, value: Any, row: Any, row_type: Any, kind: Any) -> Any:
    """A pointer to row `row` of a contiguous (n, L) array."""
    if array.layout != "C":
        raise TypeError(f"lanes: arrays must be contiguous, got {array}")
    parts = context.make_array(array)(context, builder, value)
    row = context.cast(builder, row, row_type, types.intp)
    start = builder.mul(row, ir.Constant(row.type, getattr(kind, "count", 1)))
    return builder.bitcast(builder.gep(parts.data, [start]), context.get_value_type(kind).as_pointer())


@intrinsic
def load(_: Any, lanes: Any, array: Any, row: Any) -> Any:
    """Row `row` of a contiguous array whose last axis is the lane."""
    kind = _type(array.dtype, lanes.count)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, array, arguments[1], arguments[2], row, kind)
        return builder.load(place, align=context.get_abi_sizeof(context.get_value_type(array.dtype)))

    return kind(lanes, array, row), code


@intrinsic
def store(_: Any, array: Any, row: Any, vector: Any) -> Any:
    """Write row `row` of such an array, in its precision."""
    kind = _type(array.dtype, getattr(vector, "count", 1))

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = _convert(context, builder, arguments[2], vector, kind)
        place = _place(context, builder, array, arguments[0], arguments[1], row, kind)
        builder.store(value, place, align=context.get_abi_sizeof(context.get_value_type(array.dtype)))
        return context.get_dummy_value()

    return types.none(array, row, vector), code


def _convert(context: Any, builder: Any, value: Any, kind: Any, vector: Any) -> Any:
    """A number as another, or in every lane; a vector as it is, or in another precision."""
    if not isinstance(vector, Vector):
        return context.cast(builder, value, kind, vector)
    if kind == vector:
        return value
    if isinstance(kind, Vector):
        wider = vector.number.bitwidth > kind.number.bitwidth
        return (builder.fpext if wider else builder.fptrunc)(value, context.get_value_type(vector))
    return splat(builder, context.cast(builder, value, kind, vector.number), context.get_value_type(vector))


def splat(builder: Any, value: Any, vector: Any) -> Any:
    """Instructions for a vector with the same number in every lane."""
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, empty, mask)


@intrinsic
def spread(_: Any, lanes: Any, like: Any, value: Any) -> Any:
    """A number in every lane, or a vector, in the precision of the array `like`."""
    kind = _type(like.dtype, lanes.count)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _convert(context, builder, arguments[2], value, kind)

    return kind(lanes, like, value), code


Emit = Callable[[Any, Any, Any], Any]  # builder and both sides to a value


def _add(builder: Any, x: Any, y: Any) -> Any:
    return builder.fadd(x, y, flags=FAST)


def _sub(builder: Any, x: Any, y: Any) -> Any:
    return builder.fsub(x, y, flags=FAST)


def _mul(builder: Any, x: Any, y: Any) -> Any:
    return builder.fmul(x, y, flags=FAST)


def _div(builder: Any, x: Any, y: Any) -> Any:
    return builder.fdiv(x, y, flags=FAST)


def _max(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)  # nan on the left stays nan


def _min(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), y, x)


def _wider(a: Any, b: Any) -> Any:
    """The type of an operation on two vectors, or on a vector and a number; None if neither is a vector."""
    return max((x for x in (a, b) if isinstance(x, Vector)), key=lambda v: v.number.bitwidth, default=None)


def _lowered(emit: Emit) -> Callable[..., Any]:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.return_type
        sides = [_convert(context, builder, v, t, kind) for v, t in zip(arguments, signature.args, strict=True)]
        return emit(builder, *sides)

    return code


def _operator(function: Any, emit: Emit) -> None:
    """What `function` does where a side is a vector. Callers contain it at once; an overload would be compiled alone first."""

    @type_callable(function)
    def typing(_: Any) -> Any:
        def kind(a: Any, b: Any) -> Any:
            return _wider(a, b)

        return kind

    for sides in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(function, *sides)(_lowered(emit))


for _functions, _emit in (
    ((operator.add, operator.iadd), _add),
    ((operator.sub, operator.isub), _sub),
    ((operator.mul, operator.imul), _mul),
    ((operator.truediv, operator.itruediv), _div),
    ((max,), _max),
    ((min,), _min),
):
    for _function in _functions:
        _operator(_function, _emit)


def _binary(emit: Emit) -> Any:
    """A function of two sides, of which one is a vector at least."""

    @intrinsic
    def operation(_: Any, a: Any, b: Any) -> Any:
        return _wider(a, b)(a, b), _lowered(emit)

    return operation


_plus = _binary(lambda b, x, y: b.fadd(x, y, flags=EXACT))  # what may not be rearranged
_minus = _binary(lambda b, x, y: b.fsub(x, y, flags=EXACT))
_times = _binary(lambda b, x, y: b.fmul(x, y, flags=EXACT))


@intrinsic
def _power_of_two(_: Any, shifted: Any) -> Any:
    """2^n, where n is in the low bits of `shifted`, a number near 1.5 times the largest power of two with exact integers."""
    bits, bias, place = (32, 127, 23) if shifted.number == types.float32 else (64, 1023, 52)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integers = ir.VectorType(ir.IntType(bits), shifted.count)
        n = builder.bitcast(arguments[0], integers)
        biased = builder.add(n, ir.Constant(integers, [bias] * shifted.count))
        moved = builder.shl(biased, ir.Constant(integers, [place] * shifted.count))
        return builder.bitcast(moved, context.get_value_type(shifted))

    return shifted(shifted), code


def _exponential(bound: float, magic: float, high: float, low: float, terms: int) -> Callable[[Any], Any]:
    """e^x = 2^n e^r with |r| <= log(2) / 2, and e^r by its series."""
    inverses = tuple(1 / math.factorial(i) for i in range(terms, -1, -1))

    def exponential(x):
        x = min(max(x, -bound), bound)
        shifted = _plus(_times(x, 1.4426950408889634), magic)
        n = _minus(shifted, magic)
        r = _minus(_minus(x, _times(n, high)), _times(n, low))
        p = _times(r, 0.0)
        for c in inverses:
            p = _plus(_times(p, r), c)
        return p * _power_of_two(shifted)

    return exponential


def exp(x: Any) -> Any:
    """e^x in every lane up to the last digits, clipped where it would overflow."""
    raise NotImplementedError


@overload(exp)
def _exp(x):
    if not isinstance(x, Vector):
        return lambda x: math.exp(x)
    if x.number == types.float32:
        return _exponential(87.0, 12582912.0, 0.693359375, -2.12194440e-4, 6)
    return _exponential(708.0, 6755399441055744.0, 0.693147180369123816490, 1.90821492927058770002e-10, 13)


def log1p(x: Any) -> Any:
    """log(1 + x) in every lane for 0 <= x <= 1, in float64."""
    raise NotImplementedError


@overload(log1p)
def _log1p(x):
    if not isinstance(x, Vector):
        return lambda x: math.log1p(x)
    inverses = tuple(1 / i for i in range(35, 0, -2))

    def area(x):
        """Twice the area hyperbolic tangent of x / (2 + x)."""
        s = x / (x + 2.0)
        q = s * s
        p = q * 0.0
        for c in inverses:
            p = _plus(_times(p, q), c)
        return s * p * 2.0

    return area
