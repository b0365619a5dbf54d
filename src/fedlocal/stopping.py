"""Rules that end a run before its last round, for `stop_when=` of `fl.simulate` and `fl.loop`.

A rule is asked after every evaluation. It decides by the history and the point alone, so a run that is resumed ends where the
whole run would have ended; only `Seconds` looks at the clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedlocal.core import AbstractProblem, Params, Regularizer
from fedlocal.metrics.base import larger_is_better
from fedlocal.solvers.certificates import certify
from fedlocal.util import checks

__all__ = ["Above", "Below", "Certified", "NoImprovement", "Rule", "Seconds", "StoppingPoint"]

StopFunction = Callable[[dict[str, float], Params], Any]  # of (row, x); returns True, a reason or None


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class StoppingPoint:
    """What a rule decides from: the history of a run up to an evaluation, and the point there.

    Args:
        rows: the rows of the history so far, as dicts; the last is that of this evaluation.
        x: the point, a pytree of float64 arrays.
        problem: the losses of the clients.
        regularizer: psi of the method.
        client_weights: (M,) weights of the clients in F.
        seconds: that the run has taken, in earlier processes too.
    """

    rows: Sequence[dict[str, float]]
    x: Params
    problem: AbstractProblem
    regularizer: Regularizer
    client_weights: np.ndarray
    seconds: float


class Rule(ABC):
    """A condition under which a run ends."""

    @abstractmethod
    def reason(self, point: StoppingPoint) -> str | None:
        """Return why the run ends at this evaluation, or None if it goes on."""

    def overdue(self, seconds: float) -> bool:
        """Return True if a run that has taken so long is to be evaluated now and not at its next evaluation."""
        return False


@dataclass(frozen=True)
class _Level(Rule):
    """What `Below` and `Above` share: a column and a level."""

    metric: str
    level: float

    def __post_init__(self) -> None:
        owner = type(self).__name__
        checks.instance(owner, "metric", self.metric, str)
        checks.number(owner, "level", self.level)

    def value(self, point: StoppingPoint) -> float:
        return _column(type(self).__name__, self.metric, point.rows[-1:])[0]


class Below(_Level):
    """Ends a run when a column of its history is below a level.

    Args:
        metric: name of the column, e.g. "objective".
        level: the run ends at the first value that is smaller; nan is not.
    """

    def reason(self, point: StoppingPoint) -> str | None:
        value = self.value(point)
        return f"{self.metric} {value:.6g} is below {self.level:.6g}" if value < self.level else None


class Above(_Level):
    """Ends a run when a column of its history is above a level.

    Args:
        metric: name of the column, e.g. "accuracy".
        level: the run ends at the first value that is larger; nan is not.
    """

    def reason(self, point: StoppingPoint) -> str | None:
        value = self.value(point)
        return f"{self.metric} {value:.6g} is above {self.level:.6g}" if value > self.level else None


@dataclass(frozen=True)
class Certified(Rule):
    """Ends a run when its point is proved to be close to optimal, by the duality gap of `fl.certificate`.

    The gap needs a linear model with one score per example (`LeastSquares`, `MatrixSensing`, `Logistic`). It takes five to eight
    times as long as the loss, at every evaluation; a larger `eval_every` makes it cheaper.

    Args:
        gap: above 0; the run ends when objective - minimum is proved to be smaller.
        relative: True takes `gap` as a fraction of the objective.
    """

    gap: float
    relative: bool = False

    def __post_init__(self) -> None:
        checks.number("Certified", "gap", self.gap, above=0)
        checks.instance("Certified", "relative", self.relative, bool)

    def reason(self, point: StoppingPoint) -> str | None:
        if not all(np.isfinite(a).all() for a in jax.tree.leaves(point.x)):
            return None
        found = certify(point.problem, point.regularizer, point.x, point.client_weights)
        if found.duality_gap is None and len(point.rows) == 1:
            raise ValueError(f"Certified: no duality gap is known: {found.no_gap_because}; use another rule")
        size = abs(found.objective) if self.relative else 1.0
        if found.duality_gap is None or not found.duality_gap < self.gap * size:
            return None
        share = " times the objective" if self.relative else ""
        return f"the duality gap {found.duality_gap:.3g} is below {self.gap:.3g}{share}"


@dataclass(frozen=True)
class NoImprovement(Rule):
    """Ends a run when a column of its history has not improved for some evaluations.

    Args:
        metric: name of the column, e.g. "validation_loss".
        evaluations: the run ends when the best of so many last values is no improvement on the best value before them.
        at_least: what an improvement is: a difference above 0 and of at least this.
        largest: True if larger values are better; None: of "accuracy", "precision", "recall" and "f1" they are.
    """

    metric: str
    evaluations: int
    at_least: float = 0.0
    largest: bool | None = None

    def __post_init__(self) -> None:
        checks.instance("NoImprovement", "metric", self.metric, str)
        checks.whole("NoImprovement", "evaluations", self.evaluations)
        checks.number("NoImprovement", "at_least", self.at_least, at_least=0)
        if self.largest is not None:
            checks.instance("NoImprovement", "largest", self.largest, bool)

    def reason(self, point: StoppingPoint) -> str | None:
        values = np.array(_column("NoImprovement", self.metric, point.rows))
        if len(values) <= self.evaluations:
            return None
        values = np.where(np.isnan(values), np.inf, -values if larger_is_better(self.metric, self.largest) else values)
        before, last = values[: -self.evaluations].min(), values[-self.evaluations :].min()
        if last < before and last <= before - self.at_least:
            return None
        by = f" by at least {self.at_least:.3g}" if self.at_least > 0 else ""
        evaluations = "1 evaluation" if self.evaluations == 1 else f"{self.evaluations} evaluations"
        return f"{self.metric} has not improved{by} for {evaluations}"


@dataclass(frozen=True)
class Seconds(Rule):
    """Ends a run when it has taken so long, with the time of the processes before it if it was resumed.

    The clock is read about twice a second, between rounds. A run that is late is evaluated at once and ends; a round, an
    evaluation or a compilation that takes longer is not interrupted.

    Args:
        budget: seconds, above 0.
    """

    budget: float

    def __post_init__(self) -> None:
        checks.number("Seconds", "budget", self.budget, above=0)

    def reason(self, point: StoppingPoint) -> str | None:
        if not self.overdue(point.seconds):
            return None
        return f"{point.seconds:.3g} seconds have used up the budget of {self.budget:.3g}"

    def overdue(self, seconds: float) -> bool:
        return seconds >= self.budget


@dataclass(frozen=True)
class FunctionRule(Rule):
    """A user's function of (row, x); True ends the run without a reason."""

    function: StopFunction

    def reason(self, point: StoppingPoint) -> str | None:
        said = self.function(dict(point.rows[-1]), point.x)
        return None if not said else said if isinstance(said, str) else ""


StopWhen = Rule | StopFunction | Sequence[Rule | StopFunction]


def check_rules(owner: str, stop_when: StopWhen | None, processes: int = 1) -> tuple[Rule, ...]:
    """Return the rules of `stop_when`, or raise an error that begins with `owner` and says what is wrong with them."""
    if stop_when is None:
        return ()
    rules = []
    for rule in stop_when if isinstance(stop_when, (list, tuple)) else [stop_when]:
        if isinstance(rule, type):
            raise TypeError(f"{owner}: stop_when holds the class {rule.__name__}; give {rule.__name__}(...)")
        if isinstance(rule, Seconds) and processes > 1:
            text = f"stop_when holds {rule}, and the clocks of {processes} processes differ; use another rule"
            raise ValueError(f"{owner}: {text}")
        if not isinstance(rule, Rule):
            if not callable(rule):
                also = "a rule of fl.stopping or a list of them works, too"
                raise TypeError(f"{owner}: stop_when must be a function of (row, x), got {rule!r}; {also}")
            checks.takes(owner, "stop_when", rule, ("row", "x"))
            rule = FunctionRule(rule)
        rules.append(rule)
    return tuple(rules)


def why_stopped(rules: Sequence[Rule], point: StoppingPoint) -> str | None:
    """Return the sentence that says why a run ends, by the first rule that ends it; None if it goes on."""
    done = int(point.rows[-1]["round"])
    for rule in rules:
        reason = rule.reason(point)
        if reason is not None:
            return f"stopped in round {done}: {reason}" if reason else f"stopped by stop_when in round {done}"
    return None


def _column(owner: str, name: str, rows: Sequence[dict[str, float]]) -> list[float]:
    """The values of a column of the history; nan where a row does not have it, though the last one does."""
    checks.choice(owner, "metric", name, rows[-1])
    return [row.get(name, np.nan) for row in rows]
