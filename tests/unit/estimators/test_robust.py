"""What could go wrong in a fit and must not: odd storage, bad starts, tiny units, folds without weight."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import fedlocal as fl
from fedlocal.estimators import (
    FederatedLasso,
    FederatedLassoCV,
    FederatedLinearRegression,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 5))
y = X @ np.arange(5) + rng.normal(size=80)
SITES = np.arange(80) % 4


def test_sparse_features_may_be_stored_in_any_order_and_twice():
    random: Any = sp.random
    matrix = random(120, 30, 0.2, random_state=0, format="csr") @ random(30, 30, 0.2, random_state=1, format="csr")
    assert not matrix.has_sorted_indices
    twice = sp.coo_array((np.tile(X.ravel() / 2, 2), np.tile(np.indices(X.shape).reshape(2, -1), 2)), X.shape)
    for odd, labels in ((matrix, np.asarray(matrix.sum(axis=1)).ravel()), (twice, y)):
        before = odd.copy()
        model = FederatedLogisticRegression("l1", C=10.0).fit(odd, labels > np.median(labels))
        plain = FederatedLogisticRegression("l1", C=10.0).fit(odd.toarray(), labels > np.median(labels))
        np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-6)
        assert (abs(odd - before)).max() == 0
        assert odd.nnz == before.nnz


@pytest.mark.parametrize("options", [{"client_step_size": 1e3}, {"server_step_size": 1e6}])
def test_a_local_method_that_diverges_is_forgotten(options: dict[str, Any]):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.DivergenceWarning)
        model = FederatedLasso(0.1, method="fed_dual_avg", local_rounds=20, **options).fit(X, y, sites=SITES)
    np.testing.assert_allclose(model.coef_, FederatedLasso(0.1).fit(X, y).coef_, atol=1e-6)


def test_a_bad_warm_start_is_left():
    model = FederatedLogisticRegression("l1", C=1e6, warm_start=True).fit(X * 1e-3, X[:, 0] + 0.3 * X[:, 1] ** 2 > 0)
    model.set_params(C=1.0).fit(X * 1e3, y > 0)
    cold = FederatedLogisticRegression("l1", C=1.0).fit(X * 1e3, y > 0)
    assert model.certificate_.objective == pytest.approx(cold.certificate_.objective, rel=1e-8)


def test_a_column_that_became_constant_loses_its_weight():
    constant = X.copy()
    constant[:, 4] = 1.0
    for model in (FederatedLasso(0.1, warm_start=True), FederatedLinearRegression(warm_start=True)):
        assert model.fit(X, y).coef_[4] > 1
        assert model.fit(constant, y).coef_[4] == 0
    assert not FederatedLasso(0.1, warm_start=True).fit(X, y).fit(X, np.zeros(80)).coef_.any()


def test_units_do_not_matter_where_there_is_no_gap():
    weights = FederatedLinearRegression().fit(X, y).coef_
    np.testing.assert_allclose(FederatedLinearRegression().fit(X, y * 1e-11).coef_, weights * 1e-11, rtol=1e-8)
    plain = FederatedLogisticRegression(None).fit(X, y > 0.1 * rng.normal(size=80) * 40).coef_
    assert np.abs(plain).min() > 0


def test_more_features_than_examples_and_hardly_a_penalty():
    wide = np.random.default_rng(1).normal(size=(20, 100))
    model: Any = FederatedLasso(1e-6).fit(wide, wide[:, 0] + np.random.default_rng(2).normal(size=20))
    assert model.certificate_.duality_gap <= 1e-10
    assert np.count_nonzero(model.coef_) <= 20


def test_a_norm_of_all_weights_with_columns_of_any_size():
    scaled = np.random.default_rng(1).normal(size=(100, 6)) * [1, 100, 1, 0.01, 1, 1e3]
    labels = scaled @ [1, 0.01, 1, 10, 0, 1e-3] + np.random.default_rng(2).normal(size=100) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model: Any = FederatedLogisticRegression(fl.regularizers.L2Norm(0.1)).fit(scaled, labels)
    assert model.certificate_.duality_gap <= 1e-8


def test_folds_without_weight_are_left_out():
    weights = (SITES != 0).astype(float)
    assert FederatedLassoCV(alphas=4).fit(X, y, sites=SITES, sample_weight=weights).mse_path_.shape == (4, 3)


def test_cross_validation_says_what_is_wrong():
    model = FederatedLogisticRegressionCV("l1", Cs=3, scoring="roc_auc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="scoring='roc_auc' is not defined on the fold that leaves out site 0;"):
            model.fit(X, y > 0, sites=(y > 0) + 2 * (X[:, 0] > 0))
    with pytest.raises(ValueError, match="alphas must have at least one number"):
        FederatedLassoCV(alphas=[]).fit(X, y)
    with pytest.raises(ValueError, match="l1_ratio must be >= 0"):
        FederatedLogisticRegressionCV("elasticnet", l1_ratio=-0.1, Cs=3).fit(X, y > 0)
    with pytest.raises(ValueError, match="sites must be all numbers or all strings"):
        FederatedLasso().fit(X, y, sites=np.array([1, "a"] * 40, dtype=object))
    with pytest.raises(ValueError, match="has no server_step_size, got 2"):
        FederatedLogisticRegression(method="fed_ac_one", server_step_size=2.0).fit(X, y > 0)


NAMES = np.array(["north", "south", "east", "west"])[SITES]


def test_errors_of_folds_name_the_site_that_is_left_out():
    only_west = (NAMES == "west") & (X[:, 0] > 0)
    with pytest.raises(ValueError, match="the fold that leaves out site west has no example of some class"):
        FederatedLogisticRegressionCV("l1", Cs=3).fit(X, only_west, sites=NAMES)
    mixed = np.where(NAMES == "south", 1, y > 0)
    model = FederatedLogisticRegressionCV("l1", Cs=3, scoring="neg_log_loss")
    with pytest.raises(ValueError, match="scoring='neg_log_loss' failed on the fold that leaves out site south: "):
        model.fit(X, mixed, sites=NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="is not defined on the fold that leaves out site south;"):
            model.set_params(scoring="roc_auc").fit(X, mixed, sites=NAMES)
    first_is_empty = (NAMES != "east").astype(float)  # east is the first site by name
    with pytest.raises(ValueError, match="leaves out site south"):
        model.set_params(scoring="neg_log_loss").fit(X, mixed, sites=NAMES, sample_weight=first_is_empty)


def test_warnings_of_folds_name_the_site_and_other_folds_have_numbers():
    with pytest.warns(ConvergenceWarning) as caught:
        FederatedLogisticRegressionCV("l1", Cs=[10.0], max_iter=1).fit(X, y > 0, sites=NAMES)
    sentences = [str(warning.message) for warning in caught]
    for name in ("north", "south", "east", "west"):
        assert sum(f"1 of 1 fits of the fold that leaves out site {name} stopped" in said for said in sentences) == 1
    with pytest.warns(ConvergenceWarning) as caught:
        FederatedLogisticRegressionCV("l1", Cs=[10.0], max_iter=1, cv=2).fit(X, y > 0)
    assert [f"1 of 1 fits of fold {n} of 2 stopped" in str(caught[n - 1].message) for n in (1, 2)] == [True, True]
