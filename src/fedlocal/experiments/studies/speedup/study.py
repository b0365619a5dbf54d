"""The speed-up study: M clients with the same number of gradients each, exchanged in fewer and fewer rounds.

Every client draws one example a step, with replacement, from the whole set. Each method runs with every number of
clients M, of local steps K and every step size, with K times rounds fixed; a run counts by its best suboptimality.
"""

from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.runner.methods import smooth_method
from fedlocal.experiments.runner.pair_sweeps import sweep_history
from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.speedup.claims import Speeds, verdicts
from fedlocal.experiments.studies.speedup.figures import draw_clients, draw_local_steps, shown
from fedlocal.experiments.studies.speedup.problem import SpeedupTask
from fedlocal.experiments.studies.speedup.settings import SpeedupSettings
from fedlocal.solvers import centralized
from fedlocal.util.progress import ProgressBar

SETTING = ["method", "clients", "local_steps"]
RUN = ["method", "step_size", "clients", "local_steps", "seed"]


class SpeedupSweep(NamedTuple):
    """One sweep over the step sizes."""

    seed: int
    local_steps: int
    method: str
    clients: int

    @property
    def part(self) -> str:
        """Its name in the store."""
        return f"{self.method}-{self.clients}-{self.local_steps}-{self.seed}"


def run_study(settings: SpeedupSettings, store: Store) -> StudyOutcome:
    """Run the sweeps that are not stored yet, choose step sizes, judge the claims."""
    task = SpeedupTask(settings)
    optimum = store.frame("optimum", lambda _: _optimum(task))
    best_loss = float(optimum["loss"].iloc[0])
    history = _histories(task, store)
    results: Any = summary(history, best_loss)
    tuned = tune(results)
    text: Any = load(settings.name, "paper", "text")
    speeds = partial(Speeds, grid=settings.grid, text_step_sizes=text.grid.step_size, steps=settings.steps)
    seeds = settings.seeds if len(settings.seeds) > 1 else []
    of_seed = {seed: speeds(tune(results[results["seed"] == seed])) for seed in seeds}
    start_loss = float(history[history["round"] == 0]["loss"].iloc[0])
    return StudyOutcome(
        history=history,
        table=table(settings, tuned),
        verdicts=verdicts(settings, speeds(tuned), of_seed),
        notes=_notes(settings, optimum, results, start_loss),
        numbers={"optimum": best_loss, "start_loss": start_loss},
        results=results,
        extra={"optimum": optimum, "tuned": tuned},
        figures={
            "figure-clients": lambda target: draw_clients(settings, tuned, target),
            "figure-local-steps": lambda target: draw_local_steps(settings, tuned, target),
        },
    )


def _histories(task: SpeedupTask, store: Store) -> Any:
    """Return all evaluations of all runs; stored sweeps are read, the others are run."""
    grid, settings = task.settings.grid, task.settings
    cases = [SpeedupSweep(*case) for case in product(settings.seeds, grid.local_steps, settings.methods, grid.clients)]
    missing = {case for case in cases if not store.has(case.part)}
    million, total, done, frames = settings.steps / 1e6, sum(case.clients for case in missing), 0, []
    with ProgressBar("million gradients", max(1, round(total * million))) as bar:
        for case in cases:
            if case in missing:
                note = f"{case.method}, K = {case.local_steps}, M = {case.clients}, seed {case.seed}"
                bar.advance_to(int(done * million), note)
                done += case.clients
            frames.append(store.frame(case.part, lambda _, case=case: _sweep_step_sizes(task, case)))
    return pd.concat(frames, ignore_index=True)


def _sweep_step_sizes(task: SpeedupTask, case: SpeedupSweep) -> pd.DataFrame:
    settings, k = task.settings, case.local_steps
    every, grid = max(1, settings.eval_steps // k), {"step_size": settings.grid.step_size}
    run: dict[str, Any] = {"rounds": settings.steps // k, "local_steps": k, "eval_every": every, "batch_size": 1}
    run |= {"engine": "linear"}  # compiled once for all sizes of a study, where JAX has a program for each
    run |= {"x0": {"weights": task.start}, "seed": case.seed, "progress": False}
    history = sweep_history(
        task.problem(case.clients), lambda step_size: smooth_method(case.method, step_size, settings.l2, k), grid, **run
    )
    history = history.sort_values(["cell", "round"], kind="stable").assign(**case._asdict())
    return history[[*RUN, "round", "loss", "diverged"]].astype({"diverged": "Int64"})


def _optimum(task: SpeedupTask) -> pd.DataFrame:
    """Return one row about F*, by the centralised solver, in float64."""
    solution = centralized(task.problem(1))
    kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
    return pd.DataFrame([{"loss": solution.objective, "kkt_residual": kkt, "duality_gap": gap}])


def summary(history: pd.DataFrame, optimum: float) -> pd.DataFrame:
    """Return one row per run: the best and the last of its evaluations; inf if it diverged, or if none is finite."""
    losses: Any = history.assign(loss=history["loss"].where(np.isfinite(history["loss"])))
    runs = losses.groupby(RUN, sort=False)
    best = runs["loss"].min().fillna(np.inf)
    last = history.drop_duplicates(RUN, keep="last").set_index(RUN)
    final = last["loss"].where(last["diverged"].isna(), np.inf).reindex(best.index)
    out = pd.DataFrame({"best_loss": best, "final_loss": final, "best_suboptimality": best - optimum})
    return out.reset_index()


def tune(results: Any) -> pd.DataFrame:
    """Return the step size of each method, M and K with the best mean over seeds, and the range over seeds."""
    seeds: Any = results.groupby([*SETTING, "step_size"], sort=False)["best_suboptimality"]
    scores = seeds.agg(suboptimality="mean", smallest="min", largest="max", seeds="size").reset_index()
    best = scores.groupby(SETTING, sort=False)["suboptimality"].idxmin()
    return scores.loc[best].reset_index(drop=True)


def rounds_needed(tuned: pd.DataFrame, steps: int, level: float) -> Any:
    """Return the fewest rounds in which the best step size reaches the level, by method and clients, for those that reach it."""
    reached: Any = tuned[tuned["suboptimality"] <= level]
    return steps // reached.groupby(["method", "clients"])["local_steps"].max()


def table(settings: SpeedupSettings, tuned: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds needed: one row per level and number of clients, one column per method, nan if never reached."""
    rows = []
    for level in settings.levels:
        rounds = rounds_needed(tuned, settings.steps, level)
        for m in shown(settings.panels.clients, settings.grid.clients):
            row = {name: float(rounds.get((name, m), np.nan)) for name in settings.methods}
            rows.append({"suboptimality": level, "clients": m, **row})
    return pd.DataFrame(rows)


def _notes(settings: SpeedupSettings, optimum: pd.DataFrame, results: Any, start_loss: float) -> list[str]:
    generated = "the data are generated by fedlocal to be like epsilon; they are not epsilon, of which the text speaks"
    first = optimum.iloc[0]
    worse = int((results["best_loss"] >= start_loss).sum())
    infinite = int(np.isinf(results["final_loss"]).sum())
    seeds = len(settings.seeds)
    return [
        *([generated] if settings.data.name == "epsilon-like" else []),
        "rounds needed, of those tried, for a suboptimality with the best step size"
        + (f", on average over {seeds} seeds" if seeds > 1 else "")
        + "; blank where none were enough",
        f"F* = {first['loss']:.13f} (KKT residual {first['kkt_residual']:.0e}), F at the start = {start_loss:.6f}",
        f"of {len(results)} runs {worse} were at no evaluation better than at the start, {infinite} diverged to infinity",
    ]
