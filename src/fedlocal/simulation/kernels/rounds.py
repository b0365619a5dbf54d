"""The rounds of the linear engine, compiled: what the server does, and threads that share its clients and its columns.

How many lanes there are (the length of the tuple `lanes`) and what kind of method it is (that of the tuple `kind`) are known to
the compiler.
"""

import numpy as np

from fedlocal.simulation.kernels.barrier import meet
from fedlocal.simulation.kernels.buffers import DUAL, MIRROR
from fedlocal.simulation.kernels.frozen_gradient import draw, gather, look, merge
from fedlocal.simulation.kernels.jit import compiled, inlined
from fedlocal.simulation.kernels.local_steps import idle_steps, kept_aside, soft, walk
from fedlocal.simulation.kernels.simd import load, spread, store


@compiled
def run_rounds(thread, meeting, rows, sampling, numbers, places, sizes, kind, lanes):
    """What one thread does of the rounds; the server's state is in `numbers` before and after. Returns how many there were."""
    threads, width, clients = sizes.threads, sizes.width, sampling.clients.shape[1]
    low, high = clients * thread // threads, clients * (thread + 1) // threads
    left, right = width * thread // threads, width * (thread + 1) // threads
    entries, number = numbers.amounts.shape[0], rows.targets.dtype.type
    begin, end = entries * thread // threads, entries * (thread + 1) // threads
    table = thread * (sizes.most_steps + 1)
    for r in range(sampling.clients.shape[0]):
        _start(numbers.server, numbers.vectors, numbers.beginning, left, right, places.start, sizes, lanes)
        if len(kind) == DUAL and thread == 0:
            _thresholds(numbers.local, numbers.server, numbers.walked, places, sizes.most_steps, lanes)
        length, fewest, most = _lengths(sampling, numbers.by_steps, r, table, sizes.most_steps)
        meet(meeting, thread)
        if sizes.frozen:
            look(numbers.local, numbers.beginning, numbers.point, left, right, places, sizes, kind, lanes)
            draw(sampling, numbers, sizes, thread, r, low, high)
            meet(meeting, thread)
            merge(numbers.counts, numbers.amounts, begin, end, threads)
            gather(
                rows.starts,
                rows.columns,
                rows.values,
                rows.targets,
                numbers.examples,
                numbers.amounts,
                numbers.point,
                numbers.totals,
                thread * sizes.size * width,
                begin,
                end,
                sizes,
                lanes,
            )
        else:
            walk(
                rows.starts,
                rows.columns,
                rows.values,
                rows.targets,
                sampling,
                numbers.local,
                numbers.beginning,
                numbers.states,
                numbers.stamps,
                numbers.totals,
                numbers.changes,
                numbers.drawn,
                places,
                sizes,
                thread,
                r,
                low,
                high,
                kind,
                lanes,
            )
        meet(meeting, thread)
        for l in range(len(lanes)):
            numbers.finite[thread, l] = True
        for j in range(left, right):
            for i in range(sizes.size - 1, -1, -1):
                _mean(
                    numbers.local,
                    numbers.beginning,
                    numbers.totals,
                    numbers.by_steps,
                    table,
                    fewest,
                    most,
                    i,
                    j,
                    places,
                    sizes,
                    kind,
                    lanes,
                )
            _update(
                numbers.server,
                numbers.vectors,
                numbers.totals,
                numbers.after,
                numbers.diverged,
                numbers.finite,
                thread,
                length,
                j,
                places,
                sizes,
                lanes,
            )
        meet(meeting, thread)
        alive = False
        for l in range(len(lanes)):
            if numbers.diverged[thread, l] < 0:
                walked = numbers.server[places.server_step, l] * numbers.server[places.step, l] * length
                numbers.walked[thread, l] = number(numbers.walked[thread, l] + walked)  # however the run is cut
                finite = True
                for t in range(threads):
                    finite = finite and numbers.finite[t, l]
                if not finite:
                    numbers.diverged[thread, l] = np.int64(sampling.first) + r + 1
                alive = alive or finite
        if not alive:
            return r + 1
    return sampling.clients.shape[0]


@compiled
def _start(server, vectors, beginning, left, right, place, sizes, lanes):
    """Columns left..right of what clients begin with."""
    width, number = sizes.width, sizes.number
    for i in range(sizes.size):
        for j in range(left, right):
            value = load(lanes, server, place + i * number) * load(lanes, vectors, j)
            for h in range(1, number):
                value += load(lanes, server, place + i * number + h) * load(lanes, vectors, h * width + j)
            store(beginning, i * width + j, spread(lanes, beginning, value))


@compiled
def _thresholds(local, server, walked, places, steps, lanes):
    """DUAL: the proximal maps of this round's steps."""
    for k in range(steps):
        t = load(lanes, walked, 0) + load(lanes, server, places.step) * np.float64(k)
        threshold = t * load(lanes, server, places.strengths)
        store(local, places.threshold + k, spread(lanes, local, threshold))
        query = 1.0 / (t * load(lanes, server, places.strengths + 1) + 1.0)
        store(local, places.query + k, spread(lanes, local, query))


@compiled
def _lengths(sampling, by_steps, r, table, most_steps):
    """The mean, the smallest and the largest number of steps in round r; `by_steps` becomes the weight of the clients that take
    so many."""
    for k in range(most_steps + 1):
        by_steps[table + k] = 0
    length, fewest, most = 0.0, most_steps, 0
    for s in range(sampling.clients.shape[1]):
        steps, weight = sampling.steps[sampling.clients[r, s]], sampling.weights[r, s]
        by_steps[table + steps] += weight
        length += weight * steps
        fewest, most = min(fewest, steps), max(most, steps)
    return length, fewest, most


@inlined
def _mean(local, beginning, totals, by_steps, table, fewest, most, i, j, places, sizes, kind, lanes):
    """The mean over clients of their last vector i in column j, to the first thread's total: what they added up (gradients, as
    vector 0, where all are at one point; so the last i comes first) and what all of them began with."""
    size, width, free = sizes.size, sizes.width, j == sizes.dimension
    added = 0 if sizes.frozen else i
    mean = load(lanes, totals, added * width + j)
    for t in range(1, sizes.threads):
        mean += load(lanes, totals, (t * size + added) * width + j)
    if sizes.frozen:
        mean *= load(lanes, local, places.free_gain + i) * -1.0
        jump = places.jump + ((size if free else 0) + i) * size
        for h in range(size):
            mean += load(lanes, local, jump + h) * load(lanes, beginning, h * width + j)
    elif sizes.touched and not free:
        for k in range(fewest, most + 1):
            weight = by_steps[table + k]
            if weight != 0:
                if len(kind) == MIRROR:
                    mean += idle_steps(local, load(lanes, beginning, j), k, places, lanes) * weight
                else:
                    power = places.powers + (kept_aside(k, sizes.period) * size + i) * size
                    for h in range(size):
                        mean += load(lanes, local, power + h) * load(lanes, beginning, h * width + j) * weight
    store(totals, i * width + j, mean)


@inlined
def _update(server, vectors, totals, after, diverged, finite, thread, length, j, places, sizes, lanes):
    """The server's step in column j, from the mean in the first thread's total."""
    width, number = sizes.width, sizes.number
    for i in range(number):
        value = load(lanes, server, places.keep + i * number) * load(lanes, vectors, j)
        for h in range(1, number):
            value += load(lanes, server, places.keep + i * number + h) * load(lanes, vectors, h * width + j)
        for h in range(sizes.size):
            value += load(lanes, server, places.take + i * sizes.size + h) * load(lanes, totals, h * width + j)
        if sizes.proximal and j != sizes.dimension:
            t = load(lanes, server, places.server_step) * load(lanes, server, places.step) * length
            value = soft(value, t * load(lanes, server, places.strengths))
            value /= t * load(lanes, server, places.strengths + 1) + 1.0
            value = min(
                max(value, load(lanes, server, places.server_bounds)), load(lanes, server, places.server_bounds + 1)
            )
        store(after, thread * number + i, value)
    for i in range(number):
        for l in range(len(lanes)):
            if diverged[thread, l] < 0:  # otherwise it stays as it was
                vectors[i * width + j, l] = after[thread * number + i, l]
                if not np.isfinite(vectors[i * width + j, l]):
                    finite[thread, l] = False
