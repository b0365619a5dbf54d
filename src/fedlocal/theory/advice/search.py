"""The search for the best parameters of a family of methods."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from fedlocal.core import LocalMethod, Regularizer, Zero
from fedlocal.methods import FedAvg
from fedlocal.methods.table import MethodArguments
from fedlocal.theory.advice.families import COMPOSITE, Family
from fedlocal.theory.advice.local_model import LocalModel
from fedlocal.theory.bounds.bound import Bound, Constants, Setting
from fedlocal.theory.constants.estimation import Estimate

STEP_SIZES = 36  # number of step sizes tried, from 1e-5/L to 4/L
MODULI = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # times L: values tried for lambda if F is not known to be strongly convex


@dataclass(frozen=True)
class Choice:
    """A method with its parameters, its predicted error, the bound that applies to it and its measured error."""

    family: Family = field(repr=False)
    parameters: MethodArguments
    predicted: float | None  # expected objective above the optimum, from the local model
    bound: Bound | None  # the smallest bound of a theorem, which has a step size of its own
    measured: float | None = None  # objective above the optimum in the pilot
    regularization: float = 0.0  # lambda, if it runs on F + lambda/2 ||x - x0||^2

    @property
    def method(self) -> LocalMethod:
        return self.family.row.make(self.parameters)

    @property
    def score(self) -> float:
        """The measured error if known, else the predicted error, else the bound."""
        promised = math.inf if self.bound is None else self.bound.value
        return next((v for v in (self.measured, self.predicted) if v is not None), promised)

    @property
    def rank(self) -> tuple[bool, bool, bool, float, int]:
        """The sort key: finite first, then measured, predicted, bounded, then the score, then more local steps."""
        unmeasured, unknown = self.measured is None, self.predicted is None
        return not math.isfinite(self.score), unmeasured, unknown, self.score, -self.parameters.local_steps


@dataclass(frozen=True)
class ParameterSearch:
    """The problem, the budget and the model for which the best parameters of a family are searched."""

    found: Estimate
    constants: Constants | None  # the certified ones; None if the theorems do not apply
    model: LocalModel | None
    participation: float | None  # the fraction of the clients in a round; None: all
    rounds: int
    most_steps: int
    regularizer: Regularizer | None
    clients: int  # the number of equally weighted clients whose mean has the same variance

    def best(self, family: Family) -> Choice:
        """Return the choice with the smallest predicted error, or with the smallest bound if nothing can be predicted."""
        steps = sorted({2**i for i in range(self.most_steps.bit_length())} | {self.most_steps})
        return min((self._with(family, k) for k in steps), key=lambda choice: choice.rank)

    def _with(self, family: Family, local_steps: int) -> Choice:
        augmented, moduli = self._augmented(family), self._moduli(family, local_steps)
        if self.model is None or not family.predictable:
            mu = moduli[0]
            bound = self._bound(family, local_steps, mu if augmented else 0.0)
            step_size = 1 / (4 * self.found.local.smoothness)
            if bound is not None and bound.step_size is not None and not bound.product:
                step_size = bound.step_size
            parameters = self._parameters(step_size, local_steps, mu)
            return Choice(family, parameters, None, bound, regularization=mu if augmented else 0.0)
        tried = [
            (value, self._parameters(step_size, local_steps, mu))
            for mu in moduli
            for step_size, value in self._predicted(family, local_steps, mu)
        ]
        value, parameters = min(tried, key=lambda each: each[0])
        used = float(parameters.strong_convexity) if augmented else 0.0
        return Choice(family, parameters, float(value), self._bound(family, local_steps, used), regularization=used)

    def _bound(self, family: Family, local_steps: int, regularization: float) -> Bound | None:
        """Return the smallest bound about what the family runs on."""
        if self.constants is None or not self._bounded():
            return None
        setting = Setting(self.clients, self.rounds, local_steps)
        psi = Zero() if self.regularizer is None else self.regularizer
        return family.best_bound(self.constants, setting, psi, regularization)

    def _bounded(self) -> bool:
        """Return True if theorems are about the clients that take part: those for clients that differ let all take part."""
        return self.constants is not None and (self.participation is None or self.constants.heterogeneity == 0)

    def _augmented(self, family: Family) -> bool:
        """Return True if the family needs strong convexity and F is not known to have it: it runs on the augmented objective."""
        return family.accelerated and self.found.constants.strong_convexity == 0

    def with_measurement(self, choice: Choice, step_size: float, measured: float) -> Choice:
        """Return the choice with another step size and the error measured for it."""
        parameters, predicted = replace(choice.parameters, step_size=step_size), choice.predicted
        if self.model is not None and predicted is not None:
            methods, k = [affine_method(choice.family, parameters)], parameters.local_steps
            found = self.model.predict(methods, self.rounds, k, self.participation, choice.regularization)
            predicted = float(found[0])
        return replace(choice, parameters=parameters, predicted=predicted, measured=measured)

    def _predicted(self, family: Family, local_steps: int, mu: float) -> list[tuple[float, float]]:
        assert self.model is not None
        largest = max(self.model.curvature.max(), self.found.local.smoothness / 100)  # the curvature at x* may vanish
        step_sizes = np.geomspace(1e-5, 4.0, STEP_SIZES) / largest
        if family.accelerated:
            step_sizes = step_sizes[step_sizes * mu < 0.5]
        methods = [affine_method(family, self._parameters(float(s), local_steps, mu)) for s in step_sizes]
        strength = mu if self._augmented(family) else 0.0
        values = self.model.predict(methods, self.rounds, local_steps, self.participation, strength)
        return list(zip(map(float, step_sizes), map(float, values), strict=True))

    def _parameters(self, step_size: float, local_steps: int, mu: float) -> MethodArguments:
        psi = Zero() if self.regularizer is None else self.regularizer
        return MethodArguments(step_size, local_steps=local_steps, strong_convexity=mu, regularizer=psi)

    def _moduli(self, family: Family, local_steps: int) -> list[float]:
        """Return the values of mu to try: the problem's own, or several for the augmented objective."""
        if not self._augmented(family):
            return [self.found.constants.strong_convexity]
        several = [factor * self.found.local.smoothness for factor in MODULI]
        if self.constants is None or not self._bounded():
            return several
        return [*family.regularizations(self.constants, Setting(self.clients, self.rounds, local_steps)), *several]


def affine_method(family: Family, parameters: MethodArguments) -> LocalMethod:
    """Return the method that the local model follows: FedAvg for FedDualAvg, in the coordinates that psi leaves free."""
    return FedAvg(client_step_size=parameters.step_size) if family in COMPOSITE else family.row.make(parameters)
