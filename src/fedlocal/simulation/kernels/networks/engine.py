"""Fused kernels for dense networks: a client's weights stay in its core's cache for all of its local steps.

README.md, in the folder above, explains panels, tiles and proximal maps.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.core.schedule import has_schedule
from fedlocal.data.federated_data import SparseMatrix
from fedlocal.metrics import losses_in_float64
from fedlocal.problems import MLP, Softmax
from fedlocal.simulation.kernels.barrier import meeting_place, together
from fedlocal.simulation.kernels.engine import CORES, draw_rounds
from fedlocal.simulation.kernels.networks import rounds
from fedlocal.simulation.kernels.networks.buffers import (
    Cells,
    Minibatches,
    NetworkExamples,
    NetworkNumbers,
    NetworkSizes,
)
from fedlocal.simulation.kernels.networks.form import NetworkForm
from fedlocal.simulation.kernels.networks.layout import Layout, Machine
from fedlocal.simulation.plan import COHORT_BLOCK, Plan
from fedlocal.simulation.rounds import RunState

LARGEST_BATCH = 96  # examples; JAX is as fast with larger products
DRAWS_AT_ONCE = 1 << 20  # examples that JAX draws in one call
SMALL_RUN = 1 << 37  # numbers of all clients, steps and rounds: JAX is done in about the time that compiling takes
DENSEST = 0.4  # share of non-zeros above which few inputs are zero in all examples of a minibatch
Network = MLP | Softmax
COMPUTED = {"scores", "losses", "penalty", "gradient", "full_gradient", "prepare"}


class NetworkEngine:
    """Rounds of some methods of one kind on an MLP, or on softmax regression, a network of one layer, in float32."""

    name: ClassVar[Literal["network"]] = "network"
    most_cells: ClassVar[int] = 64

    def __init__(
        self,
        problem: Network,
        methods: Sequence[LocalMethod],
        plan: Plan,
        x0: Params,
        like: "NetworkEngine | None" = None,
        threads: int = CORES,
        machine: Machine | None = None,
    ):
        """Make the memory of the loops; the examples are those of `like`, an engine of the same problem, if given."""
        assert plan.batch_size is not None
        self.problem, self.plan, self.count = problem, plan, len(methods)
        self.forms = [_form(method, plan.most_steps) for method in methods]
        self.threads = min(threads, plan.clients_per_round * len(methods))
        self.pool = ThreadPoolExecutor(self.threads) if like is None or like.threads < self.threads else like.pool
        weights = [layer["weights"] for layer in _layers_of(jax.tree.leaves(x0))]
        widths = [len(weights[0]), *(array.shape[1] for array in weights)]
        self.layout = Layout.make(widths, plan.batch_size, machine or Machine.here())
        self.examples = _examples(problem, self.layout.features) if like is None else like.examples
        self.mean_weights = np.ones(plan.num_clients) if plan.equal_mean else np.asarray(plan.mean_weights, np.float64)
        self.steps = np.asarray(plan.steps, np.int64)
        per_round = plan.clients_per_round * plan.most_steps * plan.batch_size
        self.rounds_at_once = max(1, min(COHORT_BLOCK, DRAWS_AT_ONCE // per_round))
        self.drawn: tuple[Any, ...] = ()  # what JAX drew last: the first of its rounds, rows, shares
        self.sizes = self._sizes()
        self.numbers = self._numbers()
        self.most_points = 1  # of those whose losses were asked for at once
        self.returned: Any = None  # the server's state that `numbers` holds

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
        kind, base = type(problem), Softmax if isinstance(problem, Softmax) else MLP
        if not isinstance(problem, Network) or any(getattr(kind, name) is not getattr(base, name) for name in COMPUTED):
            return f"it serves MLP and Softmax, not {kind.__name__}"
        if isinstance(problem, Softmax) and (problem.l2 is not None or not problem.intercept):
            return "it serves Softmax with an intercept and without l2"
        if isinstance(problem.data.arrays[0], SparseMatrix):
            return "features are sparse"
        if any(leaf.dtype != np.float32 for leaf in jax.tree.leaves(x0)):
            return f"it computes in float32, not {jax.tree.leaves(x0)[0].dtype}"
        if together:
            return "averages and client discrepancy look at every local step"
        if plan.may_miss:
            return "the number of clients changes from round to round"
        if plan.batch_size is None or plan.batch_size > LARGEST_BATCH:
            return f"it takes minibatches of at most {LARGEST_BATCH} examples"
        kinds = set()
        for method in methods:
            if has_schedule(method):
                return "a step size is a function of the round"
            form = NetworkForm.make(method, plan.most_steps)
            if isinstance(form, str):
                return form
            if not plan.equal_steps and form != NetworkForm.make(method, 1):
                return f"{type(method).__name__} needs the same number of local steps on every client"
            kinds.add(form.kind)
        if len(kinds) > 1:
            return "its methods are not of one kind"
        return None if rounds is None else _reason_slower(len(methods), plan, x0, rounds)

    def advance(self, states: RunState, first: int, count: int) -> tuple[RunState, int]:
        """At most `count` rounds of stacked states from round `first`; returns the states and how many rounds there were."""
        minibatches, numbers = self._minibatches(first, count), self.numbers
        if states.server is not self.returned:
            leaves, _ = jax.tree.flatten(states.server)
            if self.sizes.dual:
                numbers.walked[:] = leaves.pop()
            self.layout.pack(_layers_of(leaves), numbers.server)
        numbers.diverged[:] = states.diverged
        meeting = meeting_place(self.threads)

        def work(thread: int) -> int:
            return rounds.run_rounds(self.examples, minibatches, numbers, self.sizes, meeting, thread)

        self.returned = None
        done = together(self.pool, work, self.threads, meeting)[0]
        leaves = jax.tree.leaves(self.layout.unpack(numbers.server, self.count))
        if self.sizes.dual:
            leaves.append(numbers.walked.copy())
        server = jax.tree.unflatten(jax.tree.structure(states.server), leaves)
        self.returned = server
        return states._replace(server=server, diverged=numbers.diverged.astype(np.int32)), done

    def losses(self, points: Params, loss_weights: np.ndarray) -> np.ndarray:
        """F at several points, stacked along the first axis, in float64."""
        count = len(jax.tree.leaves(points)[0])
        self.most_points = max(self.most_points, count)
        # when cells diverge there are fewer: one number of points, one program
        filled = np.minimum(np.arange(self.most_points), count - 1)
        found = losses_in_float64(self.problem, jax.tree.map(lambda a: np.asarray(a)[filled], points), loss_weights)
        return found[:count]

    def _minibatches(self, first: int, count: int) -> Minibatches:
        """The minibatches of at most `count` rounds; they are in one block of cohorts."""
        cohorts, place, per_call = self.plan.cohorts(first // COHORT_BLOCK), first % COHORT_BLOCK, self.rounds_at_once
        if not self.drawn or not 0 <= first - self.drawn[0] < per_call or self.drawn[3] != first // COHORT_BLOCK:
            wanted = cohorts[place : place + per_call]
            wanted = np.pad(wanted, ((0, per_call - len(wanted)), (0, 0)), mode="edge")
            draws = draw_rounds(self.plan, wanted, first)
            shares = np.empty((0, 0, 0, 0)) if draws.weights is None else draws.weights
            self.drawn = (
                first,
                np.array(draws.rows, np.uint32, order="C"),
                np.array(shares, np.float32, order="C"),
                first // COHORT_BLOCK,
            )
        begin = first - self.drawn[0]
        count = min(count, per_call - begin, COHORT_BLOCK - place)
        weights = self.mean_weights[cohorts[place : place + count]]
        return Minibatches(
            drawn=self.drawn[1][begin : begin + count],
            shares=self.drawn[2][begin : begin + count],
            clients=np.array(cohorts[place : place + count], np.int64, order="C"),
            weights=np.ascontiguousarray(weights / weights.sum(axis=1, keepdims=True)),
            steps=self.steps,
            first=first,
        )

    def _sizes(self) -> NetworkSizes:
        layout, (psi, dual, on_clients, on_server) = self.layout, self.forms[0].kind
        lanes, panel = (0,) * layout.machine.lanes, (0,) * layout.machine.width
        compacted = (-(-layout.features // len(lanes)) * layout.rows + 2) * len(lanes)
        rows = [(0,) * count for count in (layout.rows, layout.short_rows)]
        return NetworkSizes(
            cells=self.count,
            threads=self.threads,
            numbers=layout.numbers,
            packed=layout.packed,
            outputs=layout.outputs,
            turned=layout.turned,
            examples=layout.tiles * layout.rows,
            batch=self.plan.batch_size or 0,
            features=layout.features,
            compacted=0 if layout.tiles > 1 or _density(self.examples.features) > DENSEST else compacted,
            psi=psi,
            dual=dual,
            on_clients=on_clients,
            on_server=on_server,
            layers=layout.layers,
            lanes=lanes,
            shapes=((rows[0], lanes, panel), (rows[0], lanes, (0,))),
            short_shapes=((rows[1], lanes, panel), (rows[1], lanes, (0,))),
        )

    def _numbers(self) -> NetworkNumbers:
        """Where the threads work."""
        layout, sizes, threads, layers = self.layout, self.sizes, self.threads, len(self.layout.layers.fan_in)
        lanes, classes = layout.machine.lanes, int(layout.layers.fan_out[-1])
        columns = int(layout.layers.vectors[-1]) * lanes
        outside = np.arange(columns) >= classes
        local = (1 + sizes.dual) * threads * layout.numbers + layout.slack
        return NetworkNumbers(
            cells=_cells(self.forms),
            server=np.zeros(self.count * layout.numbers + layout.slack, np.float32),
            walked=np.zeros(self.count, np.float32),
            diverged=np.empty(self.count, np.int64),
            totals=np.zeros((self.count + threads) * layout.numbers, np.float32),
            cut=np.empty(threads, np.int64),
            begins=np.empty((self.count, layers, 2)),
            states=np.zeros(local, np.float32),
            maps=np.empty((threads, layers, 3)),
            packed=np.zeros(threads * layout.packed, np.float32),
            compacted=np.zeros(threads * sizes.compacted, np.float32),
            listed=np.zeros(threads * 2 * layout.features, np.uint32),
            given=np.full(threads, -1),
            outputs=np.zeros(threads * layout.outputs, np.float32),
            turned=np.zeros(threads * layout.turned, np.float32),
            rows=np.zeros(threads * layout.tiles * layout.rows, np.uint32),
            counting=np.arange(max(layout.rows, *layout.layers.fan_in), dtype=np.uint32),
            padding=np.stack([np.where(outside, -1e30, 0), np.where(outside, 0, 1)]).astype(np.float32),
        )


def _form(method: LocalMethod, steps: int) -> NetworkForm:
    form = NetworkForm.make(method, steps)
    assert isinstance(form, NetworkForm)
    return form


def _cells(forms: Sequence[NetworkForm]) -> Cells:
    column = lambda name: np.array([getattr(form, name) for form in forms], float)  # noqa: E731
    clients, server = column("client_psi")[:, 1:].copy(), column("server_psi")[:, 1:].copy()
    return Cells(column("step"), column("keep"), column("take"), clients, server, column("server_step"))


def _layers_of(leaves: list[Any]) -> list[dict[str, Any]]:
    """The layers of a network from its arrays in JAX's order: the bias (or intercept) of each layer, then its weights."""
    return [{"bias": b, "weights": w} for b, w in zip(leaves[::2], leaves[1::2], strict=True)]


def _examples(problem: Network, width: int) -> NetworkExamples:
    """A problem's examples in the types that the kernels read; features are copied only if they change."""
    features, labels = problem.data.arrays
    flat = np.ascontiguousarray(features, np.float32).reshape(len(features), -1)
    if flat.shape[1] < width:
        flat = np.pad(flat, ((0, 0), (0, width - flat.shape[1])))
    flat = flat.reshape(-1)
    flat.setflags(write=False)  # as JAX's arrays are: one type, one compilation
    return NetworkExamples(flat, np.asarray(labels).astype(np.int64))


def _density(features: np.ndarray) -> float:
    """The share of numbers that are not zero, in a sample."""
    return float(np.count_nonzero(features[: 1 << 20]) / max(1, len(features[: 1 << 20])))


def _reason_slower(methods: int, plan: Plan, x0: Params, rounds: int) -> str | None:
    """Why the JAX engine is done with so many rounds of so many methods as soon as the kernels, or None if it is not."""
    if jax.default_backend() != "cpu":
        return "JAX has an accelerator"
    numbers = sum(leaf.size for leaf in jax.tree.leaves(x0))
    if methods * rounds * plan.clients_per_round * plan.most_steps * (plan.batch_size or 0) * numbers < SMALL_RUN:
        return "the run is so short that compiling for it does not pay"
    return None
