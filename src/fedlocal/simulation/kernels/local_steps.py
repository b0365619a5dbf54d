"""Local steps of clients: each starts where the server is and takes its own minibatches. Plain loops, for Numba.

A thread takes the steps of a few clients in turns, so that the processor works on one while it waits for data of another. Each of
them has a slot: its own part of `states`, `stamps`, `changes` and `drawn`.
"""

from typing import NamedTuple

import numpy as np

from fedlocal.simulation.kernels.barrier import share
from fedlocal.simulation.kernels.buffers import DUAL, MIRROR, ONE, PAIR
from fedlocal.simulation.kernels.jit import inlined, internal
from fedlocal.simulation.kernels.simd import exp, load, spread, store
from fedlocal.simulation.kernels.threefry import draw_rows, round_key
from fedlocal.simulation.kernels.unchecked import at, begin_of, column, prefetch, value_of


class Minibatch(NamedTuple):
    """The examples of one step of the client in a slot."""

    slot: int
    begin: int | np.int64  # first entry of `drawn`, or, for full gradients, first example
    examples: int | np.int64
    after: int  # how many examples of the next step are drawn behind these


class LastVectors(NamedTuple):
    """Where the vectors of clients with the same weight and number of steps are after their steps, and what becomes of them."""

    slot: int  # the first client's; others have the next
    steps: int
    power: int  # place of what is kept aside, A^k
    weight: float
    total: int  # first row of the thread's total


@internal
def soft(x, t):
    """Nearer to zero by t, and zero where that would go beyond; nan stays nan."""
    return x - min(max(x, t * -1.0), t)


@internal
def idle_steps(local, x, steps, places, lanes):
    """MIRROR: what a coordinate becomes in so many steps without gradient, at least one. After the first it is within the
    bounds, and so are all that follow, but for one that shrinks towards zero and meets a bound, where it stays."""
    lower, upper = load(lanes, local, places.bounds), load(lanes, local, places.bounds + 1)
    x = soft(x * load(lanes, local, places.decay + 1), load(lanes, local, places.shrink + 1))
    x = min(max(x, lower), upper)
    x = soft(x * load(lanes, local, places.decay + steps - 1), load(lanes, local, places.shrink + steps - 1))
    return min(max(x, lower), upper)


@internal
def kept_aside(k, period):
    """How many of k steps are kept aside at the end."""
    return k - (k - 1) // period * period


@internal
def slope_of(z, y, share, logistic):
    """The derivative of an example's loss by its score, times its share of the minibatch."""
    if logistic:
        return (-y * share) / (exp(z * y) + type(y)(1))
    return (z - y) * (share + share)


@internal
def run_clients(rows, sampling, numbers, sizes, thread, r):
    """Local steps of the thread's clients in round r. Its total becomes the sum of weight times their last vectors, or, where
    only what was touched counts, of what they are beyond those of a client without examples."""
    many, in_step, period = sampling.clients.shape[1], sizes.in_step, sizes.period
    low, high = share(many, thread, sizes.threads)
    slot = thread * in_step
    _clear(numbers, sizes, thread)
    for m in range(low, high, in_step):
        group = min(in_step, high - m)
        longest = _draw_group(sampling, numbers, sizes, slot, r, m, group)
        p = -1
        for k in range(longest):
            p = p + 1 if p + 1 < period else 0
            for g in range(group):
                client = at(sampling.clients, r * many + m + g)
                if k < at(sampling.steps, client):
                    if k > 0 and p == 0:
                        _renew(numbers, sizes, slot + g)
                    _score(rows, numbers, sizes, _minibatch(sampling, sizes, slot + g, client, k), k, p)
            for g in range(group):
                client = at(sampling.clients, r * many + m + g)
                if k < at(sampling.steps, client):
                    minibatch = _minibatch(sampling, sizes, slot + g, client, k)
                    _slope(rows, sampling, numbers, sizes, minibatch, (r, m + g, k))
            for g in range(group):
                client = at(sampling.clients, r * many + m + g)
                if k < at(sampling.steps, client):
                    _step(rows, numbers, sizes, _minibatch(sampling, sizes, slot + g, client, k), p)
        _add_group(rows, sampling, numbers, sizes, thread, r * many + m, group)


@internal
def draw_client(given, key, client, start, size, steps, batch, r, s, out, place):
    """The examples of the s-th client of round r, minibatch after minibatch."""
    if given.shape[0] > 0:
        for k in range(steps):
            for b in range(batch):
                out[place + k * batch + b] = given[r, s, k, b]
    elif batch > 0:
        draw_rows(key, client, start, size, out, place, steps * batch)


@internal
def _clear(numbers, sizes, thread):
    """Set the thread's total to zero, and its slots to what clients begin with."""
    lanes, length = sizes.lanes, sizes.size * sizes.width
    for j in range(thread * length, (thread + 1) * length):
        store(numbers.totals, j, spread(lanes, numbers.totals, 0.0))
    for slot in range(thread * sizes.in_step, (thread + 1) * sizes.in_step):
        for j in range(length):
            store(numbers.states, slot * length + j, load(lanes, numbers.beginning, j))
        if len(sizes.kind) == MIRROR:
            for j in range(sizes.width):
                numbers.stamps[slot * sizes.width + j] = 0


@internal
def _draw_group(sampling, numbers, sizes, slot, r, m, group):
    """Draw the examples of clients m, m + 1, ... of round r; return the largest number of their steps."""
    key = round_key(sampling.seed, np.uint32(sampling.first + np.uint32(r)))
    longest = 0
    for g in range(group):
        client = at(sampling.clients, r * sampling.clients.shape[1] + m + g)
        steps, start, size = at(sampling.steps, client), at(sampling.starts, client), at(sampling.sizes, client)
        place = (slot + g) * sizes.most_steps * sizes.batch
        draw_client(sampling.drawn, key, client, start, size, steps, sizes.batch, r, m + g, numbers.drawn, place)
        longest = max(longest, steps)
    return longest


@inlined
def _minibatch(sampling, sizes, slot, client, k):
    """The minibatch of step k of the client in a slot."""
    begin, count, after = (slot * sizes.most_steps + k) * sizes.batch, sizes.batch, 0
    if sizes.batch == 0:
        begin, count = np.int64(at(sampling.starts, client)), np.int64(at(sampling.sizes, client))
    elif k + 1 < at(sampling.steps, client):
        after = sizes.batch
    return Minibatch(slot, begin, count, after)


@internal
def _example(drawn, batch, place):
    """The example at a place of a minibatch: as drawn, or, for full gradients, the place itself."""
    return np.int64(at(drawn, place)) if batch > 0 else place


@internal
def _renew(numbers, sizes, slot):
    """U <- A^period U: nothing is kept aside any more."""
    lanes, width = sizes.lanes, sizes.width
    power = sizes.places.powers + sizes.period * sizes.size * sizes.size
    first = slot * sizes.size * width
    for j in range(first, first + sizes.dimension):
        a = load(lanes, numbers.states, j)
        if len(sizes.kind) == PAIR:
            b = load(lanes, numbers.states, j + width)
            x = load(lanes, numbers.local, power + 2) * a + load(lanes, numbers.local, power + 3) * b
            store(numbers.states, j + width, x)
            a = load(lanes, numbers.local, power) * a + load(lanes, numbers.local, power + 1) * b
            store(numbers.states, j, a)
        else:
            store(numbers.states, j, load(lanes, numbers.local, power) * a)


@inlined
def _score(rows, numbers, sizes, minibatch, k, p):
    """Scores of a minibatch in step k, the p-th since the linear part was last renewed. What slopes need is asked for."""
    lanes, places, dimension = sizes.lanes, sizes.places, sizes.dimension
    first, following = minibatch.slot * sizes.size * sizes.width, minibatch.begin + minibatch.examples
    for b in range(minibatch.after):
        prefetch(rows.starts, np.int64(at(numbers.drawn, following + b)))
    for b in range(minibatch.examples):
        example = _example(numbers.drawn, sizes.batch, minibatch.begin + b)
        prefetch(rows.targets, example)
        z = _product(rows, numbers, sizes, example, minibatch.slot, k, p)
        if sizes.width > dimension:
            query = places.free_query
            z += load(lanes, numbers.local, query) * load(lanes, numbers.states, first + dimension)
            if len(sizes.kind) == PAIR:
                other = load(lanes, numbers.states, first + sizes.width + dimension)
                z += load(lanes, numbers.local, query + 1) * other
        store(numbers.changes, minibatch.slot * sizes.most_examples + b, z)


@inlined
def _product(rows, numbers, sizes, example, slot, k, p):
    """The product of an example and the point at which the client in a slot takes its gradient."""
    lanes, places, width = sizes.lanes, sizes.places, sizes.width
    first, query = slot * sizes.size * width, places.query + p * sizes.size
    begin = begin_of(rows.starts, example, sizes.dimension)
    end = begin_of(rows.starts, example + 1, sizes.dimension)
    z = spread(lanes, rows.targets, 0.0)
    if len(sizes.kind) == ONE:
        for j in range(begin, end):
            x = load(lanes, numbers.states, first + column(rows.columns, j, begin))
            z += x * value_of(rows.values, rows.targets, j)
        z *= load(lanes, numbers.local, query)
    elif len(sizes.kind) == PAIR:
        other = spread(lanes, rows.targets, 0.0)
        for j in range(begin, end):
            c, value = first + column(rows.columns, j, begin), value_of(rows.values, rows.targets, j)
            z += load(lanes, numbers.states, c) * value
            other += load(lanes, numbers.states, c + width) * value
        z = load(lanes, numbers.local, query) * z + load(lanes, numbers.local, query + 1) * other
    elif len(sizes.kind) == DUAL:
        t, u = load(lanes, numbers.local, places.threshold + k), load(lanes, numbers.local, query)
        lower, upper = load(lanes, numbers.local, places.bounds), load(lanes, numbers.local, places.bounds + 1)
        for j in range(begin, end):
            x = soft(load(lanes, numbers.states, first + column(rows.columns, j, begin)), t)
            z += min(max(x * u, lower), upper) * value_of(rows.values, rows.targets, j)
    else:
        for j in range(begin, end):
            c = column(rows.columns, j, begin)
            x = load(lanes, numbers.states, first + c)
            idle = k - at(numbers.stamps, slot * width + c)
            if idle > 0:
                x = idle_steps(numbers.local, x, idle, places, lanes)
                store(numbers.states, first + c, x)
                numbers.stamps[slot * width + c] = k
            z += x * value_of(rows.values, rows.targets, j)
    return z


@inlined
def _slope(rows, sampling, numbers, sizes, minibatch, draw):
    """Slopes in place of the scores of a minibatch: that of a client in a round and a step, which `draw` names. The next step's
    examples are asked for."""
    number, following = rows.targets.dtype.type, minibatch.begin + minibatch.examples
    for b in range(minibatch.after):
        place = begin_of(rows.starts, np.int64(at(numbers.drawn, following + b)), sizes.dimension)
        prefetch(rows.columns, place)
        prefetch(rows.values, place)
        prefetch(rows.values, place + 8)
    for b in range(minibatch.examples):
        share_of = number(1) / number(minibatch.examples)
        if sampling.shares.shape[0] > 0:
            share_of = sampling.shares[draw[0], draw[1], draw[2], b]
        target = at(rows.targets, _example(numbers.drawn, sizes.batch, minibatch.begin + b))
        place = minibatch.slot * sizes.most_examples + b
        z = load(sizes.lanes, numbers.changes, place)
        store(numbers.changes, place, slope_of(z, target, share_of, sizes.logistic))


@inlined
def _step(rows, numbers, sizes, minibatch, p):
    """One step of the client in a slot, from the slopes of its minibatch."""
    lanes, width = sizes.lanes, sizes.width
    first, gain = minibatch.slot * sizes.size * width, sizes.places.gain + p * sizes.size
    slopes = spread(lanes, rows.targets, 0.0)
    for b in range(minibatch.examples):
        example = _example(numbers.drawn, sizes.batch, minibatch.begin + b)
        begin = begin_of(rows.starts, example, sizes.dimension)
        end = begin_of(rows.starts, example + 1, sizes.dimension)
        z = load(lanes, numbers.changes, minibatch.slot * sizes.most_examples + b)
        slopes += z
        u = load(lanes, numbers.local, gain) * z
        if len(sizes.kind) == PAIR:
            v = load(lanes, numbers.local, gain + 1) * z
            for j in range(begin, end):
                c, value = first + column(rows.columns, j, begin), value_of(rows.values, rows.targets, j)
                store(numbers.states, c, load(lanes, numbers.states, c) - u * value)
                store(numbers.states, c + width, load(lanes, numbers.states, c + width) - v * value)
        else:
            for j in range(begin, end):
                c, value = first + column(rows.columns, j, begin), value_of(rows.values, rows.targets, j)
                store(numbers.states, c, load(lanes, numbers.states, c) - u * value)
    if width > sizes.dimension:
        _step_intercept(numbers, sizes, first + sizes.dimension, slopes)


@inlined
def _step_intercept(numbers, sizes, place, slopes):
    """One step of the intercept, which has no penalty and is not kept aside."""
    lanes, width, transition, gain = sizes.lanes, sizes.width, sizes.places.free_transition, sizes.places.free_gain
    a = load(lanes, numbers.states, place)
    if len(sizes.kind) == PAIR:
        b = load(lanes, numbers.states, place + width)
        x = load(lanes, numbers.local, transition + 2) * a + load(lanes, numbers.local, transition + 3) * b
        store(numbers.states, place + width, x - load(lanes, numbers.local, gain + 1) * slopes)
        a = load(lanes, numbers.local, transition) * a + load(lanes, numbers.local, transition + 1) * b
    else:
        a *= load(lanes, numbers.local, transition)
    store(numbers.states, place, a - load(lanes, numbers.local, gain) * slopes)


@internal
def _add_group(rows, sampling, numbers, sizes, thread, cohort, group):
    """Add the last vectors of a group of clients to the thread's total; their slots become what clients begin with."""
    slot, total = thread * sizes.in_step, thread * sizes.size * sizes.width
    alike = not sizes.touched
    for g in range(1, group):
        alike = alike and at(sampling.weights, cohort + g) == at(sampling.weights, cohort)
        steps = at(sampling.steps, at(sampling.clients, cohort + g))
        alike = alike and steps == at(sampling.steps, at(sampling.clients, cohort))
    pack = group if alike else 1  # clients that are added up before they are weighted
    for g in range(0, group, pack):
        steps, weight = at(sampling.steps, at(sampling.clients, cohort + g)), at(sampling.weights, cohort + g)
        power = sizes.places.powers + kept_aside(steps, sizes.period) * sizes.size * sizes.size
        last = LastVectors(slot + g, steps, power, weight, total)
        if sizes.touched:
            seen = (slot + g) * sizes.most_steps * sizes.batch
            for i in range(seen, seen + steps * sizes.batch):
                example = np.int64(at(numbers.drawn, i))
                begin = begin_of(rows.starts, example, sizes.dimension)
                for j in range(begin, begin_of(rows.starts, example + 1, sizes.dimension)):
                    _add_column(numbers, sizes, last, 1, column(rows.columns, j, begin))
        else:
            for c in range(sizes.dimension):
                _add_column(numbers, sizes, last, pack, c)
    if sizes.width > sizes.dimension:
        for g in range(group):
            _add_intercept(numbers, sizes, slot + g, total, at(sampling.weights, cohort + g))


@inlined
def _add_column(numbers, sizes, last, count, c):
    """Column c of `count` clients: weight times their last vectors (where only what was touched counts, beyond those of an idle
    client, so that a second time adds nothing) goes to the total, and they get back what they began with."""
    lanes, width, places, power, total = sizes.lanes, sizes.width, sizes.places, last.power, last.total
    start = load(lanes, numbers.beginning, c)
    a, b = spread(lanes, numbers.beginning, 0.0), spread(lanes, numbers.beginning, 0.0)
    for slot in range(last.slot, last.slot + count):
        first = slot * sizes.size * width + c
        x = load(lanes, numbers.states, first)
        store(numbers.states, first, start)
        if len(sizes.kind) == MIRROR:
            x = idle_steps(numbers.local, x, last.steps - numbers.stamps[slot * width + c], places, lanes)
            numbers.stamps[slot * width + c] = 0
            if sizes.touched:
                x -= idle_steps(numbers.local, start, last.steps, places, lanes)
        elif sizes.touched:
            x -= start
        a += x
        if len(sizes.kind) == PAIR:
            y, other = load(lanes, numbers.states, first + width), load(lanes, numbers.beginning, width + c)
            store(numbers.states, first + width, other)
            if sizes.touched:
                y -= other
            b += y
    if len(sizes.kind) == PAIR:
        x = load(lanes, numbers.local, power + 2) * a + load(lanes, numbers.local, power + 3) * b
        x = spread(lanes, numbers.totals, x) * last.weight
        store(numbers.totals, total + width + c, load(lanes, numbers.totals, total + width + c) + x)
        a = load(lanes, numbers.local, power) * a + load(lanes, numbers.local, power + 1) * b
    elif len(sizes.kind) != MIRROR:
        a *= load(lanes, numbers.local, power)
    x = spread(lanes, numbers.totals, a) * last.weight
    store(numbers.totals, total + c, load(lanes, numbers.totals, total + c) + x)


@inlined
def _add_intercept(numbers, sizes, slot, total, weight):
    """The same for the intercept, of which nothing is kept aside."""
    for i in range(sizes.size):
        place = i * sizes.width + sizes.dimension
        own = slot * sizes.size * sizes.width + place
        value = spread(sizes.lanes, numbers.totals, load(sizes.lanes, numbers.states, own)) * weight
        store(numbers.totals, total + place, load(sizes.lanes, numbers.totals, total + place) + value)
        store(numbers.states, own, load(sizes.lanes, numbers.beginning, place))
