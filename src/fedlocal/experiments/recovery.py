"""The recovery study: four composite methods, each with its best step sizes, beside the centralised optimum.

Each method runs with every pair of step sizes; the pair with the best score over the last rounds is its tuned one.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlocal import data as generators
from fedlocal.core import Params, Regularizer
from fedlocal.engines import DivergenceWarning, sweep
from fedlocal.engines.sweep_result import score_groups
from fedlocal.experiments.claims import Findings, Tuned, judge
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.schema import Grid, Recovery, load
from fedlocal.experiments.store import Store
from fedlocal.federated_data import FederatedData
from fedlocal.methods import FedDualAvg, FedMiD
from fedlocal.metrics import Evaluation, FrobeniusError, Loss, Metric, Rank, SparseRecovery
from fedlocal.problems import LeastSquares, MatrixSensing
from fedlocal.problems.linear import LinearProblem
from fedlocal.regularizers import L1, Nuclear
from fedlocal.report.figures import COLORS, legend_below, panels, plain_log_scale
from fedlocal.solvers import centralized, path, zero_strength

METHODS = {"FedDualAvg": FedDualAvg, "FedDualAvg-OSP": FedDualAvg, "FedMiD": FedMiD, "FedMiD-OSP": FedMiD}
STRENGTHS = np.geomspace(1.0, 1e-3, 31)  # of the strength at which every weight is zero
TOLERANCE = 0.05  # of F1, for a strength to count as recovering the pattern
TIE = 1e-9  # scores that differ by less are the same
PAIR = ["client_step_size", "server_step_size"]


class Task:
    """The data of a seed, its problem, and what is measured."""

    def __init__(self, settings: Recovery, seed: int):
        make = getattr(generators, settings.data.generator)
        self.data: FederatedData = make(settings.data.config, seed=seed)
        self.seed = seed
        self.low_rank = settings.data.generator == "synthetic_low_rank"
        self.regularizer: type[L1] | type[Nuclear] = Nuclear if self.low_rank else L1
        self.problem: LinearProblem = (MatrixSensing if self.low_rank else LeastSquares)(self.data)
        self.metrics: list[Metric] = [SparseRecovery(self.data.truth)]
        if self.low_rank:
            validation = self.problem.with_data(make(settings.data.config, seed=seed, split="validation"))
            self.metrics = [Loss(validation, "validation_error"), Rank(), RankError(self.data.truth)]
            self.metrics += [FrobeniusError(self.data.truth)]

    def measure(self, x: Params) -> dict[str, float]:
        """All metrics at a point."""
        seen: Any = Evaluation(x, np.nan, np.nan, self.problem, None, np.ones(1), {})  # pyright: ignore[reportArgumentType]
        return {name: value for metric in self.metrics for name, value in metric.measure(seen).items()}


class RankError(Metric):
    """|rank - true rank|, with the threshold of `Rank`."""

    def __init__(self, truth: Any):
        self.truth = int(np.linalg.matrix_rank(truth["weights"]))

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return {"rank_error": abs(Rank().measure(evaluation)["rank"] - self.truth)}


def choose_strength(task: Task, weights: str) -> pd.DataFrame:
    """lambda by the text's rule, "so that the centralised solver can recover the pattern": the path that it is chosen from.

    The centralised problem is solved for 31 strengths, three decades down from the one at which every weight is zero. A
    strength recovers the pattern if its solution has an F1 within 0.05 of the best on the path, or the true rank. Of the
    longest run of neighbouring strengths that do, the geometric middle is taken, rounded to two digits: no other choice
    needs the data to change more before it fails.
    """
    strengths = zero_strength(task.problem, task.regularizer, weights=weights) * STRENGTHS
    solutions = path(task.problem, strengths.tolist(), task.regularizer, weights=weights, tolerance=1e-8)
    rows = [{"strength": s, **task.measure(solution.x)} for s, solution in zip(strengths, solutions, strict=True)]
    table = pd.DataFrame(rows)
    wrong = table["rank_error"] if task.low_rank else table["f1"].max() - table["f1"]
    recovers = wrong <= (wrong.min() if task.low_rank else TOLERANCE)  # the nearest rank, should none be the true one
    return table.assign(recovers=recovers, chosen=_middle(table["strength"].to_numpy(), recovers.to_numpy()))


def _middle(strengths: np.ndarray, right: np.ndarray) -> float:
    """The geometric middle of the longest run of strengths that are right."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], right, [False]]).astype(int)))
    first, last = max(zip(edges[::2], edges[1::2] - 1, strict=True), key=lambda run: run[1] - run[0])
    return float(f"{np.sqrt(strengths[first] * strengths[last]):.2g}")


def study(settings: Recovery, store: Store, elsewhere: Any) -> Outcome:
    """Run what is not in the store yet, tune, compare."""
    histories, optima, notes = [], [], []
    for seed in settings.seeds:
        task = Task(settings, seed)
        strength, chosen = settings.strength, None
        if strength == "recover":
            chosen = store.frame(f"strength-{seed}", lambda _, task=task: choose_strength(task, settings.weights))
            strength = float(chosen["chosen"].iloc[0])
        notes.append(
            f"lambda = {strength:g}" + (f" (seed {seed}), {_found(task, chosen)}" if chosen is not None else "")
        )
        psi = task.regularizer(strength)
        optimum = store.frame(f"optimum-{seed}", lambda _, task=task, psi=psi: _optimum(task, psi, settings.weights))
        optima.append(optimum.assign(seed=seed, strength=strength))
        for name in settings.methods:
            history = store.frame(
                f"{name}-{seed}",
                lambda checkpoint, task=task, psi=psi, name=name: _tried(settings, task, psi, name, checkpoint),
            )
            histories.append(history.assign(method=name, seed=seed))
    history, optimum = pd.concat(histories, ignore_index=True), pd.concat(optima, ignore_index=True)
    found = findings(settings, history, elsewhere)
    return Outcome(
        history=history,
        table=_table(settings, found.methods, optimum),
        verdicts=[judge(claim, found) for claim in settings.claims],
        extra={"optimum": optimum},
        notes=notes,
        figures={"figure": lambda target: _draw(settings, found.methods, optimum, target)},
    )


def findings(settings: Recovery, history: pd.DataFrame, elsewhere: Any = lambda _: None) -> Findings:
    """What claims are checked against, from the history of all runs."""
    methods = {name: tune(settings, history[history["method"] == name]) for name in settings.methods}
    return Findings(methods, settings.grid, text_grid(settings), settings.rounds, elsewhere)


def text_grid(settings: Recovery) -> Grid:
    """The grid of the text for this experiment."""
    text: Any = load(settings.name, "paper", "text")
    return text.grid


def tune(settings: Recovery, history: Any) -> Tuned:
    """The pair of step sizes with the best score, on average over the seeds. Pairs that diverged for a seed are out.

    Of several with the same score (many find the whole pattern) the one that is best on average over all rounds is taken, which
    is the fastest.
    """
    score = settings.score
    diverged = history[history["diverged"].notna()].groupby(PAIR)["diverged"].min()
    out = history.set_index(PAIR).index.isin(diverged.index)
    if out.all():
        raise ValueError(f"run: {history['method'].iloc[0]} diverged with every pair of step sizes; add smaller ones")
    rule = (score.metric, score.rule, score.window, score.largest)
    each = score_groups(history[~out], [*PAIR, "seed"], history[~out]["diverged"].notna(), settings.rounds, *rule)
    scores = each.groupby(PAIR).mean()
    sign = 1 if score.largest else -1
    tied = scores.index[sign * (scores - sign * (sign * scores).max()) > -TIE]
    overall = history[~out].groupby(PAIR)[score.metric].mean()[tied]
    best = overall.idxmax() if score.largest else overall.idxmin()
    own = history.set_index(PAIR).loc[[best]]
    curve = own.groupby("round").mean(numeric_only=True).reset_index()
    late = curve[curve["round"] > settings.rounds - score.window].mean(numeric_only=True).to_dict()
    return Tuned(best[0], best[1], curve, late, diverged.to_dict(), list(tied))


def _tried(settings: Recovery, task: Task, psi: Regularizer, name: str, checkpoint: Path) -> pd.DataFrame:
    """All pairs of step sizes of one method."""
    method = METHODS[name](1.0, 1.0, psi, prox_on_clients=not name.endswith("OSP"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # the table says how many
        result = sweep(
            task.problem,
            method,
            settings.grid.model_dump(),
            rounds=settings.rounds,
            eval_every=settings.eval_every,
            clients_per_round=settings.clients_per_round,
            batch_size=settings.batch_size,
            local_epochs=settings.local_epochs,
            weights=settings.weights,
            seed=task.seed,
            metrics=task.metrics,
            checkpoint=checkpoint,
        )
    return result.history.merge(result.cells["diverged"], left_on="cell", right_index=True)


def _optimum(task: Task, psi: Regularizer, weights: str) -> pd.DataFrame:
    """The centralised solution: what `optimum` marks in the figures."""
    solution = centralized(task.problem, psi, weights=weights)
    kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
    row = {"objective": solution.objective, **task.measure(solution.x), "kkt_residual": kkt, "duality_gap": gap}
    return pd.DataFrame([row])


def _table(settings: Recovery, methods: Mapping[str, Tuned], optimum: pd.DataFrame) -> pd.DataFrame:
    rows = [
        {
            "method": name,
            "step_sizes": f"{tuned.client_step_size:g}, {tuned.server_step_size:g}",
            "diverged": str(len(tuned.diverged)),
            **{column: tuned.late[column] for column in settings.columns},
        }
        for name, tuned in methods.items()
    ]
    means = optimum.mean(numeric_only=True)
    rows.append(
        {
            "method": "optimum",
            "step_sizes": "",
            "diverged": "",
            **{column: means.get(column, np.nan) for column in settings.columns},
        }
    )
    return pd.DataFrame(rows)


def _draw(settings: Recovery, methods: Mapping[str, Tuned], optimum: pd.DataFrame, target: Path) -> None:
    with panels(len(settings.panels), target, settings.title, width=4.0, height=3.6) as axes:
        for axis, panel in zip(axes, settings.panels, strict=True):
            for name, tuned in methods.items():
                axis.plot(
                    tuned.curve["round"], tuned.curve[panel.column], color=COLORS[name], label=name, linewidth=1.6
                )
            if panel.column in optimum:
                axis.axhline(
                    float(np.mean(optimum[panel.column])), color="black", linestyle=":", linewidth=1.3, label="optimum"
                )
            axis.set(title=panel.title, xlabel="communication rounds")
            if panel.log:
                plain_log_scale(axis)
        legend_below(axes)


def _found(task: Task, chosen: Any) -> str:
    """How a strength was found, in words."""
    of = chosen[chosen["recovers"]]["strength"]
    if task.low_rank and chosen["rank_error"].min() > 0:
        return "for the rank nearest to the true one: no strength recovers it centrally"
    return f"by the text's rule: the centralised solution recovers the pattern from {of.min():.2g} to {of.max():.2g}"
