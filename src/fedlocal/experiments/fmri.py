"""The study of fMRI scans: tuned composite methods for sparse logistic regression, runs of the experiment as clients.

Each method runs with every pair of step sizes; the pair with the lowest regularised loss on validation scans after the last
round is its tuned one. Beside them stand proximal gradient descent on all training scans (`centralized`) and on those of one
client (`local`), and the certified optimum.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.core import Params, Regularizer
from fedlocal.data.haxby import faces_against, haxby_scans
from fedlocal.engines import DivergenceWarning, simulate, sweep
from fedlocal.experiments import fmri_figures, tuning
from fedlocal.experiments.claims import Tuned, Verdict, judge
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.fmri import Fmri, RegionClaim
from fedlocal.experiments.store import Store
from fedlocal.methods import ProximalGradient
from fedlocal.metrics import Accuracy, Density, Evaluation, Loss, Metric
from fedlocal.problems import Logistic
from fedlocal.problems.data_problem import DataProblem
from fedlocal.problems.views import only
from fedlocal.regularizers import L1
from fedlocal.solvers import centralized

DASHED = ("FedDualAvg-OSP", "FedMiD-OSP")  # which may lie on FedDualAvg and FedMiD
SLACK = 1e-9  # for products of step sizes such as 0.3 * 0.01 and for means of ones, which are rounded


class RegularizedLoss(Metric):
    """F + psi on another problem, e.g. on validation data."""

    def __init__(self, problem: DataProblem, psi: Regularizer, name: str):
        self.loss, self.psi, self.name = Loss(problem, name), psi, name

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        losses = self.loss.measure_many(evaluations)
        return [
            {self.name: loss[self.name] + float(self.psi.value(evaluation.x))}
            for loss, evaluation in zip(losses, evaluations, strict=True)
        ]


class Task:
    """The scans, their problem, and what is measured."""

    def __init__(self, settings: Fmri):
        data = settings.data
        scans = haxby_scans(source=data.source, subjects=data.subjects, mask=data.mask)
        self.num_subjects = len(scans)
        self.positions, self.shape = scans[0].positions, scans[0].shape  # the same voxels for all
        train, self.validation = faces_against(scans, data.against)
        self.problem, self.psi = Logistic(train), L1(settings.strength)
        self.metrics: list[Metric] = [
            RegularizedLoss(self.problem.with_data(self.validation), self.psi, "validation_objective"),
            Accuracy(self.validation, "validation_accuracy"),
            Density(settings.threshold),
        ]

    @property
    def num_clients(self) -> int:
        return self.problem.num_clients

    def measure(self, x: Params) -> dict[str, float]:
        """All metrics at a point."""
        seen: Any = Evaluation(x, np.nan, np.nan, self.problem, None, np.ones(1), {})  # pyright: ignore[reportArgumentType]
        return {name: value for metric in self.metrics for name, value in metric.measure(seen).items()}


def study(settings: Fmri, store: Store, elsewhere: Any) -> Outcome:
    """Run what is not in the store yet, tune, compare."""
    task = Task(settings)
    run = settings.model_copy(update={"clients_per_round": min(settings.clients_per_round, task.num_clients)})
    history = pd.concat(_federated(run, task, store), ignore_index=True)
    alone = pd.concat(_baselines(settings, task, store), ignore_index=True)
    optimum = store.frame("optimum", lambda _: _optimum(task, settings.weights))
    found = tuning.findings(settings, history, elsewhere)
    baselines = {str(name): tuning.tune(settings, own) for name, own in alone.groupby("method")}
    found = replace(found, methods={**found.methods, **baselines})
    reached = store.frame("voxels", lambda _: _voxels(run, task, found.methods, optimum))
    dots = scatter_of(settings, history)
    lines = {name: dict(tuned.late) for name, tuned in baselines.items()}
    references: Any = {**lines, "optimum": optimum.drop(columns="weights").iloc[0].to_dict()}
    federated = {name: found.methods[name] for name in settings.methods}
    return Outcome(
        history=pd.concat([history, alone], ignore_index=True),
        table=_table(settings, found.methods, references),
        verdicts=[judge(claim, found) for claim in settings.claims]
        + [in_region(claim, dots) for claim in settings.scatter.claims],
        extra={"scatter": dots, "voxels": reached},
        notes=_notes(settings, task, alone, found.methods),
        figures={
            "figure": lambda target: tuning.draw_curves(settings, federated, references, target, DASHED),
            "figure-scatter": lambda target: fmri_figures.draw_scatter(settings, dots, target),
            "figure-brain": lambda target: fmri_figures.draw_brain(settings, reached, task.shape, target),
        },
    )


def scatter_of(settings: Fmri, history: pd.DataFrame) -> pd.DataFrame:
    """The dots: one per method, round and pair of step sizes whose product is in the range, averaged over seeds.

    A pair that diverged before a round has no dot there.
    """
    product = history["client_step_size"] * history["server_step_size"]
    wanted = history["method"].isin(settings.scatter.methods) & history["round"].isin(settings.scatter.rounds)
    dots: Any = history[wanted & _within(product, settings.scatter.product)]
    dots = dots[dots["diverged"].isna() | (dots["round"] < dots["diverged"])]
    by = ["method", "round", *tuning.PAIR]
    return dots.groupby(by, sort=False)[["density", "validation_accuracy"]].mean().reset_index()


def in_region(claim: RegionClaim, dots: pd.DataFrame) -> Verdict:
    """Whether more than half of the last dots of each method are in the region."""
    last = dots[dots["round"] == dots["round"].max()]
    inside = _within(last["density"], claim.density) & _within(last["validation_accuracy"], claim.accuracy)
    shares = {name: inside[last["method"] == name] for name in claim.methods}
    said = ", ".join(f"{share.sum()} of {len(share)} ({name})" for name, share in shares.items())
    where = f"density {_interval(claim.density)}, accuracy {_interval(claim.accuracy)}: {said}"
    return Verdict.of(claim.text, where, all(share.mean() > 0.5 for share in shares.values()))


def _within(values: Any, limits: tuple[float, float]) -> Any:
    return values.between(limits[0] - SLACK, limits[1] + SLACK)


def _interval(limits: tuple[float, float]) -> str:
    return f"{limits[0]:g} to {limits[1]:g}"


def _federated(settings: Fmri, task: Task, store: Store) -> list[pd.DataFrame]:
    """The histories of all methods and seeds."""
    return [
        store.frame(
            f"{name}-{seed}",
            lambda checkpoint, name=name, seed=seed: tuning.tried(
                task.problem, task.psi, name, settings, task.metrics, seed, checkpoint
            ),
        ).assign(method=name, seed=seed)
        for seed in settings.seeds
        for name in settings.methods
    ]


def _baselines(settings: Fmri, task: Task, store: Store) -> list[pd.DataFrame]:
    """Histories of `centralized`, and of `local` for every training client, who takes the place of the seed."""
    histories = [store.frame("centralized", lambda _: _descended(settings, task, task.problem, "examples"))]
    for m in range(task.num_clients):
        alone = partial(_descended, settings, task, only(task.problem, m), "uniform")
        histories.append(store.frame(f"local-{m}", lambda _, alone=alone: alone()))
    names = [("centralized", 0), *(("local", m) for m in range(task.num_clients))]
    return [history.assign(method=name, seed=m) for history, (name, m) in zip(histories, names, strict=True)]


def _descended(settings: Fmri, task: Task, problem: DataProblem, weights: str) -> pd.DataFrame:
    """Proximal gradient descent with all step sizes: an epoch is a full gradient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        result = sweep(
            problem,
            ProximalGradient(1.0, task.psi),
            {"step_size": settings.baseline_step_sizes},
            rounds=settings.rounds,
            local_steps=1,
            weights=weights,
            eval_every=settings.eval_every,
            metrics=task.metrics,
            progress=False,
        )
    history = result.history.merge(result.cells["diverged"], left_on="cell", right_index=True)
    return history.rename(columns={"step_size": "client_step_size"}).assign(server_step_size=1.0)


def _optimum(task: Task, weights: str) -> pd.DataFrame:
    """The certified minimum of the training objective."""
    solution = centralized(task.problem, task.psi, weights=weights)
    kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
    row = {"objective": solution.objective, **task.measure(solution.x), "kkt_residual": kkt, "duality_gap": gap}
    return pd.DataFrame([row | {"weights": solution.x["weights"].tolist()}])


def _voxels(settings: Fmri, task: Task, methods: Mapping[str, Tuned], optimum: pd.DataFrame) -> pd.DataFrame:
    """The place of each voxel, and its weight after the last round of each tuned method with the first seed."""
    columns = {f"axis_{axis}": task.positions[:, axis] for axis in range(3)}
    for name in settings.methods:
        tuned = methods[name]
        result = simulate(
            task.problem,
            tuning.method(name, task.psi, tuned.client_step_size, tuned.server_step_size),
            **tuning.options(settings),
            eval_every=settings.rounds,
            seed=settings.seeds[0],
            progress=False,
        )
        columns[name] = np.asarray(result.x["weights"])
    return pd.DataFrame({**columns, "optimum": optimum["weights"].iloc[0]})


def _table(settings: Fmri, methods: Mapping[str, Tuned], references: Any) -> pd.DataFrame:
    table = tuning.table(settings, methods, {"optimum": references["optimum"]})
    for name in ("centralized", "local"):
        table.loc[table["method"] == name, "step_sizes"] = f"{methods[name].client_step_size:g}"
    return table


def _notes(settings: Fmri, task: Task, alone: pd.DataFrame, methods: Mapping[str, Tuned]) -> list[str]:
    """What was run, in words."""
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
        notes.append(
            f"every federated method gets all {scans} validation scans right, so accuracy does not tell them apart"
        )
    return notes
