"""Quantile regression by the method of multipliers: smooth problems whose solutions become those of the loss with its kink."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlocal.core import Regularizer, Separable
from fedlocal.losses.quantile import SmoothedQuantileLoss
from fedlocal.solvers.certificates import Certificate
from fedlocal.solvers.newton.fitting import FittingProblem
from fedlocal.solvers.newton.iteration import prox_newton
from fedlocal.solvers.newton.local_method import FitOptions
from fedlocal.solvers.newton.penalties import Penalty, penalty_of
from fedlocal.solvers.newton.stopping import Callback, FitResult, PenalizedSums, Start, StoppingRule

NARROWER, WIDER = 4.0, 2.0  # what a width is divided by, and multiplied by
NARROWEST = 1e-8  # the least width over the first
STAGE_TOL = 1e-12  # of the smooth problems
STAGE_ITERATIONS = 30


@dataclass
class QuantileProblem(FittingProblem):
    r"""sum_i w_i max((1 - q) r_i, -q r_i) + psi(x) with r_i = a_i'x + b - y_i, ready to be fitted.

    From multipliers u = 0, repeat with widths h that become smaller and then stay:
        (x, b) <- argmin sum_i w_i l(a_i'x + b, y_i - h u_i) + psi(x),   u_i <- l'(a_i'x + b, y_i - h u_i),
    l the `SmoothedQuantileLoss` of width h. That is the proximal point method for the dual: h needs not go to zero, and since the
    dual is (but for psi) a linear program it ends at a solution. u_i stays at the site of example i.
    Reference: Rockafellar, Augmented Lagrangians and applications of the proximal point algorithm (1976). Differs from it: inner
    problems are solved to nearly all digits.
    """

    @classmethod
    def of(
        cls, features: Any, targets: np.ndarray, weights: np.ndarray, *rest: Any, **options: Any
    ) -> "QuantileProblem":
        """As `FittingProblem.of`, for a `SmoothedQuantileLoss` of any width; the first width is the spread of the targets."""
        sites, loss = rest
        level = float(weights @ targets) if options["intercept"] else 0.0
        spread = float(weights @ np.abs(targets - level))
        loss = replace(loss, width=spread if spread > 0 else 1.0)
        made: Any = super().of(features, targets - level, weights, sites, loss, **options)
        made.sums.level = level
        for _ in ("level", "spread"):
            made.sums.sent.exchange(1, 1)
        return made

    def fit(self, psi: Regularizer | Separable, start: Start, options: FitOptions, callback: Callback) -> FitResult:
        """Minimise the loss plus psi; each stage calls back with its certificate."""
        penalty, loss = penalty_of(psi, self.shape), self._loss
        least, multipliers, iterations = NARROWEST * loss.width, np.zeros(len(self.sums.targets)), 0
        while True:
            sums = replace(self.sums, loss=loss, targets=self.sums.targets - loss.width * multipliers)
            task = PenalizedSums(sums, penalty, StoppingRule.of(sums, STAGE_TOL), lambda *_: None)
            limit = max(1, min(STAGE_ITERATIONS, options.max_iter - iterations))
            stage = prox_newton(task, *start, limit)
            start, iterations = (stage.x, stage.b), iterations + max(1, stage.iterations)
            scores = sums.scores(*start)
            multipliers = sums.slopes(scores)[:, 0]
            found = self._certificate(penalty, stage.x, scores[:, 0], multipliers)
            callback("multipliers", found, stage.x)
            if self.rule.reached(found) or iterations >= options.max_iter:
                return FitResult(*start, found, iterations, self.rule.reached(found))
            # a problem that was too hard had a width that was too small
            least = least if stage.converged else WIDER * loss.width
            loss = replace(loss, width=max(loss.width / NARROWER, least))

    def has_no_optimum(self, psi: Regularizer | Separable, fit: FitResult) -> bool:
        """False: the loss grows in every direction in which it changes."""
        return False

    @property
    def _loss(self) -> SmoothedQuantileLoss:
        loss: Any = self.sums.loss
        return loss

    def _certificate(self, penalty: Penalty, x: np.ndarray, scores: np.ndarray, u: np.ndarray) -> Certificate:
        """That of the loss with its kink, with the multipliers as a dual point; their products with the targets are sent."""
        sums, q = self.sums, self._loss.quantile
        r = scores - sums.targets
        g = sums.gradient((sums.weights * u)[:, None])
        loss = float(sums.weights @ np.maximum((1 - q) * r, -q * r))
        # Fenchel and Young: zero where the multipliers are subgradients of the losses at the scores
        apart = loss - float(sums.weights @ (u * r))
        slope = np.array([sums.weights @ u]) if sums.intercept else np.zeros(1)
        residual = float(np.sqrt(np.sum((x - penalty.prox(x - g, 1.0)) ** 2) + slope[0] ** 2 + apart**2))
        objective, violation, gauge = loss + penalty.value(x), penalty.violation(x), penalty.gauge(-g)
        sums.sent.exchange(1, 2)
        if np.isfinite(gauge):
            scale = min(1.0, (1 - 1e-15) / gauge) if gauge > 0 else 1.0
            bound = -scale * float(sums.weights @ (u * sums.targets)) - penalty.conjugate(-scale * g)
            return Certificate(objective, residual, violation, objective - bound)
        because = "the conjugate of this penalty is finite at the origin or on a cone only"
        relative = max(self.rule.relative_residual(penalty, x, g, slope), apart / max(loss, self.rule.value))  # pyright: ignore[reportArgumentType]
        return Certificate(objective, residual, violation, None, because, relative)
