"""Batches of cells: which cells of a sweep are computed side by side, and how a batch is advanced."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.simulation.averages import Average
from fedlocal.simulation.engines import KERNELS, EngineName, Kernels, engine_name
from fedlocal.simulation.kernels.engine import CORES
from fedlocal.simulation.plan import COHORT_BLOCK
from fedlocal.simulation.rounds import RunInputs, RunState, cohort_of, first_state, output, run_round
from fedlocal.simulation.run import Run
from fedlocal.simulation.sweeps.grid import stack

BATCH_BYTES = 5 << 17  # of client states that one batch of cells computes side by side; found by measuring


@dataclass(frozen=True)
class CellBatch:
    """Cells that are computed side by side in one call."""

    cells: np.ndarray  # (B,) the number of the cell at each place; -1 where a place only fills up
    runs: tuple[Run, ...]  # (B,)
    methods: LocalMethod  # every number an array (B,), in the precision of the run
    state: RunState  # every array (B, ...)
    kernels: Kernels | None  # the fused kernels, where they apply


@dataclass(frozen=True)
class CellGroup:
    """Cells that share a program: all of them one seed, or each a seed of its own."""

    runs: dict[int, Run]  # of each cell; cells of one seed have the same, which is that of the first
    methods: dict[int, LocalMethod]  # with the numbers of all rounds in place of functions of the round
    size: int  # cells in a batch
    threads: bool  # True if its batches may run at the same time
    kernels: Kernels | None  # measures its losses and lends its examples, where the fused kernels run the group
    batches: tuple[CellBatch, ...]

    @classmethod
    def make(
        cls,
        runs: dict[int, Run],
        methods: dict[int, LocalMethod],
        engine: EngineName,
        total: int,
        like: Kernels | None,
    ) -> "CellGroup":
        """Choose the engine of a group and the size of its batches, and put its cells into them.

        `total` are the cells of all groups. The fused kernels take examples and threads from `like`, the `kernels` of another
        group, if there is one.
        """
        members = list(runs)
        run = runs[members[0]]
        name = engine_name("sweep", engine, run, list(methods.values()))
        if name != "jax":
            kind, apart = KERNELS[name], len({int(run.plan.seed) for run in runs.values()}) > 1
            # Cells of a batch walk through the same examples; of different seeds, each has a core of its own.
            size = 1 if apart else -(-len(members) // -(-len(members) // kind.most_cells))
            of_two = [methods[members[0]]] * min(2, total)
            kernels = kind(cast(Any, run.problem), of_two, run.plan, run.x0, cast(Any, like))
            return cls(runs, methods, size, apart, kernels, ()).packed(members)
        alone = cls(runs, methods, 1, False, None, ()).packed(members[:1])
        threads = len(members) > 1 and _stands_alone(alone, alone.batches[0])
        per_client = sum(np.size(a) * np.asarray(a).itemsize for a in jax.tree.leaves(run.x0))
        most = max(1, BATCH_BYTES // (per_client * run.plan.clients_per_round))
        if not threads:
            most = max(1, most // 2)  # decompositions gain nothing from company; small batches have fewer empty places
        count = -(-len(members) // most)
        if threads and count > 1:
            count = min(-(-count // CORES) * CORES, len(members))  # so that no core waits at the end
        return cls(runs, methods, -(-len(members) // count), threads, None, ()).packed(members)

    @property
    def run(self) -> Run:
        """What all cells have in common: all of the first cell's but its seed and starting point."""
        return next(iter(self.runs.values()))

    @property
    def engine(self) -> str:
        return "jax" if self.kernels is None else self.kernels.name

    def packed(self, cells: Sequence[int], states: dict[int, Any] | None = None) -> "CellGroup":
        """Return the group with these cells in as few batches as hold them."""
        return self.laid_out([cells[k : k + self.size] for k in range(0, len(cells), self.size)], states)

    def laid_out(self, layout: Sequence[Sequence[int]], states: dict[int, Any] | None) -> "CellGroup":
        """Return the group with these cells in its batches: in these states, or at the beginning."""
        return replace(self, batches=tuple(self._batch(part, states) for part in layout))

    def without(self, dead: dict[int, Any], states: dict[int, Any]) -> "CellGroup":
        """Return the group with its living cells in fewer batches if that saves one, else the group itself."""
        living = [i for batch in self.batches for i in batch.cells.tolist() if i >= 0 and i not in dead]
        if -(-len(living) // self.size) == len(self.batches):
            return self
        return self.packed(living, states)

    def states(self) -> dict[int, Any]:
        """Return the state of each cell in a batch, as NumPy arrays."""
        states: dict[int, Any] = {}
        for cells, batch in zip(self.layout(), self.batches, strict=True):
            states |= by_cell(cells, jax.device_get(batch.state))
        return states

    def to_measure(self, dead: Collection[int]) -> list[CellBatch]:
        """Return what is measured at once: every batch with a living cell; with the kernels, all cells together.

        In what is put together a dead cell's place, -1, has the state of a living one, so that the shapes stay the same.
        """
        alive = [batch for batch in self.batches if any(i >= 0 and i not in dead for i in batch.cells)]
        if self.kernels is None or len(self.batches) <= 1 or not alive:
            return alive
        held = np.concatenate([batch.cells for batch in alive]).tolist()
        places = {i: place for place, i in enumerate(held) if i >= 0 and i not in dead}
        order = [places.get(i, next(iter(places.values()))) for i in self.methods]
        state = jax.tree.map(lambda *a: np.concatenate(a)[order], *(batch.state for batch in alive))
        methods = stack(list(self.methods.values()), optax.tree.dtype(self.run.x0, "promote"))
        cells = np.array([i if i in places else -1 for i in self.methods])
        return [CellBatch(cells, tuple(self.runs.values()), methods, state, self.kernels)]

    def layout(self) -> list[list[int]]:
        """Return the cells of each batch."""
        return [[int(i) for i in batch.cells if i >= 0] for batch in self.batches]

    def _batch(self, cells: Sequence[int], states: dict[int, Any] | None) -> CellBatch:
        """Return a batch of these cells, filled up with copies of its first one."""
        missing, run = self.size - len(cells), self.runs[cells[0]]
        places = [*cells, *[cells[0]] * missing]
        chosen, runs = [self.methods[i] for i in places], [self.runs[i] for i in places]
        methods = stack(chosen, optax.tree.dtype(run.x0, "promote"))
        kernels = None
        if self.kernels is not None:
            threads = 1 if self.threads else CORES
            like: Any = self.kernels
            kernels = type(self.kernels)(cast(Any, run.problem), chosen, run.plan, run.x0, like, threads)
        if states is None and kernels is not None:  # without compiling anything
            first = [first_state(run.problem, method, run.x0, None, False) for method in chosen]
            state = jax.tree.map(lambda *a: np.stack(a), *first)
        elif states is None:
            discrepancy, x0 = run.recorder.wants_discrepancy, run.x0
            apart = any(other is not run for other in runs)
            if apart:
                x0 = jax.tree.map(lambda *a: jnp.stack(a), *(run.x0 for run in runs))
            state = _first_states(run.problem, methods, x0, run.average, discrepancy, apart)
        else:
            state = jax.tree.map(lambda *a: jnp.stack(a), *(states[i] for i in places))
        return CellBatch(np.array([*cells, *[-1] * missing]), tuple(runs), methods, state, kernels)


def by_cell(cells: Sequence[int], stacked: Any) -> dict[int, Any]:
    """Return the part of each cell in NumPy arrays that are stacked over these cells, and perhaps more behind them."""
    return {i: jax.tree.map(lambda a, k=k: a[k], stacked) for k, i in enumerate(cells)}


def _stands_alone(group: CellGroup, batch: CellBatch) -> bool:
    """Return True if the program is plain XLA: what others call (LAPACK for singular values, callbacks to Python) waits
    for XLA's own threads, and two programs that do so at the same time may wait for each other forever."""
    program = _advance_cells.lower(*_arguments(group.run, batch, 0, 0)).as_text()
    return "custom_call" not in program and "fft" not in program


def advance_batch(run: Run, batch: CellBatch, done: int, count: int) -> RunState:
    """Return the state of a batch `count` rounds after round `done`."""
    if batch.kernels is not None:
        state, ran = batch.kernels.advance(batch.state, done, count)
        while ran < count and (np.asarray(state.diverged) < 0).any():
            state, more = batch.kernels.advance(state, done + ran, count - ran)
            ran += more
        return state
    return jax.block_until_ready(_advance_cells(*_arguments(run, batch, done, count)))


def _arguments(run: Run, batch: CellBatch, done: int, count: int) -> tuple[Any, ...]:
    plans, block = [run.plan for run in batch.runs], done // COHORT_BLOCK
    plan, cohorts = plans[0], None
    if all(other is plan for other in plans):
        cohorts = None if plan.full_participation else plan.cohorts(block)
    else:
        seeds = np.array([other.seed for other in plans])
        plan = eqx.tree_at(lambda p: p.seed, plan, seeds)
        cohorts = None if plan.full_participation else np.stack([other.cohorts(block) for other in plans], axis=1)
    return run.inputs._replace(method=batch.methods, plan=plan), batch.state, cohorts, done, count


@jax.jit
def _advance_cells(
    inputs: RunInputs, states: RunState, cohorts: jax.Array | np.ndarray | None, first: int, count: int
) -> RunState:
    """Run `count` rounds of all cells from round `first`; a cell that diverged stays as it was when it did.

    Cells share a seed, so that they draw the same once; or `inputs.plan.seed` holds one for each, and `cohorts` are
    (COHORT_BLOCK, B, S).
    """
    seed = inputs.plan.seed
    apart = 0 if jnp.ndim(seed) else None

    def more(carry: tuple[jax.Array, RunState]) -> jax.Array:
        return (carry[0] < count) & jnp.any(carry[1].diverged < 0)

    def one(carry: tuple[jax.Array, RunState]) -> tuple[jax.Array, RunState]:
        i, states = carry
        r = first + i
        cohort = cohort_of(inputs.plan, cohorts, r)

        def cell(method: LocalMethod, state: RunState, seed: Any, cohort: Any) -> RunState:
            plan = eqx.tree_at(lambda p: p.seed, inputs.plan, seed)
            new = run_round(inputs._replace(method=method, plan=plan), state, cohort, r)
            return jax.tree.map(lambda a, b: jnp.where(state.diverged < 0, a, b).astype(b.dtype), new, state)

        in_axes = (0, 0, apart, None if cohorts is None else apart)
        return i + 1, jax.vmap(cell, in_axes)(inputs.method, states, seed, cohort)

    return jax.lax.while_loop(more, one, (jnp.zeros((), jnp.int32), states))[1]


@partial(jax.jit, static_argnames=("discrepancy", "apart"))
def _first_states(
    problem: AbstractProblem, methods: LocalMethod, x0: Params, average: Average | None, discrepancy: bool, apart: bool
) -> RunState:
    """Return the states before round 0; each cell has a starting point of its own if `apart`."""
    state = lambda method, x0: first_state(problem, method, x0, average, discrepancy)  # noqa: E731
    return jax.vmap(state, (0, 0 if apart else None))(methods, x0)


@jax.jit
def outputs(methods: LocalMethod, states: RunState) -> Params:
    """Return the point of each cell."""
    return jax.vmap(output)(methods, states)


@jax.jit
def penalties(methods: LocalMethod, points: Params) -> jax.Array:
    """Return psi at the point of each cell."""
    return jax.vmap(lambda method, x: method.regularizer.value(x))(methods, points)
