"""The compiled loops of the linear engine: plain loops over arrays, for Numba.

The last axis of an array of numbers is the lane: runs with different numbers that walk side by side over the same examples. How
many lanes there are (the length of the tuple `lanes`) and what kind of method it is (that of the tuple `kind`) are known to the
compiler. Threads share the clients of a round, and meet when all have walked; each walks a few clients in step, so that the
processor works on one while it waits for another.

Arrays of numbers are flat, (rows, L), with named places: loops that neither slice nor pass tuples of arrays around compile many
times faster, and run faster too.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fedlocal.engines.lanes import exp, load, log1p, spread, store
from fedlocal.engines.meeting import meet
from fedlocal.engines.threefry import draw_rows

ONE, PAIR, DUAL, MIRROR = range(
    4
)  # kinds: one vector, two, one seen through a proximal map, one with it after every step
FAST = {"contract", "reassoc", "nsz", "arcp"}  # nan and inf are what they are
OPTIONS = {"cache": True, "nogil": True, "fastmath": FAST, "error_model": "numpy"}


class Rows(NamedTuple):
    """The examples: a CSR matrix, or a dense one where `starts` and `columns` are None."""

    starts: np.ndarray | None  # (n + 1,)
    columns: np.ndarray | None  # (nnz,)
    values: np.ndarray | None  # (nnz,), or (n d,); None where all are one
    targets: np.ndarray  # (n,)


class Sampling(NamedTuple):
    """Where minibatches come from: the rows that JAX drew, or, where there are none, the same random bits made here."""

    drawn: np.ndarray  # (R, S, K, B)
    shares: np.ndarray  # (R, S, K, B) weights of the examples; empty where all minibatches are full
    clients: np.ndarray  # (R, S)
    weights: np.ndarray  # (R, S) of the mean
    starts: np.ndarray  # (M,)
    sizes: np.ndarray  # (M,)
    steps: np.ndarray  # (M,)
    seed: np.uint32
    first: np.uint32  # round


class Places(NamedTuple):
    """The first rows of what is kept in `Numbers.local` and `Numbers.server`; s is the size of a client's state, v the
    server's. The local linear part is kept aside: S = A^k U for k < period, then U is renewed.
    """

    query: int  # (period, s) query' A^k; for DUAL (K,) 1 / (1 + l2 walked), made anew every round
    gain: int  # (period, s) A^-(k+1) gain
    powers: int  # (period + 1, s, s) A^k
    free_query: int  # (s,) the intercept has no penalty and is not kept aside
    free_transition: int  # (s, s)
    free_gain: int  # (s,)
    jump: int  # (2, s, s) A^K and its free counterpart, for rounds with all gradients at one point
    threshold: int  # (K,) DUAL: the gradient is at query_k clip(soft(y, threshold_k)); made anew every round
    decay: int  # (K + 1,) MIRROR: k steps without gradient take x to clip(soft(decay_k x, shrink_k))
    shrink: int  # (K + 1,)
    bounds: int  # (2,)
    start: int  # (s, v) S = start V before the local steps
    keep: int  # (v, v) V <- keep V + take mean(S) after them, then the proximal map where there is one
    take: int  # (v, s)
    step: int  # length that a local step walks
    server_step: int
    strengths: int  # (2,) l1 and l2 of psi
    server_bounds: int  # (2,)


class Numbers(NamedTuple):
    """The methods of all lanes, and what the threads write."""

    local: np.ndarray  # see Places
    server: np.ndarray  # in float64
    vectors: np.ndarray  # (v width, L) the server's
    walked: np.ndarray  # (T, L) float64; each thread has its own
    diverged: np.ndarray  # (T, L) the round after which a lane was not finite, or -1; each thread has its own
    finite: np.ndarray  # (T, L) whether a thread's columns are
    beginning: np.ndarray  # (s width, L) what every client begins with
    point: np.ndarray  # (width, L) where it takes its gradients, when they are all at one point
    states: np.ndarray  # (T G s width, L)
    stamps: np.ndarray  # (T G width,) MIRROR: up to which step a coordinate has been taken
    totals: np.ndarray  # (T s width, L) float64
    after: np.ndarray  # (T v, L) float64
    changes: np.ndarray  # (T G B, L) scores of a minibatch, then slopes
    drawn: np.ndarray  # (T G K B,)
    by_steps: np.ndarray  # (T (K + 1),) weight of the clients that take so many steps
    examples: np.ndarray  # (E,) examples of a round whose gradients are all at one point
    amounts: np.ndarray  # (E,) float64 and what they weigh
    counts: np.ndarray  # (T n,) float64; empty where examples are listed as they are drawn


class Sizes(NamedTuple):
    """What does not change from round to round."""

    size: int  # s
    number: int  # v
    width: int  # features, and one for the intercept
    dimension: int  # features
    threads: int
    in_step: int  # G
    period: int
    most_steps: int  # K
    batch: int  # examples of a minibatch; 0 for all of the client's
    logistic: bool  # or least squares
    touched: bool  # only what a client touched is added up
    frozen: bool  # all gradients of a round are at one point
    proximal: bool  # the server's step ends with a proximal map


@intrinsic
def begin_of(_: Any, starts: Any, example: Any, dimension: Any) -> Any:
    """Where an example's values begin: as `starts` says, or, where it is None, after those of as many full rows."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = context.cast(builder, arguments[1], example, types.intp)
        if isinstance(starts, types.NoneType):
            return builder.mul(row, context.cast(builder, arguments[2], dimension, types.intp))
        return _entry(context, builder, starts, arguments[0], row)

    return types.intp(starts, example, dimension), code


@intrinsic
def column(_: Any, columns: Any, j: Any, begin: Any) -> Any:
    """The column of value j of a row that begins at `begin`."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if isinstance(columns, types.NoneType):
            return builder.sub(arguments[1], arguments[2])
        return _entry(context, builder, columns, arguments[0], arguments[1])

    return types.intp(columns, j, begin), code


@intrinsic
def prefetch(_: Any, array: Any, place: Any) -> Any:
    """Ask for an entry of an array before it is needed."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not isinstance(array, types.NoneType):
            data = context.make_array(array)(context, builder, arguments[0]).data
            byte = ir.IntType(8).as_pointer()
            kinds = [byte, *[ir.IntType(32)] * 3]
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0"
            )
            flags = [ir.Constant(ir.IntType(32), n) for n in (0, 3, 1)]  # to read, and to keep
            builder.call(function, [builder.bitcast(builder.gep(data, [arguments[1]]), byte), *flags])
        return context.get_dummy_value()

    return types.none(array, place), code


@intrinsic
def value_of(_: Any, values: Any, targets: Any, j: Any) -> Any:
    """Value j, in the precision of the targets: as `values` says, or, where it is None, one."""
    number = targets.dtype

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if isinstance(values, types.NoneType):
            return ir.Constant(context.get_value_type(number), 1.0)
        data = context.make_array(values)(context, builder, arguments[0]).data
        return context.cast(builder, builder.load(builder.gep(data, [arguments[2]])), values.dtype, number)

    return number(values, targets, j), code


@intrinsic
def at(_: Any, array: Any, place: Any) -> Any:
    """An entry of a contiguous array by its flat index, which Numba would check for being negative."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [context.cast(builder, arguments[1], place, types.intp)]))

    return array.dtype(array, place), code


def _entry(context: Any, builder: Any, array: Any, value: Any, place: Any) -> Any:
    """An unsigned entry of an array as a signed integer."""
    data = context.make_array(array)(context, builder, value).data
    return builder.zext(builder.load(builder.gep(data, [place])), context.get_value_type(types.intp))


@numba.njit(**OPTIONS)
def soft(x, t):
    """Nearer to zero by t, and zero where that would go beyond; nan stays nan."""
    return x - min(max(x, t * -1.0), t)


@numba.njit(**OPTIONS)
def run_rounds(thread, meeting, rows, sampling, numbers, places, sizes, kind, lanes):
    """What one thread does of the rounds; the server's state is in `numbers` before and after. Returns how many there were."""
    threads, width, clients = sizes.threads, sizes.width, sampling.clients.shape[1]
    low, high = clients * thread // threads, clients * (thread + 1) // threads
    left, right = width * thread // threads, width * (thread + 1) // threads
    entries = numbers.amounts.shape[0]
    begin, end = entries * thread // threads, entries * (thread + 1) // threads
    table = thread * (sizes.most_steps + 1)
    for r in range(sampling.clients.shape[0]):
        _start(numbers.server, numbers.vectors, numbers.beginning, left, right, places.start, sizes, lanes)
        if len(kind) == DUAL and thread == 0:
            _thresholds(numbers.local, numbers.server, numbers.walked, places, sizes.most_steps, lanes)
        length = _lengths(sampling, numbers.by_steps, r, table, sizes.most_steps)
        meet(meeting, thread)
        if sizes.frozen:
            _look(numbers.local, numbers.beginning, numbers.point, left, right, places, sizes, kind, lanes)
            _draw(sampling, numbers, sizes, thread, r, low, high)
            meet(meeting, thread)
            _merge(numbers.counts, numbers.amounts, begin, end, threads)
            _gather(
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
            _walk(
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
                numbers.walked[thread, l] += walked
                finite = True
                for t in range(threads):
                    finite = finite and numbers.finite[t, l]
                if not finite:
                    numbers.diverged[thread, l] = np.int64(sampling.first) + r + 1
                alive = alive or finite
        if not alive:
            return r + 1
    return sampling.clients.shape[0]


@numba.njit(**OPTIONS)
def _start(server, vectors, beginning, left, right, place, sizes, lanes):
    """Columns left..right of what clients begin with."""
    width, number = sizes.width, sizes.number
    for i in range(sizes.size):
        for j in range(left, right):
            value = load(lanes, server, place + i * number) * load(lanes, vectors, j)
            for h in range(1, number):
                value += load(lanes, server, place + i * number + h) * load(lanes, vectors, h * width + j)
            store(beginning, i * width + j, spread(lanes, beginning, value))


@numba.njit(**OPTIONS)
def _thresholds(local, server, walked, places, steps, lanes):
    """DUAL: the proximal maps of this round's steps."""
    for k in range(steps):
        t = load(lanes, walked, 0) + load(lanes, server, places.step) * np.float64(k)
        threshold = t * load(lanes, server, places.strengths)
        store(local, places.threshold + k, spread(lanes, local, threshold))
        query = 1.0 / (t * load(lanes, server, places.strengths + 1) + 1.0)
        store(local, places.query + k, spread(lanes, local, query))


@numba.njit(**OPTIONS)
def _lengths(sampling, by_steps, r, table, most_steps):
    """The mean number of steps in round r; `by_steps` becomes the weight of the clients that take so many."""
    for k in range(most_steps + 1):
        by_steps[table + k] = 0
    length = 0.0
    for s in range(sampling.clients.shape[1]):
        steps, weight = sampling.steps[sampling.clients[r, s]], sampling.weights[r, s]
        by_steps[table + steps] += weight
        length += weight * steps
    return length


@numba.njit(**OPTIONS)
def _look(local, beginning, point, left, right, places, sizes, kind, lanes):
    """Columns left..right of the one point at which all gradients of a round are taken."""
    for j in range(left, right):
        query = places.free_query if j == sizes.dimension else places.query
        value = load(lanes, beginning, j)
        if len(kind) == DUAL and j < sizes.dimension:
            value = soft(value, load(lanes, local, places.threshold))
            value = min(max(value, load(lanes, local, places.bounds)), load(lanes, local, places.bounds + 1))
        value *= load(lanes, local, query)
        for i in range(1, sizes.size):
            value += load(lanes, local, query + i) * load(lanes, beginning, i * sizes.width + j)
        store(point, j, value)


@numba.njit(**OPTIONS)
def _mean(local, beginning, totals, by_steps, table, i, j, places, sizes, kind, lanes):
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
        for k in range(1, sizes.most_steps + 1):
            weight = by_steps[table + k]
            if weight != 0:
                if len(kind) == MIRROR:
                    mean += _idle(local, load(lanes, beginning, j), k, places, lanes) * weight
                else:
                    power = places.powers + (_kept_aside(k, sizes.period) * size + i) * size
                    for h in range(size):
                        mean += load(lanes, local, power + h) * load(lanes, beginning, h * width + j) * weight
    store(totals, i * width + j, mean)


@numba.njit(**OPTIONS)
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


@numba.njit(**OPTIONS)
def _kept_aside(k, period):
    """How many of k steps are kept aside at the end."""
    return k - (k - 1) // period * period


@numba.njit(**OPTIONS)
def _idle(local, x, steps, places, lanes):
    """MIRROR: what a coordinate becomes in so many steps without gradient."""
    x = soft(x * load(lanes, local, places.decay + steps), load(lanes, local, places.shrink + steps))
    return min(max(x, load(lanes, local, places.bounds)), load(lanes, local, places.bounds + 1))


@numba.njit(**OPTIONS)
def _slope(z, y, share, logistic):
    """The derivative of an example's loss by its score, times its share of the minibatch."""
    if logistic:
        return (-y * share) / (exp(z * y) + type(y)(1))
    return (z - y) * (share + share)


@numba.njit(**OPTIONS)
def _walk(
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
    client_starts, client_sizes = sampling.starts, sampling.sizes
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
            longest = max(longest, at(steps_of, client))
            _draw_client(sampling, r, m + g, drawn, (thread * in_step + g) * drawn_by_client, sizes.batch)
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
                        t = load(lanes, local, places.threshold + k)
                        lower, upper = load(lanes, local, places.bounds), load(lanes, local, places.bounds + 1)
                        for j in range(begin, end):
                            x = soft(load(lanes, states, first + column(columns, j, begin)), t)
                            z += min(max(x, lower), upper) * value_of(values, targets, j)
                        z *= load(lanes, local, query)
                    else:
                        for j in range(begin, end):
                            c = column(columns, j, begin)
                            x = load(lanes, states, first + c)
                            idle = k - at(stamps, stamp + c)
                            if idle > 0:
                                x = _idle(local, x, idle, places, lanes)
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
                        changes, place, _slope(load(lanes, changes, place), at(targets, example), share, sizes.logistic)
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
            seen = walker * drawn_by_client
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


@numba.njit(**OPTIONS)
def _draw_client(sampling, r, s, out, place, batch):
    """The examples of the s-th client of round r, minibatch after minibatch."""
    client = sampling.clients[r, s]
    steps = sampling.steps[client]
    if sampling.drawn.shape[0] > 0:
        for k in range(steps):
            for b in range(batch):
                out[place + k * batch + b] = sampling.drawn[r, s, k, b]
    elif batch > 0:
        now, start, size = np.uint32(sampling.first + np.uint32(r)), sampling.starts[client], sampling.sizes[client]
        draw_rows(sampling.seed, now, client, start, size, out, place, steps * batch)


@numba.njit(**OPTIONS)
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


@numba.njit(**OPTIONS)
def _add(local, beginning, states, stamps, totals, walker, pack, total, c, weight, steps, places, sizes, kind, lanes):
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
            x = _idle(local, x, steps - stamps[g * width + c], places, lanes)
            stamps[g * width + c] = 0
            if sizes.touched:
                x -= _idle(local, start, steps, places, lanes)
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
        power = places.powers + _kept_aside(steps, sizes.period) * size * size
        if len(kind) == PAIR:
            x = spread(lanes, totals, load(lanes, local, power + 2) * a + load(lanes, local, power + 3) * b) * weight
            store(totals, total + width + c, load(lanes, totals, total + width + c) + x)
            a = load(lanes, local, power) * a + load(lanes, local, power + 1) * b
        else:
            a *= load(lanes, local, power)
    store(totals, total + c, load(lanes, totals, total + c) + spread(lanes, totals, a) * weight)


@numba.njit(**OPTIONS)
def _draw(sampling, numbers, sizes, thread, r, low, high):
    """What clients low..high of round r draw: as a list, or counted."""
    drawn, counts, examples, amounts = numbers.drawn, numbers.counts, numbers.examples, numbers.amounts
    counted = thread * (counts.shape[0] // sizes.threads)
    for s in range(low, high):
        client = sampling.clients[r, s]
        steps, weight = sampling.steps[client], sampling.weights[r, s]
        if sizes.batch == 0:
            for i in range(sampling.sizes[client]):
                counts[counted + sampling.starts[client] + i] += weight * steps / sampling.sizes[client]
            continue
        count, place = steps * sizes.batch, thread * sizes.most_steps * sizes.batch
        _draw_client(sampling, r, s, drawn, place, sizes.batch)
        for i in range(count):
            amount = weight / sizes.batch
            if sampling.shares.shape[0] > 0:
                amount = weight * sampling.shares[r, s, i // sizes.batch, i % sizes.batch]
            if counts.shape[0] > 0:
                counts[counted + drawn[place + i]] += amount
            else:
                examples[s * count + i] = drawn[place + i]
                amounts[s * count + i] = amount


@numba.njit(**OPTIONS)
def _merge(counts, amounts, begin, end, threads):
    """What all threads counted of examples begin..end."""
    if counts.shape[0] > 0:
        stride = counts.shape[0] // threads
        for e in range(begin, end):
            amounts[e] = 0
            for t in range(threads):
                amounts[e] += counts[t * stride + e]
                counts[t * stride + e] = 0


@numba.njit(**OPTIONS)
def _gather(starts, columns, values, targets, examples, amounts, point, totals, total, begin, end, sizes, lanes):
    """The thread's total becomes the sum of the gradients of entries begin..end of the list, each times its amount."""
    dimension, number, intercept = sizes.dimension, targets.dtype.type, sizes.width > sizes.dimension
    for j in range(total, total + sizes.width):
        store(totals, j, spread(lanes, totals, 0.0))
    for i in range(begin, end):
        if amounts[i] == 0:
            continue
        example = np.int64(examples[i])
        first, last = begin_of(starts, example, dimension), begin_of(starts, example + 1, dimension)
        z = spread(lanes, targets, 0.0)
        if intercept:
            z = load(lanes, point, dimension)
        for j in range(first, last):
            z += load(lanes, point, column(columns, j, first)) * value_of(values, targets, j)
        slope = spread(lanes, totals, _slope(z, targets[example], number(amounts[i]), sizes.logistic))
        for j in range(first, last):
            c = total + column(columns, j, first)
            store(totals, c, load(lanes, totals, c) + slope * value_of(values, targets, j))
        if intercept:
            store(totals, total + dimension, load(lanes, totals, total + dimension) + slope)


@numba.njit(**OPTIONS)
def losses(starts, columns, values, targets, weights, points, found, thread, low, high, dimension, logistic, lanes):
    """Row `thread` of `found` becomes the sum of weight times loss of examples low..high at points (width, L), in float64."""
    intercept = points.shape[0] > dimension
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
        if logistic:
            z *= y
            loss = log1p(exp(min(z, z * -1.0))) - min(z, 0.0)
        else:
            loss = (z - y) * (z - y)
        total += loss * weights[example]
    store(found, thread, total)
