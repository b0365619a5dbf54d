"""sweep: all cells of a grid side by side, on the same clients and minibatches, as one compiled program per shape."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.engines.averages import Average
from fedlocal.engines.cells import PLAIN, Grid, combinations, groups_of, method_of, stack, table_of
from fedlocal.engines.checkpoint import Checkpoint, fingerprint
from fedlocal.engines.linear import CORES, LANES, LinearEngine
from fedlocal.engines.plan import COHORT_BLOCK, Plan
from fedlocal.engines.rounds import RunState, first_state, output, run_round
from fedlocal.engines.run import DivergenceWarning, Run
from fedlocal.engines.simulate import CALL_SECONDS, SAVE_SECONDS, takes_linear
from fedlocal.engines.sweep_result import SweepResult
from fedlocal.metrics import Metric
from fedlocal.progress import ProgressBar
from fedlocal.provenance import provenance

BLOCK_BYTES = 5 << 17  # of client states that one block of cells walks through side by side; found by measuring


def sweep(
    problem: AbstractProblem,
    method: LocalMethod | Callable[..., LocalMethod],
    grid: Grid,
    *,
    rounds: int,
    local_steps: int | Sequence[int] | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: str = "uniform",
    seed: int = 0,
    x0: Params | None = None,
    eval_every: int = 1,
    metrics: Sequence[Metric | Callable[[Params], Any]] = (),
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    average: str | Average | None = None,
    engine: str = "auto",
) -> SweepResult:
    r"""Run a method with every combination of a grid of its numbers.

    All cells see the same clients and the same minibatches, so they can be compared and share most of the work. A cell that
    diverges stops and leaves its place to the others. Arguments that are not listed are those of `simulate`.

    Args:
        problem: the losses of the clients.
        method: a method whose fields are replaced by the grid's values, or a function of them that returns a method.
        grid: {name: values}, all combinations; or a list of {name: value}, one per cell. A name is a field of the method,
            `regularizer.strength` a field of its regulariser.
        checkpoint: a file to save the state to, atomically; a sweep that finds it continues from it, to the same bits.

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
        >>> grid = {"client_step_size": [0.01, 0.1], "server_step_size": [0.5, 1.0]}
        >>> result = fl.sweep(problem, fl.methods.FedAvg(1.0), grid, rounds=100, local_steps=1)
        >>> best = result.best("loss", rule="last")
        >>> result.cells.loc[best, ["client_step_size", "server_step_size"]].tolist()
        [0.1, 1.0]
    """
    cells = combinations(grid)
    methods = [method_of(method, cell) for cell in cells]
    arguments: dict[str, Any] = {
        "rounds": rounds,
        "local_steps": local_steps,
        "local_epochs": local_epochs,
        "batch_size": batch_size,
        "clients_per_round": clients_per_round,
        "weights": weights,
        "seed": seed,
        "x0": x0,
        "eval_every": eval_every,
        "metrics": metrics,
        "average": average,
        "owner": "sweep",
    }
    groups = [
        Group.make(Run.make(problem, methods[members[0]], **arguments), methods, members, engine)
        for members in groups_of(methods)
    ]
    run = groups[0].run
    rounds, eval_every = run.configuration["rounds"], run.configuration["eval_every"]
    walk = Walk(groups, {}, [], 0)
    table = table_of(cells)
    saved = None if checkpoint is None else Checkpoint(checkpoint, _identity(run, cells, methods))
    seconds_before, started = 0.0, time.monotonic()
    previous = saved.load(walk.states()) if saved else None
    if previous is not None:
        walk, seconds_before = walk.resumed(*previous), previous[2]["seconds"]
    for group in groups:
        group.run.recorder.resume([], seconds_before)

    def save() -> float:
        began = time.monotonic()
        if saved is not None:
            saved.save(walk.done, walk.states(), walk.extra() | {"seconds": seconds_before + began - started})
        return time.monotonic() - began

    rate, last_save, save_took = 0.0, -np.inf, 0.0
    try:
        with ThreadPoolExecutor(CORES) as pool, ProgressBar(type(methods[0]).__name__, rounds, progress) as bar:
            walk.advanced(None, 0)  # compiles, once
            if not walk.rows:
                walk = walk.evaluated()
            while walk.done < rounds and walk.blocks:
                stop = min(rounds, (walk.done // eval_every + 1) * eval_every)
                wanted = min(
                    stop - walk.done, max(1, int(CALL_SECONDS * rate)), COHORT_BLOCK - walk.done % COHORT_BLOCK
                )
                began = time.monotonic()
                moved = walk.advanced(pool, wanted)
                rate = wanted / max(time.monotonic() - began, 1e-9)
                due = moved.done % eval_every == 0 or moved.done == rounds
                walk = moved.evaluated() if due else moved  # at once, for an interruption must not find them apart
                if time.monotonic() - last_save > max(SAVE_SECONDS, 20 * save_took):
                    save_took, last_save = save(), time.monotonic()
                bar.advance_to(walk.done if walk.blocks else rounds, f"{len(cells) - len(walk.dead)} cells finite")
        save()
    except KeyboardInterrupt:
        save()
        if saved is None:
            raise
        raise KeyboardInterrupt(f"stopped after round {walk.done}; the same call continues from {saved.path}") from None
    return _result(walk, table, methods, problem, provenance(**run.configuration, grid=table.to_dict("list")))


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
    points = jax.device_get(_outputs(block.methods, block.state))
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
def _outputs(methods: LocalMethod, states: RunState) -> Params:
    """The point of each cell."""
    return jax.vmap(output)(methods, states)


@jax.jit
def _penalties(methods: LocalMethod, points: Params) -> jax.Array:
    """psi at the point of each cell."""
    return jax.vmap(_penalty)(methods, points)


def _penalty(method: LocalMethod, x: Params) -> jax.Array:
    psi = getattr(method, "regularizer", None)
    return jnp.zeros(()) if psi is None else psi.value(x)


def _identity(run: Run, cells: list[dict[str, Any]], methods: list[LocalMethod]) -> dict[str, Any]:
    """What a checkpoint must agree with."""
    plain = [{k: v if isinstance(v, PLAIN) else fingerprint(v) for k, v in cell.items()} for cell in cells]
    shown = [{k: v.item() if isinstance(v, np.generic) else v for k, v in cell.items()} for cell in plain]
    return {"cells": shown} | run.identity() | {"method": None, "numbers of the method": fingerprint(methods)}


def _result(
    walk: Walk, table: pd.DataFrame, methods: list[LocalMethod], problem: AbstractProblem, origin: dict[str, Any]
) -> SweepResult:
    """What the user gets."""
    if walk.dead:
        text = f"{len(walk.dead)} of {len(methods)} cells diverged; `cells` says which and when"
        warnings.warn(f"sweep: {text}", DivergenceWarning, stacklevel=3)
    diverged = pd.array([walk.dead[i][0] if i in walk.dead else None for i in range(len(methods))], "Int64")
    history = pd.DataFrame(walk.rows).sort_values(["cell", "round"], kind="stable", ignore_index=True)
    history = history.astype({"cell": int, "round": int, "numbers_up": int, "numbers_down": int})
    history = table.join(history.set_index("cell"), how="right").reset_index()
    servers, points = [None] * len(methods), [None] * len(methods)
    for group, states in zip(walk.groups, walk.states(), strict=True):
        stacked = stack(list(group.methods.values()), optax.tree.dtype(group.run.x0, "promote"))
        shown = jax.device_get(_outputs(stacked, states))
        for place, i in enumerate(group.methods):
            servers[i], points[i] = jax.tree.map(lambda a, place=place: a[place], (states.server, shown))
    return SweepResult(
        cells=table.assign(diverged=diverged),
        history=history,
        methods=methods,
        points=points,
        servers=servers,
        problem=problem,
        plan=walk.groups[0].run.plan,
        provenance=origin,
    )
