"""Recorder: measures the points of a run; each gives a row of its history."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedlocal import metrics as metrics_module
from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.core.schedule import at_round
from fedlocal.metrics import ClientDiscrepancy, Evaluation, Metric
from fedlocal.metrics.base import MetricFn, check_metrics
from fedlocal.simulation.discrepancy import first_message
from fedlocal.simulation.plan import Plan

MetricLike = Metric | MetricFn
Row = dict[str, float]


class Stopwatch:
    """The time that a run has taken, with the seconds that it took in earlier processes."""

    def __init__(self, before: float = 0.0):
        self.started = time.monotonic() - before

    def seconds(self) -> float:
        return time.monotonic() - self.started


@dataclass(frozen=True)
class Recorder:
    """Makes the rows of a history: round, loss, objective, metrics, numbers sent, seconds."""

    owner: str
    problem: AbstractProblem
    metrics: tuple[MetricLike, ...]
    client_weights: np.ndarray
    loss_weights: np.ndarray
    numbers_up: int  # that a client sends in a round
    numbers_down: int  # that it receives

    @classmethod
    def make(
        cls, owner: str, problem: AbstractProblem, method: LocalMethod, plan: Plan, metrics: Any, x0: Params
    ) -> "Recorder":
        """Check the metrics of a run, and count what its messages hold."""
        metrics = check_metrics(owner, metrics)
        weights, method = plan.client_weights(), at_round(method, 0)
        sent = jax.eval_shape(lambda x: (first_message(method, x), method.broadcast(method.init(x))), x0)
        up, down = (sum(a.size for a in jax.tree.leaves(part)) for part in sent)
        return cls(owner, problem, metrics, weights, problem.loss_weights(weights), up, down)

    @property
    def wants_discrepancy(self) -> bool:
        return any(isinstance(metric, ClientDiscrepancy) for metric in self.metrics)

    def rows(self, evaluations: Sequence[Evaluation], stopwatch: Stopwatch) -> list[Row]:
        """Measure these points and return a row for each."""
        rows: list[Row] = [{"round": e.round, "loss": e.loss, "objective": e.objective} for e in evaluations]
        for metric in self.metrics:
            with np.errstate(all="ignore"):  # divergence is reported, not warned about
                columns = metrics_module.measure(metric, evaluations)
            for row, measured in zip(rows, columns, strict=True):
                twice = sorted(set(measured) & set(row))
                if twice:
                    text = f"two metrics give the column {twice[0]!r}; give one of them another name"
                    raise ValueError(f"{self.owner}: {text}")
                row |= measured
        for row, evaluation in zip(rows, evaluations, strict=True):
            assert evaluation.participation is not None  # it is a run's
            took_part = evaluation.participation.took_part(evaluation.round)
            row["numbers_up"] = took_part * self.numbers_up
            row["numbers_down"] = took_part * self.numbers_down
            row["seconds"] = stopwatch.seconds()
        return rows
