"""Regression over sites: least squares without a penalty, Lasso, elastic net."""

from abc import abstractmethod
from dataclasses import field
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from fedlocal.core import Regularizer, Separable
from fedlocal.estimators.base import FederatedModel, parameters
from fedlocal.losses import ScoreLoss, regression_loss
from fedlocal.regularizers import L1, ElasticNet, SquaredL2, Zero
from fedlocal.solvers.newton.weighted_sums import LARGEST, SMALLEST
from fedlocal.util import checks


@parameters
class LinearRegressor(RegressorMixin, FederatedModel):
    """Regression with one target."""

    def predict(self, X: Any) -> np.ndarray:
        """(n,) predictions."""
        return np.asarray(self._features(X) @ self.coef_) + self.intercept_

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        X, y = self._examples(X, y, y_numeric=True)
        y = np.asarray(y, np.float64)
        largest = float(np.max(np.abs(y)))
        if largest > LARGEST or 0 < largest < SMALLEST:
            sizes = f"of a size from {SMALLEST:g} to {LARGEST:g}, got {largest:g} as the largest; change its unit"
            raise self._error(f"y must be zero or have values {sizes}")
        return X, y

    def _keep(self, x: np.ndarray, b: np.ndarray) -> None:
        self.coef_, self.intercept_ = x[:, 0], float(b[0])


@parameters
class FederatedRegressor(LinearRegressor):
    """Regression with one target and a smooth loss."""

    loss: Any = "half_squares"

    def _targets_and_loss(self, y: np.ndarray) -> tuple[np.ndarray, ScoreLoss]:
        return y, regression_loss(self._name, self.loss)


@parameters
class PenalizedRegressor(FederatedRegressor):
    """Regression with a penalty that is known before the data are."""

    @abstractmethod
    def _psi(self) -> Regularizer | Separable:
        """The penalty of the weights."""

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit to examples X (n, d) with targets y (n,) that belong to `sites` (n,), labels of any kind; None: one site."""
        sites, sample_weight = self._in_row_order(X, y, sites, sample_weight)
        X, y = self._validated(X, y)
        problem = self._fitting_problem(X, y, *self._sites_and_weights(X, sites, sample_weight))
        return self._fit(problem, self._psi())


@parameters
class FederatedLinearRegression(PenalizedRegressor):
    r"""Least squares over sites: min over x, b of sum_i w_i (a_i'x + b - y_i)^2 / 2.

    Where many weights fit equally well, they are the shortest in units in which columns have variance one.

    Args:
        penalty: None, or a regulariser psi of `fl.regularizers` for the weights (d,), which is added to the objective as it is:
            GroupL1(0.1, groups), TotalVariation(0.1), L1Ball(3.0), NonNegative().
        positive: weights at zero or above; not together with a penalty.
        loss, fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([1.0, 3.0, 5.0, 7.0])
    >>> model = FederatedLinearRegression().fit(X, y, sites=["north", "north", "south", "south"])
    >>> model.coef_.round(6).tolist(), round(model.intercept_, 6)
    ([2.0], 1.0)
    """

    penalty: Regularizer | None = None
    positive: bool = False

    def _psi(self) -> Regularizer | Separable:
        if self.penalty is None:
            return Separable(lower=0.0) if self.positive else Zero()
        if self.positive:
            raise self._error("positive=True takes no penalty; FederatedLasso and FederatedElasticNet have both")
        return checks.instance(self._name, "penalty", self.penalty, Regularizer)


@parameters
class FederatedElasticNet(PenalizedRegressor):
    r"""Elastic net over sites: min over x, b of
        sum_i w_i (a_i'x + b - y_i)^2 / 2 + alpha l1_ratio ||x||_1 + alpha (1 - l1_ratio) / 2 ||x||^2.

    With one target this is scikit-learn's `ElasticNet` of the pooled data. Attributes are those of `FederatedLasso`.

    Args:
        alpha: strength of the penalty, at least 0.
        l1_ratio: share of the l1 norm in the penalty, from 0 to 1.
        positive, loss, fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    >>> X, y = np.eye(2), np.array([3.0, 0.0])
    >>> FederatedElasticNet(0.5, l1_ratio=1.0, fit_intercept=False).fit(X, y).coef_.round(6).tolist()
    [2.0, 0.0]
    """

    alpha: float = field(default=1.0, kw_only=False)
    l1_ratio: float = 0.5
    positive: bool = False

    def _psi(self) -> Regularizer | Separable:
        alpha = checks.number(self._name, "alpha", self.alpha, at_least=0)
        ratio = checks.number(self._name, "l1_ratio", self.l1_ratio, at_least=0, at_most=1)
        return elastic_net(alpha * ratio, alpha * (1 - ratio), self.positive)


@parameters
class FederatedLasso(PenalizedRegressor):
    r"""Lasso over sites: min over x, b of sum_i w_i (a_i'x + b - y_i)^2 / 2 + alpha ||x||_1.

    The weights w_i sum to one: alike for all examples with weights="examples", which is scikit-learn's `Lasso` of the pooled
    data; alike for all sites with weights="uniform". `sample_weight` multiplies them.

    Args:
        alpha: strength of the penalty, at least 0.
        positive: weights at zero or above.
        loss: the name in `fedlocal.losses.LOSSES` of a loss of numbers, or a `ScoreLoss`; "half_squares" is (s - y)^2 / 2.
        fit_intercept: an intercept, never penalised.
        weights: "examples" or "uniform", the names in `simulate`.
        standardize: bring columns to variance one first, with means and variances over the examples of all sites, each times
            its `sample_weight`; `coef_` is in the units of X.
        method: "prox_newton", by which sites send gradients and the curvature of few weights; or a local method, of which
            `local_rounds` rounds come first: "fed_dual_avg", "fed_mid" ("fed_avg", "fed_ac_one" where the penalty is smooth).
        local_steps, local_rounds: full local gradients per round, and rounds, of a local method.
        client_step_size, server_step_size: of a local method; None: the largest that its theorems allow, and 1.
        finish: True if "prox_newton" goes on where the local method ended, until tol is reached.
        tol: the fit stops at a duality gap of tol times the objective (at least a thousandth of the loss without weights counts);
            where there is no gap, at a relative KKT residual of tol, whatever the units of the columns.
            ConvergenceWarning says that it did not get there; 100 tol will do where float64 has no more digits.
        max_iter: most iterations of "prox_newton".
        warm_start: begin where the last fit ended.

    Attributes:
        coef_, intercept_: the model.
        sites_: labels of the sites.
        certificate_: objective, KKT residual, duality gap.
        history_: DataFrame of the certificate and of what was sent, a row per evaluation.
        communication_: exchanges with the server, and numbers that each site received and sent.
        n_iter_, n_features_in_, feature_names_in_: as in scikit-learn.

    >>> X, y = np.eye(2), np.array([3.0, 0.0])
    >>> model = FederatedLasso(0.5, fit_intercept=False).fit(X, y, sites=["a", "b"])
    >>> model.coef_.round(6).tolist(), model.certificate_.duality_gap < 1e-8
    ([2.0, 0.0], True)
    """

    alpha: float = field(default=1.0, kw_only=False)
    positive: bool = False

    def _psi(self) -> Regularizer | Separable:
        return elastic_net(checks.number(self._name, "alpha", self.alpha, at_least=0), 0.0, self.positive)


def elastic_net(l1: float, l2: float, positive: bool) -> Regularizer | Separable:
    """l1 ||x||_1 + l2/2 ||x||^2, of weights that may have to be positive."""
    if positive:
        return Separable(l1=l1, l2=l2, lower=0.0)
    if l2 == 0:
        return L1(l1) if l1 > 0 else Zero()
    return ElasticNet(l1, l2) if l1 > 0 else SquaredL2(l2)
