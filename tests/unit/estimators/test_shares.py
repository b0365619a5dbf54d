"""Searches over the l1 norm's share choose what scikit-learn chooses on the same folds; a share of zero is ridge regression."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import ElasticNetCV, Ridge
from sklearn.model_selection import LeaveOneGroupOut

import fedlocal as fl
from unit.estimators.pooled_truths import Data, make, strongest

E = fl.estimators
D = make("dense")
SHARES = [0.2, 1.0, 0.6]
TIGHT: dict[str, Any] = {"tol": 1e-12, "max_iter": 1_000_000}
WEIGHTS = np.random.default_rng(1).uniform(0.2, 3.0, len(D.y))


def by_site(D: Data) -> list[Any]:
    return list(LeaveOneGroupOut().split(D.dense, D.y, D.sites))


@pytest.mark.parametrize("alphas", [6, [0.01, 1.0, 0.1]], ids=["path", "given"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["even", "weighted"])
@pytest.mark.parametrize("sites", [None, D.sites], ids=["one", "four"])
def test_several_shares(alphas: Any, weights: Any, sites: Any):
    ours: Any = E.FederatedElasticNetCV(l1_ratio=SHARES, alphas=alphas, tol=1e-12)
    ours.fit(D.X, D.y, sites=sites, sample_weight=weights)
    options: dict[str, Any] = {"l1_ratio": SHARES, "alphas": alphas, **TIGHT}
    theirs: Any = ElasticNetCV(cv=by_site(D) if sites is not None else 5, **options)
    theirs.fit(D.dense, D.y, sample_weight=weights)
    assert ours.alphas_.shape == theirs.alphas_.shape
    assert ours.mse_path_.shape == theirs.mse_path_.shape
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-9)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-6)
    assert (ours.alpha_, ours.l1_ratio_) == pytest.approx((theirs.alpha_, theirs.l1_ratio_), rel=1e-9)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)


def test_one_share_in_a_list_is_one_share():
    listed, plain = (E.FederatedElasticNetCV(alphas=4, l1_ratio=share).fit(D.X, D.y) for share in ([0.3], 0.3))
    assert listed.alphas_.shape == (4,)
    assert listed.l1_ratio_ == plain.l1_ratio_ == 0.3
    np.testing.assert_array_equal(listed.mse_path_, plain.mse_path_)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["even", "weighted"])
def test_a_share_of_zero_is_ridge_regression(weights: Any):
    """scikit-learn's Ridge has the sum of squares where ours has half their mean."""
    alphas = [0.01, 0.1, 1.0]
    ours: Any = E.FederatedElasticNetCV(l1_ratio=0, alphas=alphas, tol=1e-13)
    ours.fit(D.X, D.y, sites=D.sites, sample_weight=weights)
    each = np.ones(len(D.y)) if weights is None else weights
    for place, alpha in enumerate(ours.alphas_):
        for fold, (train, test) in enumerate(by_site(D)):
            ridge = Ridge(alpha * each[train].sum()).fit(D.dense[train], D.y[train], sample_weight=each[train])
            error = np.average((ridge.predict(D.dense[test]) - D.y[test]) ** 2, weights=each[test])
            assert ours.mse_path_[place, fold] == pytest.approx(error, rel=1e-8)
    best = Ridge(ours.alpha_ * each.sum()).fit(D.dense, D.y, sample_weight=each)
    np.testing.assert_allclose(ours.coef_, best.coef_, rtol=1e-8)
    assert ours.l1_ratio_ == 0


def test_the_path_of_ridge_regression_is_that_of_a_share_of_a_thousandth():
    path = E.FederatedElasticNetCV(alphas=3, l1_ratio=[0.0, 1e-3], cv=2).fit(D.X, D.y).alphas_
    np.testing.assert_array_equal(path[0], path[1])
    assert path[0, 0] == pytest.approx(1000 * strongest(D.dense, D.y), rel=1e-9)


def test_classes_with_a_share_of_zero_are_those_of_l2():
    logistic = E.FederatedLogisticRegressionCV
    share = logistic("elasticnet", l1_ratio=0, Cs=3).fit(D.X, D.signs, sites=D.sites)
    l2 = logistic("l2", Cs=3).fit(D.X, D.signs, sites=D.sites)
    np.testing.assert_array_equal(share.Cs_, l2.Cs_)
    np.testing.assert_allclose(share.coef_, l2.coef_, rtol=1e-8)


def test_weights_of_one_change_no_choice():
    """Folds count alike, whatever their size. In these data the best alpha would be another one if they did not."""
    D, alphas = make("dense", seed=2), np.geomspace(1, 1e-3, 30)
    plain, even = (
        E.FederatedLassoCV(alphas=alphas).fit(D.X, D.y, sites=D.sites, sample_weight=weight)
        for weight in (None, np.ones(len(D.y)))
    )
    sizes = [len(test) for _, test in by_site(D)]
    assert np.average(plain.mse_path_, axis=1, weights=sizes).argmin() != plain.mse_path_.mean(axis=1).argmin()
    assert plain.alpha_ == even.alpha_


@pytest.mark.parametrize("share", [-0.1, 1.1, [0.5, 2.0], [], "half"])
def test_bad_shares_are_refused(share: Any):
    with pytest.raises((ValueError, TypeError), match="FederatedElasticNetCV: l1_ratio must"):
        E.FederatedElasticNetCV(l1_ratio=share).fit(D.X, D.y)
