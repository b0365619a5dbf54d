"""Regression with Huber's loss is the pooled one: against scikit-learn at the scale that it finds, and against cvxpy."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import HuberRegressor

import fedlocal as fl
from fedlocal.losses import HuberLoss
from unit.estimators.pooled_truths import unequal_sites

E = fl.estimators
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 6))
X[:, 5] = np.arange(120) < 3  # rows that are all far off
Y = X[:, :3] @ [1.0, -2.0, 0.5] + 3.0 + 0.3 * rng.standard_t(1.2, size=120)
Y[:3] += 40.0
SITES = unequal_sites(120, rng)
WEIGHTS = rng.uniform(0.2, 3.0, 120)
over = pytest.mark.parametrize
over_sites = over("sites", [None, SITES], ids=["one", "four"])
over_weights = over("weights", [None, WEIGHTS], ids=["even", "weighted"])


def objective(x: np.ndarray, b: float, weights: np.ndarray | None, delta: float, l2: float) -> float:
    r = np.abs(X @ x + b - Y)
    losses = np.where(r <= delta, r**2 / 2, delta * (r - delta / 2))
    return float(np.average(losses, weights=weights) + l2 / 2 * x @ x)


@over_sites
@over_weights
@over("alpha", [0.01, 1.0])
def test_scikit_learns_huber_regressor_at_its_scale(alpha: float, weights: Any, sites: Any):
    theirs: Any = HuberRegressor(alpha=alpha, tol=1e-10, max_iter=100_000).fit(X, Y, sample_weight=weights)
    total = 120 if weights is None else weights.sum()
    delta, l2 = 1.35 * theirs.scale_, alpha * theirs.scale_ / total
    ours = E.FederatedElasticNet(l2, l1_ratio=0, loss=HuberLoss(delta), tol=1e-12)
    ours.fit(X, Y, sites=sites, sample_weight=weights)
    wanted = objective(theirs.coef_, theirs.intercept_, weights, delta, l2)
    assert ours.certificate_.objective == pytest.approx(wanted, rel=1e-8)
    assert objective(ours.coef_, ours.intercept_, weights, delta, l2) <= wanted * (1 + 1e-12)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-4)


PENALTIES: dict[str, tuple[Any, Any, Any]] = {
    "none": (E.FederatedLinearRegression, {}, lambda x: 0.0),
    "l1": (E.FederatedLasso, {"alpha": 0.005}, lambda x: 0.005 * cp.norm1(x)),
    "group": (
        E.FederatedLinearRegression,
        {"penalty": fl.regularizers.GroupL1(0.01, [0, 0, 0, 1, 1, 2])},
        lambda x: 0.01 * (cp.norm2(x[:3]) + cp.norm2(x[3:5]) + cp.norm2(x[5:])),
    ),
    "local method": (
        E.FederatedLasso,
        {"alpha": 0.005, "method": "fed_dual_avg", "local_rounds": 5},
        lambda x: 0.005 * cp.norm1(x),
    ),
}


@over_weights
@over("delta", [0.01, 0.3, 100.0])
@over("name", PENALTIES)
def test_penalties_against_cvxpy(name: str, delta: Any, weights: Any):
    """From a loss that is nearly the size of the residual to one that is their square."""
    kind, options, penalty = PENALTIES[name]
    share = (np.ones(120) if weights is None else weights) / (120 if weights is None else weights.sum())
    x, b = cp.Variable(6), cp.Variable()
    goal = cp.Minimize(share @ cp.huber(X @ x + b - Y, delta) / 2 + penalty(x))
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    optimum: Any = cp.Problem(goal).solve(solver=cp.CLARABEL, **tight)
    model = kind(loss=HuberLoss(delta), **options).fit(X, Y, sites=SITES, sample_weight=weights)
    assert model.certificate_.objective == pytest.approx(optimum, rel=1e-8)
    assert name == "none" or model.certificate_.duality_gap >= model.certificate_.objective - optimum - 1e-9 * optimum


def test_a_large_delta_is_least_squares():
    huber = E.FederatedLasso(0.05, loss=HuberLoss(1e6)).fit(X, Y, sites=SITES)
    np.testing.assert_allclose(huber.coef_, E.FederatedLasso(0.05).fit(X, Y, sites=SITES).coef_, rtol=0, atol=1e-8)


def test_huber_by_name():
    named, made = (E.FederatedLasso(0.05, loss=loss).fit(X, Y).coef_ for loss in ("huber", HuberLoss(1.0)))
    np.testing.assert_array_equal(named, made)


def test_a_search_with_huber():
    search = E.FederatedLassoCV(alphas=3, loss=HuberLoss(0.5)).fit(X, Y, sites=SITES)
    plain = E.FederatedLasso(search.alpha_, loss=HuberLoss(0.5)).fit(X, Y, sites=SITES)
    assert search.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=1e-8)
    assert not E.FederatedLasso(1.001 * search.alphas_[0], loss=HuberLoss(0.5)).fit(X, Y).coef_.any()


@over("delta", [0.0, -1.0, "much"])
def test_bad_deltas_are_refused(delta: Any):
    with pytest.raises((ValueError, TypeError), match="HuberLoss: delta must"):
        HuberLoss(delta)
