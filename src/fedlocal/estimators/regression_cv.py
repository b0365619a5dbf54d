"""Regression with alpha chosen by cross-validation: Lasso, elastic net, ridge."""

from typing import Any, Self

import numpy as np

from fedlocal.core import Regularizer, Separable
from fedlocal.estimators.base import parameters
from fedlocal.estimators.cross_validation import CrossValidated, ExampleRows, chosen_place, strengths
from fedlocal.estimators.linear import FederatedRegressor, elastic_net
from fedlocal.solvers.newton.fitting import FittingProblem, Start
from fedlocal.util import checks

SMALLEST_SHARE = 1e-3  # of the l1 norm, from which a path begins; as in glmnet


@parameters
class FederatedRegressorCV(FederatedRegressor, CrossValidated):
    """Regression with alpha chosen by cross-validation."""

    alphas: Any = 100
    positive: bool = False

    def _ratios(self) -> list[float]:
        """The shares of the l1 norm in the penalty to choose from."""
        return [1.0]

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Choose alpha, then fit to all examples; arguments as in `FederatedLasso.fit`."""
        sites, sample_weight = self._in_row_order(X, y, sites, sample_weight)
        X, y = self._validated(X, y)
        codes, weights = self._sites_and_weights(X, sites, sample_weight)
        rows = ExampleRows(X, y, codes, weights, counts=weights)
        problem, ratios = self._problem_of(rows), self._ratios()
        norm = problem.zero_strength(elastic_net(1.0, 0.0, self.positive))
        # with a share of zero no alpha makes all weights zero: the path is that of a small share
        tops = [norm / max(ratio, SMALLEST_SHARE) for ratio in ratios]
        alphas = np.array([strengths(self._name, "alphas", self.alphas, top, self.eps) for top in tops])
        paths = [[(alpha, ratio) for alpha in path] for path, ratio in zip(alphas, ratios, strict=True)]
        scores, spent = self._scores(problem, rows, paths, sample_weight is not None)
        path, place = chosen_place(self._name, scores, self.choose)
        self.mse_path_ = -scores if len(ratios) > 1 else -scores[0]
        self.alphas_ = alphas if len(ratios) > 1 and not np.ndim(self.alphas) else alphas[0]
        self._keep_candidate(*map(float, paths[path][place]))
        self._fit(problem, self._psi(problem, paths[path][place], 1.0))
        return self._count([*spent, ("all rows", *paths[path][place], self.communication_)], ["alpha", "l1_ratio"])

    def _keep_candidate(self, alpha: float, ratio: float) -> None:
        """Set the attributes that say what was chosen."""
        self.alpha_ = alpha

    def _psi(self, problem: FittingProblem, candidate: Any, total: float, /) -> Regularizer | Separable:
        alpha, ratio = map(float, candidate)
        return elastic_net(alpha * ratio, alpha * (1 - ratio), self.positive)

    def _score(self, model: Start, test: ExampleRows, weighted: bool, fold: str) -> float:
        residuals = np.asarray(test.X @ model[0][:, 0]) + model[1] - test.y
        return -np.average(residuals**2, weights=test.counts)


@parameters
class FederatedLassoCV(FederatedRegressorCV):
    r"""`FederatedLasso` with alpha chosen by cross-validation, as in scikit-learn's `LassoCV`.

    Args:
        alphas: numbers to choose from, or how many of them: from the one at which all weights are zero down to eps times it.
        eps: the smallest of these alphas over the largest, above 0 and at most 1.
        cv: None leaves one site out at a time (5 folds where there is one site); else as in scikit-learn, with sites as groups.
        choose: "best": the least mean error over the folds; "1se": the largest alpha whose error is at most a standard error
            over the folds larger, which gives a sparser model.
        positive, loss, fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    Attributes, beside those of `FederatedLasso`: `alpha_`, which has the least mean squared error, averaged over the
    folds; `alphas_` from large to small; `mse_path_` (alphas, folds). `communication_` counts all fits, and
    `communication_by_fit_` is a DataFrame of each of them.

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    >>> model = FederatedLassoCV(alphas=10).fit(X, X[:, 0] + 0.1 * rng.normal(size=60), sites=sites)
    >>> model.mse_path_.shape, round(float(model.coef_[0]), 1)
    ((10, 3), 1.0)
    """


@parameters
class FederatedElasticNetCV(FederatedRegressorCV):
    r"""`FederatedElasticNet` with alpha and the share of l1 chosen by cross-validation, as in scikit-learn's `ElasticNetCV`.

    Args:
        l1_ratio: share of the l1 norm in the penalty, from 0 (ridge regression) to 1, or several to choose from.
        alphas: numbers to choose from, or how many of them: from the one at which all weights are zero down to eps times it. A
            share below a thousandth has the alphas of a thousandth, since with a share of zero no alpha makes all weights zero.
        eps, cv, choose: as in `FederatedLassoCV`.
        positive, loss, fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    Attributes, beside those of `FederatedLassoCV`: `l1_ratio_`, the share that was chosen. With several shares `alphas_` is
    (shares, alphas), unless the alphas were given, and `mse_path_` (shares, alphas, folds).

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    >>> model = FederatedElasticNetCV(alphas=[0.01, 10.0]).fit(X, X[:, 0] + 0.1 * rng.normal(size=60), sites=sites)
    >>> model.alpha_
    0.01
    >>> model = FederatedElasticNetCV(l1_ratio=[0.1, 1.0], alphas=5).fit(X, X[:, 0] + 0.1 * rng.normal(size=60), sites=sites)
    >>> model.l1_ratio_, model.alphas_.shape, model.mse_path_.shape
    (1.0, (2, 5), (2, 5, 3))
    """

    l1_ratio: Any = 0.5

    def _ratios(self) -> list[float]:
        wanted = np.ravel(np.asarray(self.l1_ratio, dtype=object))
        if not len(wanted):
            raise self._error("l1_ratio must have at least one number, got none")
        return [checks.number(self._name, "l1_ratio", ratio, at_least=0, at_most=1) for ratio in wanted]

    def _keep_candidate(self, alpha: float, ratio: float) -> None:
        self.alpha_, self.l1_ratio_ = alpha, ratio
