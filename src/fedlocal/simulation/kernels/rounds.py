"""The rounds of the linear engine, compiled: what the server does, and threads that share its clients and its columns."""

from typing import NamedTuple

import numpy as np

from fedlocal.simulation.kernels.barrier import meet, share
from fedlocal.simulation.kernels.buffers import DUAL, MIRROR
from fedlocal.simulation.kernels.frozen_gradient import draw, gather, look, merge
from fedlocal.simulation.kernels.jit import entry, inlined, internal
from fedlocal.simulation.kernels.local_steps import idle_steps, kept_aside, run_clients, soft
from fedlocal.simulation.kernels.simd import load, spread, store


class StepCounts(NamedTuple):
    """The numbers of local steps in a round."""

    mean: float
    fewest: int
    most: int


@entry
def run_rounds(rows, sampling, numbers, sizes, meeting, thread):
    """What one thread does of the rounds; the server's state is in `numbers` before and after. Returns how many there were."""
    rounds = sampling.clients.shape[0]
    left, right = share(sizes.width, thread, sizes.threads)
    for r in range(rounds):
        _start(numbers, sizes, left, right)
        if len(sizes.kind) == DUAL and thread == 0:
            _thresholds(numbers, sizes)
        counts = _count_steps(sampling, numbers, sizes, thread, r)
        meet(meeting, thread)
        if sizes.frozen:
            look(numbers, sizes, left, right)
            draw(sampling, numbers, sizes, thread, r)
            meet(meeting, thread)
            merge(numbers, sizes, thread)
            gather(rows, numbers, sizes, thread)
        else:
            run_clients(rows, sampling, numbers, sizes, thread, r)
        meet(meeting, thread)
        for l in range(len(sizes.lanes)):
            numbers.finite[thread, l] = True
        for j in range(left, right):
            for i in range(sizes.size - 1, -1, -1):
                _mean(numbers, sizes, counts, thread, i, j)
            _update(numbers, sizes, counts, thread, j)
        meet(meeting, thread)
        if not _finish(numbers, sizes, counts, thread, np.int64(sampling.first) + r + 1):
            return r + 1
    return rounds


@internal
def _start(numbers, sizes, left, right):
    """Columns left..right of what clients begin with."""
    lanes, width, number = sizes.lanes, sizes.width, sizes.number
    for i in range(sizes.size):
        place = sizes.places.start + i * number
        for j in range(left, right):
            value = load(lanes, numbers.server, place) * load(lanes, numbers.vectors, j)
            for h in range(1, number):
                value += load(lanes, numbers.server, place + h) * load(lanes, numbers.vectors, h * width + j)
            store(numbers.beginning, i * width + j, spread(lanes, numbers.beginning, value))


@internal
def _thresholds(numbers, sizes):
    """DUAL: the proximal maps of this round's steps."""
    lanes, places = sizes.lanes, sizes.places
    for k in range(sizes.most_steps):
        t = load(lanes, numbers.walked, 0) + load(lanes, numbers.server, places.step) * np.float64(k)
        threshold = t * load(lanes, numbers.server, places.strengths)
        store(numbers.local, places.threshold + k, spread(lanes, numbers.local, threshold))
        query = 1.0 / (t * load(lanes, numbers.server, places.strengths + 1) + 1.0)
        store(numbers.local, places.query + k, spread(lanes, numbers.local, query))


@internal
def _count_steps(sampling, numbers, sizes, thread, r):
    """The numbers of steps in round r; `by_steps` becomes the weight of the clients that take so many."""
    table = thread * (sizes.most_steps + 1)
    for k in range(sizes.most_steps + 1):
        numbers.by_steps[table + k] = 0
    mean, fewest, most = 0.0, sizes.most_steps, 0
    for s in range(sampling.clients.shape[1]):
        steps, weight = sampling.steps[sampling.clients[r, s]], sampling.weights[r, s]
        numbers.by_steps[table + steps] += weight
        mean += weight * steps
        fewest, most = min(fewest, steps), max(most, steps)
    return StepCounts(mean, fewest, most)


@inlined
def _mean(numbers, sizes, counts, thread, i, j):
    """The mean over clients of their last vector i in column j, to the first thread's total: what they added up (gradients, as
    vector 0, where all are at one point; so the last i comes first) and what all of them began with."""
    lanes, places, size, width, free = sizes.lanes, sizes.places, sizes.size, sizes.width, j == sizes.dimension
    added = 0 if sizes.frozen else i
    mean = load(lanes, numbers.totals, added * width + j)
    for t in range(1, sizes.threads):
        mean += load(lanes, numbers.totals, (t * size + added) * width + j)
    if sizes.frozen:
        mean *= load(lanes, numbers.local, places.free_gain + i) * -1.0
        jump = places.jump + ((size if free else 0) + i) * size
        for h in range(size):
            mean += load(lanes, numbers.local, jump + h) * load(lanes, numbers.beginning, h * width + j)
    elif sizes.touched and not free:
        for k in range(counts.fewest, counts.most + 1):
            weight = numbers.by_steps[thread * (sizes.most_steps + 1) + k]
            if weight != 0:
                if len(sizes.kind) == MIRROR:
                    mean += idle_steps(numbers.local, load(lanes, numbers.beginning, j), k, places, lanes) * weight
                else:
                    power = places.powers + (kept_aside(k, sizes.period) * size + i) * size
                    for h in range(size):
                        start = load(lanes, numbers.beginning, h * width + j)
                        mean += load(lanes, numbers.local, power + h) * start * weight
    store(numbers.totals, i * width + j, mean)


@inlined
def _update(numbers, sizes, counts, thread, j):
    """The server's step in column j, from the mean in the first thread's total."""
    lanes, places, width, number = sizes.lanes, sizes.places, sizes.width, sizes.number
    for i in range(number):
        keep, take = places.keep + i * number, places.take + i * sizes.size
        value = load(lanes, numbers.server, keep) * load(lanes, numbers.vectors, j)
        for h in range(1, number):
            value += load(lanes, numbers.server, keep + h) * load(lanes, numbers.vectors, h * width + j)
        for h in range(sizes.size):
            value += load(lanes, numbers.server, take + h) * load(lanes, numbers.totals, h * width + j)
        if sizes.proximal and j != sizes.dimension:
            t = load(lanes, numbers.server, places.server_step) * load(lanes, numbers.server, places.step) * counts.mean
            value = soft(value, t * load(lanes, numbers.server, places.strengths))
            value /= t * load(lanes, numbers.server, places.strengths + 1) + 1.0
            value = max(value, load(lanes, numbers.server, places.server_bounds))
            value = min(value, load(lanes, numbers.server, places.server_bounds + 1))
        store(numbers.after, thread * number + i, value)
    for i in range(number):
        for l in range(len(lanes)):
            if numbers.diverged[thread, l] < 0:  # otherwise it stays as it was
                numbers.vectors[i * width + j, l] = numbers.after[thread * number + i, l]
                if not np.isfinite(numbers.vectors[i * width + j, l]):
                    numbers.finite[thread, l] = False


@internal
def _finish(numbers, sizes, counts, thread, done):
    """Write down which lanes diverged in the round that ends, after which `done` are done; return True if any goes on."""
    places, number, alive = sizes.places, numbers.local.dtype.type, False
    for l in range(len(sizes.lanes)):
        if numbers.diverged[thread, l] < 0:
            walked = numbers.server[places.server_step, l] * numbers.server[places.step, l] * counts.mean
            numbers.walked[thread, l] = number(numbers.walked[thread, l] + walked)  # however the run is cut
            finite = True
            for t in range(sizes.threads):
                finite = finite and numbers.finite[t, l]
            if not finite:
                numbers.diverged[thread, l] = done
            alive = alive or finite
    return alive
