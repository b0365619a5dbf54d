"""Fused kernels for linear models on sparse data: a local step costs the non-zeros of its examples, not the dimension.

Every smooth method here is an affine recurrence (`fedlocal.core.Affine`): S <- A S - b g with a gradient g that touches only the
non-zeros of the examples. The linear part is kept aside: S = A^k U, so that a step changes U in those places alone. A few
clients walk in step, so that the processor works on one while it waits for another; threads share the clients of a round.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numba
import numpy as np
import scipy.sparse

from fedlocal.core import AbstractProblem, Affine, LocalMethod, Params
from fedlocal.engines.plan import COHORT_BLOCK, SMALL_CLIENT, Plan
from fedlocal.engines.rounds import RunState
from fedlocal.federated_data import SparseMatrix
from fedlocal.problems import LeastSquares, Logistic

DENSEST = 0.25  # fraction of non-zeros above which dense products are faster
IN_STEP = 4  # clients that a thread walks side by side
CONDITION = 30.0  # of A^k, up to which the linear part is kept aside
SINGULAR = 1e6  # condition of A from which it is not kept aside at all
DRAWS_AT_ONCE = 1 << 22  # examples that JAX draws in one call


class Rows(NamedTuple):
    """A CSR matrix in the types that the kernels read fastest."""

    starts: np.ndarray  # (n + 1,) uint32
    columns: np.ndarray  # (nnz,) uint16 or uint32
    values: np.ndarray  # (nnz,)
    targets: np.ndarray  # (n,)


class LinearEngine:
    """Rounds of an affine method on LeastSquares or Logistic with sparse features."""

    def __init__(self, problem: Logistic | LeastSquares, method: LocalMethod, plan: Plan, x0: Params):
        self.problem, self.method, self.plan = problem, method, plan
        self.dtype = x0["weights"].dtype
        self.rows = _rows(problem, self.dtype)
        affine = method.affine(plan.most_steps)
        assert affine is not None
        self.lazy = _lazy(affine, problem.l2, plan.most_steps, self.dtype)
        self.server = ServerStep(*(np.array(a, float) for a in (affine.start, affine.keep, affine.take)))
        self.mean_weights = np.asarray(plan.mean_weights, np.float64)
        self.starts, self.sizes = problem.starts().astype(np.uint32), problem.sizes().astype(np.uint32)
        self.threads = numba.get_num_threads()
        pair = None if len(self.lazy.free_gain) == 1 else True  # None is known to the compiler, and its branches vanish
        self.compiled_for = pair, None if plan.batch_size == 1 else plan.batch_size
        per_round = plan.clients_per_round * plan.most_steps * (plan.batch_size or 1)
        self.draws_itself, self.rounds_at_once = False, max(1, min(COHORT_BLOCK, DRAWS_AT_ONCE // per_round))
        if plan.epochs is None and plan.largest <= SMALL_CLIENT:
            first = plan.draws(plan.round_key(0), jnp.zeros((), jnp.int32)).rows
            own = _with_replacement(self._sampling_of_first_client())
            self.draws_itself = np.array_equal(np.asarray(first).ravel(), own)
            self.rounds_at_once = COHORT_BLOCK if self.draws_itself else self.rounds_at_once

    def _sampling_of_first_client(self) -> "Sampling":
        empty = np.empty((0, 0, 0, 0), np.uint32)
        clients, zero = np.zeros((1, 1), np.uint32), np.uint32(0)
        seed, steps, batch = np.uint32(self.plan.seed), self.plan.most_steps, self.plan.batch_size
        shares = empty.astype(self.dtype)
        return Sampling(empty, shares, clients, self.starts, self.sizes, seed, zero, steps, batch)

    @staticmethod
    def reason_against(problem: AbstractProblem, method: LocalMethod, plan: Plan, together: bool) -> str | None:
        """Why the kernels do not apply, or None when they do."""
        if not isinstance(problem, (Logistic, LeastSquares)):
            return f"it serves Logistic and LeastSquares, not {type(problem).__name__}"
        if plan.batch_size is None:
            return "it serves minibatches, not full gradients"
        if not plan.equal_steps:
            return "it needs the same number of local steps on every client"
        if together:
            return "averages and client discrepancy look at every local step"
        if method.affine(plan.most_steps) is None:
            return f"{type(method).__name__} is not an affine recurrence"
        linear = _penalised(method.affine(plan.most_steps), problem.l2)  # pyright: ignore[reportArgumentType]
        if np.linalg.cond(linear) > SINGULAR:
            return f"the linear part of {type(method).__name__} cannot be inverted with these parameters"
        if _density(problem) > DENSEST:
            return f"features are dense; it serves those with at most {DENSEST:.0%} non-zeros"
        return None

    def advance(self, state: RunState, first: int, count: int) -> tuple[RunState, int]:
        """At most `count` rounds from round `first`; returns the state and how many there were."""
        place = first % COHORT_BLOCK
        count = min(count, self.rounds_at_once, COHORT_BLOCK - place)
        cohorts = self.plan.cohorts(first // COHORT_BLOCK)
        weights = self.mean_weights[cohorts[place : place + count]]
        weights = np.ascontiguousarray(weights / weights.sum(axis=1, keepdims=True))  # one layout, one compilation
        leaves, treedef = jax.tree.flatten(state.server)
        vectors = _to_vectors(leaves, self.problem.intercept)
        sampling = self._sampling(cohorts, place, first, count)
        logistic, intercept = isinstance(self.problem, Logistic), self.problem.intercept
        pair, several = self.compiled_for
        done = _rounds(
            self.rows,
            sampling,
            self.lazy,
            self.server,
            weights,
            vectors,
            logistic,
            intercept,
            pair,
            several,
            self.threads,
        )
        server = jax.tree.unflatten(treedef, _from_vectors(vectors, intercept))
        diverged = state.diverged if np.isfinite(vectors).all() else np.int32(first + done)
        return state._replace(server=server, diverged=diverged), done

    def _sampling(self, cohorts: np.ndarray, place: int, first: int, count: int) -> "Sampling":
        drawn, shares = np.empty((0, 0, 0, 0), np.uint32), np.empty((0, 0, 0, 0), self.dtype)
        if not self.draws_itself:
            wanted = cohorts[place : place + self.rounds_at_once]
            wanted = np.pad(wanted, ((0, self.rounds_at_once - len(wanted)), (0, 0)), mode="edge")
            draws = _draw(self.plan, wanted, first)
            drawn = np.asarray(draws.rows).view(np.uint32)[:count]
            shares = shares if draws.weights is None else np.asarray(draws.weights, self.dtype)[:count]
        clients = np.array(cohorts[place : place + count], np.uint32, order="C")
        seed, steps, batch = np.uint32(self.plan.seed), self.plan.most_steps, self.plan.batch_size
        return Sampling(drawn, shares, clients, self.starts, self.sizes, seed, np.uint32(first), steps, batch)


class Sampling(NamedTuple):
    """Where minibatches come from: the rows that JAX drew, or, where there are none, the same random bits made here."""

    drawn: np.ndarray  # (R, S, K, B)
    shares: np.ndarray  # (R, S, K, B) weights of the examples; empty where all minibatches are full
    clients: np.ndarray  # (R, S)
    starts: np.ndarray  # (M,)
    sizes: np.ndarray  # (M,)
    seed: np.uint32
    first: np.uint32  # round
    steps: int
    batch: int | None


class ServerStep(NamedTuple):
    """S = start V before and V <- keep V + take mean(S) after the local steps."""

    start: np.ndarray
    keep: np.ndarray
    take: np.ndarray


class Lazy(NamedTuple):
    """The powers of the linear part: S = A^k U for k < period, then U is renewed."""

    query: np.ndarray  # (period, s) query' A^k
    gain: np.ndarray  # (period, s) A^-(k+1) gain
    renew: np.ndarray  # (s, s) A^period
    finish: np.ndarray  # (s, s) A^(K mod period)
    free_query: np.ndarray  # (s,) the intercept has no penalty and is not kept aside
    free_transition: np.ndarray  # (s, s)
    free_gain: np.ndarray  # (s,)


def _penalised(affine: Affine, l2: Any) -> np.ndarray:
    """A of S <- A S - b g when an l2 term adds l2 query'S to the gradient."""
    penalty = 0.0 if l2 is None else float(l2)
    return np.asarray(affine.transition, float) - penalty * np.outer(affine.gain, affine.query)


def _lazy(affine: Affine, l2: Any, steps: int, dtype: Any) -> Lazy:
    query, gain = np.asarray(affine.query, float), np.asarray(affine.gain, float)
    transition = np.asarray(affine.transition, float)
    power = _penalised(affine, l2)
    powers = [np.eye(len(query))]
    while len(powers) <= steps and (len(powers) == 1 or np.linalg.cond(powers[-1] @ power) < CONDITION):
        powers.append(powers[-1] @ power)
    period = len(powers) - 1
    lazy_query = np.array([query @ p for p in powers[:period]])
    lazy_gain = np.array([np.linalg.solve(p, gain) for p in powers[1:]])
    numbers = (lazy_query, lazy_gain, powers[period], powers[steps % period], query, transition, gain)
    return Lazy(*(a.astype(dtype) for a in numbers))


@jax.jit
def _draw(plan: Plan, cohorts: jax.Array, first: int) -> Any:
    """Rows (and weights) of all minibatches of some rounds: (R, S, K, B)."""

    def one_round(cohort: jax.Array, r: jax.Array) -> Any:
        key = plan.round_key(r)
        return jax.vmap(lambda m: plan.draws(key, m))(cohort)

    return jax.vmap(one_round)(cohorts, first + jnp.arange(len(cohorts)))


def _rows(problem: Logistic | LeastSquares, dtype: Any) -> Rows:
    features, targets = problem.data.arrays
    if isinstance(features, SparseMatrix):
        starts, columns, values = (np.asarray(a) for a in (features.row_starts, features.columns, features.values))
    else:
        csr = scipy.sparse.csr_array(np.asarray(features))
        starts, columns, values = csr.indptr, csr.indices, csr.data
    narrow = np.uint16 if features.shape[1] <= 2**16 else np.uint32
    return Rows(starts.astype(np.uint32), columns.astype(narrow), values.astype(dtype), np.array(targets, dtype))


def _density(problem: Logistic | LeastSquares) -> float:
    features = problem.data.arrays[0]
    if isinstance(features, SparseMatrix):
        return features.values.size / max(1, features.shape[0] * features.shape[1])
    sample = features[:: max(1, len(features) // 1000)]  # about a thousand rows say enough
    return float(jnp.mean(sample != 0))


def _to_vectors(leaves: list[Any], intercept: bool) -> np.ndarray:
    """(v, d) weights, with the intercept as a last column where there is one; leaves come intercept first."""
    if not intercept:
        return np.array([np.asarray(w) for w in leaves])
    return np.array([np.append(np.asarray(w), np.asarray(b)) for b, w in zip(leaves[::2], leaves[1::2], strict=True)])


def _from_vectors(vectors: np.ndarray, intercept: bool) -> list[Any]:
    if not intercept:
        return list(vectors.copy())
    return [part for vector in vectors for part in (vector[-1].copy(), vector[:-1].copy())]


def _with_replacement(sampling: Sampling) -> np.ndarray:
    """The rows that the kernel draws for the first client of its first round."""
    rows = np.empty(sampling.steps * (sampling.batch or 1), np.uint32)
    _draw_rows(sampling, 0, 0, rows)
    return rows


@numba.njit(cache=True)
def _rounds(rows, sampling, lazy, server, weights, vectors, logistic, intercept, pair, several, threads):
    """Run the rounds; `vectors` holds the server's vectors before and after. Returns after how many it stopped."""
    size, width = server.start.shape[0], vectors.shape[1]
    sums = np.zeros((threads, size, width), vectors.dtype)
    beginning = np.empty((size, width), vectors.dtype)
    number = server.start.shape[1]
    after = np.empty(number)
    for r in range(weights.shape[0]):
        for i in range(size):
            for j in range(width):
                value = 0.0
                for h in range(number):
                    value += server.start[i, h] * vectors[h, j]
                beginning[i, j] = value
        _walk_all(rows, sampling, lazy, weights[r], beginning, sums, r, logistic, intercept, pair, several)
        finite = True
        for j in range(width):
            for i in range(number):
                after[i] = 0.0
                for h in range(number):
                    after[i] += server.keep[i, h] * vectors[h, j]
                for h in range(size):
                    for t in range(threads):
                        after[i] += server.take[i, h] * sums[t, h, j]
            for i in range(number):
                vectors[i, j] = after[i]
                finite = finite and np.isfinite(vectors[i, j])
        if not finite:
            return r + 1
    return weights.shape[0]


@numba.njit(cache=True, parallel=True)
def _walk_all(rows, sampling, lazy, weights, beginning, sums, r, logistic, intercept, pair, several):
    """The clients of round r, shared among threads."""
    threads, clients = sums.shape[0], weights.shape[0]
    for t in numba.prange(threads):
        low, high = clients * t // threads, clients * (t + 1) // threads
        _walk(rows, sampling, lazy, weights, beginning, sums[t], r, low, high, logistic, intercept, pair, several)


@numba.njit(cache=True, fastmath=True, boundscheck=False)
def _walk(rows, sampling, lazy, weights, beginning, total, r, low, high, logistic, intercept, pair, several):
    """Clients low..high of round r: `total` becomes the sum of weight times their last vectors.

    `pair` and `several` are None for methods of one vector and for minibatches of one example.
    """
    starts, columns, values, targets = rows
    query, gain = lazy.query, lazy.gain
    steps, period = sampling.steps, query.shape[0]
    if several is None:  # noqa: SIM108  (the compiler removes a branch, not an expression)
        batch = 1
    else:
        batch = several
    if pair is None:  # noqa: SIM108
        size = 1
    else:
        size = 2
    width = beginning.shape[1]
    dimension = width - 1 if intercept else width
    number = values.dtype.type
    one, zero = number(1), number(0)
    states = np.empty((IN_STEP, size, width), beginning.dtype)
    drawn = np.empty((IN_STEP, steps * batch), np.uint32)
    changes = np.empty((IN_STEP, batch), beginning.dtype)
    for i in range(size):
        for j in range(width):
            total[i, j] = 0
    for m in range(low, high, IN_STEP):
        group = min(IN_STEP, high - m)
        for g in range(group):
            for i in range(size):
                for j in range(width):
                    states[g, i, j] = beginning[i, j]
            if sampling.drawn.shape[0] > 0:
                for k in range(steps):
                    for b in range(batch):
                        drawn[g, k * batch + b] = sampling.drawn[r, m + g, k, b]
            else:
                _draw_rows(sampling, r, m + g, drawn[g])
        for k in range(steps):
            p = k % period
            if k > 0 and p == 0:
                for g in range(group):
                    _mix(states[g], lazy.renew, dimension)
            for g in range(group):
                first, second = states[g, 0], states[g, size - 1]
                offset = zero
                if intercept:
                    for i in range(size):
                        offset += lazy.free_query[i] * states[g, i, dimension]
                for b in range(batch):
                    example = np.uint64(drawn[g, k * batch + b])
                    z = zero
                    begin, end = np.uint64(starts[example]), np.uint64(starts[example + np.uint64(1)])
                    if size == 1:
                        for j in range(begin, end):
                            z += values[j] * first[columns[j]]
                        z *= query[p, 0]
                    else:
                        for j in range(begin, end):
                            z += values[j] * (query[p, 0] * first[columns[j]] + query[p, 1] * second[columns[j]])
                    changes[g, b] = z + offset
            for g in range(group):
                for b in range(batch):
                    y, z = targets[drawn[g, k * batch + b]], changes[g, b]
                    slope = -y / (one + np.exp(y * z)) if logistic else (z - y) + (z - y)
                    share = sampling.shares[r, m + g, k, b] if sampling.shares.shape[0] > 0 else one / number(batch)
                    changes[g, b] = slope * share
            for g in range(group):
                slopes = zero
                for b in range(batch):
                    example = np.uint64(drawn[g, k * batch + b])
                    begin, end = np.uint64(starts[example]), np.uint64(starts[example + np.uint64(1)])
                    slopes += changes[g, b]
                    for i in range(size):
                        if gain[p, i] != 0:
                            vector, change = states[g, i], gain[p, i] * changes[g, b]
                            for j in range(begin, end):
                                vector[columns[j]] -= change * values[j]
                if intercept:
                    _step_intercept(states[g], lazy, slopes, dimension)
        for g in range(group):
            _mix(states[g], lazy.renew if steps % period == 0 else lazy.finish, dimension)
            share = number(weights[m + g])
            for i in range(size):
                for j in range(width):
                    total[i, j] += share * states[g, i, j]


@numba.njit(cache=True, fastmath=True, boundscheck=False)
def _mix(state, matrix, dimension):
    """state <- matrix @ state in the first `dimension` columns; state has one or two rows."""
    if state.shape[0] == 1:
        for j in range(dimension):
            state[0, j] *= matrix[0, 0]
    else:
        for j in range(dimension):
            a, b = state[0, j], state[1, j]
            state[0, j] = matrix[0, 0] * a + matrix[0, 1] * b
            state[1, j] = matrix[1, 0] * a + matrix[1, 1] * b


@numba.njit(cache=True, boundscheck=False)
def _step_intercept(state, lazy, slope, place):
    """One step of the intercept, which has no penalty and is not kept aside."""
    size = state.shape[0]
    first, second = state[0, place], state[size - 1, place]
    for i in range(size):
        linear = lazy.free_transition[i, 0] * first
        if size == 2:
            linear += lazy.free_transition[i, 1] * second
        state[i, place] = linear - lazy.free_gain[i] * slope


@numba.njit(cache=True, boundscheck=False)
def _draw_rows(sampling, r, s, out):
    """Rows with replacement for the s-th client of a round: the bits of `Plan.draws`, which are JAX's Threefry."""
    client = sampling.clients[r, s]
    a, b = _threefry(np.uint32(0), sampling.seed, np.uint32(0), np.uint32(sampling.first + np.uint32(r)))
    a, b = _threefry(a, b, np.uint32(0), client)
    start, size = sampling.starts[client], sampling.sizes[client]
    for i in range(out.shape[0]):
        x, y = _threefry(a, b, np.uint32(0), np.uint32(i))
        out[i] = x ^ y
    for i in range(out.shape[0]):
        out[i] = start + out[i] % size


@numba.njit(cache=True)
def _threefry(k0, k1, x0, x1):
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011)."""
    k2 = np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1)
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(1))
    x0, x1 = _four(x0, x1, 17, 29, 16, 24)
    x0, x1 = np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(2))
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1 + np.uint32(3))
    x0, x1 = _four(x0, x1, 17, 29, 16, 24)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(4))
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    return np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(5))


@numba.njit(cache=True)
def _four(x0, x1, a, b, c, d):
    x0, x1 = _mixed(x0, x1, a)
    x0, x1 = _mixed(x0, x1, b)
    x0, x1 = _mixed(x0, x1, c)
    return _mixed(x0, x1, d)


@numba.njit(cache=True)
def _mixed(x0, x1, turn):
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32(x1 << np.uint32(turn)) | np.uint32(x1 >> np.uint32(32 - turn))
    return x0, np.uint32(x1 ^ x0)
