"""What every optimiser of a sums returns, reports while it runs, and stops at."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlocal.data.moments import UnitError
from fedlocal.solvers.certificates import Certificate, dual_scales
from fedlocal.solvers.newton.penalties import Penalty, SumPenalty
from fedlocal.solvers.newton.weighted_sums import SMALLEST, WeightedSums, norm

LEAST = 1e-3  # of the loss without weights, below which a gap has few digits
Callback = Callable[[str, Certificate, np.ndarray], None]  # phase, certificate, weights
Start = tuple[np.ndarray, np.ndarray]  # weights (d, outputs) and intercepts (outputs,)


@dataclass
class FitResult:
    """Where an optimiser ended."""

    x: np.ndarray  # (d, outputs) weights of the sums's features
    b: np.ndarray  # (outputs,) intercepts for them
    certificate: Certificate
    iterations: int
    converged: bool


@dataclass(frozen=True)
class StoppingRule:
    """When to stop: at a gap of tol times the objective (or a thousandth of the loss of a model without weights, if that is
    more); where no gap is known, at a KKT residual of tol in units in which columns and that model's slopes have size one, or,
    where the penalty does not take each weight by itself, of tol times the size of that model's gradient."""

    tol: float
    value: float  # loss of the best intercepts alone
    gradient: float  # norm of the gradient there
    sizes: np.ndarray  # (d, outputs) the gradient there if all its terms had one sign
    slope: float  # the weighted sum of the sizes of the slopes there, of which `sizes` is a mean of columns

    @classmethod
    def of(cls, sums: WeightedSums, tol: float) -> "StoppingRule":
        scores = sums.scores_without_weights()
        slopes = sums.weighted_slopes(scores)
        sums.sent.exchange(1, 1 + 2 * sums.width * sums.loss.outputs)
        sizes = np.asarray(abs(sums.features).T @ np.abs(slopes))  # what rounding of the gradient is relative to
        value = sums.value(scores)
        unit = np.sqrt(2 * sums.loss.curvature_bound * value) if sums.loss.quadratic else 1.0  # of the slopes
        small = (sizes > 0) & (sizes < SMALLEST * unit)
        if small.any():
            raise UnitError("StoppingRule.of", int(np.argwhere(small)[0, 0]), "small")
        return cls(tol, value, norm(sums.gradient(slopes)), sizes, float(np.abs(slopes).sum()) or 1.0)

    def allowed(self, found: Certificate) -> float:
        """The gap, or the KKT residual, at which to stop."""
        if found.duality_gap is None:
            return self.tol * (norm(self.sizes) if found.relative_residual is None else 1.0)
        return self.tol * max(found.objective, LEAST * self.value, np.finfo(float).tiny)

    def reached(self, found: Certificate, slack: float = 1.0) -> bool:
        """Return True if it is time to stop; `slack` multiplies what is allowed."""
        left = self.left(found)
        return left <= slack * self.allowed(found) and left < np.inf  # the objective of weights that diverged is inf

    def left(self, found: Certificate) -> float:
        """The gap, or the KKT residual, that is to be as small as allowed."""
        if found.duality_gap is not None:
            return found.duality_gap
        return found.kkt_residual if found.relative_residual is None else found.relative_residual

    def relative_residual(self, penalty: SumPenalty, x: np.ndarray, g: np.ndarray, slope: np.ndarray) -> float:
        """The largest part of the KKT residual, in units in which columns and the slopes without weights have size one."""
        units = np.where(self.sizes > 0, self.sizes, 1.0) / self.slope
        with np.errstate(over="ignore", invalid="ignore"):  # of weights that diverged
            apart = units * (x - penalty.prox(x - g / units / units, 1 / units / units))
            return float(np.max(np.abs(np.append(apart, slope)))) / self.slope

    def precision(self, found: Certificate) -> float:
        """How precise a step has to be: the more, the nearer the fit is to its end."""
        ratio = found.kkt_residual / self.gradient if found.kkt_residual < self.gradient else 1.0
        ratio = ratio if found.relative_residual is None else min(found.relative_residual, 1.0)
        return float(np.clip(0.1 * ratio**1.5, 1e-15, 1e-2))


@dataclass(frozen=True)
class PenalizedSums:
    """What an optimiser minimises, sum_i w_i loss_i(x, b) + psi(x), when it stops and whom it tells."""

    sums: WeightedSums
    penalty: Penalty
    rule: StoppingRule
    callback: Callback

    def certificate(self, x: np.ndarray, scores: np.ndarray, weighted_slopes: np.ndarray, g: np.ndarray) -> Certificate:
        """The certificate of weights x whose intercepts are at their best; g is the gradient with respect to the weights."""
        sums, penalty = self.sums, self.penalty
        objective = sums.value(scores) + penalty.value(x)
        slope = weighted_slopes.sum(axis=0) if sums.intercept else np.zeros(1)
        residual = float(np.hypot(norm(x - penalty.prox(x - g, 1.0)), norm(slope)))
        violation, gauge = penalty.violation(x), penalty.gauge(-g)
        if not np.isfinite(gauge):
            because = "the conjugate of this penalty is finite at the origin or on a cone only"
            separate = isinstance(penalty, SumPenalty)
            relative = self.rule.relative_residual(penalty, x, g, slope) if separate else None
            return Certificate(objective, residual, violation, None, because, relative)
        # scales down, sums of slopes and means of the conjugates up
        sums.sent.exchange(2, 4 if sums.loss.quadratic else 1)
        u, squares, products = sums.slopes(scores), 0, 0
        if sums.loss.quadratic:
            squares, products = sums.weights @ u[:, 0] ** 2, sums.weights @ (u[:, 0] * sums.targets)
        scales = dual_scales(sums.loss, gauge, squares, products)
        bounds = [-sums.conjugate(scale * u) - penalty.conjugate(-scale * g) for scale in scales]
        return Certificate(objective, residual, violation, objective - max(bounds))

    def fit_at(self, x: np.ndarray, b: np.ndarray, iterations: int, phase: str | None = None) -> FitResult:
        """Weights x with their best intercepts, and the certificate there, which the callback is told in a phase."""
        b, scores = self.sums.best_intercept(self.sums.scores(x, b), b)
        slopes = self.sums.weighted_slopes(scores)
        g = self.sums.gradient(slopes)
        self.sums.sent.exchange(x.size, g.size)
        found = self.certificate(x, scores, slopes, g)
        if phase is not None:
            self.callback(phase, found, x)
        return FitResult(x, b, found, iterations, self.rule.reached(found))
