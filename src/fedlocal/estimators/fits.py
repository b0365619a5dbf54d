"""What every optimiser of a pool returns, reports while it runs, and stops at."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlocal.certificates import Certificate
from fedlocal.data.moments import UnitError
from fedlocal.estimators.pool import SMALLEST, Pool, norm

LEAST = 1e-3  # of the loss without weights, below which a gap has few digits
Watch = Callable[[str, Certificate, np.ndarray], None]  # phase, certificate, weights


@dataclass
class Fit:
    """Where an optimiser ended."""

    x: np.ndarray  # (d, outputs) weights of the pool's features
    b: np.ndarray  # (outputs,) intercepts for them
    certificate: Certificate
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Goal:
    """When to stop: at a gap of tol times the objective (or a thousandth of the loss of a model without weights, if that is
    more); where no gap is known, at a KKT residual of tol times the size of that model's gradient."""

    tol: float
    value: float  # loss of the best intercepts alone
    gradient: float  # norm of the gradient there
    size: float  # the same of a gradient whose terms all have one sign

    @classmethod
    def of(cls, pool: Pool, tol: float) -> "Goal":
        b = np.zeros(pool.loss.outputs)
        _, scores = pool.best_intercept(np.zeros((len(pool.targets), len(b))), b)
        slopes = pool.weighted_slopes(scores)
        pool.sent.exchange(1, 1 + 2 * pool.width * len(b))
        sizes = np.asarray(abs(pool.features).T @ np.abs(slopes))  # what rounding of the gradient is relative to
        value = pool.value(scores)
        unit = np.sqrt(2 * value) if pool.loss.quadratic else 1.0  # of the slopes
        small = (sizes > 0) & (sizes < SMALLEST * unit)
        if small.any():
            raise UnitError("Goal.of", int(np.argwhere(small)[0, 0]), "small")
        return cls(tol, value, norm(pool.gradient(slopes)), norm(sizes))

    def allowed(self, found: Certificate) -> float:
        """The gap, or the KKT residual, at which to stop."""
        if found.duality_gap is None:
            return self.tol * self.size
        return self.tol * max(found.objective, LEAST * self.value, np.finfo(float).tiny)

    def reached(self, found: Certificate, slack: float = 1.0) -> bool:
        """Whether to stop; `slack` multiplies what is allowed."""
        left = found.kkt_residual if found.duality_gap is None else found.duality_gap
        return left <= slack * self.allowed(found) and left < np.inf  # the objective of weights that diverged is inf

    def precision(self, found: Certificate) -> float:
        """How precise a step has to be: the more, the nearer the goal is."""
        ratio = found.kkt_residual / self.gradient if found.kkt_residual < self.gradient else 1.0
        return float(np.clip(0.1 * ratio**1.5, 1e-15, 1e-2))
