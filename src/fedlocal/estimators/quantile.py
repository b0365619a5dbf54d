"""Quantile regression over sites: the median, or any other quantile, of the target given the features."""

from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np

from fedlocal.core import Regularizer, Separable
from fedlocal.estimators.base import parameters
from fedlocal.estimators.linear import LinearRegressor, elastic_net
from fedlocal.losses import ScoreLoss, SmoothedQuantileLoss
from fedlocal.losses.quantile import checked_quantile
from fedlocal.solvers.newton.fitting import FittingProblem
from fedlocal.solvers.newton.local_method import NEWTON
from fedlocal.solvers.newton.multipliers import QuantileProblem
from fedlocal.util import checks


@parameters
class FederatedQuantileRegression(LinearRegressor):
    r"""Quantile regression over sites: min over x, b of
        sum_i w_i max((1 - q) r_i, -q r_i) + alpha ||x||_1,   r_i = a_i'x + b - y_i.

    That is scikit-learn's `QuantileRegressor` of the pooled data. Attributes are those of `FederatedLasso`; with alpha = 0
    there is no duality gap, and `certificate_.relative_residual` also counts how far the multipliers are from slopes of the
    losses. Where several models are optimal, it is one of them.

    Args:
        quantile: q, above 0 and below 1; a half is the median.
        alpha: strength of the penalty, at least 0.
        positive: weights at zero or above.
        fit_intercept, weights, standardize: as in `FederatedLasso`.
        method: "prox_newton"; the loss has a kink, so that local methods have no gradient.
        tol, warm_start: as in `FederatedLasso`.
        max_iter: most iterations of "prox_newton" in all stages of the method of multipliers.
        local_steps, local_rounds, client_step_size, server_step_size, finish: not used.

    >>> X, y = np.arange(5.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 900.0])
    >>> model = FederatedQuantileRegression(0.5, alpha=0.0).fit(X, y, sites=["a", "a", "b", "b", "b"])
    >>> model.coef_.round(6).tolist(), round(model.intercept_, 6)
    ([2.0], 1.0)
    """

    quantile: float = field(default=0.5, kw_only=False)
    alpha: float = 1.0
    positive: bool = False
    max_iter: int = 1000

    _problem_class: ClassVar[type[FittingProblem]] = QuantileProblem

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit to examples X (n, d) with targets y (n,) that belong to `sites` (n,), labels of any kind; None: one site."""
        if self.method != NEWTON:
            raise self._error(f"method must be {NEWTON!r}, since the loss has a kink, got {self.method!r}")
        sites, sample_weight = self._in_row_order(X, y, sites, sample_weight)
        X, y = self._validated(X, y)
        problem = self._fitting_problem(X, y, *self._sites_and_weights(X, sites, sample_weight))
        return self._fit(problem, self._psi())

    def _psi(self) -> Regularizer | Separable:
        return elastic_net(checks.number(self._name, "alpha", self.alpha, at_least=0), 0.0, self.positive)

    def _targets_and_loss(self, y: np.ndarray) -> tuple[np.ndarray, ScoreLoss]:
        quantile = checked_quantile(self._name, self.quantile)
        return y, SmoothedQuantileLoss(quantile, 1.0)  # the width follows from the targets
