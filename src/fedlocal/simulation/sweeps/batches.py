"""Batches of cells: which cells of a sweep are computed side by side, and how a batch is advanced."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.simulation.averages import Average
from fedlocal.simulation.engines import EngineName, engine_name
from fedlocal.simulation.kernels.engine import CORES, LANES, LinearEngine
from fedlocal.simulation.plan import COHORT_BLOCK
from fedlocal.simulation.rounds import RunInputs, RunState, cohort_of, first_state, output, run_round
from fedlocal.simulation.run import Run
from fedlocal.simulation.sweeps.grid import stack

BATCH_BYTES = 5 << 17  # of client states that one batch of cells computes side by side; found by measuring


@dataclass(frozen=True)
class CellBatch:
    """Cells that are computed side by side in one call."""

    cells: np.ndarray  # (B,) the number of the cell at each place; -1 where a place only fills up
    methods: LocalMethod  # every number an array (B,), in the precision of the run
    state: RunState  # every array (B, ...)
    linear: LinearEngine | None  # the fused kernels, where they apply


@dataclass(frozen=True)
class CellGroup:
    """Cells that share a program."""

    run: Run  # of the first cell: what all of them have in common
    methods: dict[int, LocalMethod]
    size: int  # cells in a batch
    threads: bool  # True if its batches may run at the same time
    linear: bool  # True if the fused kernels run it
    batches: tuple[CellBatch, ...]

    @classmethod
    def make(cls, run: Run, methods: list[LocalMethod], members: list[int], engine: EngineName) -> "CellGroup":
        """Choose the engine of a group and the size of its batches, and put its cells into them."""
        mine = {i: methods[i] for i in members}
        if engine_name("sweep", engine, run, list(mine.values())) == "linear":
            size = -(-len(members) // -(-len(members) // LANES))
            return cls(run, mine, size, False, True, ()).packed(members)
        alone = cls(run, mine, 1, False, False, ()).packed(members[:1])
        threads = len(members) > 1 and _stands_alone(run, alone.batches[0])
        per_client = sum(np.size(a) * np.asarray(a).itemsize for a in jax.tree.leaves(run.x0))
        most = max(1, BATCH_BYTES // (per_client * run.plan.clients_per_round))
        if not threads:
            most = max(1, most // 2)  # decompositions gain nothing from company; small batches have fewer empty places
        count = -(-len(members) // most)
        if threads and count > 1:
            count = min(-(-count // CORES) * CORES, len(members))  # so that no core waits at the end
        return cls(run, mine, -(-len(members) // count), threads, False, ()).packed(members)

    @property
    def engine(self) -> str:
        return "linear" if self.linear else "jax"

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

    def layout(self) -> list[list[int]]:
        """Return the cells of each batch."""
        return [[int(i) for i in batch.cells if i >= 0] for batch in self.batches]

    def _batch(self, cells: Sequence[int], states: dict[int, Any] | None) -> CellBatch:
        """Return a batch of these cells, filled up with copies of its first one."""
        missing, run = self.size - len(cells), self.run
        places = [*cells, *[cells[0]] * missing]
        chosen = [self.methods[i] for i in places]
        methods = stack(chosen, optax.tree.dtype(run.x0, "promote"))
        linear = LinearEngine(cast(Any, run.problem), chosen, run.plan, run.x0) if self.linear else None
        if states is None and self.linear:  # without compiling anything
            first = [first_state(run.problem, method, run.x0, None, False) for method in chosen]
            state = jax.tree.map(lambda *a: np.stack(a), *first)
        elif states is None:
            discrepancy = run.recorder.wants_discrepancy
            state = _first_states(run.problem, methods, run.x0, run.average, discrepancy)
        else:
            state = jax.tree.map(lambda *a: jnp.stack(a), *(states[i] for i in places))
        return CellBatch(np.array([*cells, *[-1] * missing]), methods, state, linear)


def by_cell(cells: Sequence[int], stacked: Any) -> dict[int, Any]:
    """Return the part of each cell in NumPy arrays that are stacked over these cells, and perhaps more behind them."""
    return {i: jax.tree.map(lambda a, k=k: a[k], stacked) for k, i in enumerate(cells)}


def _stands_alone(run: Run, batch: CellBatch) -> bool:
    """Return True if the program is plain XLA: what others call (LAPACK for singular values, callbacks to Python) waits
    for XLA's own threads, and two programs that do so at the same time may wait for each other forever."""
    program = _advance_cells.lower(*_arguments(run, batch, 0, 0)).as_text()
    return "custom_call" not in program and "fft" not in program


def advance_batch(run: Run, batch: CellBatch, done: int, count: int) -> RunState:
    """Return the state of a batch `count` rounds after round `done`."""
    if batch.linear is not None:
        state, ran = batch.linear.advance(batch.state, done, count)
        while ran < count and (np.asarray(state.diverged) < 0).any():
            state, more = batch.linear.advance(state, done + ran, count - ran)
            ran += more
        return state
    return jax.block_until_ready(_advance_cells(*_arguments(run, batch, done, count)))


def _arguments(run: Run, batch: CellBatch, done: int, count: int) -> tuple[Any, ...]:
    cohorts = None if run.plan.full_participation else run.plan.cohorts(done // COHORT_BLOCK)
    return run.inputs._replace(method=batch.methods), batch.state, cohorts, done, count


@jax.jit
def _advance_cells(
    inputs: RunInputs, states: RunState, cohorts: jax.Array | np.ndarray | None, first: int, count: int
) -> RunState:
    """Run `count` rounds of all cells from round `first`; a cell that diverged stays as it was when it did."""

    def more(carry: tuple[jax.Array, RunState]) -> jax.Array:
        return (carry[0] < count) & jnp.any(carry[1].diverged < 0)

    def one(carry: tuple[jax.Array, RunState]) -> tuple[jax.Array, RunState]:
        i, states = carry
        r = first + i
        cohort = cohort_of(inputs.plan, cohorts, r)

        def cell(method: LocalMethod, state: RunState) -> RunState:
            new = run_round(inputs._replace(method=method), state, cohort, r)
            return jax.tree.map(lambda a, b: jnp.where(state.diverged < 0, a, b).astype(b.dtype), new, state)

        return i + 1, jax.vmap(cell)(inputs.method, states)

    return jax.lax.while_loop(more, one, (jnp.zeros((), jnp.int32), states))[1]


@partial(jax.jit, static_argnames="discrepancy")
def _first_states(
    problem: AbstractProblem, methods: LocalMethod, x0: Params, average: Average | None, discrepancy: bool
) -> RunState:
    return jax.vmap(lambda method: first_state(problem, method, x0, average, discrepancy))(methods)


@jax.jit
def outputs(methods: LocalMethod, states: RunState) -> Params:
    """Return the point of each cell."""
    return jax.vmap(output)(methods, states)


@jax.jit
def penalties(methods: LocalMethod, points: Params) -> jax.Array:
    """Return psi at the point of each cell."""
    return jax.vmap(lambda method, x: method.regularizer.value(x))(methods, points)
