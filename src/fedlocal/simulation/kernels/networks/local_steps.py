"""Local steps of one client on a network: products of its minibatch with weights that stay in the core's cache."""

from typing import NamedTuple

import numpy as np

from fedlocal.simulation.kernels.jit import internal
from fedlocal.simulation.kernels.networks.buffers import FREE
from fedlocal.simulation.kernels.networks.microkernels import (
    back,
    compact,
    forward,
    forward_shrunk,
    pack,
    reduced,
    shrunk,
    update,
)
from fedlocal.simulation.kernels.networks.projections import proximal
from fedlocal.simulation.kernels.simd import exp, load, store


class LocalStep(NamedTuple):
    """One local step: whose, where its minibatch is, and how many tiles its examples fill."""

    thread: int
    cell: int
    r: int
    s: int
    k: int
    tiles: int


LEVEL, SCALE, GUESS = range(3)  # the last axis of `NetworkNumbers.maps`
SMALLEST = 1e-6  # a smaller scale is multiplied into the weights


@internal
def run_client(examples, minibatches, numbers, sizes, place, thread, cell):
    """All local steps of client s of round r, for place = (r, s); its state starts where the server of the cell is."""
    r, s = place
    lanes, layers = sizes.lanes, sizes.layers
    state, begin = thread * sizes.numbers // len(lanes), cell * sizes.numbers // len(lanes)
    for j in range(sizes.numbers // len(lanes)):
        store(numbers.states, state + j, load(lanes, numbers.server, begin + j))
    for l in range(len(layers.fan_in)):
        for i in range(2):
            numbers.maps[thread, l, i] = numbers.begins[cell, l, i]
        numbers.maps[thread, l, GUESS] = numbers.maps[thread, l, LEVEL]
    for k in range(minibatches.steps[minibatches.clients[r, s]]):
        count, rows = _count(minibatches, sizes, r, s, k), len(sizes.shapes[0][0])
        step = LocalStep(thread, cell, r, s, k, -(-count // rows))
        if count <= len(sizes.short_shapes[0][0]):
            _local_step(examples, minibatches, numbers, sizes, sizes.short_shapes, step)
        else:
            _local_step(examples, minibatches, numbers, sizes, sizes.shapes, step)


@internal
def _count(minibatches, sizes, r, s, k):
    """The examples of a minibatch; places behind them have no share."""
    count = sizes.batch
    if minibatches.shares.size > 0:
        while count > 1 and minibatches.shares[r, s, k, count - 1] == 0:
            count -= 1
    return count


@internal
def _local_step(examples, minibatches, numbers, sizes, shapes, step):
    """A local step with tiles and panels of these shapes."""
    _take(examples, minibatches, numbers, sizes, shapes, step)
    _scores(numbers, sizes, shapes, step)
    _slopes(examples, minibatches, numbers, sizes, shapes, step)
    _descend(numbers, sizes, shapes, step)


@internal
def add_client(numbers, sizes, thread, cell, total, weight):
    """Add weight times the change of a client's state to a total, or begin the total with it if `total` is below zero."""
    lanes, layers, size = sizes.lanes, sizes.layers, len(sizes.lanes)
    state, begin = thread * sizes.numbers // size, cell * sizes.numbers // size
    first, total = total < 0, (-1 - total if total < 0 else total) * sizes.numbers // size
    weight = np.float32(weight)
    for l in range(len(layers.fan_in)):
        level, scale = np.float32(numbers.maps[thread, l, LEVEL]), np.float32(numbers.maps[thread, l, SCALE])
        if sizes.dual:
            level, scale = np.float32(0), np.float32(1)
        left, middle = layers.weights[l] // size, layers.bias[l] // size
        for j in range(left, middle + layers.vectors[l]):
            value = load(lanes, numbers.states, state + j)
            if j < middle:
                if level > 0:
                    value = shrunk(value, level)
                value = value * scale
            value = (value - load(lanes, numbers.server, begin + j)) * weight
            if not first:
                value += load(lanes, numbers.totals, total + j)
            store(numbers.totals, total + j, value)


@internal
def _take(examples, minibatches, numbers, sizes, shapes, step):
    """Pack the examples of a minibatch; places behind the last one repeat the first, and count nothing."""
    rows, lanes, thread = len(shapes[0][0]), len(sizes.lanes), step.thread
    first = thread * sizes.examples
    for b in range(step.tiles * rows):
        numbers.rows[first + b] = minibatches.drawn[step.r, step.s, step.k, b if b < sizes.batch else 0]
    begin = thread * sizes.packed + sizes.layers.packed[0]
    for tile in range(step.tiles):
        target = begin + tile * _tile_of_inputs(shapes, sizes.features)
        for j in range(0, sizes.features, lanes):
            source = (examples.features, j, sizes.features)
            pack(shapes[0], source, (numbers.rows, first + tile * rows), (numbers.packed, target + j * rows, rows))
    if sizes.compacted > 0:
        out, listed = (numbers.compacted, thread * sizes.compacted), thread * 2 * sizes.features
        lists = (numbers.listed, listed), (numbers.listed, listed + sizes.features)
        count = sizes.layers.fan_in[0]
        numbers.given[thread] = compact(shapes[0], (numbers.packed, begin), count, out, lists[0], lists[1])


@internal
def _tile_of_inputs(shapes, width):
    """How many numbers the packed inputs of a tile have, with what packing writes behind the last one."""
    rows, lanes = len(shapes[0][0]), len(shapes[0][1])
    return (-(-width // lanes) * rows + 2) * lanes


@internal
def _inputs(shape, numbers, sizes, place, thread):
    """The packed inputs of a tile of a layer with the list of their rows, and how many there are."""
    l, tile = place
    fan_in = sizes.layers.fan_in[l]
    if l == 0 and sizes.compacted > 0:
        listed = thread * 2 * sizes.features
        return (numbers.compacted, thread * sizes.compacted, numbers.listed, listed), numbers.given[thread]
    source = thread * sizes.packed + sizes.layers.packed[l] + tile * _tile_of_inputs((shape,), fan_in)
    return (numbers.packed, source, numbers.counting, 0), fan_in


@internal
def _scores(numbers, sizes, shapes, step):
    """The outputs of all layers; those of the last one are the scores."""
    layers, lanes, width, thread = sizes.layers, len(sizes.lanes), len(shapes[0][2]), step.thread
    rows = len(shapes[0][0])
    for l in range(len(layers.fan_in)):
        for p in range(0, layers.vectors[l], width):
            for tile in range(step.tiles):
                if p + width <= layers.vectors[l]:
                    _forward_panel(shapes[0], numbers, sizes, (l, p, tile), thread)
                else:
                    _forward_panel(shapes[1], numbers, sizes, (l, p, tile), thread)
        if not sizes.dual:
            numbers.maps[thread, l, LEVEL] = 0.0  # now the weights are stored so
        last = l == len(layers.fan_in) - 1
        for tile in range(step.tiles):
            _nonlinearity(numbers, sizes, rows, (l, tile), thread, last)
            if not last:
                stride = layers.vectors[l] * lanes
                source = thread * sizes.outputs + layers.outputs[l] + tile * rows * stride
                target = thread * sizes.packed + layers.packed[l + 1] + tile * _tile_of_inputs(shapes, stride)
                for j in range(0, stride, lanes):
                    whole = (numbers.outputs, source + j, stride)
                    pack(shapes[0], whole, (numbers.counting, 0), (numbers.packed, target + j * rows, rows))


@internal
def _forward_panel(shape, numbers, sizes, place, thread):
    """The outputs of a tile for one panel of a layer."""
    l, p, tile = place
    layers, rows, lanes = sizes.layers, len(shape[0]), len(shape[1])
    stride, fan_in = layers.vectors[l] * lanes, layers.fan_in[l]
    inputs, count = _inputs(shape, numbers, sizes, (l, tile), thread)
    out = (numbers.outputs, thread * sizes.outputs + layers.outputs[l] + tile * rows * stride + p * lanes, stride)
    weights = thread * sizes.numbers + layers.weights[l] + p * fan_in * lanes
    level = numbers.maps[thread, l, LEVEL]
    copy, apart = weights, len(shape[2]) * lanes
    if sizes.dual:
        copy += sizes.threads * sizes.numbers  # the points, behind the states
    if level > 0 and (tile == 0 or (sizes.dual and l == 0)):
        if sizes.dual and l == 0:
            apart = 0  # nobody asks for the points of the first layer again: all are stored in one place
        forward_shrunk(shape, inputs, (numbers.states, weights), count, out, level, (numbers.states, copy, apart))
    else:
        forward(shape, inputs, (numbers.states, copy if level > 0 else weights), count, out)
    if level > 0 and not sizes.dual and count < fan_in:  # mirror descent: the weights of all inputs are to be stored so
        for i in range(fan_in - count):
            k = numbers.listed[thread * 2 * sizes.features + sizes.features + i]
            for c in range(len(shape[2])):
                j = weights // lanes + k * len(shape[2]) + c
                store(numbers.states, j, shrunk(load(sizes.lanes, numbers.states, j), level))


@internal
def _nonlinearity(numbers, sizes, rows, place, thread, last):
    """Scale the outputs of a tile, add the biases, and set what is negative to zero, except in the last layer."""
    l, tile = place
    layers, lanes, size = sizes.layers, sizes.lanes, len(sizes.lanes)
    columns, scale = layers.vectors[l], np.float32(numbers.maps[thread, l, SCALE])
    bias = (thread * sizes.numbers + layers.bias[l]) // size
    first = (thread * sizes.outputs + layers.outputs[l]) // size + tile * rows * columns
    for j in range(columns):
        shift = load(lanes, numbers.states, bias + j)
        for b in range(rows):
            value = load(lanes, numbers.outputs, first + b * columns + j) * scale + shift
            if not last:
                value = max(value, 0.0)
            store(numbers.outputs, first + b * columns + j, value)


@internal
def _slopes(examples, minibatches, numbers, sizes, shapes, step):
    """The scores of each example become the derivatives of the loss by them, times its share of the minibatch."""
    layers, lanes, size, thread = sizes.layers, sizes.lanes, len(sizes.lanes), step.thread
    l = len(layers.fan_in) - 1
    columns = layers.vectors[l]
    for b in range(step.tiles * len(shapes[0][0])):
        first = (thread * sizes.outputs + layers.outputs[l]) // size + b * columns
        share = np.float32(0)
        if b < sizes.batch:
            share = np.float32(1 / sizes.batch)
            if minibatches.shares.size > 0:
                share = minibatches.shares[step.r, step.s, step.k, b]
        largest, total = np.float32(-np.inf), np.float32(0)
        for j in range(columns):
            score = load(lanes, numbers.outputs, first + j) + load(lanes, numbers.padding, j)
            largest = max(largest, reduced(score)[0])
        for j in range(columns):
            score = load(lanes, numbers.outputs, first + j) + load(lanes, numbers.padding, j)
            power = exp(score - largest) * load(lanes, numbers.padding, columns + j)
            store(numbers.outputs, first + j, power)
            total += reduced(power)[1]
        factor = share / total
        for j in range(columns):
            store(numbers.outputs, first + j, load(lanes, numbers.outputs, first + j) * factor)
        label = examples.labels[numbers.rows[thread * sizes.examples + b]]
        numbers.outputs[first * size + label] -= share


@internal
def _descend(numbers, sizes, shapes, step):
    """Carry the derivatives back from layer to layer, and step against them in each."""
    layers, width, thread, cell = sizes.layers, len(shapes[0][2]), step.thread, step.cell
    for l in range(len(layers.fan_in) - 1, -1, -1):
        if l > 0:
            for tile in range(step.tiles):
                _carry_back(numbers, sizes, shapes[0], (l, tile), thread)
        scale = numbers.maps[thread, l, SCALE]
        factor = np.float32(-numbers.cells.step[cell] / (1.0 if sizes.dual else scale))
        for p in range(0, layers.vectors[l], width):
            for tile in range(step.tiles):
                if p + width <= layers.vectors[l]:
                    _update_panel(shapes[0], numbers, sizes, (l, p, tile), thread, factor)
                else:
                    _update_panel(shapes[1], numbers, sizes, (l, p, tile), thread, factor)
        rows = step.tiles * len(shapes[0][0])
        _update_bias(numbers, sizes, rows, l, thread, np.float32(-numbers.cells.step[cell]))
        if sizes.psi != FREE and sizes.on_clients:
            _map(numbers, sizes, l, thread, cell, step.k)


@internal
def _carry_back(numbers, sizes, shape, place, thread):
    """The derivatives by the inputs of layer l of a tile, in place of the outputs of the layer before."""
    l, tile = place
    layers, rows, lanes = sizes.layers, len(shape[0]), len(shape[1])
    fan_in, fan_out, stride = layers.fan_in[l], layers.fan_out[l], layers.vectors[l] * lanes
    before, apart = layers.vectors[l - 1] * lanes, -(-rows // lanes) * lanes
    own = thread * sizes.outputs
    slopes, inputs = own + layers.outputs[l] + tile * rows * stride, own + layers.outputs[l - 1] + tile * rows * before
    for j in range(0, stride, lanes):
        whole = (numbers.outputs, slopes + j, stride)
        target = (numbers.turned, thread * sizes.turned + j * apart, apart)
        pack(shape, whole, (numbers.counting, 0), target)
    turned, scale = (numbers.turned, thread * sizes.turned), np.float32(numbers.maps[thread, l, SCALE])
    first, full = thread * sizes.numbers + layers.weights[l], len(shape[2]) * lanes
    if numbers.maps[thread, l, LEVEL] > 0:
        first += sizes.threads * sizes.numbers  # the points, behind the states
    for k in range(0, before, lanes):
        outputs = (numbers.outputs, inputs + k, before)
        back(shape, turned, (numbers.states, first + k * full, k), fan_in, fan_out, scale, outputs, outputs)


@internal
def _update_panel(shape, numbers, sizes, place, thread, factor):
    """Add factor times the gradient of a tile to one panel of weights."""
    l, p, tile = place
    layers, rows, lanes = sizes.layers, len(shape[0]), len(shape[1])
    stride, fan_in = layers.vectors[l] * lanes, layers.fan_in[l]
    inputs, count = _inputs(shape, numbers, sizes, (l, tile), thread)
    slopes = thread * sizes.outputs + layers.outputs[l] + tile * rows * stride + p * lanes
    weights = thread * sizes.numbers + layers.weights[l] + p * fan_in * lanes
    outputs = (numbers.outputs, slopes, stride)
    update(shape, inputs, (numbers.states, weights), count, outputs, factor)


@internal
def _update_bias(numbers, sizes, rows, l, thread, factor):
    """Add factor times the gradient of so many rows to the biases of a layer."""
    layers, lanes, size = sizes.layers, sizes.lanes, len(sizes.lanes)
    bias, columns = (thread * sizes.numbers + layers.bias[l]) // size, layers.vectors[l]
    first = (thread * sizes.outputs + layers.outputs[l]) // size
    for j in range(columns):
        total = load(lanes, numbers.outputs, first + j)
        for b in range(1, rows):
            total += load(lanes, numbers.outputs, first + b * columns + j)
        store(numbers.states, bias + j, load(lanes, numbers.states, bias + j) + total * factor)


@internal
def _map(numbers, sizes, l, thread, cell, k):
    """The proximal map after step k: the next gradient is taken at its point; in mirror descent it is the state, too."""
    maps, layers, size = numbers.maps, sizes.layers, len(sizes.lanes)
    place, vectors = thread * sizes.numbers + layers.weights[l], layers.fan_in[l] * layers.vectors[l]
    scale, t = maps[thread, l, SCALE], numbers.cells.step[cell]
    if sizes.dual:
        scale, t = 1.0, np.float64(numbers.walked[cell]) + t * (k + 1)
    elif scale < SMALLEST:
        for j in range(place // size, place // size + vectors):
            store(numbers.states, j, load(sizes.lanes, numbers.states, j) * np.float32(scale))
        scale = 1.0
    strengths, guess = numbers.cells.strengths, maps[thread, l, GUESS]
    level, scale = proximal(sizes, strengths, cell, t, (numbers.states, place), vectors, scale, guess)
    maps[thread, l, LEVEL], maps[thread, l, SCALE] = level, scale
    if level > 0:
        maps[thread, l, GUESS] = level
