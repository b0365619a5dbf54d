"""Task: one set of examples, ready to be fitted with any penalty, and the way back to the user's units."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from fedlocal.core import Regularizer, Separable
from fedlocal.data.moments import Moments, Scaling
from fedlocal.estimators.fits import Fit, Goal, Watch
from fedlocal.estimators.local_rounds import LOOKS, LocalWork, local_rounds
from fedlocal.estimators.losses import Loss
from fedlocal.estimators.newton import prox_newton
from fedlocal.estimators.penalties import Penalty, SumPenalty, penalty_of
from fedlocal.estimators.pool import Communication, Pool
from fedlocal.estimators.separation import no_finite_optimum

Start = tuple[np.ndarray, np.ndarray]  # weights (d, outputs) and intercepts (outputs,)


@dataclass(frozen=True)
class Effort:
    """How a fit is done."""

    work: LocalWork | None  # local rounds that come first; None: none
    finish: bool  # whether rounds of Newton follow them
    max_iter: int

    @property
    def looks(self) -> int:
        """At the certificate, at most."""
        return (LOOKS + 1 if self.work else 0) + (self.max_iter + 1 if self.finish or not self.work else 0)


@dataclass
class Task:
    """Examples of all sites."""

    pool: Pool
    sites: np.ndarray  # (n,) number of each example's site
    scaling: Scaling | None
    goal: Goal

    @classmethod
    def of(
        cls,
        features: Any,
        targets: np.ndarray,
        weights: np.ndarray,
        sites: np.ndarray,
        loss: Loss,
        *,
        intercept: bool,
        standardize: bool,
        tol: float,
    ) -> "Task":
        """`weights` (n,) sum to one; `standardize` with means and variances over all sites."""
        scaling, sent = None, Communication()
        if standardize:
            each = [Moments.of(features[sites == m], at_least=1) for m in np.unique(sites)]
            scaling = Moments.merged(each).scaling()
            features = scaling.apply(features)
            sent.exchange(0, 3 * features.shape[1])
        pool = Pool.of(features, targets, weights, loss, intercept, sent)
        return cls(pool, sites, scaling, Goal.of(pool, tol))

    def start(self, coef: np.ndarray | None = None, intercept: np.ndarray | None = None) -> Start:
        """Zero, or a model in the user's units, as the optimiser sees it."""
        outputs = self.pool.loss.outputs
        if coef is None or intercept is None:
            return np.zeros((self.pool.width, outputs)), np.zeros(outputs)
        x, b = np.array(coef, float), np.array(intercept, float)
        if self.scaling is not None:
            b = b + np.nan_to_num(self.scaling.mean) @ x if self._centred else b
            x = x * self.scaling.scale[:, None]
        b = b if self.pool.center is None else b + self.pool.center @ x
        return x, b - self.pool.level

    def in_units(self, fit: Fit) -> Start:
        """A fit's weights and intercepts, in the user's units."""
        x, b = fit.x, fit.b + self.pool.level
        b = b if self.pool.center is None else b - self.pool.center @ x
        return (x, b) if self.scaling is None else self.scaling.unscale(x, b, centred=self._centred)

    def fit(
        self, psi: Regularizer | Separable, shape: tuple[int, ...], start: Start, effort: Effort, watch: Watch
    ) -> Fit:
        """Minimise the loss plus psi of the weights, which have this shape to psi."""
        penalty = _penalty(psi, shape)
        if effort.work is not None and isinstance(psi, Regularizer):
            work = effort.work
            fit = local_rounds(self.pool, penalty, psi, shape, self.sites, start, work, goal=self.goal, watch=watch)
            if fit.converged or not effort.finish:
                return fit
            start = fit.x, fit.b
        return prox_newton(self.pool, penalty, *start, goal=self.goal, max_iter=effort.max_iter, watch=watch)

    def has_no_optimum(self, psi: Regularizer | Separable, shape: tuple[int, ...], fit: Fit) -> bool:
        """True if a fit shows that no finite weights minimise the loss plus psi."""
        return no_finite_optimum(self.pool, _penalty(psi, shape), fit, self.goal.tol)

    @property
    def _centred(self) -> bool:
        return not scipy.sparse.issparse(self.pool.features)


def _penalty(psi: Regularizer | Separable, shape: tuple[int, ...]) -> Penalty:
    return SumPenalty(psi) if isinstance(psi, Separable) else penalty_of(psi, shape)
