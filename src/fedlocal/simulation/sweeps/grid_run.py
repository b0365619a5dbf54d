"""sweep: all cells of a grid side by side, on the same clients and minibatches, as one compiled program per shape."""

import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.core.schedule import tabulated
from fedlocal.core.types import Weights
from fedlocal.methods.contract import check_local_steps
from fedlocal.samplers import AnySampler
from fedlocal.simulation.averages import Average, AverageName
from fedlocal.simulation.checkpoint import Checkpoint
from fedlocal.simulation.driver import Saver, drive, resume
from fedlocal.simulation.engines import EngineName, engine_before
from fedlocal.simulation.kernels.engine import CORES
from fedlocal.simulation.plan import Sampling
from fedlocal.simulation.recorder import MetricLike
from fedlocal.simulation.result import DivergenceWarning, has_grown
from fedlocal.simulation.run import Run, RunArguments
from fedlocal.simulation.sweeps.batches import CellGroup, by_cell, outputs
from fedlocal.simulation.sweeps.grid import (
    PLAIN,
    Grid,
    Make,
    cells_of,
    groups_of,
    method_of,
    sampling_of,
    stack,
    table_of,
)
from fedlocal.simulation.sweeps.result import SweepResult
from fedlocal.simulation.sweeps.state import SweepState
from fedlocal.util import checks
from fedlocal.util.hashing import fingerprint
from fedlocal.util.progress import ProgressBar
from fedlocal.util.provenance import provenance_record


def sweep(
    problem: AbstractProblem,
    method: Make | Mapping[str, Make],
    grid: Grid,
    *,
    rounds: int,
    local_steps: int | Sequence[int] | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: Weights = "uniform",
    seed: int = 0,
    sampler: AnySampler = "uniform",
    x0: Params | None = None,
    eval_every: int = 1,
    metrics: Sequence[MetricLike] = (),
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    average: AverageName | Average | None = None,
    engine: EngineName = "auto",
) -> SweepResult:
    r"""Run a method, or several, with every combination of a grid of numbers.

    Cells of one seed see the same clients and the same minibatches, so they can be compared and share most of the work. A cell
    that diverges stops and leaves its place to the others.

    Args:
        problem: the losses of the clients.
        method: a method whose fields are replaced by the grid's values, or a function of them that returns a method; or several
            by name, {name: method}, each with the whole grid.
        grid: {name: values}, all combinations; or a list of {name: value}, one per cell. A name is a field of the method, or
            `regularizer.strength` for a field of its regulariser; `seed`, `local_steps`, `local_epochs`, `batch_size` and
            `clients_per_round` stand for the arguments of these names, and a function gets them if it names them.
        checkpoint: a file to save the state to, atomically; a sweep that finds it continues from it, to the same bits.
        rounds, local_steps, local_epochs, batch_size, clients_per_round, weights, seed, sampler, x0: as in `simulate`.
        eval_every, metrics, progress, average, engine: as in `simulate`.

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
        >>> grid = {"client_step_size": [0.01, 0.1], "server_step_size": [0.5, 1.0]}
        >>> result = fl.sweep(problem, fl.methods.FedAvg(1.0), grid, rounds=100, local_steps=1)
        >>> best = result.best("loss")
        >>> result.cells.loc[best, ["client_step_size", "server_step_size"]].tolist()
        [0.1, 1.0]
    """
    cells = cells_of(method, grid)
    methods = [method_of(method, cell) for cell in cells]
    sampling = Sampling(local_steps, local_epochs, batch_size, clients_per_round, weights, seed, sampler)
    asked = RunArguments(sampling, rounds, eval_every, x0, metrics, average)
    samplings = [sampling_of(sampling, cell) for cell in cells]
    groups = _groups(problem, methods, samplings, asked, engine_before(engine, checkpoint))
    check_local_steps("sweep", (run.steps._replace(method=methods[i]) for g in groups for i, run in g.runs.items()))
    run, table = groups[0].run, table_of(cells)
    engines = ", ".join(dict.fromkeys(group.engine for group in groups))
    saved = None if checkpoint is None else Checkpoint(checkpoint, _identity(run, engines, cells, methods))
    with ThreadPoolExecutor(CORES) as pool:
        first = resume(SweepState(groups, pool), run.schedule, saved)
        bar = ProgressBar(type(methods[0]).__name__, run.rounds, progress)
        last = drive(first, run.schedule, Saver(saved), bar)
    shared = {name: value for name, value in run.configuration.items() if name not in cells[0]}
    origin = provenance_record(**shared, engine=engines, grid=table.to_dict("list"))
    return _result(last, table, methods, problem, origin)


def _groups(
    problem: AbstractProblem,
    methods: list[LocalMethod],
    samplings: list[Sampling],
    asked: RunArguments,
    engine: EngineName,
) -> list[CellGroup]:
    """Check the cells, and put those together that share a program: in groups of one seed, or of different ones."""
    rounds = checks.whole("sweep", "rounds", asked.rounds, at_least=0)
    stepped = [tabulated("sweep", method, rounds) for method in methods]
    groups: list[CellGroup] = []
    for members in groups_of(stepped, samplings):
        seeds = dict.fromkeys(samplings[i].seed for i in members)
        runs = {
            seed: Run.make("sweep", problem, methods[first], asked._replace(sampling=samplings[first]))
            for seed in seeds
            for first in [next(i for i in members if samplings[i].seed == seed)]
        }
        together = (
            [members]
            if len(seeds) in (1, len(members))
            else [[i for i in members if samplings[i].seed == seed] for seed in seeds]
        )
        for cells in together:
            own = {i: runs[samplings[i].seed] for i in cells}
            like = next((group.kernels for group in groups if group.kernels is not None), None)
            groups.append(CellGroup.make(own, {i: stepped[i] for i in cells}, engine, len(methods), like))
    return groups


def _identity(run: Run, engine: str, cells: list[dict[str, Any]], methods: list[LocalMethod]) -> dict[str, Any]:
    """Return what a checkpoint must agree with."""
    plain = [{k: v if isinstance(v, PLAIN) else fingerprint(v) for k, v in cell.items()} for cell in cells]
    shown = [{k: v.item() if isinstance(v, np.generic) else v for k, v in cell.items()} for cell in plain]
    return {"cells": shown} | run.identity(engine) | {"method": None, "numbers of the method": fingerprint(methods)}


def _result(
    last: SweepState, table: pd.DataFrame, methods: list[LocalMethod], problem: AbstractProblem, origin: dict[str, Any]
) -> SweepResult:
    """Return what the user gets, and warn of divergences."""
    if last.dead:
        text = f"{len(last.dead)} of {len(methods)} cells diverged; `cells` says which and when"
        if (at_x0 := sum(when == 0 for when, _ in last.dead.values())) > 0:
            text += f"; in {at_x0} of them F is not finite at x0, where no step size helps"
        warnings.warn(f"sweep: {text}", DivergenceWarning, stacklevel=3)
    diverged = pd.array([last.dead[i][0] if i in last.dead else None for i in range(len(methods))], "Int64")
    history = pd.DataFrame(last.rows).sort_values(["cell", "round"], kind="stable", ignore_index=True)
    history = history.astype({"cell": int, "round": int, "numbers_up": int, "numbers_down": int})
    ends = history[~history["cell"].isin(list(last.dead))].groupby("cell")["loss"].agg(["first", "last"])
    if (grown := int(has_grown(ends["first"], ends["last"]).sum())) > 0:
        text = f"the loss of {grown} of {len(methods)} cells grew more than a millionfold, though it is finite still"
        warnings.warn(f"sweep: {text}; try smaller step sizes", DivergenceWarning, stacklevel=3)
    history = table.join(history.set_index("cell"), how="right").reset_index()
    found: dict[int, Any] = {}
    for group, states in zip(last.groups, last.states(), strict=True):
        stacked = stack(list(group.methods.values()), optax.tree.dtype(group.run.x0, "promote"))
        found |= by_cell(list(group.methods), (states.server, jax.device_get(outputs(stacked, states))))
    servers, points = ([found[i][part] for i in range(len(methods))] for part in (0, 1))
    plans = {i: run.plan for group in last.groups for i, run in group.runs.items()}
    cells, drawn = table.assign(diverged=diverged), [plans[i] for i in range(len(methods))]
    return SweepResult(cells, history, methods, points, servers, problem, drawn, origin)
