"""Fused kernels for linear models on sparse data: a local step costs the non-zeros of its examples, not the dimension.

Every smooth method here is an affine recurrence (`fedlocal.core.Affine`): S <- A S - b g with a gradient g that touches only the
non-zeros of the examples. The linear part is kept aside: S = A^k U, so that a step changes U in those places alone.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
import scipy.sparse

from fedlocal.core import AbstractProblem, Affine, LocalMethod, Params
from fedlocal.engines import kernels
from fedlocal.engines.kernels import Lazy, Rows, Sampling, ServerStep
from fedlocal.engines.plan import COHORT_BLOCK, SMALL_CLIENT, Plan
from fedlocal.engines.rounds import RunState
from fedlocal.federated_data import SparseMatrix
from fedlocal.problems import LeastSquares, Logistic

DENSEST = 0.25  # fraction of non-zeros above which dense products are faster
MODERATE = 30.0  # how large and how small A^k may be for the linear part to be kept aside
SINGULAR = 1e4  # the same for A itself, beyond which these kernels are not used
DRAWS_AT_ONCE = 1 << 22  # examples that JAX draws in one call


class LinearEngine:
    """Rounds of an affine method on LeastSquares or Logistic with sparse features."""

    def __init__(self, problem: Logistic | LeastSquares, method: LocalMethod, plan: Plan, x0: Params):
        self.problem, self.plan = problem, plan
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
        self.draws_itself = plan.epochs is None and plan.largest <= SMALL_CLIENT
        if self.draws_itself:  # unless this JAX makes other random bits
            rows, sampling = np.empty(plan.most_steps * (plan.batch_size or 1), np.uint32), self._sampling(0, 1)
            kernels.draw_rows(sampling, 0, 0, rows)
            drawn = plan.draws(plan.round_key(0), jnp.asarray(sampling.clients[0, 0], jnp.int32)).rows
            self.draws_itself = np.array_equal(np.asarray(drawn).ravel(), rows)
        self.rounds_at_once = COHORT_BLOCK
        if not self.draws_itself:
            self.rounds_at_once = max(1, min(COHORT_BLOCK, DRAWS_AT_ONCE // per_round))

    @staticmethod
    def reason_against(
        problem: AbstractProblem, method: LocalMethod, plan: Plan, x0: Params, together: bool
    ) -> str | None:
        """Why the kernels do not apply, or None when they do."""
        if not isinstance(problem, (Logistic, LeastSquares)) or type(problem) not in (Logistic, LeastSquares):
            return f"it serves Logistic and LeastSquares, not {type(problem).__name__}"
        if x0["weights"].dtype not in (np.float32, np.float64):
            return f"it computes in float32 and float64, not {x0['weights'].dtype}"
        if plan.batch_size is None:
            return "it serves minibatches, not full gradients"
        if not plan.equal_steps:
            return "it needs the same number of local steps on every client"
        if together:
            return "averages and client discrepancy look at every local step"
        if not _states_its_own_affine_form(method) or method.affine(plan.most_steps) is None:
            return f"{type(method).__name__} is not an affine recurrence"
        linear = _penalised(method.affine(plan.most_steps), problem.l2)  # pyright: ignore[reportArgumentType]
        if not _moderate(linear, SINGULAR):
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
        sampling = self._sampling(first, count)
        logistic, intercept = isinstance(self.problem, Logistic), self.problem.intercept
        pair, several = self.compiled_for
        done = kernels.run_rounds(
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

    def _sampling(self, first: int, count: int) -> Sampling:
        """Where the minibatches of `count` rounds come from; they are in one block of cohorts."""
        cohorts, place = self.plan.cohorts(first // COHORT_BLOCK), first % COHORT_BLOCK
        drawn, shares = np.empty((0, 0, 0, 0), np.uint32), np.empty((0, 0, 0, 0), self.dtype)
        if not self.draws_itself:
            wanted = cohorts[place : place + self.rounds_at_once]
            wanted = np.pad(wanted, ((0, self.rounds_at_once - len(wanted)), (0, 0)), mode="edge")
            draws = _draw(self.plan, wanted, first)
            drawn = np.asarray(draws.rows).astype(np.uint32)[:count]
            shares = shares if draws.weights is None else np.asarray(draws.weights, self.dtype)[:count]
        clients = np.array(cohorts[place : place + count], np.uint32, order="C")
        seed, steps = np.uint32(self.plan.seed), self.plan.most_steps
        return Sampling(drawn, shares, clients, self.starts, self.sizes, seed, np.uint32(first), steps)


def _states_its_own_affine_form(method: LocalMethod) -> bool:
    """Whether no subclass changes what the class that states the affine form does."""
    for kind in type(method).__mro__:
        if "affine" in vars(kind):
            return True
        if {"init", "broadcast", "start", "step", "finish", "update"} & set(vars(kind)):
            return False
    return False


def _penalised(affine: Affine, l2: Any) -> np.ndarray:
    """A of S <- A S - b g when an l2 term adds l2 query'S to the gradient."""
    penalty = 0.0 if l2 is None else float(l2)
    return np.asarray(affine.transition, float) - penalty * np.outer(affine.gain, affine.query)


def _moderate(matrix: np.ndarray, limit: float) -> bool:
    """Whether neither the matrix nor its inverse makes anything more than `limit` times as large."""
    singular = np.linalg.svd(matrix, compute_uv=False)
    return bool(singular[0] < limit and singular[-1] > 1 / limit)


def _lazy(affine: Affine, l2: Any, steps: int, dtype: Any) -> Lazy:
    query, gain = np.asarray(affine.query, float), np.asarray(affine.gain, float)
    transition = np.asarray(affine.transition, float)
    power = _penalised(affine, l2)
    powers = [np.eye(len(query))]
    while len(powers) <= steps and (len(powers) == 1 or _moderate(powers[-1] @ power, MODERATE)):
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
