"""A loss that is not in the package: what it takes to fit an estimator and to certify a problem with it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.optimize

import fedlocal as fl
from fedlocal import losses
from fedlocal.estimators import FederatedLasso, FederatedLinearRegression
from fedlocal.losses.score_loss import array_namespace, special_functions


@dataclass(frozen=True)
class LogCosh(losses.UnivariateLoss):
    """log cosh(s - b): squares of small residuals, sizes of large ones."""

    name: ClassVar[str] = "log cosh"
    targets: ClassVar = "numbers"
    quadratic: ClassVar[bool] = False
    slope_bound: ClassVar[float | None] = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]
    curvature_bound: ClassVar[float] = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]
    third_bound: ClassVar[float] = 4 / (3 * np.sqrt(3))  # pyright: ignore[reportIncompatibleVariableOverride]

    def value(self, scores: Any, targets: Any) -> Any:
        xp = array_namespace(scores)
        return xp.logaddexp(scores - targets, targets - scores) - np.log(2)

    def slope(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).tanh(scores - targets)

    def second(self, scores: Any, targets: Any) -> Any:
        return 1 - self.slope(scores, targets) ** 2

    def third(self, scores: Any, targets: Any) -> Any:
        return -2 * self.slope(scores, targets) * self.second(scores, targets)

    def conjugate(self, slopes: Any, targets: Any) -> Any:
        xlogy = special_functions(slopes).xlogy
        return (xlogy(1 + slopes, 1 + slopes) + xlogy(1 - slopes, 1 - slopes)) / 2 + slopes * targets


class LogCoshProblem(fl.problems.LeastSquares):
    @property
    def score_loss(self) -> losses.ScoreLoss:  # pyright: ignore[reportIncompatibleMethodOverride]
        return LogCosh()


def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    y = X @ np.array([1.0, -2.0, 0.0, 0.0]) + 0.5 + 0.1 * rng.standard_t(1.5, size=90)
    return X, y, np.arange(90) % 3


def pooled(X, y, alpha):
    """Weights and intercept, by splitting weights into positive and negative parts."""

    def objective(z):
        weights = z[:4] - z[4:8]
        return np.mean(np.log(np.cosh(X @ weights + z[8] - y))) + alpha * z[:8].sum()

    bounds = [(0, None)] * 8 + [(None, None)]
    found = scipy.optimize.minimize(objective, np.zeros(9), bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10})
    return found.x[:4] - found.x[4:8], found.x[8], found.fun


@pytest.mark.parametrize("method", ["prox_newton", "fed_dual_avg"])
def test_an_estimator_by_name(method, monkeypatch):
    monkeypatch.setitem(losses.LOSSES, "log_cosh", LogCosh)
    X, y, sites = table()
    weights, intercept, objective = pooled(X, y, 0.05)
    model: Any = FederatedLasso(0.05, loss="log_cosh", method=method, local_rounds=5).fit(X, y, sites=sites)
    np.testing.assert_allclose(model.coef_, weights, atol=1e-5)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-5)
    assert model.certificate_.objective == pytest.approx(objective, rel=1e-9)
    assert 0 <= model.certificate_.duality_gap + 1e-15 <= 1e-9
    assert not np.allclose(model.coef_, FederatedLasso(0.05).fit(X, y, sites=sites).coef_, atol=1e-3)


def test_a_problem_and_its_certificate():
    X, y, sites = table()
    kind: Any = LogCoshProblem
    problem = kind(fl.FederatedData.from_clients([(X[sites == m], y[sites == m]) for m in range(3)]))
    solution: Any = fl.solvers.centralized(problem, fl.regularizers.L1(0.05))
    weights, _, objective = pooled(X, y, 0.05)
    np.testing.assert_allclose(solution.x["weights"], weights, atol=1e-5)
    assert solution.objective == pytest.approx(objective, rel=1e-9)
    assert abs(solution.certificate.duality_gap) < 1e-9


def test_other_factors_of_squares_are_other_strengths():
    X, y, sites = table()
    usual = FederatedLasso(0.1).fit(X, y, sites=sites)
    double: Any = FederatedLasso(0.2, loss="squares").fit(X, y, sites=sites)
    np.testing.assert_allclose(double.coef_, usual.coef_, atol=1e-9)
    assert double.certificate_.objective == pytest.approx(2 * usual.certificate_.objective, rel=1e-9)
    assert abs(double.certificate_.duality_gap) < 1e-9


def test_any_penalty_of_a_regression():
    X, y, sites = table()
    lasso = FederatedLasso(0.1).fit(X, y, sites=sites)
    same = FederatedLinearRegression(penalty=fl.regularizers.L1(0.1)).fit(X, y, sites=sites)
    np.testing.assert_allclose(same.coef_, lasso.coef_, atol=1e-12)
    problem = fl.problems.LeastSquares(fl.FederatedData.from_clients([(X, y)]))  # squares without a half
    for psi, twice in (
        (fl.regularizers.GroupL1(0.3, [0, 1, 1, 0]), fl.regularizers.GroupL1(0.6, [0, 1, 1, 0])),
        (fl.regularizers.L1Ball(1.5), fl.regularizers.L1Ball(1.5)),
    ):
        model = FederatedLinearRegression(penalty=psi).fit(X, y, sites=sites)
        want = fl.solvers.centralized(problem, twice).x
        np.testing.assert_allclose(model.coef_, want["weights"], atol=1e-6)
        assert model.intercept_ == pytest.approx(float(want["intercept"]), abs=1e-6)
