"""Choices: methods with all their numbers, and the search for the best ones of a family."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from fedlocal.core import LocalMethod, Regularizer
from fedlocal.methods import FedAvg
from fedlocal.theory.bound import Bound, Constants, Setting
from fedlocal.theory.estimate import Estimate
from fedlocal.theory.families import COMPOSITE, Family, Numbers
from fedlocal.theory.local_model import LocalModel

STEP_SIZES = 36  # that are looked at, from 1e-5 to 4 times 1/L
MODULI = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # times L: what an accelerated method may take for mu where F has none


@dataclass(frozen=True)
class Choice:
    """A method with all its numbers, and what is known about it."""

    family: Family = field(repr=False)
    numbers: Numbers
    predicted: float | None  # expected objective above the optimum, from the local model
    bound: Bound | None  # the smallest that a theorem promises, with a step size of its own
    measured: float | None = None  # by the pilot

    @property
    def method(self) -> LocalMethod:
        return self.family.build(self.numbers)

    @property
    def score(self) -> float:
        """What choices of a kind are ranked by: measured, else predicted, else promised."""
        promised = math.inf if self.bound is None else self.bound.value
        return next((v for v in (self.measured, self.predicted) if v is not None), promised)

    @property
    def rank(self) -> tuple[bool, bool, bool, float, int]:
        """What is finite first, and of that measured before predicted before promised; of equals the most local steps."""
        unmeasured, unknown = self.measured is None, self.predicted is None
        return not math.isfinite(self.score), unmeasured, unknown, self.score, -self.numbers.local_steps


@dataclass(frozen=True)
class Search:
    """What the best numbers of a family are looked for with."""

    found: Estimate
    constants: Constants | None  # those that are proven; None where the theorems do not apply
    model: LocalModel | None
    fraction: float | None
    rounds: int
    most_steps: int
    regularizer: Regularizer | None
    clients: int  # of equal weight, that average as much noise away

    def best(self, family: Family) -> Choice:
        """The choice with the smallest prediction; with the smallest bound where nothing can be predicted."""
        return min(
            (self._with(family, steps) for steps in _powers_of_two(self.most_steps)), key=lambda choice: choice.rank
        )

    def _with(self, family: Family, local_steps: int) -> Choice:
        bound = None  # the theorems let all clients take part, where they differ
        if self.constants is not None and (self.fraction is None or self.constants.heterogeneity == 0):
            bound = family.best_bound(self.constants, Setting(self.clients, self.rounds, local_steps))
        if self.model is None or not family.predictable:
            step_size = 1 / (4 * self.found.local.smoothness)
            if bound is not None and bound.step_size is not None:
                step_size = bound.step_size
            return Choice(family, self._numbers(step_size, local_steps, self._moduli(family)[0]), None, bound)
        tried = [
            (value, self._numbers(step_size, local_steps, mu))
            for mu in self._moduli(family)
            for step_size, value in self._predicted(family, local_steps, mu)
        ]
        value, numbers = min(tried, key=lambda each: each[0])
        return Choice(family, numbers, float(value), bound)

    def again(self, choice: Choice, step_size: float, measured: float) -> Choice:
        """The choice with another step size, which did so well."""
        numbers, predicted = replace(choice.numbers, step_size=step_size), choice.predicted
        if self.model is not None and predicted is not None:
            walkers = [walker(choice.family, numbers)]
            predicted = float(self.model.predict(walkers, self.rounds, numbers.local_steps, self.fraction)[0])
        return replace(choice, numbers=numbers, predicted=predicted, measured=measured)

    def _predicted(self, family: Family, local_steps: int, mu: float) -> list[tuple[float, float]]:
        assert self.model is not None
        largest = max(self.model.curvature.max(), self.found.local.smoothness / 100)  # there may be none left at x*
        step_sizes = np.geomspace(1e-5, 4.0, STEP_SIZES) / largest
        if family.accelerated:
            step_sizes = step_sizes[step_sizes * mu < 0.5]
        walkers = [walker(family, self._numbers(float(s), local_steps, mu)) for s in step_sizes]
        values = self.model.predict(walkers, self.rounds, local_steps, self.fraction)
        return list(zip(map(float, step_sizes), map(float, values), strict=True))

    def _numbers(self, step_size: float, local_steps: int, mu: float) -> Numbers:
        return Numbers(step_size, local_steps, mu, self.regularizer)

    def _moduli(self, family: Family) -> list[float]:
        """What is taken for mu: the problem's own, or several where it has none that is known."""
        mu = self.found.constants.strong_convexity
        if mu > 0 or not family.accelerated:
            return [mu]
        return [factor * self.found.local.smoothness for factor in MODULI]


def walker(family: Family, numbers: Numbers) -> LocalMethod:
    """The method as the local model walks it: FedDualAvg like FedAvg, in the coordinates that psi leaves free."""
    return FedAvg(client_step_size=numbers.step_size) if family in COMPOSITE else family.build(numbers)


def _powers_of_two(most: int) -> list[int]:
    return sorted({2**i for i in range(most.bit_length())} | {most})
