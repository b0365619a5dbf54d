"""Blocks of cells: how the cells of a sweep are put together, go on, are measured, diverge and leave."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.engines.averages import Average
from fedlocal.engines.cells import stack
from fedlocal.engines.linear import CORES, LANES, LinearEngine
from fedlocal.engines.plan import COHORT_BLOCK, Plan
from fedlocal.engines.rounds import RunState, first_state, output, run_round
from fedlocal.engines.run import Run
from fedlocal.engines.simulate import takes_linear

BLOCK_BYTES = 5 << 17  # of client states that one block of cells walks through side by side; found by measuring


@dataclass(frozen=True)
class Block:
    """Cells that walk side by side in one call."""

    cells: np.ndarray  # (B,) which cell each place holds; -1 where it only fills up
    methods: LocalMethod  # every number an array (B,), in the precision of the run
    state: RunState  # every array (B, ...)
    linear: LinearEngine | None  # the fused kernels, where they apply


@dataclass(frozen=True)
class Group:
    """Cells that share a program."""

    run: Run  # of the first cell: what all of them have in common
    methods: dict[int, LocalMethod]
    size: int  # cells in a block
    threads: bool  # whether its blocks may run at the same time
    linear: bool  # whether fused kernels run it
    blocks: tuple[Block, ...]

    @classmethod
    def make(cls, run: Run, methods: list[LocalMethod], members: list[int], engine: str) -> "Group":
        mine = {i: methods[i] for i in members}
        if takes_linear("sweep", engine, run, list(mine.values())):
            size = -(-len(members) // -(-len(members) // LANES))
            group = cls(run, mine, size, False, True, ())
            return group.packed([members[i : i + size] for i in range(0, len(members), size)])
        alone = cls(run, mine, 1, False, False, ()).packed([members[:1]])
        threads = len(members) > 1 and _stands_alone(run, alone.blocks[0])
        per_client = sum(np.size(a) * np.asarray(a).itemsize for a in jax.tree.leaves(run.x0))
        most = max(1, BLOCK_BYTES // (per_client * run.plan.clients_per_round))
        if not threads:
            most = max(1, most // 2)  # decompositions gain nothing from company; small blocks have fewer empty places
        count = -(-len(members) // most)
        if threads and count > 1:
            count = min(-(-count // CORES) * CORES, len(members))  # so that no core waits at the end
        size = -(-len(members) // count)
        group = cls(run, mine, size, threads, False, ())
        return group.packed([members[i : i + size] for i in range(0, len(members), size)])

    def packed(self, cells: Sequence[Sequence[int]], states: dict[int, Any] | None = None) -> "Group":
        """The same group with these cells in its blocks: in these states, or at the beginning."""
        return replace(self, blocks=tuple(self._block(part, states) for part in cells))

    def _block(self, cells: Sequence[int], states: dict[int, Any] | None) -> Block:
        """A block of these cells, filled up with copies of its first one."""
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
        return Block(np.array([*cells, *[-1] * missing]), methods, state, linear)

    def layout(self) -> list[list[int]]:
        return [[int(i) for i in block.cells if i >= 0] for block in self.blocks]


@dataclass(frozen=True)
class Walk:
    """How far a sweep is. It is replaced as a whole, so an interruption never finds a part of it."""

    groups: list[Group]
    dead: dict[int, tuple[int, Any]]  # cells that diverged: the round, and the state where they left their block
    rows: list[dict[str, float]]
    done: int  # rounds

    @property
    def blocks(self) -> list[tuple[Group, Block]]:
        """Blocks in which a cell is alive."""
        return [(g, b) for g in self.groups for b in g.blocks if any(i >= 0 and i not in self.dead for i in b.cells)]

    def advanced(self, pool: ThreadPoolExecutor | None, count: int) -> "Walk":
        """`count` rounds further, on all cores where blocks may run at the same time; nothing is measured."""
        alive = {id(block) for _, block in self.blocks}
        groups = []
        for group in self.groups:
            going = [block for block in group.blocks if id(block) in alive]
            work = [partial(_advance_block, group.run, block, self.done, count) for block in going]
            states = _on_all_cores(pool if group.threads else None, work)
            moved = {id(block): replace(block, state=state) for block, state in zip(going, states, strict=True)}
            groups.append(replace(group, blocks=tuple(moved.get(id(block), block) for block in group.blocks)))
        return replace(self, groups=groups, done=self.done + count)

    def evaluated(self) -> "Walk":
        """The same moment with a row for every living cell; those that are not finite any more are put aside."""
        rows = [row for group, block in self.blocks for row in _measure_block(group, block, self.dead, self.done)]
        ended = {int(row["cell"]): int(row["round"]) for row in rows if row.pop("ended")}
        walk = replace(self, rows=self.rows + rows)
        if not ended:
            return walk
        states = {i: state for group in self.groups for i, state in _states(group).items()}
        dead = self.dead | {i: (r, states[i]) for i, r in ended.items()}
        return replace(walk, groups=[_repacked(g, dead, states) for g in self.groups], dead=dead)

    def states(self) -> list[Any]:
        """The state of every cell, stacked, for each group."""
        each = {i: state for group in self.groups for i, state in _states(group).items()}
        each |= {i: state for i, (_, state) in self.dead.items()}
        return [jax.tree.map(lambda *a: np.stack(a), *(each[i] for i in g.methods)) for g in self.groups]

    def extra(self) -> dict[str, Any]:
        """What else a checkpoint keeps: the history by columns, who diverged when, who walks with whom."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        columns = {name: [row.get(name) for row in self.rows] for name in names}
        dead = {str(i): r for i, (r, _) in self.dead.items()}
        return {"columns": columns, "dead": dead, "layout": [group.layout() for group in self.groups]}

    def resumed(self, done: int, states: list[Any], extra: dict[str, Any]) -> "Walk":
        """A walk as it was saved."""
        rounds = self.groups[0].run.configuration["rounds"]
        if done > rounds:
            raise ValueError(
                f"sweep: the checkpoint is at round {done} already; rounds must be >= {done}, got {rounds}"
            )
        each: dict[int, Any] = {}
        for group, stacked in zip(self.groups, states, strict=True):
            for place, i in enumerate(group.methods):
                each[i] = jax.tree.map(lambda a, place=place: np.asarray(a)[place], stacked)
        groups = [g.packed(layout, each) for g, layout in zip(self.groups, extra["layout"], strict=True)]
        dead = {int(i): (r, each[int(i)]) for i, r in extra["dead"].items()}
        columns, every = extra["columns"], self.groups[0].run.configuration["eval_every"]
        rows = [
            {name: value for name, value in zip(columns, values, strict=True) if value is not None}
            for values in zip(*columns.values(), strict=True)
        ]
        kept = [r for r in rows if r["round"] % every == 0 or r["round"] == rounds or int(r["cell"]) in dead]
        return Walk(groups, dead, kept, done)  # the last row of a shorter sweep is not one of a longer one


def _repacked(group: Group, dead: dict[int, Any], states: dict[int, Any]) -> Group:
    """Living cells move together when that saves a block."""
    living = [i for block in group.blocks for i in block.cells.tolist() if i >= 0 and i not in dead]
    needed = -(-len(living) // group.size)
    if needed == len(group.blocks):
        return group
    return group.packed([living[k : k + group.size] for k in range(0, len(living), group.size)], states)


def _states(group: Group) -> dict[int, Any]:
    """The state of each cell in a block, as NumPy arrays."""
    out: dict[int, Any] = {}
    for block in group.blocks:
        state = jax.device_get(block.state)
        for place, i in enumerate(block.cells.tolist()):
            if i >= 0:
                out[i] = jax.tree.map(lambda a, place=place: np.asarray(a[place]), state)
    return out


def _on_all_cores(pool: ThreadPoolExecutor | None, work: list[Callable[[], Any]]) -> list[Any]:
    """The results of `work`, computed in the caller's precision, which threads do not inherit."""
    if pool is None or len(work) == 1:
        return [job() for job in work]
    double = jnp.result_type(float) == np.float64

    def call(job: Callable[[], Any]) -> Any:
        with jax.enable_x64(double):
            return job()

    return list(pool.map(call, work))


def _stands_alone(run: Run, block: Block) -> bool:
    """Whether the program is plain XLA. What it calls out to (LAPACK for singular values, callbacks to Python) waits for XLA's
    own threads, and two programs that do so at the same time may wait for each other forever."""
    program = _advance_cells.lower(*_arguments(run, block, 0, 0)).as_text()
    return "custom_call" not in program and "fft" not in program


def _advance_block(run: Run, block: Block, done: int, count: int) -> RunState:
    if block.linear is not None:
        state, ran = block.linear.advance(block.state, done, count)
        while ran < count and (np.asarray(state.diverged) < 0).any():
            state, more = block.linear.advance(state, done + ran, count - ran)
            ran += more
        return state
    return jax.block_until_ready(_advance_cells(*_arguments(run, block, done, count)))


def _arguments(run: Run, block: Block, done: int, count: int) -> tuple[Any, ...]:
    plan = run.plan
    cohorts = None if plan.full_participation else plan.cohorts(done // COHORT_BLOCK)
    total = float(run.configuration["rounds"] * plan.most_steps)
    return run.problem, block.methods, plan, run.average, total, block.state, cohorts, done, count


@jax.jit
def _advance_cells(
    problem: AbstractProblem,
    methods: LocalMethod,
    plan: Plan,
    average: Average | None,
    total_steps: float,
    states: RunState,
    cohorts: jax.Array | np.ndarray | None,
    first: int,
    count: int,
) -> RunState:
    """`count` rounds of all cells from round `first`; a cell that diverged stays as it was when it did."""

    def more(carry: tuple[jax.Array, RunState]) -> jax.Array:
        return (carry[0] < count) & jnp.any(carry[1].diverged < 0)

    def one(carry: tuple[jax.Array, RunState]) -> tuple[jax.Array, RunState]:
        i, states = carry
        r = first + i
        cohort = jnp.arange(plan.num_clients) if cohorts is None else cohorts[r % COHORT_BLOCK]

        def cell(method: LocalMethod, state: RunState) -> RunState:
            new = run_round(problem, method, plan, average, total_steps, state, cohort, r)
            return jax.tree.map(lambda a, b: jnp.where(state.diverged < 0, a, b).astype(b.dtype), new, state)

        return i + 1, jax.vmap(cell)(methods, states)

    return jax.lax.while_loop(more, one, (jnp.zeros((), jnp.int32), states))[1]


def _measure_block(group: Group, block: Block, dead: dict[int, Any], done: int) -> list[dict[str, Any]]:
    """Rows of the living cells of a block, each with whether it ended there."""
    recorder = group.run.recorder
    living = [place for place, i in enumerate(block.cells.tolist()) if i >= 0 and i not in dead]
    shown = [place if place in living else living[0] for place in range(group.size)]  # same shapes, and no surprises
    points = jax.device_get(outputs(block.methods, block.state))
    points = jax.tree.map(lambda a: np.asarray(a, np.float64)[shown], points)
    methods = [group.methods[int(block.cells[place])] for place in shown]
    evaluate = recorder.losses if block.linear is None else block.linear.losses
    losses = evaluate(points, recorder.loss_weights)
    with jax.enable_x64(True):
        objectives = losses + np.asarray(_penalties(stack(methods, np.float64), points))
    server, diverged, spread = jax.device_get((block.state.server, block.state.diverged, block.state.discrepancy))
    rounds = [int(diverged[place]) if diverged[place] >= 0 else done for place in living]
    views = [
        recorder.view(
            methods[place],
            jax.tree.map(lambda a, place=place: a[place], points),
            float(losses[place]),
            float(objectives[place]),
            jax.tree.map(lambda a, place=place: a[place], server),
            {name: values[place] for name, values in (spread or {}).items()},
        )
        for place in living
    ]
    rows = recorder.measure(rounds, views)
    return [
        {"cell": int(block.cells[place]), **row, "ended": bool(diverged[place] >= 0 or not np.isfinite(losses[place]))}
        for place, row in zip(living, rows, strict=True)
    ]


@partial(jax.jit, static_argnames="discrepancy")
def _first_states(
    problem: AbstractProblem, methods: LocalMethod, x0: Params, average: Average | None, discrepancy: bool
) -> RunState:
    return jax.vmap(lambda method: first_state(problem, method, x0, average, discrepancy))(methods)


@jax.jit
def outputs(methods: LocalMethod, states: RunState) -> Params:
    """The point of each cell."""
    return jax.vmap(output)(methods, states)


@jax.jit
def _penalties(methods: LocalMethod, points: Params) -> jax.Array:
    """psi at the point of each cell."""
    return jax.vmap(_penalty)(methods, points)


def _penalty(method: LocalMethod, x: Params) -> jax.Array:
    psi = getattr(method, "regularizer", None)
    return jnp.zeros(()) if psi is None else psi.value(x)
