"""Clients that walk: each from where the server is, its own examples one after the other. Plain loops, for Numba.

A thread walks a few clients in step, so that the processor works on one while it waits for another.
"""

import numpy as np

from fedlocal.simulation.kernels.buffers import DUAL, MIRROR, ONE, PAIR
from fedlocal.simulation.kernels.jit import compiled, inlined
from fedlocal.simulation.kernels.simd import exp, load, spread, store
from fedlocal.simulation.kernels.threefry import draw_rows, round_key
from fedlocal.simulation.kernels.unchecked import at, begin_of, column, prefetch, value_of


@compiled
def soft(x, t):
    """Nearer to zero by t, and zero where that would go beyond; nan stays nan."""
    return x - min(max(x, t * -1.0), t)


@compiled
def idle_steps(local, x, steps, places, lanes):
    """MIRROR: what a coordinate becomes in so many steps without gradient, at least one. After the first it is within the
    bounds, and so are all that follow, but for one that shrinks towards zero and meets a bound, where it stays."""
    lower, upper = load(lanes, local, places.bounds), load(lanes, local, places.bounds + 1)
    x = soft(x * load(lanes, local, places.decay + 1), load(lanes, local, places.shrink + 1))
    x = min(max(x, lower), upper)
    x = soft(x * load(lanes, local, places.decay + steps - 1), load(lanes, local, places.shrink + steps - 1))
    return min(max(x, lower), upper)


@compiled
def kept_aside(k, period):
    """How many of k steps are kept aside at the end."""
    return k - (k - 1) // period * period


@compiled
def slope_of(z, y, share, logistic):
    """The derivative of an example's loss by its score, times its share of the minibatch."""
    if logistic:
        return (-y * share) / (exp(z * y) + type(y)(1))
    return (z - y) * (share + share)


@compiled
def walk(
    starts,
    columns,
    values,
    targets,
    sampling,
    local,
    beginning,
    states,
    stamps,
    totals,
    changes,
    drawn,
    places,
    sizes,
    thread,
    r,
    low,
    high,
    kind,
    lanes,
):
    """Clients low..high of round r: the thread's total becomes the sum of weight times their last vectors, or, where only what
    was touched counts, of what they are beyond those of a client without examples."""
    clients, steps_of, weights, shares = sampling.clients, sampling.steps, sampling.weights, sampling.shares
    client_starts, client_sizes, given = sampling.starts, sampling.sizes, sampling.drawn
    key = round_key(sampling.seed, np.uint32(sampling.first + np.uint32(r)))
    size, width, dimension, period, in_step = sizes.size, sizes.width, sizes.dimension, sizes.period, sizes.in_step
    two, number, intercept = len(kind) == PAIR, targets.dtype.type, width > dimension
    total, most = thread * size * width, changes.shape[0] // (sizes.threads * in_step)
    drawn_by_client = sizes.most_steps * sizes.batch
    for j in range(total, total + size * width):
        store(totals, j, spread(lanes, totals, 0.0))
    for g in range(in_step):
        walker = thread * in_step + g
        for j in range(size * width):
            store(states, walker * size * width + j, load(lanes, beginning, j))
        if len(kind) == MIRROR:
            for j in range(width):
                stamps[walker * width + j] = 0
    for m in range(low, high, in_step):
        group, cohort = min(in_step, high - m), r * clients.shape[1] + m
        longest = 0
        for g in range(group):
            client = at(clients, cohort + g)
            longest, start = max(longest, at(steps_of, client)), at(client_starts, client)
            place = (thread * in_step + g) * drawn_by_client
            many = at(client_sizes, client)
            draw_client(given, key, client, start, many, at(steps_of, client), sizes.batch, r, m + g, drawn, place)
        p = -1
        for k in range(longest):
            p = p + 1 if p + 1 < period else 0
            query, gain = places.query + p * size, places.gain + p * size
            for g in range(group):  # scores
                client, walker = at(clients, cohort + g), thread * in_step + g
                if k >= at(steps_of, client):
                    continue
                first = walker * size * width
                second, stamp = first + width, walker * width
                if k > 0 and p == 0:
                    renew = places.powers + period * size * size
                    for j in range(first, first + dimension):
                        a = load(lanes, states, j)
                        if two:
                            b = load(lanes, states, j + width)
                            x = load(lanes, local, renew + 2) * a + load(lanes, local, renew + 3) * b
                            store(states, j + width, x)
                            store(states, j, load(lanes, local, renew) * a + load(lanes, local, renew + 1) * b)
                        else:
                            store(states, j, load(lanes, local, renew) * a)
                batch = sizes.batch if sizes.batch > 0 else np.int64(at(client_sizes, client))
                seen = walker * drawn_by_client + k * sizes.batch
                for b in range(batch):
                    example = (
                        np.int64(at(drawn, seen + b)) if sizes.batch > 0 else np.int64(at(client_starts, client)) + b
                    )
                    begin, end = begin_of(starts, example, dimension), begin_of(starts, example + 1, dimension)
                    z = spread(lanes, targets, 0.0)
                    if len(kind) == ONE:
                        for j in range(begin, end):
                            z += load(lanes, states, first + column(columns, j, begin)) * value_of(values, targets, j)
                        z *= load(lanes, local, query)
                    elif len(kind) == PAIR:
                        u, v = load(lanes, local, query), load(lanes, local, query + 1)
                        for j in range(begin, end):
                            c = column(columns, j, begin)
                            z += (u * load(lanes, states, first + c) + v * load(lanes, states, second + c)) * value_of(
                                values, targets, j
                            )
                    elif len(kind) == DUAL:
                        t, u = load(lanes, local, places.threshold + k), load(lanes, local, query)
                        lower, upper = load(lanes, local, places.bounds), load(lanes, local, places.bounds + 1)
                        for j in range(begin, end):
                            x = soft(load(lanes, states, first + column(columns, j, begin)), t)
                            z += min(max(x * u, lower), upper) * value_of(values, targets, j)
                    else:
                        for j in range(begin, end):
                            c = column(columns, j, begin)
                            x = load(lanes, states, first + c)
                            idle = k - at(stamps, stamp + c)
                            if idle > 0:
                                x = idle_steps(local, x, idle, places, lanes)
                                store(states, first + c, x)
                                stamps[stamp + c] = k
                            z += x * value_of(values, targets, j)
                    if intercept:
                        z += load(lanes, local, places.free_query) * load(lanes, states, first + dimension)
                        if two:
                            z += load(lanes, local, places.free_query + 1) * load(lanes, states, second + dimension)
                    store(changes, walker * most + b, z)
            for g in range(group):  # slopes
                client, walker = at(clients, cohort + g), thread * in_step + g
                if k >= at(steps_of, client):
                    continue
                batch = sizes.batch if sizes.batch > 0 else np.int64(at(client_sizes, client))
                seen = walker * drawn_by_client + k * sizes.batch
                for b in range(batch):
                    example = (
                        np.int64(at(drawn, seen + b)) if sizes.batch > 0 else np.int64(at(client_starts, client)) + b
                    )
                    share = number(1) / number(batch)
                    if shares.shape[0] > 0:
                        share = shares[r, m + g, k, b]
                    place = walker * most + b
                    store(
                        changes,
                        place,
                        slope_of(load(lanes, changes, place), at(targets, example), share, sizes.logistic),
                    )
                    if k + 1 < at(steps_of, client) and sizes.batch > 0:  # the next step's examples
                        place = begin_of(starts, np.int64(at(drawn, seen + batch + b)), dimension)
                        prefetch(columns, place)
                        prefetch(values, place)
                        prefetch(values, place + 8)
            for g in range(group):  # steps
                client, walker = at(clients, cohort + g), thread * in_step + g
                if k >= at(steps_of, client):
                    continue
                first = walker * size * width
                second = first + width
                batch = sizes.batch if sizes.batch > 0 else np.int64(at(client_sizes, client))
                seen = walker * drawn_by_client + k * sizes.batch
                slopes = spread(lanes, targets, 0.0)
                for b in range(batch):
                    example = (
                        np.int64(at(drawn, seen + b)) if sizes.batch > 0 else np.int64(at(client_starts, client)) + b
                    )
                    begin, end = begin_of(starts, example, dimension), begin_of(starts, example + 1, dimension)
                    z = load(lanes, changes, walker * most + b)
                    slopes += z
                    u = load(lanes, local, gain) * z
                    if two:
                        v = load(lanes, local, gain + 1) * z
                        for j in range(begin, end):
                            c = column(columns, j, begin)
                            store(states, first + c, load(lanes, states, first + c) - u * value_of(values, targets, j))
                            store(
                                states, second + c, load(lanes, states, second + c) - v * value_of(values, targets, j)
                            )
                    else:
                        for j in range(begin, end):
                            c = column(columns, j, begin)
                            store(states, first + c, load(lanes, states, first + c) - u * value_of(values, targets, j))
                if intercept:
                    _step_intercept(local, states, slopes, first + dimension, width, two, places, lanes)
        alike = not sizes.touched
        for g in range(1, group):
            alike = alike and at(weights, cohort + g) == at(weights, cohort)
            alike = alike and at(steps_of, at(clients, cohort + g)) == at(steps_of, at(clients, cohort))
        pack = group if alike else 1  # clients that are added up before they are weighted
        for g in range(0, group, pack):
            walker, steps, weight = thread * in_step + g, at(steps_of, at(clients, cohort + g)), at(weights, cohort + g)
            seen, power = walker * drawn_by_client, places.powers + kept_aside(steps, period) * size * size
            if sizes.touched:
                for i in range(seen, seen + steps * sizes.batch):
                    example = np.int64(at(drawn, i))
                    begin, end = begin_of(starts, example, dimension), begin_of(starts, example + 1, dimension)
                    for j in range(begin, end):
                        c = column(columns, j, begin)
                        _add(
                            local,
                            beginning,
                            states,
                            stamps,
                            totals,
                            walker,
                            1,
                            total,
                            c,
                            weight,
                            steps,
                            power,
                            places,
                            sizes,
                            kind,
                            lanes,
                        )
            else:
                for c in range(dimension):
                    _add(
                        local,
                        beginning,
                        states,
                        stamps,
                        totals,
                        walker,
                        pack,
                        total,
                        c,
                        weight,
                        steps,
                        power,
                        places,
                        sizes,
                        kind,
                        lanes,
                    )
        if intercept:
            for g in range(group):
                first = (thread * in_step + g) * size * width
                for i in range(size):
                    place = i * width + dimension
                    value = spread(lanes, totals, load(lanes, states, first + place)) * at(weights, cohort + g)
                    store(totals, total + place, load(lanes, totals, total + place) + value)
                    store(states, first + place, load(lanes, beginning, place))


@compiled
def draw_client(given, key, client, start, size, steps, batch, r, s, out, place):
    """The examples of the s-th client of round r, minibatch after minibatch."""
    if given.shape[0] > 0:
        for k in range(steps):
            for b in range(batch):
                out[place + k * batch + b] = given[r, s, k, b]
    elif batch > 0:
        draw_rows(key, client, start, size, out, place, steps * batch)


@compiled
def _step_intercept(local, states, slopes, place, width, two, places, lanes):
    """One step of the intercept, which has no penalty and is not kept aside."""
    a, transition, gain = load(lanes, states, place), places.free_transition, places.free_gain
    if two:
        b = load(lanes, states, place + width)
        x = load(lanes, local, transition + 2) * a + load(lanes, local, transition + 3) * b
        store(states, place + width, x - load(lanes, local, gain + 1) * slopes)
        a = load(lanes, local, transition) * a + load(lanes, local, transition + 1) * b
    else:
        a *= load(lanes, local, transition)
    store(states, place, a - load(lanes, local, gain) * slopes)


@inlined
def _add(
    local, beginning, states, stamps, totals, walker, pack, total, c, weight, steps, power, places, sizes, kind, lanes
):
    """Column c of `pack` clients: weight times their last vectors (where only what was touched counts, beyond those of an idle
    client, so that a second time adds nothing) goes to the total, and they get back what they began with."""
    width, size = sizes.width, sizes.size
    start = load(lanes, beginning, c)
    a, b = spread(lanes, beginning, 0.0), spread(lanes, beginning, 0.0)
    for g in range(walker, walker + pack):
        first = g * size * width + c
        x = load(lanes, states, first)
        store(states, first, start)
        if len(kind) == MIRROR:
            x = idle_steps(local, x, steps - stamps[g * width + c], places, lanes)
            stamps[g * width + c] = 0
            if sizes.touched:
                x -= idle_steps(local, start, steps, places, lanes)
        elif sizes.touched:
            x -= start
        a += x
        if len(kind) == PAIR:
            y, other = load(lanes, states, first + width), load(lanes, beginning, width + c)
            store(states, first + width, other)
            if sizes.touched:
                y -= other
            b += y
    if len(kind) != MIRROR:
        if len(kind) == PAIR:
            x = spread(lanes, totals, load(lanes, local, power + 2) * a + load(lanes, local, power + 3) * b) * weight
            store(totals, total + width + c, load(lanes, totals, total + width + c) + x)
            a = load(lanes, local, power) * a + load(lanes, local, power + 1) * b
        else:
            a *= load(lanes, local, power)
    store(totals, total + c, load(lanes, totals, total + c) + spread(lanes, totals, a) * weight)
