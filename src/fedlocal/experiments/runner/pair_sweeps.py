"""Sweeps over pairs of step sizes: how a study runs them, and how pairs are scored."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, Params, Regularizer
from fedlocal.core.types import WeightsName
from fedlocal.experiments.runner.settings import ScoreRule, TunedStudySettings
from fedlocal.metrics import Metric, measure_point
from fedlocal.simulation.result import DivergenceWarning
from fedlocal.simulation.sweeps.grid import Grid
from fedlocal.simulation.sweeps.grid_run import sweep
from fedlocal.simulation.sweeps.result import score_groups
from fedlocal.solvers import centralized

PAIR = ["client_step_size", "server_step_size"]
Pair = tuple[float, float]


class CompositeObjective(NamedTuple):
    """F + psi, and what is measured at its points."""

    problem: AbstractProblem
    regularizer: Regularizer
    metrics: Sequence[Metric]

    def optimum(self, weights: WeightsName) -> tuple[dict[str, Any], Params]:
        """Return the numbers of the centralised solution, which `optimum` marks in the figures, and the solution."""
        solution = centralized(self.problem, self.regularizer, weights=weights)
        kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
        measured = measure_point(self.problem, self.metrics, solution.x)
        return {"objective": solution.objective, **measured, "kkt_residual": kkt, "duality_gap": gap}, solution.x


def options(settings: TunedStudySettings) -> dict[str, Any]:
    """Return the arguments of `simulate` and `sweep` that the settings fix."""
    names = ("rounds", "clients_per_round", "batch_size", "local_epochs", "weights")
    return {name: getattr(settings, name) for name in names}


def sweep_history(problem: AbstractProblem, method: Any, grid: Grid, **options: Any) -> Any:
    """Return the history of a sweep; its column `diverged`, of which nothing warns, is the round in which a cell diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        result = sweep(problem, method, grid, **options)
    return result.history.merge(result.cells["diverged"], left_on="cell", right_index=True)


def ended_pairs(history: Any, column: str) -> dict[Pair, int]:
    """Return the pairs that diverged (or were dropped) with any seed, and the first round in which they did."""
    if column not in history:
        return {}
    return history[history[column].notna()].groupby(PAIR)[column].min().to_dict()


def pair_scores(history: Any, score: ScoreRule, rounds: int, window: int) -> pd.DataFrame:
    """Return a row for each pair of step sizes, with means over the seeds; pairs that diverged or were dropped are left out.

    Args:
        history: rows of one method.
        score: the rule.
        rounds: score what the pairs have reached by this round.
        window: rounds up to it that the rule "mean" averages over.

    The column `score` is by the rule, `overall` the mean of the metric over all evaluations, which is better for faster pairs.
    """
    ended = [*ended_pairs(history, "diverged"), *ended_pairs(history, "dropped")]
    out = pd.MultiIndex.from_frame(history[PAIR]).isin(pd.MultiIndex.from_tuples(ended)) if ended else np.False_
    own = history[~out & (history["round"] <= rounds)]
    rule = (score.metric, score.rule, window, score.largest)
    each = score_groups(own, [*PAIR, "seed"], own["diverged"].notna(), rounds, *rule)
    overall = own.groupby(PAIR)[score.metric].mean()
    return pd.DataFrame({"score": each.groupby(PAIR).mean(), "overall": overall}, index=overall.index)
