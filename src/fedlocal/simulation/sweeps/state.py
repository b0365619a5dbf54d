"""SweepState: a sweep after some rounds, as the driver advances, evaluates and saves it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Params
from fedlocal.metrics import Evaluation, losses_in_float64
from fedlocal.simulation.plan import COHORT_BLOCK
from fedlocal.simulation.recorder import Row, Stopwatch
from fedlocal.simulation.sweeps.batches import CellBatch, CellGroup, advance_batch, by_cell, outputs, penalties
from fedlocal.simulation.sweeps.grid import stack


@dataclass(frozen=True)
class SweepState:
    """A sweep after `done` rounds. It is replaced as a whole, so that an interruption never finds a part of it."""

    groups: list[CellGroup]
    pool: ThreadPoolExecutor  # runs batches at the same time, where that is allowed
    dead: dict[int, tuple[int, Any]] = field(default_factory=dict)  # cells that diverged: the round, and the last state
    rows: list[Row] = field(default_factory=list)
    done: int = 0
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def batches(self) -> list[tuple[CellGroup, CellBatch]]:
        """The batches in which a cell is alive."""
        return [(g, b) for g in self.groups for b in g.batches if any(i >= 0 and i not in self.dead for i in b.cells)]

    @property
    def ended(self) -> bool:
        return not self.batches

    def compile(self) -> None:
        """Compile the program of each group once, before threads would do so at the same time."""
        self._advanced(None, 0)

    def advance(self, wanted: int) -> "SweepState":
        """Run at most `wanted` rounds of all living cells; nothing is measured."""
        return self._advanced(self.pool, min(wanted, COHORT_BLOCK - self.done % COHORT_BLOCK))

    def _advanced(self, pool: ThreadPoolExecutor | None, count: int) -> "SweepState":
        moved: dict[int, CellBatch] = {}
        for threads in (True, False):
            going = [(group, batch) for group, batch in self.batches if group.threads == threads]
            work = [partial(advance_batch, group.run, batch, self.done, count) for group, batch in going]
            states = _on_all_cores(pool if threads else None, work)
            moved |= {id(batch): replace(batch, state=state) for (_, batch), state in zip(going, states, strict=True)}
        groups = [
            replace(group, batches=tuple(moved.get(id(batch), batch) for batch in group.batches))
            for group in self.groups
        ]
        return replace(self, groups=groups, done=self.done + count)

    def evaluated(self) -> "SweepState":
        """Add a row for every living cell, and take those out that are not finite any more."""
        cells = sum(len(group.methods) for group in self.groups)
        if any(row["round"] == self.done for row in self.rows[-cells:]):
            return self
        seen = [(group, batch) for group in self.groups for batch in group.to_measure(self.dead)]
        points = [jax.device_get(outputs(batch.methods, batch.state)) for _, batch in seen]
        points = jax.tree.map(lambda a: np.asarray(a, np.float64), points)
        losses = self._losses(seen, points)
        rows = [
            row
            for (group, batch), x, found in zip(seen, points, losses, strict=True)
            for row in self._measured(group, batch, x, found)
        ]
        ended = {int(row["cell"]): int(row["round"]) for row in rows if row.pop("ended")}
        state = replace(self, rows=self.rows + rows)
        if not ended:
            return state
        states = {i: cell for group in self.groups for i, cell in group.states().items()}
        dead = self.dead | {i: (r, states[i]) for i, r in ended.items()}
        return replace(state, groups=[group.without(dead, states) for group in self.groups], dead=dead)

    def _shown(self, batch: CellBatch) -> tuple[list[int], list[int]]:
        """Return the places of the living cells, and for each place the one to show.

        A dead cell's place shows a living one: the shapes stay the same, and nothing is measured that is not finite.
        """
        living = [place for place, i in enumerate(batch.cells.tolist()) if i >= 0 and i not in self.dead]
        return living, [place if place in living else living[0] for place in range(len(batch.cells))]

    def _losses(self, seen: list[tuple[CellGroup, CellBatch]], points: list[Params]) -> list[np.ndarray]:
        """Return the losses at the points of each batch; the kernels take those of all batches at once."""
        fused = [k for k, (_, batch) in enumerate(seen) if batch.kernels is not None]
        others = [k for k in range(len(seen)) if k not in fused]
        work = [partial(self._losses_of, *seen[k], points[k]) for k in others]
        pool = self.pool if all(seen[k][0].threads for k in others) else None
        losses = dict(zip(others, _on_all_cores(pool, work), strict=True))
        if fused:
            group = seen[fused[0]][0]
            living = [self._shown(seen[k][1])[0] for k in fused]
            x = [jax.tree.map(lambda a, at=at: a[at], points[k]) for k, at in zip(fused, living, strict=True)]
            together = jax.tree.map(lambda *a: np.concatenate(a), *x)
            assert group.kernels is not None
            found = group.kernels.losses(together, group.run.recorder.loss_weights)
            parts = np.split(found, np.cumsum([len(at) for at in living])[:-1])
            for k, at, part in zip(fused, living, parts, strict=True):
                losses[k] = np.full(len(seen[k][1].cells), part[0])
                losses[k][at] = part
        return [losses[k] for k in range(len(seen))]

    def _losses_of(self, group: CellGroup, batch: CellBatch, points: Params) -> np.ndarray:
        """Return the losses at the points of a batch that the kernels do not measure."""
        shown = self._shown(batch)[1]
        return losses_in_float64(
            group.run.problem, jax.tree.map(lambda a: a[shown], points), group.run.recorder.loss_weights
        )

    def _measured(self, group: CellGroup, batch: CellBatch, points: Params, losses: np.ndarray) -> list[dict[str, Any]]:
        """Return the rows of the living cells of a batch; "ended" is True for a cell that is not finite any more."""
        run, recorder = group.run, group.run.recorder
        living, shown = self._shown(batch)
        points = jax.tree.map(lambda a: a[shown], points)
        methods = [group.methods[int(batch.cells[place])] for place in shown]
        with jax.enable_x64(True):
            objectives = losses + np.asarray(penalties(stack(methods, np.float64), points))
        server, diverged, spread = jax.device_get((batch.state.server, batch.state.diverged, batch.state.discrepancy))

        def evaluation(place: int) -> Evaluation:
            x, own, far = jax.tree.map(lambda a: a[place], (points, server, spread or {}))
            far, r = {name: float(value) for name, value in far.items()}, int(diverged[place])
            loss, objective, weights = float(losses[place]), float(objectives[place]), recorder.client_weights
            done = r if r >= 0 else self.done
            common = (run.problem, methods[place], weights, far, own, done, batch.runs[shown[place]].plan.chosen)
            return Evaluation(x, loss, objective, *common)

        rows = recorder.rows([evaluation(place) for place in living], self.stopwatch)
        ended = (diverged >= 0) | ~np.isfinite(losses)
        return [
            {"cell": int(batch.cells[place]), **row, "ended": bool(ended[place])}
            for place, row in zip(living, rows, strict=True)
        ]

    def note(self) -> str:
        cells = sum(len(group.methods) for group in self.groups)
        return f"{cells - len(self.dead)} cells finite"

    def states(self) -> list[Any]:
        """Return the state of every cell, stacked, for each group."""
        each = {i: state for group in self.groups for i, state in group.states().items()}
        each |= {i: state for i, (_, state) in self.dead.items()}
        return [jax.tree.map(lambda *a: np.stack(a), *(each[i] for i in g.methods)) for g in self.groups]

    def extra(self) -> dict[str, Any]:
        """Return what else a checkpoint keeps: the history by columns, which cells diverged when, the cells of each batch."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        columns = {name: [row.get(name) for row in self.rows] for name in names}
        dead = {str(i): r for i, (r, _) in self.dead.items()}
        layout = [group.layout() for group in self.groups]
        return {"columns": columns, "dead": dead, "layout": layout, "seconds": self.stopwatch.seconds()}

    def resumed(self, done: int, states: list[Any], extra: dict[str, Any]) -> "SweepState":
        """Return the sweep that was saved, with the rows that an uninterrupted one would have by now."""
        each: dict[int, Any] = {}
        for group, stacked in zip(self.groups, states, strict=True):
            each |= by_cell(list(group.methods), stacked)
        dead = {int(i): (r, each[int(i)]) for i, r in extra["dead"].items()}
        groups = [
            group.laid_out(layout, each).without(dead, each)  # `drop_cells` adds to the dead
            for group, layout in zip(self.groups, extra["layout"], strict=True)
        ]
        columns, run = extra["columns"], self.groups[0].run
        rows = [
            {name: value for name, value in zip(columns, values, strict=True) if value is not None}
            for values in zip(*columns.values(), strict=True)
        ]
        kept = [r for r in rows if run.schedule.due(int(r["round"])) or int(r["cell"]) in dead]
        return replace(self, groups=groups, dead=dead, rows=kept, done=done, stopwatch=Stopwatch(extra["seconds"]))


def _on_all_cores(pool: ThreadPoolExecutor | None, work: list[Callable[[], Any]]) -> list[Any]:
    """Return the results of `work`, computed in the caller's precision, which threads do not inherit."""
    if pool is None or len(work) == 1:
        return [job() for job in work]
    double = jnp.result_type(float) == np.float64

    def call(job: Callable[[], Any]) -> Any:
        with jax.enable_x64(double):
            return job()

    return list(pool.map(call, work))
