"""Instructions for small matrix products on vectors of float32, which the microkernels are put together from."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from fedlocal.simulation.kernels.simd import splat

NUMBER = ir.FloatType()
REORDERED = ("reassoc", "contract", "nsz")


class Emitter:
    """Instructions for vectors of so many float32 numbers."""

    def __init__(self, context: Any, builder: Any, lanes: int):
        self.context, self.builder, self.lanes = context, builder, lanes
        self.vector = ir.VectorType(NUMBER, lanes)
        self.zero = ir.Constant(self.vector, [0.0] * lanes)

    # places and numbers

    def index(self, value: int) -> Any:
        return ir.Constant(self.context.get_value_type(types.intp), value)

    def place(self, kind: Any, value: Any) -> Any:
        return self.context.cast(self.builder, value, kind, types.intp)

    def number(self, kind: Any, value: Any) -> Any:
        return self.context.cast(self.builder, value, kind, types.float32)

    def data(self, array: Any, value: Any) -> Any:
        if array.layout != "C":
            raise TypeError(f"networks: arrays must be contiguous, got {array}")
        return self.context.make_array(array)(self.context, self.builder, value).data

    def part(self, kind: Any, value: Any, number: int) -> Any:
        """A whole number in a tuple."""
        return self.place(kind[number], self.builder.extract_value(value, number))

    def pointer(self, kind: Any, value: Any, first: int = 0) -> Any:
        """A pointer to an entry of an array, from a tuple in which `first` is the array and the next part the place."""
        data = self.data(kind[first], self.builder.extract_value(value, first))
        return self.builder.gep(data, [self.part(kind, value, first + 1)])

    def listed(self, pointer: Any, i: Any) -> Any:
        """Entry i of a list of unsigned numbers, as a place."""
        return self.builder.zext(self.builder.load(self.builder.gep(pointer, [i])), i.type)

    def at(self, pointer: Any, place: Any, vectors: int = 0) -> Any:
        """A pointer `place` numbers and so many vectors further."""
        if vectors:
            place = self.builder.add(place, self.index(vectors * self.lanes))
        return self.builder.gep(pointer, [place])

    # vectors

    def load(self, pointer: Any) -> Any:
        return self.builder.load(self.builder.bitcast(pointer, self.vector.as_pointer()), align=4)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, self.builder.bitcast(pointer, self.vector.as_pointer()), align=4)

    def spread(self, number: Any) -> Any:
        return splat(self.builder, number, self.vector)

    def broadcast(self, pointer: Any) -> Any:
        return self.spread(self.builder.load(pointer))

    def call(self, name: str, *arguments: Any) -> Any:
        kinds = [argument.type for argument in arguments]
        kind = ir.FunctionType(kinds[0], kinds)
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}.v{self.lanes}f32")
        return self.builder.call(function, arguments)

    def reduced(self, name: str, x: Any) -> Any:
        """The sum ("fadd") or the largest ("fmax") of the numbers of a vector."""
        arguments = [ir.Constant(NUMBER, 0.0), x] if name == "fadd" else [x]
        kind = ir.FunctionType(NUMBER, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(
            self.builder.module, kind, f"llvm.vector.reduce.{name}.v{self.lanes}f32"
        )
        return self.builder.call(function, arguments, fastmath=REORDERED)

    def soft(self, x: Any, threshold: Any) -> Any:
        """x nearer to zero by the threshold; nan stays nan."""
        rest = self.builder.fsub(self.call("fabs", x), threshold)
        inside = self.builder.fcmp_ordered("<=", rest, self.zero)
        return self.builder.select(inside, self.zero, self.call("copysign", rest, x))

    def transposed(self, rows: Sequence[Any]) -> list[Any]:
        """The columns of as many vectors as there are lanes."""
        half = self.lanes // 2
        kind = ir.VectorType(ir.IntType(32), self.lanes)
        pairs = [[j for i in range(half) for j in (i + begin, self.lanes + i + begin)] for begin in (0, half)]
        masks = [ir.Constant(kind, pair) for pair in pairs]
        rows = list(rows)
        for _ in range(self.lanes.bit_length() - 1):
            rows = [self.builder.shuffle_vector(rows[i], rows[i + half], mask) for i in range(half) for mask in masks]
        return rows

    # variables and loops

    def variables(self, count: int) -> list[Any]:
        """Vectors that start at zero, here, and that the compiler keeps in registers."""
        made = [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]
        for variable in made:
            self.builder.store(self.zero, variable)
        return made

    def add_product(self, variable: Any, x: Any, y: Any) -> None:
        self.builder.store(self.call("fma", x, y, self.builder.load(variable)), variable)

    def add(self, variable: Any, x: Any) -> None:
        self.builder.store(self.builder.fadd(self.builder.load(variable), x), variable)

    def add_beyond(self, total: Any, count: Any, x: Any, threshold: Any) -> None:
        """Add max(|x| - threshold, 0) to a variable, and to a whole number in how many lanes this is not zero."""
        rest, bits = self.builder.fsub(self.call("fabs", x), threshold), ir.IntType(self.lanes)
        outside = self.builder.fcmp_unordered(">", rest, self.zero)  # nan counts
        self.add(total, self.builder.select(outside, rest, self.zero))
        more = self.builder.ctpop(self.builder.bitcast(outside, bits))
        number = self.builder.load(count)
        self.builder.store(self.builder.add(number, self.builder.zext(more, number.type)), count)

    def sum(self) -> Any:
        """A sum in float64 for each lane, which starts at zero."""
        kind = ir.VectorType(ir.DoubleType(), self.lanes)
        return cgutils.alloca_once_value(self.builder, ir.Constant(kind, [0.0] * self.lanes))

    def flush(self, variables: Sequence[Any], total: Any) -> None:
        """Add these variables to a sum, and set them to zero."""
        for variable in variables:
            wide = self.builder.fpext(self.builder.load(variable), total.type.pointee)
            self.builder.store(self.builder.fadd(self.builder.load(total), wide), total)
            self.builder.store(self.zero, variable)

    def added_up(self, total: Any) -> Any:
        """A sum over all lanes."""
        number, lanes = ir.DoubleType(), self.builder.load(total)
        kind = ir.FunctionType(number, [number, lanes.type])
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f64"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [ir.Constant(number, 0.0), lanes], fastmath=REORDERED)

    @contextmanager
    def counting(self, count: Any) -> Iterator[Any]:
        """A loop over 0, 1, ... below `count`."""
        with cgutils.for_range(self.builder, count) as loop:
            yield loop.index


class Tile:
    """A product of the packed inputs of some examples with a panel of weights: sizes, pointers, and the loops over its rows."""

    def __init__(self, emit: Emitter, shape: Any, inputs: tuple[Any, Any], weights: Any, count: Any):
        self.emit, self.rows, self.width = emit, shape[0].count, shape[2].count
        self.inputs, self.listed = inputs
        self.weights, self.count = weights, count

    def places(self, i: Any) -> tuple[Any, Any]:
        """Where the weights of input i are, and its examples."""
        emit, k = self.emit, self.emit.listed(self.listed, i)
        width = emit.index(self.width * emit.lanes)
        return emit.builder.mul(k, width), emit.builder.mul(i, emit.index(self.rows))

    def forward(self, out: Any, stride: Any, seen: Callable[[Any, list[Any]], list[Any]]) -> None:
        """out[b] = sum_i inputs[i, b] w_k, where k is entry i of the list and w_k = seen(i, weights[k])."""
        emit, builder = self.emit, self.emit.builder
        sums = emit.variables(self.rows * self.width)
        with emit.counting(self.count) as i:
            row, first = self.places(i)
            w = seen(i, [emit.load(emit.at(self.weights, row, c)) for c in range(self.width)])
            for b in range(self.rows):
                x = emit.broadcast(builder.gep(self.inputs, [builder.add(first, emit.index(b))]))
                for c in range(self.width):
                    emit.add_product(sums[b * self.width + c], x, w[c])
        for b in range(self.rows):
            row = builder.mul(stride, emit.index(b))
            for c in range(self.width):
                emit.store(builder.load(sums[b * self.width + c]), emit.at(out, row, c))

    def update(self, slopes: Any, stride: Any, factor: Any) -> None:
        """weights[k] += factor sum_b inputs[i, b] slopes[b], where k is entry i of the list."""
        emit, builder, d = self.emit, self.emit.builder, []
        factors = emit.spread(factor)
        for b in range(self.rows):
            row = builder.mul(stride, emit.index(b))
            d.append([builder.fmul(emit.load(emit.at(slopes, row, c)), factors) for c in range(self.width)])
        with emit.counting(self.count) as i:
            row, first = self.places(i)
            places = [emit.at(self.weights, row, c) for c in range(self.width)]
            w = [emit.load(place) for place in places]
            for b in range(self.rows):
                x = emit.broadcast(builder.gep(self.inputs, [builder.add(first, emit.index(b))]))
                w = [emit.call("fma", x, d[b][c], w[c]) for c in range(self.width)]
            for c in range(self.width):
                emit.store(w[c], places[c])
