"""The rounds of the network engine, compiled: threads that share the clients of all cells, and the server's step."""

import numpy as np

from fedlocal.simulation.kernels.barrier import meet
from fedlocal.simulation.kernels.jit import entry, internal
from fedlocal.simulation.kernels.networks.buffers import FREE
from fedlocal.simulation.kernels.networks.local_steps import add_client, run_client
from fedlocal.simulation.kernels.networks.microkernels import reduced, shrunk
from fedlocal.simulation.kernels.networks.projections import proximal
from fedlocal.simulation.kernels.simd import load, store


@entry
def run_rounds(examples, minibatches, numbers, sizes, meeting, thread):
    """What one thread does of the rounds; the servers' states are in `numbers` before and after. Returns how many there were."""
    rounds = minibatches.clients.shape[0]
    for r in range(rounds):
        for cell in range(thread, sizes.cells, sizes.threads):
            _begin(numbers, sizes, cell)
        meet(meeting, thread)
        _run_clients(examples, minibatches, numbers, sizes, r, thread)
        meet(meeting, thread)
        for cell in range(thread, sizes.cells, sizes.threads):
            if numbers.diverged[cell] < 0:
                _update(numbers, sizes, cell, _mean_steps(minibatches, r), minibatches.first + r + 1)
        meet(meeting, thread)
        if _count_alive(numbers, sizes) == 0:
            return r + 1
    return rounds


@internal
def _count_alive(numbers, sizes):
    alive = 0
    for cell in range(sizes.cells):
        alive += numbers.diverged[cell] < 0
    return alive


@internal
def _begin(numbers, sizes, cell):
    """The proximal map through which clients see the server's point: that of dual averaging, or none."""
    layers = sizes.layers
    for l in range(len(layers.fan_in)):
        level, scale = 0.0, 1.0
        if sizes.dual and sizes.on_clients and sizes.psi != FREE and numbers.diverged[cell] < 0:
            place, vectors = cell * sizes.numbers + layers.weights[l], layers.fan_in[l] * layers.vectors[l]
            t, weights = np.float64(numbers.walked[cell]), (numbers.server, place)
            level, scale = proximal(sizes, numbers.cells.strengths, cell, t, weights, vectors, 1.0, 0.0)
        numbers.begins[cell, l, 0], numbers.begins[cell, l, 1] = level, scale


@internal
def _run_clients(examples, minibatches, numbers, sizes, r, thread):
    """The clients of all cells, in order, are cut into one part for each thread with about as many local steps."""
    many, total, alive = minibatches.clients.shape[1], 0, _count_alive(numbers, sizes)
    for s in range(many):
        total += minibatches.steps[minibatches.clients[r, s]]
    done, mine = 0, -1  # steps of the clients before, and the cell of the thread's last client
    numbers.cut[thread] = -1
    for cell in range(sizes.cells):
        if numbers.diverged[cell] < 0:
            for s in range(many):
                steps = minibatches.steps[minibatches.clients[r, s]]
                if (2 * done + steps) * sizes.threads // (2 * total * alive) == thread:
                    run_client(examples, minibatches, numbers, sizes, (r, s), thread, cell)
                    if mine != cell and s > 0:
                        numbers.cut[thread] = cell
                    slot = sizes.cells + thread if numbers.cut[thread] == cell else cell
                    add_client(
                        numbers, sizes, thread, cell, slot if mine == cell else -1 - slot, minibatches.weights[r, s]
                    )
                    mine = cell
                done += steps


@internal
def _mean_steps(minibatches, r):
    """The mean over the clients of a round of their local steps."""
    mean = 0.0
    for s in range(minibatches.clients.shape[1]):
        mean += minibatches.weights[r, s] * minibatches.steps[minibatches.clients[r, s]]
    return mean


@internal
def _update(numbers, sizes, cell, mean_steps, done):
    """The server's step of a cell; write down that it diverged if it is not finite afterwards."""
    cells, lanes, layers, size = numbers.cells, sizes.lanes, sizes.layers, len(sizes.lanes)
    keep, take = np.float32(cells.keep[cell]), np.float32(cells.take[cell])
    begin, length = cell * sizes.numbers // size, sizes.numbers // size
    odd = load(lanes, numbers.server, begin) * 0.0
    for j in range(length):
        mean = load(lanes, numbers.totals, begin + j)
        for t in range(sizes.threads):
            if numbers.cut[t] == cell:
                mean += load(lanes, numbers.totals, (sizes.cells + t) * length + j)
        value = load(lanes, numbers.server, begin + j) * keep + mean * take
        odd += value * 0.0  # nan unless it is finite
        store(numbers.server, begin + j, value)
    walked = cells.server_step[cell] * cells.step[cell] * mean_steps
    if sizes.on_server:
        for l in range(len(layers.fan_in)):
            place, vectors = cell * sizes.numbers + layers.weights[l], layers.fan_in[l] * layers.vectors[l]
            weights = (numbers.server, place)
            found = proximal(sizes, cells.server_strengths, cell, walked, weights, vectors, 1.0, 0.0)
            level, scale = np.float32(found[0]), np.float32(found[1])
            if level > 0 or scale != 1:
                for j in range(place // size, place // size + vectors):
                    store(numbers.server, j, shrunk(load(lanes, numbers.server, j), level) * scale)
    numbers.walked[cell] += np.float32(walked)
    if reduced(odd)[1] != 0:
        numbers.diverged[cell] = done
