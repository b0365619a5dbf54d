"""Where the numbers of a network are in the flat arrays of the loops, and how they get there."""

from itertools import pairwise
from typing import Any, NamedTuple

import llvmlite.binding
import numpy as np

from fedlocal.simulation.kernels.jit import entry
from fedlocal.simulation.kernels.networks.buffers import Layers

SHORT_TILE = 3
LARGEST_TILE = 12  # examples whose sums fit into the registers


class Machine(NamedTuple):
    """What the vectors of a processor are like."""

    lanes: int  # float32 numbers of a vector
    width: int  # vectors of a panel: two if there are registers for the sums of as many examples

    @classmethod
    def here(cls) -> "Machine":
        features = llvmlite.binding.get_host_cpu_features()
        return cls(16, 2) if features.get("avx512f") else cls(8, 1)


class Layout(NamedTuple):
    """Layers, and how many numbers the arrays have."""

    layers: Layers
    machine: Machine
    tiles: int
    rows: int  # of a tile
    features: int
    numbers: int
    packed: int
    outputs: int
    turned: int
    short_rows: int  # of a tile for minibatches of few examples, which the last one of an epoch often is
    slack: int  # numbers behind an array that may be read, though not used

    @classmethod
    def make(cls, widths: list[int], batch: int, machine: Machine) -> "Layout":
        lanes, pairs = machine.lanes, list(pairwise(widths))
        tiles = -(-batch // LARGEST_TILE)
        rows = -(-batch // tiles)
        vectors = [-(-width // lanes) for width in widths]
        inputs = [tiles * (count * rows + 2) * lanes for count in vectors[:-1]]
        outputs = [tiles * rows * count * lanes for count in vectors[1:]]
        sizes = [(fan_in + 1) * count * lanes for (fan_in, _), count in zip(pairs, vectors[1:], strict=True)]
        begins = [np.cumsum([0, *lengths]) for lengths in (sizes, inputs, outputs)]
        layers = Layers(
            fan_in=np.array(widths[:-1]),
            fan_out=np.array(widths[1:]),
            vectors=np.array(vectors[1:]),
            weights=begins[0][:-1],
            bias=begins[0][1:] - np.array(vectors[1:]) * lanes,
            packed=begins[1][:-1],
            outputs=begins[2][:-1],
        )
        numbers, packed, total = (int(places[-1]) for places in begins)
        turned = (max(vectors) + 2) * lanes * -(-rows // lanes) * lanes
        short = SHORT_TILE if rows > 2 * SHORT_TILE else rows
        slack = lanes * lanes * (machine.width + 1)
        return cls(layers, machine, tiles, rows, vectors[0] * lanes, numbers, packed, total, turned, short, slack)

    def pack(self, params: Any, target: np.ndarray) -> None:
        """Write the parameters of some cells, stacked, into a flat array."""
        self._each(params, target, True)

    def unpack(self, source: np.ndarray, cells: int) -> list[dict[str, np.ndarray]]:
        """The parameters of so many cells, stacked."""
        layers = self.layers
        params: list[dict[str, np.ndarray]] = [
            {"bias": np.empty((cells, m), np.float32), "weights": np.empty((cells, n, m), np.float32)}
            for n, m in zip(layers.fan_in, layers.fan_out, strict=True)
        ]
        self._each(params, source, False)
        return params

    def _each(self, params: Any, flat: np.ndarray, into: bool) -> None:
        lanes, width = self.machine
        for l, layer in enumerate(params):
            weights, bias = layer["weights"], layer["bias"]
            if into:
                weights, bias = (np.array(a, np.float32, order="C") for a in (weights, bias))
            places = self.numbers, self.layers.weights[l], self.layers.bias[l], self.layers.vectors[l], lanes, width
            copy_layer(weights, bias, flat, places, into)


@entry
def copy_layer(weights, bias, flat, places, into):
    """Copy weights (cells, n, m) and biases (cells, m) of a layer into a flat array, or out of it."""
    size, first, last, vectors, lanes, width = places
    cells, n, m = weights.shape
    for cell in range(cells):
        for p in range(0, vectors, width):
            apart = min(width, vectors - p) * lanes
            left, right = p * lanes, min(p * lanes + apart, m)
            for k in range(n):
                row = cell * size + first + p * n * lanes + k * apart
                for j in range(left, right):
                    if into:
                        flat[row + j - left] = weights[cell, k, j]
                    else:
                        weights[cell, k, j] = flat[row + j - left]
        for j in range(m):
            if into:
                flat[cell * size + last + j] = bias[cell, j]
            else:
                bias[cell, j] = flat[cell * size + last + j]
