"""Quantile regression is scikit-learn's of the pooled data, which solves it as a linear program, and certified."""

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor

import fedlocal as fl
from unit.estimators.pooled_truths import unequal_sites

E = fl.estimators
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 5))
Y = X[:, :3] @ [1.0, -2.0, 0.5] + 3.0 + 0.3 * rng.standard_t(2, size=90)
SITES = unequal_sites(90, rng)
WEIGHTS = rng.uniform(0.2, 3.0, 90)
over = pytest.mark.parametrize


def objective(x: np.ndarray, b: float, q: float, alpha: float, features: Any = X, y: Any = Y, w: Any = None) -> float:
    r = features @ x + b - y
    return float(np.average(np.maximum((1 - q) * r, -q * r), weights=w) + alpha * np.abs(x).sum())


def program(q: float, alpha: float, features: Any = X, y: Any = Y, weights: Any = None) -> Any:
    return QuantileRegressor(quantile=q, alpha=alpha, solver="highs").fit(features, y, sample_weight=weights)


@over("sites", [None, SITES], ids=["one", "four"])
@over("weights", [None, WEIGHTS], ids=["even", "weighted"])
@over("alpha", [0.0, 0.02])
@over("q", [0.1, 0.5, 0.8])
def test_scikit_learns_quantile_regressor(q: float, alpha: float, weights: Any, sites: Any):
    theirs = program(q, alpha, weights=weights)
    wanted = objective(theirs.coef_, theirs.intercept_, q, alpha, w=weights)
    ours: Any = E.FederatedQuantileRegression(q, alpha=alpha).fit(X, Y, sites=sites, sample_weight=weights)
    found = ours.certificate_
    assert found.objective == pytest.approx(wanted, rel=1e-9)
    assert found.objective == pytest.approx(objective(ours.coef_, ours.intercept_, q, alpha, w=weights), rel=1e-9)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-7)
    if alpha > 0:
        assert abs(found.duality_gap) <= 1e-10 * found.objective
    else:
        assert found.relative_residual <= 1e-10
    assert found.kkt_residual <= 1e-8


def test_gaps_bound_what_is_left_before_the_end():
    wanted = program(0.3, 0.02)
    least = objective(wanted.coef_, wanted.intercept_, 0.3, 0.02)
    history = E.FederatedQuantileRegression(0.3, alpha=0.02).fit(X, Y, sites=SITES).history_
    assert len(history) > 2
    left = history["objective"].to_numpy() - least
    assert (history["duality_gap"].to_numpy() >= left - 1e-12).all()
    assert set(history["phase"]) == {"multipliers"}


@over("alpha", [0.0, 0.05])
def test_ties_have_several_solutions_with_one_objective(alpha: float):
    features, y = np.round(X), np.round(Y)
    theirs = program(0.5, alpha, features, y)
    ours: Any = E.FederatedQuantileRegression(0.5, alpha=alpha).fit(features, y, sites=SITES)
    wanted = objective(theirs.coef_, theirs.intercept_, 0.5, alpha, features, y)
    assert ours.certificate_.objective == pytest.approx(wanted, rel=1e-9)


def test_more_columns_than_rows():
    wide = np.random.default_rng(1).normal(size=(30, 50))
    y = wide[:, 0] + 0.1 * np.random.default_rng(2).normal(size=30)
    theirs, ours = program(0.5, 0.03, wide, y), E.FederatedQuantileRegression(0.5, alpha=0.03).fit(wide, y)
    wanted = objective(theirs.coef_, theirs.intercept_, 0.5, 0.03, wide, y)
    assert ours.certificate_.objective == pytest.approx(wanted, rel=1e-9)


def test_targets_that_are_far_off():
    y = np.where(np.arange(90) < 3, 1e6, Y)
    theirs, ours = (
        program(0.5, 0.02, X, y),
        E.FederatedQuantileRegression(0.5, alpha=0.02, tol=1e-13).fit(X, y, sites=SITES),
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)


def test_units_of_columns_and_targets_do_not_matter():
    truth = E.FederatedQuantileRegression(0.3, alpha=0.0).fit(X, Y, sites=SITES).coef_
    scales = np.array([1e6, 1.0, 1e-5, 1.0, 1.0])
    scaled = E.FederatedQuantileRegression(0.3, alpha=0.0).fit(X * scales, 1e3 * Y + 1e5, sites=SITES)
    np.testing.assert_allclose(scaled.coef_ * scales / 1e3, truth, rtol=1e-6)


def test_standardized_and_positive_columns():
    Z, weights = (X - X.mean(axis=0)) / X.std(axis=0), {"sites": SITES}
    theirs = program(0.5, 0.02, Z)
    ours = E.FederatedQuantileRegression(0.5, alpha=0.02, standardize=True).fit(X, Y, **weights)
    np.testing.assert_allclose(ours.coef_ * X.std(axis=0), theirs.coef_, rtol=0, atol=1e-7)
    positive: Any = E.FederatedQuantileRegression(0.5, alpha=0.02, positive=True).fit(X, Y, **weights)
    both = program(0.5, 0.02, X[:, positive.coef_ > 0])  # the others are at their bound
    assert positive.coef_.min() == 0
    np.testing.assert_allclose(positive.coef_[positive.coef_ > 0], both.coef_, rtol=0, atol=1e-7)
    assert abs(positive.certificate_.duality_gap) <= 1e-10


def test_targets_that_are_all_alike():
    ours = E.FederatedQuantileRegression(0.5, alpha=0.1).fit(X, np.full(90, 7.0), sites=SITES)
    assert not ours.coef_.any()
    assert ours.intercept_ == pytest.approx(7.0)


def test_too_few_iterations_are_told():
    with pytest.warns(ConvergenceWarning, match="FederatedQuantileRegression: stopped after .* duality gap"):
        E.FederatedQuantileRegression(0.5, alpha=0.02, max_iter=3).fit(X, Y)


@over("q", [0.0, 1.0, -0.5, "half"])
def test_bad_quantiles_are_refused(q: Any):
    with pytest.raises((ValueError, TypeError), match="FederatedQuantileRegression: quantile must"):
        E.FederatedQuantileRegression(q).fit(X, Y)


def test_local_methods_are_refused():
    with pytest.raises(ValueError, match="method must be 'prox_newton', since the loss has a kink, got 'fed_mid'"):
        E.FederatedQuantileRegression(method="fed_mid").fit(X, Y)
