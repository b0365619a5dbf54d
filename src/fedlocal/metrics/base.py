"""The contract of metrics: what they are computed from, and how they and plain functions are called."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedlocal.core import AbstractProblem, LocalMethod, Params, Server
from fedlocal.util import checks

MetricFn = Callable[..., Any]  # of x or of (x, round); returns a number or a dict of numbers


class Participation(Protocol):
    """Which clients have taken part in a run."""

    def seen(self, rounds: int) -> np.ndarray: ...  # (M,) True for each client of the first so many rounds
    def took_part(self, rounds: int) -> int: ...  # how many clients of these rounds there were, added up


@dataclass(frozen=True)
class Evaluation:
    """What a metric is computed from: a point of a run with its problem, method and objective."""

    x: Params  # parameters as float64 NumPy arrays
    loss: float
    objective: float
    problem: AbstractProblem
    method: LocalMethod
    client_weights: np.ndarray
    discrepancy: dict[str, float]
    server: Server = None  # the method's server state, as NumPy arrays
    round: int = 0  # rounds done
    participation: Participation | None = None  # None outside a run

    @property
    def seen(self) -> np.ndarray:
        """(M,) True for each client that has taken part so far."""
        if self.participation is None:
            return np.zeros(len(self.client_weights), bool)
        return self.participation.seen(self.round)


class Metric(ABC):
    """A quantity that is measured at every evaluation."""

    @abstractmethod
    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        """Return column names and values at one point."""

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        """Return the columns at several points of one problem; for metrics that are faster together."""
        return [self.measure(evaluation) for evaluation in evaluations]


LARGER_IS_BETTER = frozenset({"accuracy", "precision", "recall", "f1"})


def larger_is_better(column: str, largest: bool | None = None) -> bool:
    """Return `largest` if the user said it, and otherwise what is so of the metrics with these names."""
    return column in LARGER_IS_BETTER if largest is None else largest


def check_metrics(owner: str, metrics: Any) -> tuple[Metric | MetricFn, ...]:
    """Return the metrics of a run, or raise an error that begins with `owner` and says what is wrong with them."""
    if not isinstance(metrics, Sequence):
        raise TypeError(f"{owner}: metrics must be a list, got {type(metrics).__name__}")
    for metric in metrics:
        if isinstance(metric, type):
            raise TypeError(f"{owner}: metrics holds the class {metric.__name__}; give {metric.__name__}(...)")
        if not isinstance(metric, Metric) and not callable(metric):
            raise TypeError(f"{owner}: metrics must be metrics or functions of the parameters, got {metric!r}")
        if not isinstance(metric, Metric):
            checks.takes(owner, "metrics", metric, ("x", "round") if _takes_round(metric) else ("x",))
    return tuple(metrics)


def measure(metric: Metric | MetricFn, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
    """Return a metric's columns at these points; a plain function gives a column of its own name."""
    if isinstance(metric, Metric):
        return metric.measure_many(evaluations)
    takes_round = _takes_round(metric)
    values = [metric(seen.x, seen.round) if takes_round else metric(seen.x) for seen in evaluations]
    named = [value if isinstance(value, dict) else {metric_name(metric): value} for value in values]
    return [{name: _number(metric, number) for name, number in each.items()} for each in named]


def measure_point(problem: AbstractProblem, metrics: Sequence[Metric], x: Params) -> dict[str, float]:
    """Return the values of metrics that look at the point alone, outside a run."""
    evaluation = Evaluation(x, np.nan, np.nan, problem, None, np.ones(1), {})  # pyright: ignore[reportArgumentType]
    return {name: value for metric in metrics for name, value in metric.measure(evaluation).items()}


def metric_name(metric: Metric | MetricFn) -> str:
    """Return the name of a metric."""
    return type(metric).__name__ if isinstance(metric, Metric) else getattr(metric, "__name__", "metric")


def _takes_round(function: MetricFn) -> bool:
    """Return True if a function has a second positional argument that has no default or is called `round`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions that are not written in Python do not say
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 and (positional[1].default is inspect.Parameter.empty or positional[1].name == "round")


def _number(metric: MetricFn, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        name = metric_name(metric)
        raise TypeError(f"metrics: {name} must return a number or a dict of numbers, got {value!r}") from None
