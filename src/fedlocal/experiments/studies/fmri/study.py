"""The study of fMRI scans: tuned composite methods for sparse logistic regression, runs of the experiment as clients.

Beside them: proximal gradient descent on all training scans (`centralized`), on one client's (`local`), the optimum.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.core.types import WeightsName
from fedlocal.experiments.runner import tuning
from fedlocal.experiments.runner.claims import TunedMethod, TunedResults, Verdict, judge
from fedlocal.experiments.runner.methods import ONLY_SERVER_PROXIMAL, composite_method
from fedlocal.experiments.runner.pair_sweeps import PAIR, CompositeObjective, options, sweep_history
from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.fmri import figures
from fedlocal.experiments.studies.fmri.problem import FmriTask
from fedlocal.experiments.studies.fmri.settings import FmriSettings, RegionClaim
from fedlocal.methods import ProximalGradient
from fedlocal.problems.data_problem import DataProblem
from fedlocal.problems.views import only
from fedlocal.simulation.single_run import simulate

SLACK = 1e-9  # for products of step sizes such as 0.3 * 0.01 and for means of ones, which are rounded


def about_regions(settings: FmriSettings, points: pd.DataFrame) -> list[Verdict]:
    """Judge the claims about all step sizes, of which halving runs too few to the end."""
    if settings.tuning.search == "all":
        return [in_region(claim, points) for claim in settings.scatter.claims]
    why = "halving runs a few pairs to the end; --tuning all runs all of them"
    return [Verdict.unmeasured(claim.text, why) for claim in settings.scatter.claims]


def in_region(claim: RegionClaim, points: pd.DataFrame) -> Verdict:
    """Judge that more than half of the last points of each method are in the region, or a larger part than of the others'."""
    last = points[points["round"] == points["round"].max()]
    inside = within(last["density"], claim.density) & within(last["validation_accuracy"], claim.accuracy)
    shares = {name: inside[last["method"] == name] for name in (*claim.methods, *claim.than)}
    counts = ", ".join(f"{share.sum()} of {len(share)} ({name})" for name, share in shares.items())
    density, accuracy = (f"{low:g} to {high:g}" for low, high in (claim.density, claim.accuracy))
    measured = f"density {density}, accuracy {accuracy}: {counts}"
    least = max((shares[name].mean() for name in claim.than), default=0.5)
    return Verdict.of(claim.text, measured, all(shares[name].mean() > least for name in claim.methods))


def within(values: Any, limits: tuple[float, float]) -> Any:
    """Return a mask of the values that are between the limits, up to rounding."""
    return values.between(limits[0] - SLACK, limits[1] + SLACK)


def run_study(settings: FmriSettings, store: Store) -> StudyOutcome:
    """Run what is not stored yet, tune the methods, judge the claims."""
    task = FmriTask(settings)
    run = settings.model_copy(update={"clients_per_round": min(settings.clients_per_round, task.num_clients)})
    objective = CompositeObjective(task.problem, task.psi, task.metrics)
    history = pd.concat(tuning.sweep_methods(dict.fromkeys(run.seeds, objective), run, store), ignore_index=True)
    alone = pd.concat(_baselines(settings, task, store), ignore_index=True)

    def solve(_: Path) -> pd.DataFrame:
        row, x = objective.optimum(settings.weights)
        return pd.DataFrame([row | {"weights": x["weights"].tolist()}])

    optimum = store.frame("optimum", solve)
    results = tuning.tuned_results(settings, history, store)
    baselines = {str(name): tuning.tune(settings, own) for name, own in alone.groupby("method")}
    results = _beside(results, baselines)
    voxels = store.frame("voxels", lambda _: _voxels(run, task, results.methods, optimum))
    points = scatter_of(settings, history)
    lines = {name: dict(tuned.late) for name, tuned in baselines.items()}
    references: Any = {**lines, "optimum": optimum.drop(columns="weights").iloc[0].to_dict()}
    federated = {name: results.methods[name] for name in settings.methods}
    table = tuning.table(settings, results.methods, {"optimum": references["optimum"]})
    for name in ("centralized", "local"):
        table.loc[table["method"] == name, "step_sizes"] = f"{results.methods[name].client_step_size:g}"
    look: Any = {"references": references, "dashed": ONLY_SERVER_PROXIMAL}
    return StudyOutcome(
        history=pd.concat([history, alone], ignore_index=True),
        table=table,
        verdicts=[
            *(judge(claim, results) for claim in settings.claims),
            *about_regions(settings, points),
        ],
        extra={"scatter": points, "voxels": voxels},
        notes=[*_notes(settings, task, alone, results.methods), *tuning.notes_of(settings, history)],
        figures={
            "figure": partial(tuning.draw_curves, settings, federated, **look),
            "figure-scatter": partial(figures.draw_scatter, settings, points),
            "figure-brain": partial(figures.draw_brain, settings, voxels, task.shape),
        },
    )


def scatter_of(settings: FmriSettings, history: pd.DataFrame) -> pd.DataFrame:
    """Return one point per method, round and pair in the range that has not diverged by then, averaged over seeds."""
    product = history["client_step_size"] * history["server_step_size"]
    wanted = history["method"].isin(settings.scatter.methods) & history["round"].isin(settings.scatter.rounds)
    points: Any = history[wanted & within(product, settings.scatter.product)]
    points = points[points["diverged"].isna() | (points["round"] < points["diverged"])]
    by = ["method", "round", *PAIR]
    return points.groupby(by, sort=False)[["density", "validation_accuracy"]].mean().reset_index()


def _beside(results: TunedResults, baselines: Mapping[str, TunedMethod]) -> TunedResults:
    """Return the results with the baselines, which have no seed, among the methods; also the results of each seed alone."""
    alone = {seed: _beside(of_seed, baselines) for seed, of_seed in results.of_seed.items()}
    return replace(results, methods={**results.methods, **baselines}, of_seed=alone)


def _baselines(settings: FmriSettings, task: FmriTask, store: Store) -> list[pd.DataFrame]:
    """Return the histories of `centralized`, and of `local` for every training client, whose number is in the column `seed`."""
    everyone = store.frame("centralized", lambda _: _gradient_descent(settings, task, task.problem, "examples"))
    histories = [everyone.assign(method="centralized", seed=0)]
    for m in range(task.num_clients):
        alone = partial(_gradient_descent, settings, task, only(task.problem, m), "uniform")
        histories.append(store.frame(f"local-{m}", lambda _, alone=alone: alone()).assign(method="local", seed=m))
    return histories


def _gradient_descent(
    settings: FmriSettings, task: FmriTask, problem: DataProblem, weights: WeightsName
) -> pd.DataFrame:
    """Return the history of proximal gradient descent with all step sizes; a round is one full gradient."""
    method, grid = ProximalGradient(1.0, task.psi), {"step_size": settings.baseline_step_sizes}
    run = {"rounds": settings.rounds, "eval_every": settings.eval_every, "weights": weights, "metrics": task.metrics}
    history = sweep_history(problem, method, grid, local_steps=1, progress=False, **run)
    return history.rename(columns={"step_size": "client_step_size"}).assign(server_step_size=1.0)


def _voxels(
    settings: FmriSettings, task: FmriTask, methods: Mapping[str, TunedMethod], optimum: pd.DataFrame
) -> pd.DataFrame:
    """Return the position of each voxel, and its weight after the last round of each tuned method with the first seed."""
    columns = {f"axis_{axis}": task.positions[:, axis] for axis in range(3)}
    run: dict[str, Any] = {**options(settings), "eval_every": settings.rounds, "seed": settings.seeds[0]}
    for name in settings.methods:
        result = simulate(task.problem, composite_method(name, task.psi, *methods[name].pair), progress=False, **run)
        columns[name] = np.asarray(result.x["weights"])
    return pd.DataFrame({**columns, "optimum": optimum["weights"].iloc[0]})


def _notes(
    settings: FmriSettings, task: FmriTask, alone: pd.DataFrame, methods: Mapping[str, TunedMethod]
) -> list[str]:
    runs, scans = task.num_clients + task.validation.num_clients, task.validation.num_examples
    who = "one subject" if task.num_subjects == 1 else f"{task.num_subjects} subjects"
    last: Any = alone[(alone["method"] == "local") & (alone["round"] == settings.rounds)]
    accuracy = last[last["client_step_size"] == methods["local"].client_step_size]["validation_accuracy"]
    notes = [
        f"{who}, {runs} runs: {task.num_clients} to train, {task.validation.num_clients} to validate; "
        f"{len(task.positions)} voxels; face against {settings.data.against}",
        f"local: proximal gradient descent on one training run, averaged over all {task.num_clients} of them with the step "
        f"size that is best on average; accuracy from {accuracy.min():.3g} to {accuracy.max():.3g}",
        f"step sizes are chosen by the same {scans} validation scans that are reported, as in the text",
        "how much better, denser or more accurate a method has to be is ours, not the text's",
    ]
    if settings.clients_per_round > task.num_clients:
        notes.insert(1, f"{settings.clients_per_round} clients a round are asked for, all {task.num_clients} take part")
    if all(methods[name].late["validation_accuracy"] > 1 - SLACK for name in settings.methods):
        right = f"every federated method gets all {scans} validation scans right"
        notes.append(f"{right}, so accuracy does not tell them apart")
    return notes
