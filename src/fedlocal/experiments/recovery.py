"""The recovery study: four composite methods, each with its best step sizes, beside the centralised optimum.

Each method runs with every pair of step sizes; the pair with the best score over the last rounds is its tuned one.
"""

from typing import Any

import numpy as np
import pandas as pd

from fedlocal import data as generators
from fedlocal.core import Params, Regularizer
from fedlocal.experiments import tuning
from fedlocal.experiments.claims import judge
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.recovery import Recovery
from fedlocal.experiments.store import Store
from fedlocal.federated_data import FederatedData
from fedlocal.metrics import Evaluation, FrobeniusError, Loss, Metric, Rank, SparseRecovery
from fedlocal.problems import LeastSquares, MatrixSensing
from fedlocal.problems.linear import LinearProblem
from fedlocal.regularizers import L1, Nuclear
from fedlocal.solvers import centralized, path, zero_strength

STRENGTHS = np.geomspace(1.0, 1e-3, 31)  # of the strength at which every weight is zero
TOLERANCE = 0.05  # of F1, for a strength to count as recovering the pattern


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
                lambda checkpoint, task=task, psi=psi, name=name: tuning.tried(
                    task.problem, psi, name, settings, task.metrics, task.seed, checkpoint
                ),
            )
            histories.append(history.assign(method=name, seed=seed))
    history, optimum = pd.concat(histories, ignore_index=True), pd.concat(optima, ignore_index=True)
    found = tuning.findings(settings, history, elsewhere)
    references: tuning.References = {"optimum": optimum.mean(numeric_only=True).to_dict()}  # pyright: ignore[reportAssignmentType]
    return Outcome(
        history=history,
        table=tuning.table(settings, found.methods, references),
        verdicts=[judge(claim, found) for claim in settings.claims],
        extra={"optimum": optimum},
        notes=notes,
        figures={"figure": lambda target: tuning.draw_curves(settings, found.methods, references, target)},
    )


def _optimum(task: Task, psi: Regularizer, weights: str) -> pd.DataFrame:
    """The centralised solution: what `optimum` marks in the figures."""
    solution = centralized(task.problem, psi, weights=weights)
    kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
    row = {"objective": solution.objective, **task.measure(solution.x), "kkt_residual": kkt, "duality_gap": gap}
    return pd.DataFrame([row])


def _found(task: Task, chosen: Any) -> str:
    """How a strength was found, in words."""
    of = chosen[chosen["recovers"]]["strength"]
    if task.low_rank and chosen["rank_error"].min() > 0:
        return "for the rank nearest to the true one: no strength recovers it centrally"
    return f"by the text's rule: the centralised solution recovers the pattern from {of.min():.2g} to {of.max():.2g}"
