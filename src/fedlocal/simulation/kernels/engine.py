"""Fused kernels for linear models: a local step costs the non-zeros of its examples, not the dimension.

Every smooth method here is an affine recurrence (`fedlocal.core.Affine`): S <- A S - b g with a gradient g that touches
only the non-zeros of the examples. The linear part is kept aside: S = A^k U, so that a step changes U in these alone.
README.md explains proximal maps, lanes and threads.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.core.schedule import has_schedule
from fedlocal.data.federated_data import SparseMatrix
from fedlocal.problems import LeastSquares, Logistic
from fedlocal.simulation.kernels import frozen_gradient, rounds, tables
from fedlocal.simulation.kernels.barrier import meeting_place, together
from fedlocal.simulation.kernels.buffers import MIRROR, ClientSchedule, Numbers, Rows, Sizes
from fedlocal.simulation.kernels.tables import Form
from fedlocal.simulation.kernels.threefry import draw_rows, round_key
from fedlocal.simulation.plan import COHORT_BLOCK, SMALL_CLIENT, Plan
from fedlocal.simulation.rounds import RunState

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
LANES = 16  # runs that walk side by side
DENSEST = 0.25  # fraction of non-zeros above which features are kept as a dense matrix
DENSE_WIDTH = 512  # fewer dense features are faster as matrix products
DENSE_BATCH = 4  # and so are larger minibatches of them
SMALL_RUN = 1 << 31  # numbers of all clients, steps and rounds: JAX is done in about the time that compiling takes
IN_STEP_BYTES = 1 << 15  # of client states that a thread walks in step
DRAWS_AT_ONCE = 1 << 22  # examples that JAX draws in one call
STEPS = {"init", "broadcast", "start", "step", "finish", "update", "primal"}


class LinearEngine:
    """Rounds of some methods of one kind, at most LANES of them, on LeastSquares or Logistic."""

    name: ClassVar[Literal["linear"]] = "linear"
    most_cells: ClassVar[int] = LANES

    def __init__(
        self,
        problem: Logistic | LeastSquares,
        methods: Sequence[LocalMethod],
        plan: Plan,
        x0: Params,
        like: "LinearEngine | None" = None,
        threads: int = CORES,
    ):
        """Make the tables and the memory of the loops; rows are those of `like`, an engine of the same problem, if given."""
        self.problem, self.plan, self.count = problem, plan, len(methods)
        self.lanes = (0,) * (1 if len(methods) == 1 else LANES)
        filled = [*methods, *[methods[0]] * (len(self.lanes) - len(methods))]
        forms: list[Any] = [method.affine(plan.most_steps) for method in filled]
        self.dtype = x0["weights"].dtype
        self.form = Form.make(forms, _l2(problem), plan.most_steps, self.dtype)
        self.keeps_walked = forms[0].proximal is not None and forms[0].proximal.dual
        self.intercept, self.threads = problem.intercept, min(threads, plan.clients_per_round)
        self.pool = ThreadPoolExecutor(self.threads) if like is None else like.pool
        self.rows = rows_of(problem, self.dtype) if like is None else like.rows
        self.mean_weights = np.ones(plan.num_clients) if plan.equal_mean else np.asarray(plan.mean_weights, np.float64)
        rows = len(self.rows.targets)
        stored = len(self.rows.columns if self.rows.values is None else self.rows.values)  # pyright: ignore
        starts, sizes = problem.starts().astype(np.uint32), problem.sizes().astype(np.uint32)
        self.clients = starts, sizes, np.asarray(plan.steps, np.int64)
        per_round = plan.clients_per_round * plan.most_steps * (plan.batch_size or 1)
        settings = jax.config.jax_threefry_partitionable, jax.config.jax_default_prng_impl  # pyright: ignore
        small = plan.epochs is None and plan.largest <= SMALL_CLIENT
        self.draws_itself = plan.batch_size is None or (small and _makes_the_bits_of_jax(settings))
        self.drawn: tuple[Any, ...] = ()  # what JAX drew last: the first of its rounds, rows, weights
        few = max(1, min(COHORT_BLOCK, DRAWS_AT_ONCE // per_round))
        self.rounds_at_once = COHORT_BLOCK if self.draws_itself else few
        width = x0["weights"].size + self.intercept
        seen = 2 * stored / rows * plan.most_steps * (plan.batch_size or np.inf)
        state = self.form.size * width * len(self.lanes) * np.dtype(self.dtype).itemsize
        alike = ("size", "number", "period", "frozen", "proximal", "places")
        self.sizes = Sizes(
            **{name: getattr(self.form, name) for name in alike},
            width=width,
            dimension=width - self.intercept,
            threads=self.threads,
            in_step=1 if self.form.frozen or plan.batch_size is None else int(np.clip(IN_STEP_BYTES // state, 1, 4)),
            most_steps=plan.most_steps,
            batch=plan.batch_size or 0,
            most_examples=plan.batch_size or plan.largest,
            logistic=isinstance(problem, Logistic),
            touched=seen < width and self.form.period >= plan.most_steps,
            kind=(0,) * self.form.kind,
            lanes=self.lanes,
        )
        self.numbers = self._numbers(rows, per_round)

    @staticmethod
    def reason_against(
        problem: AbstractProblem,
        methods: Sequence[LocalMethod],
        plan: Plan,
        x0: Params,
        together: bool,
        rounds: int | None = None,
    ) -> str | None:
        """Why the kernels do not apply (or would not be faster, if so many `rounds` are to be run), or None when they do."""
        if not isinstance(problem, (Logistic, LeastSquares)) or type(problem) not in (Logistic, LeastSquares):
            return f"it serves Logistic and LeastSquares, not {type(problem).__name__}"
        if x0["weights"].dtype not in (np.float32, np.float64):
            return f"it computes in float32 and float64, not {x0['weights'].dtype}"
        if together:
            return "averages and client discrepancy look at every local step"
        if plan.may_miss:
            return "the number of clients changes from round to round"
        steps = plan.most_steps
        for method in methods:
            if has_schedule(method):
                return "a step size is a function of the round"
            name, form = type(method).__name__, method.affine(steps)
            if form is None or not states_its_own(method, "affine", STEPS):
                return f"{name} is not an affine recurrence"
            psi = method.regularizer
            if not states_its_own(psi, "separable", {"array_prox", "parts", "prox"}):
                return f"{type(psi).__name__} is not one of the separable regularisers"
            if not plan.equal_steps and repr(method.affine(1)) != repr(method.affine(2)):
                return f"{name} needs the same number of local steps on every client"
            against = tables.reason_against(form, _l2(problem), steps, plan.equal_steps)
            if against is not None:
                return f"{name}: {against}"
        return None if rounds is None else _reason_slower(problem, len(methods), plan, x0["weights"].size, rounds)

    def advance(self, states: RunState, first: int, count: int) -> tuple[RunState, int]:
        """At most `count` rounds of stacked states from round `first`; returns the states and how many rounds there were."""
        sampling, numbers = self._sampling(first, count), self.numbers
        leaves, treedef = jax.tree.flatten(states.server)
        numbers.walked[:] = self._fill(leaves.pop()) if self.keeps_walked else 0
        numbers.vectors[:] = self._to_vectors(leaves)
        numbers.diverged[:] = self._fill(states.diverged)
        meeting = meeting_place(self.threads)

        def work(thread: int) -> int:
            return rounds.run_rounds(self.rows, sampling, numbers, self.sizes, meeting, thread)

        done = together(self.pool, work, self.threads, meeting)[0]
        leaves = self._from_vectors(numbers.vectors)
        if self.keeps_walked:
            leaves.append(numbers.walked[0, : self.count].astype(self.dtype))
        server = jax.tree.unflatten(treedef, leaves)
        return states._replace(server=server, diverged=numbers.diverged[0, : self.count].astype(np.int32)), done

    def losses(self, points: Params, loss_weights: np.ndarray) -> np.ndarray:
        """F at several points, stacked along the first axis, in float64."""
        weights, found = np.asarray(loss_weights, np.float64), []
        for begin in range(0, len(points["weights"]), len(self.lanes)):
            some = {name: np.asarray(a[begin : begin + len(self.lanes)], np.float64) for name, a in points.items()}
            parts = [some["intercept"], some["weights"]] if self.intercept else [some["weights"]]
            vectors, totals = np.ascontiguousarray(self._to_vectors(parts)), np.empty((self.threads, len(self.lanes)))

            def work(t: int, vectors: np.ndarray = vectors, totals: np.ndarray = totals) -> None:
                frozen_gradient.losses(self.rows, weights, vectors, totals, self.sizes, t)

            together(self.pool, work, self.threads)
            sums = totals.sum(axis=0)[: len(some["weights"])]
            if _l2(self.problem) != 0:
                with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported, not warned about
                    sums += _l2(self.problem) / 2 * np.sum(some["weights"] ** 2, axis=1)
            found.append(sums)
        return np.concatenate(found)

    def _numbers(self, rows: int, per_round: int) -> Numbers:
        """Where the threads work."""
        sizes, plan, lanes = self.sizes, self.plan, len(self.lanes)
        threads, vector = sizes.threads, sizes.size * sizes.width
        counted = sizes.frozen and (plan.batch_size is None or per_round > rows)
        listed = 0 if not sizes.frozen else rows if counted else per_round
        walkers = 0 if sizes.frozen else threads * sizes.in_step
        return Numbers(
            local=self.form.local,
            server=self.form.server,
            vectors=np.empty((sizes.number * sizes.width, lanes), self.dtype),
            walked=np.empty((threads, lanes)),
            diverged=np.empty((threads, lanes), np.int64),
            finite=np.empty((threads, lanes), bool),
            beginning=np.empty((vector, lanes), self.dtype),
            point=np.empty((sizes.width, lanes), self.dtype),
            states=np.empty((walkers * vector, lanes), self.dtype),
            stamps=np.empty(walkers * sizes.width if self.form.kind == MIRROR else 0, np.int64),
            totals=np.empty((threads * vector, lanes)),
            after=np.empty((threads * sizes.number, lanes)),
            changes=np.empty((threads * sizes.in_step * sizes.most_examples, lanes), self.dtype),
            drawn=np.empty(threads * sizes.in_step * plan.most_steps * sizes.batch, np.uint32),
            by_steps=np.empty(threads * (plan.most_steps + 1)),
            examples=np.arange(listed, dtype=np.uint32),
            amounts=np.zeros(listed),
            counts=np.zeros(threads * rows if counted else 0),
        )

    def _sampling(self, first: int, count: int) -> ClientSchedule:
        """Where the minibatches of at most `count` rounds come from; they are in one block of cohorts."""
        cohorts, place = self.plan.cohorts(first // COHORT_BLOCK), first % COHORT_BLOCK
        count = min(count, self.rounds_at_once, COHORT_BLOCK - place)
        weights = self.mean_weights[cohorts[place : place + count]]
        weights = np.ascontiguousarray(weights / weights.sum(axis=1, keepdims=True))  # one layout, one compilation
        drawn, shares = np.empty((0, 0, 0, 0), np.uint32), np.empty((0, 0, 0, 0), self.dtype)
        if not self.draws_itself:
            if not self.drawn or not 0 <= first - self.drawn[0] < self.rounds_at_once:
                wanted = cohorts[place : place + self.rounds_at_once]
                wanted = np.pad(wanted, ((0, self.rounds_at_once - len(wanted)), (0, 0)), mode="edge")
                draws = draw_rounds(self.plan, wanted, first)
                weights_of = shares if draws.weights is None else np.array(draws.weights, self.dtype)
                self.drawn = first, np.asarray(draws.rows).astype(np.uint32), weights_of
            begin = first - self.drawn[0]
            count = min(count, self.rounds_at_once - begin)
            weights = weights[:count]
            drawn = self.drawn[1][begin : begin + count]
            shares = self.drawn[2][begin : begin + count]
        clients = np.array(cohorts[place : place + count], np.uint32, order="C")
        seed, begins = np.uint32(self.plan.seed), np.uint32(first)
        return ClientSchedule(drawn, shares, clients, weights, *self.clients, seed, begins)

    def _fill(self, a: Any) -> np.ndarray:
        """One entry per lane: lanes without a run of their own repeat the first."""
        a = np.asarray(a)
        return np.concatenate([a, np.repeat(a[:1], len(self.lanes) - len(a), axis=0)])

    def _to_vectors(self, leaves: list[Any]) -> np.ndarray:
        """(v width, L), with the intercept as a last row of each vector where there is one; leaves come intercept first."""
        parts = [np.atleast_2d(self._fill(a).T) for a in leaves]
        if self.intercept:
            parts[::2], parts[1::2] = parts[1::2], parts[::2]
        return np.concatenate(parts)

    def _from_vectors(self, vectors: np.ndarray) -> list[Any]:
        parts, width = [], self.sizes.width
        for begin in range(0, len(vectors), width):
            vector = vectors[begin : begin + width, : self.count]
            weights = vector[: self.sizes.dimension].T.copy()
            parts += [vector[-1].copy(), weights] if self.intercept else [weights]
        return parts


def _reason_slower(problem: Logistic | LeastSquares, methods: int, plan: Plan, width: int, rounds: int) -> str | None:
    """Why the JAX engine is done with so many rounds of so many methods as soon as the kernels, or None if it is not."""
    if jax.default_backend() != "cpu":
        return "JAX has an accelerator"
    batch = plan.batch_size or plan.largest
    if methods * rounds * plan.clients_per_round * plan.most_steps * max(width, batch) < SMALL_RUN:
        return "the run is so short that compiling for it does not pay"
    if (width < DENSE_WIDTH or batch > DENSE_BATCH) and _density(problem) > DENSEST:
        return "features are dense"
    return None


def rows_of(problem: Logistic | LeastSquares, dtype: Any) -> Rows:
    """A problem's examples in the types that the kernels read fastest."""
    features, targets = problem.data.arrays
    targets = np.array(targets, dtype)
    if not isinstance(features, SparseMatrix):
        dense = np.asarray(features, dtype)
        if _density(problem) > DENSEST:
            return Rows(None, None, np.ascontiguousarray(dense).ravel(), targets)
        csr = scipy.sparse.csr_array(dense)
        starts, columns, values = csr.indptr, csr.indices, csr.data
    else:
        starts, columns, values = (np.asarray(a) for a in (features.row_starts, features.columns, features.values))
    narrow = np.uint16 if features.shape[1] <= 2**16 else np.uint32
    values = None if np.all(values == 1) else values.astype(dtype)
    return Rows(starts.astype(np.uint32), columns.astype(narrow), values, targets)


def _density(problem: Logistic | LeastSquares) -> float:
    features = problem.data.arrays[0]
    if isinstance(features, SparseMatrix):
        return 0.0  # it stays sparse, whatever it holds
    return float(jnp.mean(features[:: max(1, len(features) // 1000)] != 0))  # about a thousand rows say enough


def _l2(problem: Logistic | LeastSquares) -> float:
    return 0.0 if problem.l2 is None else float(problem.l2)


def states_its_own(thing: Any, form: str, changes: set[str]) -> bool:
    """Whether no subclass changes what the class that states the form does."""
    for kind in type(thing).__mro__:
        if form in vars(kind):
            return True
        if changes & set(vars(kind)):
            return False
    return False


@lru_cache
def _makes_the_bits_of_jax(settings: tuple[Any, ...]) -> bool:
    """Whether JAX draws what our own loops draw, with these settings of its random numbers."""
    rows = np.empty(7, np.uint32)
    draw_rows(round_key(np.uint32(3), np.uint32(5)), np.uint32(2), np.uint32(0), np.uint32(1000), rows, 0, 7)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), 5), 2)
    return bool(np.array_equal(np.asarray(jax.random.bits(key, (7,), jnp.uint32)) % 1000, rows))


@jax.jit
def draw_rounds(plan: Plan, cohorts: jax.Array, first: int) -> Any:
    """Rows (and weights) of all minibatches of some rounds: (R, S, K, B)."""

    def one_round(cohort: jax.Array, r: jax.Array) -> Any:
        return jax.vmap(partial(plan.draws, plan.round_key(r)))(cohort)

    return jax.vmap(one_round)(cohorts, first + jnp.arange(len(cohorts)))
