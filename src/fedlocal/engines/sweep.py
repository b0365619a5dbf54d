"""sweep: all cells of a grid side by side, on the same clients and minibatches, as one compiled program per shape."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.engines.averages import Average
from fedlocal.engines.blocks import Group, Walk, outputs
from fedlocal.engines.cells import PLAIN, Grid, combinations, groups_of, method_of, stack, table_of
from fedlocal.engines.checkpoint import Checkpoint, fingerprint
from fedlocal.engines.linear import CORES
from fedlocal.engines.plan import COHORT_BLOCK
from fedlocal.engines.run import DivergenceWarning, Run
from fedlocal.engines.simulate import CALL_SECONDS, SAVE_SECONDS
from fedlocal.engines.sweep_result import SweepResult
from fedlocal.metrics import Metric
from fedlocal.progress import ProgressBar
from fedlocal.provenance import provenance


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
    run.configuration["engine"] = ", ".join(dict.fromkeys(group.run.configuration["engine"] for group in groups))
    rounds, eval_every = run.configuration["rounds"], run.configuration["eval_every"]
    walk = Walk(groups, {}, [], 0)
    table = table_of(cells)
    saved = None if checkpoint is None else Checkpoint(checkpoint, _identity(run, cells, methods))
    seconds_before, started = 0.0, time.monotonic()
    previous = saved.load(walk.states()) if saved else None
    if saved is not None and previous is not None:
        with saved.resuming():
            walk, seconds_before = walk.resumed(*previous), previous[2]["seconds"]
    if saved is not None:
        saved.check_writable()
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
        shown = jax.device_get(outputs(stacked, states))
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
