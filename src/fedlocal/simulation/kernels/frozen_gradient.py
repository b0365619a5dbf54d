"""Gradients and losses of many examples at one point: rounds without local steps, and evaluations. Plain loops, for Numba."""

import numpy as np

from fedlocal.simulation.kernels.barrier import share
from fedlocal.simulation.kernels.buffers import DUAL
from fedlocal.simulation.kernels.jit import entry, internal
from fedlocal.simulation.kernels.local_steps import draw_client, slope_of, soft
from fedlocal.simulation.kernels.simd import exp, load, log1p, spread, store
from fedlocal.simulation.kernels.threefry import round_key
from fedlocal.simulation.kernels.unchecked import at, begin_of, column, prefetch, value_of

AHEAD = 6  # examples that are asked for before they are needed


@internal
def look(numbers, sizes, left, right):
    """Columns left..right of the one point at which all gradients of a round are taken."""
    lanes, places, dimension = sizes.lanes, sizes.places, sizes.dimension
    for j in range(left, right):
        query = places.free_query if j == dimension else places.query
        value = load(lanes, numbers.beginning, j)
        if len(sizes.kind) == DUAL and j < dimension:
            value = soft(value, load(lanes, numbers.local, places.threshold)) * load(lanes, numbers.local, query)
            value = max(value, load(lanes, numbers.local, places.bounds))
            value = min(value, load(lanes, numbers.local, places.bounds + 1))
        else:
            value *= load(lanes, numbers.local, query)
        for i in range(1, sizes.size):
            value += load(lanes, numbers.local, query + i) * load(lanes, numbers.beginning, i * sizes.width + j)
        store(numbers.point, j, value)


@internal
def draw(sampling, numbers, sizes, thread, r):
    """What the thread's clients of round r draw: as a list, or counted."""
    drawn, counts, examples, amounts = numbers.drawn, numbers.counts, numbers.examples, numbers.amounts
    clients, steps_of, weights, shares = sampling.clients, sampling.steps, sampling.weights, sampling.shares
    client_starts, client_sizes, given = sampling.starts, sampling.sizes, sampling.drawn
    key = round_key(sampling.seed, np.uint32(sampling.first + np.uint32(r)))
    counted, batch = thread * (counts.shape[0] // sizes.threads), sizes.batch
    place = thread * sizes.most_steps * batch
    low, high = share(clients.shape[1], thread, sizes.threads)
    for s in range(low, high):
        client = at(clients, r * clients.shape[1] + s)
        start, many = at(client_starts, client), at(client_sizes, client)
        steps, weight = at(steps_of, client), at(weights, r * clients.shape[1] + s)
        if batch == 0:
            for i in range(many):
                counts[counted + start + i] += weight * steps / many
            continue
        draw_client(given, key, client, start, many, steps, batch, r, s, drawn, place)
        for i in range(steps * batch):
            amount = weight / batch
            if shares.shape[0] > 0:
                amount = weight * shares[r, s, i // batch, i % batch]
            if counts.shape[0] > 0:
                counts[counted + at(drawn, place + i)] += amount
            else:
                examples[s * steps * batch + i] = at(drawn, place + i)
                amounts[s * steps * batch + i] = amount


@internal
def merge(numbers, sizes, thread):
    """What all threads counted of the thread's share of the examples."""
    counts, amounts, threads = numbers.counts, numbers.amounts, sizes.threads
    if counts.shape[0] > 0:
        begin, end = share(amounts.shape[0], thread, threads)
        stride = counts.shape[0] // threads
        for e in range(begin, end):
            amounts[e] = 0
            for t in range(threads):
                amounts[e] += counts[t * stride + e]
                counts[t * stride + e] = 0


@internal
def gather(rows, numbers, sizes, thread):
    """The thread's total becomes the sum of the gradients of its share of the list, each times its amount."""
    lanes, dimension, totals = sizes.lanes, sizes.dimension, numbers.totals
    starts, columns, values, targets = rows.starts, rows.columns, rows.values, rows.targets
    number, intercept, total = targets.dtype.type, sizes.width > dimension, thread * sizes.size * sizes.width
    begin, end = share(numbers.amounts.shape[0], thread, sizes.threads)
    for j in range(total, total + sizes.width):
        store(totals, j, spread(lanes, totals, 0.0))
    for i in range(begin, end):
        if numbers.amounts[i] == 0:
            continue
        example = np.int64(at(numbers.examples, i))
        if i + AHEAD < end:
            place = begin_of(starts, np.int64(at(numbers.examples, i + AHEAD)), dimension)
            prefetch(columns, place)
            prefetch(values, place)
        first, last = begin_of(starts, example, dimension), begin_of(starts, example + 1, dimension)
        z = spread(lanes, targets, 0.0)
        if intercept:
            z = load(lanes, numbers.point, dimension)
        for j in range(first, last):
            z += load(lanes, numbers.point, column(columns, j, first)) * value_of(values, targets, j)
        slope = spread(lanes, totals, slope_of(z, at(targets, example), number(numbers.amounts[i]), sizes.logistic))
        for j in range(first, last):
            c = total + column(columns, j, first)
            store(totals, c, load(lanes, totals, c) + slope * value_of(values, targets, j))
        if intercept:
            store(totals, total + dimension, load(lanes, totals, total + dimension) + slope)


@entry
def losses(rows, weights, points, found, sizes, thread):
    """Row `thread` of `found` becomes the sum of weight times loss of the thread's examples at points (width, L), in float64."""
    starts, columns, values, targets = rows.starts, rows.columns, rows.values, rows.targets
    lanes, dimension, intercept = sizes.lanes, sizes.dimension, sizes.width > sizes.dimension
    low, high = share(targets.shape[0], thread, sizes.threads)
    total = spread(lanes, points, 0.0)
    for example in range(low, high):
        if weights[example] == 0:
            continue
        first, last = begin_of(starts, example, dimension), begin_of(starts, example + 1, dimension)
        z = spread(lanes, points, 0.0)
        if intercept:
            z = load(lanes, points, dimension)
        for j in range(first, last):
            z += load(lanes, points, column(columns, j, first)) * value_of(values, targets, j)
        y = np.float64(targets[example])
        if sizes.logistic:
            z *= y
            loss = log1p(exp(min(z, z * -1.0))) - min(z, 0.0)
        else:
            loss = (z - y) * (z - y)
        total += loss * weights[example]
    store(found, thread, total)
