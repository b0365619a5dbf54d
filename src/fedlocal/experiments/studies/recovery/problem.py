"""The problem of a recovery study: data with a known truth, and the centralised strength that recovers it."""

from typing import Any

import numpy as np
import pandas as pd

from fedlocal import data as generators
from fedlocal.core import AbstractProblem, Regularizer
from fedlocal.core.types import WeightsName
from fedlocal.data.federated_data import FederatedData
from fedlocal.experiments.studies.recovery.settings import RecoverySettings
from fedlocal.metrics import Evaluation, FrobeniusError, Loss, Metric, Rank, SparseRecovery, measure_point
from fedlocal.problems import LeastSquares, MatrixSensing
from fedlocal.problems.linear import LinearProblem
from fedlocal.regularizers import L1, Nuclear
from fedlocal.solvers import path, zero_strength

STRENGTHS = np.geomspace(1.0, 1e-3, 31)  # of the strength at which every weight is zero
TOLERANCE = 0.05  # of F1, for a strength to count as recovering the pattern


def make_problem(settings: RecoverySettings, *, seed: int, clients: int | None) -> AbstractProblem:
    """Return the problem with the data of a seed; `clients` must be None or the number that the data have."""
    return RecoveryTask(settings, seed).problem


def make_regularizer(settings: RecoverySettings, *, seed: int) -> Regularizer:
    """Return psi with the strength of the settings, or with the strength that recovers the pattern in the data of a seed."""
    task = RecoveryTask(settings, seed)
    if settings.strength != "recover":
        return task.regularizer(settings.strength)
    return task.regularizer(float(choose_strength(task, settings.weights)["chosen"].iloc[0]))


class RecoveryTask:
    """The data of a seed, its problem, and what is measured."""

    def __init__(self, settings: RecoverySettings, seed: int):
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


class RankError(Metric):
    """|rank - true rank|, with the threshold of `Rank`."""

    def __init__(self, truth: Any):
        self.truth = int(np.linalg.matrix_rank(truth["weights"]))

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return {"rank_error": abs(Rank().measure(evaluation)["rank"] - self.truth)}


def choose_strength(task: RecoveryTask, weights: WeightsName) -> pd.DataFrame:
    """Choose lambda by the text's rule, "so that the centralised solver can recover the pattern"; return the whole path.

    The centralised problem is solved for 31 strengths, three decades down from the one at which every weight is zero. A
    strength recovers the pattern if its solution has an F1 within 0.05 of the best on the path, or the true rank. Of the
    longest run of neighbouring strengths that do, the geometric middle is taken, rounded to two digits: this choice is the
    farthest from both ends of the run.
    """
    strengths = zero_strength(task.problem, task.regularizer, weights=weights) * STRENGTHS
    solutions = path(task.problem, strengths.tolist(), task.regularizer, weights=weights, tolerance=1e-8)
    rows = [
        {"strength": s, **measure_point(task.problem, task.metrics, solution.x)}
        for s, solution in zip(strengths, solutions, strict=True)
    ]
    table = pd.DataFrame(rows)
    wrong = table["rank_error"] if task.low_rank else table["f1"].max() - table["f1"]
    recovers = wrong <= (wrong.min() if task.low_rank else TOLERANCE)  # the nearest rank, should none be the true one
    return table.assign(recovers=recovers, chosen=_middle(table["strength"].to_numpy(), recovers.to_numpy()))


def _middle(strengths: np.ndarray, recovers: np.ndarray) -> float:
    """Return the geometric middle of the longest run of strengths that recover the pattern."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], recovers, [False]]).astype(int)))
    first, last = max(zip(edges[::2], edges[1::2] - 1, strict=True), key=lambda run: run[1] - run[0])
    return float(f"{np.sqrt(strengths[first] * strengths[last]):.2g}")
