"""Regression on matrices over sites, with a low-rank matrix of weights."""

from dataclasses import field
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedlocal.estimators.base import parameters
from fedlocal.estimators.linear import FederatedRegressor
from fedlocal.regularizers import Nuclear
from fedlocal.util import checks


@parameters
class FederatedMatrixRegression(FederatedRegressor):
    r"""Low-rank matrix regression over sites: min over X, b of sum_i w_i (<A_i, X> + b - y_i)^2 / 2 + alpha ||X||_*.

    Examples are matrices: an array (n, rows, columns), or (n, rows * columns) with a shape. `coef_` is (rows, columns);
    other attributes are those of `FederatedLasso`.

    Args:
        alpha: strength of the penalty, at least 0.
        shape: (rows, columns) of examples with two axes; None makes them matrices of one column, whose nuclear norm
            is the Euclidean one.
        loss, fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    >>> rng = np.random.default_rng(0)
    >>> A, low_rank = rng.normal(size=(60, 3, 2)), np.outer([1.0, 2.0, 0.0], [1.0, -1.0])
    >>> model = FederatedMatrixRegression(0.1).fit(A, np.tensordot(A, low_rank, 2), sites=np.arange(60) % 3)
    >>> model.coef_.shape, int(np.linalg.matrix_rank(model.coef_, tol=1e-6))
    ((3, 2), 1)
    """

    alpha: float = field(default=1.0, kw_only=False)
    shape: tuple[int, int] | None = None

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> "FederatedMatrixRegression":
        """Fit to matrices X with targets y (n,) that belong to `sites` (n,), labels of any kind; None: one site."""
        sites, sample_weight = self._in_row_order(X, y, sites, sample_weight)
        flat, given = self._flat(X)
        flat, y = self._validated(flat, y)
        shape = given or self.shape or (flat.shape[1], 1)
        if len(shape) != 2 or int(np.prod(shape)) != flat.shape[1]:
            wanted = f"two numbers whose product is the number of features, {flat.shape[1]}"
            raise self._error(f"shape must be {wanted}, got {shape}")
        alpha = checks.number(self._name, "alpha", self.alpha, at_least=0)
        problem = self._fitting_problem(flat, y, *self._sites_and_weights(flat, sites, sample_weight))
        problem.shape = (int(shape[0]), int(shape[1]))
        self._fit(problem, Nuclear(alpha))
        self.coef_ = self.coef_.reshape(shape)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(n,) predictions."""
        check_is_fitted(self)
        flat, shape = self._flat(X)
        if shape is not None and shape != self.coef_.shape:
            raise self._error(f"X must have matrices of shape {self.coef_.shape}, got {shape}")
        return np.asarray(self._features(flat) @ self.coef_.ravel()) + self.intercept_

    def _flat(self, X: Any) -> tuple[Any, tuple[int, ...] | None]:
        """Matrices as rows, and their shape if X has three axes."""
        if getattr(X, "ndim", 2) != 3:
            return X, None
        return np.reshape(X, (X.shape[0], -1)), X.shape[1:]
