"""Searches over strengths choose what scikit-learn chooses on the same folds."""

from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, StratifiedKFold

import fedlocal as fl
from unit.estimators.pooled_truths import Data, make, strongest

E = fl.estimators
DATA = ("dense", "sparse", "collinear", "wide")
TIGHT: dict[str, Any] = {"tol": 1e-12, "max_iter": 1_000_000}
ALPHAS = 12


def by_site(D: Data) -> list[Any]:
    return list(LeaveOneGroupOut().split(D.dense, D.y, D.sites))


def check_same_search(ours: Any, theirs: Any, atol: float = 1e-4) -> None:
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-9)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-6)
    assert ours.alpha_ == pytest.approx(theirs.alpha_, rel=1e-9)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=atol)


@pytest.mark.parametrize("name", DATA)
def test_lasso_leaves_one_site_out(name: str):
    D = make(name)
    ours = E.FederatedLassoCV(alphas=ALPHAS, tol=1e-12).fit(D.X, D.y, sites=D.sites)
    theirs = LassoCV(alphas=ALPHAS, cv=by_site(D), **TIGHT).fit(D.dense, D.y)
    assert ours.mse_path_.shape == (ALPHAS, 4)
    check_same_search(ours, theirs, atol=100.0 if name == "collinear" else 1e-4)
    np.testing.assert_allclose(ours.predict(D.X), theirs.predict(D.dense), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["dense", "wide"])
def test_elastic_net_leaves_one_site_out(name: str):
    D = make(name)
    ours = E.FederatedElasticNetCV(alphas=ALPHAS, l1_ratio=0.4, tol=1e-12).fit(D.X, D.y, sites=D.sites)
    check_same_search(ours, ElasticNetCV(alphas=ALPHAS, l1_ratio=0.4, cv=by_site(D), **TIGHT).fit(D.dense, D.y))


def test_splits_integers_and_splitters():
    D = make("dense")
    shuffled = KFold(4, shuffle=True, random_state=1)
    for ours, theirs in ((shuffled, shuffled), (list(shuffled.split(D.X)), shuffled), (3, 3)):
        check_same_search(
            E.FederatedLassoCV(alphas=ALPHAS, cv=ours, tol=1e-12).fit(D.X, D.y, sites=D.sites),
            LassoCV(alphas=ALPHAS, cv=theirs, **TIGHT).fit(D.dense, D.y),
        )
    groups = list(GroupKFold(2).split(D.X, D.y, D.sites))
    check_same_search(
        E.FederatedLassoCV(alphas=ALPHAS, cv=GroupKFold(2), tol=1e-12).fit(D.X, D.y, sites=D.sites),
        LassoCV(alphas=ALPHAS, cv=groups, **TIGHT).fit(D.dense, D.y),
    )


def test_one_site_is_searched_in_five_folds():
    D = make("dense")
    ours = E.FederatedLassoCV(alphas=ALPHAS, tol=1e-12).fit(D.X, D.y)
    check_same_search(ours, LassoCV(alphas=ALPHAS, cv=5, **TIGHT).fit(D.dense, D.y))


def test_given_alphas():
    D = make("dense")
    alphas = [0.01, 1.0, 0.1]
    ours = E.FederatedLassoCV(alphas=alphas, tol=1e-12).fit(D.X, D.y, sites=D.sites)
    check_same_search(ours, LassoCV(cv=by_site(D), **{**TIGHT, "alphas": alphas}).fit(D.dense, D.y))
    assert list(ours.alphas_) == [1.0, 0.1, 0.01]


def test_the_path_without_an_intercept_and_with_positive_coefficients():
    D = make("dense")
    choices: list[dict[str, Any]] = [{"fit_intercept": False}, {"positive": True}]
    for options in choices:
        ours = E.FederatedLassoCV(alphas=ALPHAS, tol=1e-12, **options).fit(D.X, D.y, sites=D.sites)
        check_same_search(ours, LassoCV(alphas=ALPHAS, cv=by_site(D), **TIGHT, **options).fit(D.dense, D.y))


@pytest.mark.parametrize("name", ["dense", "sparse", "unscaled", "wide"])
def test_the_path_begins_where_the_first_coefficient_appears(name: str):
    D = make(name)
    chosen = E.FederatedLassoCV(alphas=5, eps=1e-2, cv=2).fit(D.X, D.y, sites=D.sites)
    first = chosen.alphas_[0]
    assert first == pytest.approx(strongest(D.dense, D.y), rel=1e-9)
    np.testing.assert_allclose(chosen.alphas_, first * np.logspace(0, -2, 5), rtol=1e-9)
    above, below = (E.FederatedLasso(share * first).fit(D.X, D.y, sites=D.sites) for share in (1 + 1e-6, 1 - 1e-3))
    assert not above.coef_.any()
    assert np.count_nonzero(below.coef_) == 1


def test_the_path_of_the_elastic_net_begins_at_its_l1_share():
    D = make("dense")
    chosen = E.FederatedElasticNetCV(alphas=4, l1_ratio=0.25, cv=2).fit(D.X, D.y, sites=D.sites)
    assert chosen.alphas_[0] == pytest.approx(strongest(D.dense, D.y) / 0.25, rel=1e-9)


def test_a_search_ends_in_the_plain_fit():
    D = make("dense")
    search = E.FederatedLassoCV(alphas=ALPHAS).fit(D.X, D.y, sites=D.sites)
    plain = E.FederatedLasso(search.alpha_).fit(D.X, D.y, sites=D.sites)
    np.testing.assert_allclose(search.coef_, plain.coef_, rtol=0, atol=1e-6)
    assert search.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=1e-8)
    assert np.mean(search.mse_path_, 1).argmin() == np.flatnonzero(search.alphas_ == search.alpha_)[0]


CS = [0.2, 0.5, 1.0, 3.0]  # not smaller: with no weights left saga does not look whether the intercept arrived


def logistic_truth(D: Data, y: np.ndarray, l1_ratio: float, scoring: str, cv: Any) -> Any:
    kind: Any = LogisticRegressionCV
    solver: dict[str, Any] = {"solver": "newton-cholesky"} if l1_ratio == 0 else {"solver": "saga", "random_state": 0}
    truth = kind(
        Cs=CS,
        l1_ratios=(l1_ratio,),
        cv=cv,
        scoring=scoring,
        use_legacy_attributes=False,
        tol=1e-12,
        max_iter=100_000,
        **solver,
    )
    return truth.fit(D.dense, y)


@pytest.mark.parametrize(("penalty", "l1_ratio"), [("l1", 1.0), ("l2", 0.0), ("elasticnet", 0.5)])
@pytest.mark.parametrize(
    ("classes", "scoring"),
    [
        (2, "neg_log_loss"),
        (2, "accuracy"),
        (3, "neg_log_loss"),
        pytest.param(3, "accuracy", marks=pytest.mark.thorough),
    ],
)
def test_logistic_leaves_one_site_out(penalty: Any, l1_ratio: float, scoring: str, classes: int):
    D = make("dense")
    y = D.signs if classes == 2 else D.kinds
    folds = list(KFold(3, shuffle=True, random_state=0).split(D.X)) if classes == 3 else by_site(D)
    ours = E.FederatedLogisticRegressionCV(
        Cs=CS, penalty=penalty, l1_ratio=0.5, scoring=scoring, tol=1e-11, cv=folds if classes == 3 else None
    ).fit(D.X, y, sites=D.sites)
    theirs = logistic_truth(D, y, l1_ratio, scoring, folds)
    np.testing.assert_allclose(ours.Cs_, CS, rtol=1e-12)
    np.testing.assert_allclose(ours.scores_, theirs.scores_[:, 0, :].T, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours.C_, theirs.C_, rtol=1e-12)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-4)


def test_logistic_splitters_and_the_path():
    D = make("dense")
    folds = StratifiedKFold(3)
    ours = E.FederatedLogisticRegressionCV(Cs=CS, cv=3, penalty="l1", tol=1e-11, scoring="neg_log_loss").fit(
        D.X, D.signs, sites=D.sites
    )
    theirs = logistic_truth(D, D.signs, 1.0, "neg_log_loss", folds)
    np.testing.assert_allclose(ours.scores_, theirs.scores_[:, 0, :].T, rtol=1e-6)
    path = E.FederatedLogisticRegressionCV(Cs=4, cv=2, penalty="l2").fit(D.X, D.signs, sites=D.sites)
    assert path.Cs_.shape == (4,)
    assert (np.diff(path.Cs_) > 0).all()
    assert path.C_ in path.Cs_


@pytest.mark.parametrize("classes", [2, 3])
def test_the_path_of_l1_logistic_begins_where_the_first_weight_appears(classes: int):
    D = make("dense")
    y = D.signs if classes == 2 else D.kinds
    path = E.FederatedLogisticRegressionCV(Cs=3, cv=2, penalty="l1").fit(D.X, y, sites=D.sites)
    assert (np.diff(path.Cs_) > 0).all()
    members = (y[:, None] == np.unique(y)).astype(float)
    steepest = np.abs(D.dense.T @ (members - members.mean(0))).max()  # of the sum of the losses, at the best constant
    assert path.Cs_[0] == pytest.approx(1 / steepest, rel=1e-9)
    below, above = (
        E.FederatedLogisticRegression("l1", C=share / steepest).fit(D.X, y, sites=D.sites) for share in (0.999, 1.01)
    )
    assert not below.coef_.any()
    assert np.count_nonzero(above.coef_) == 1


def test_a_strength_that_leaves_no_weights_scores_the_shares_of_the_classes():
    D = make("dense")
    ours = E.FederatedLogisticRegressionCV(Cs=[1e-3, 1.0], penalty="l1", scoring="neg_log_loss").fit(
        D.X, D.signs, sites=D.sites
    )
    for fold, (train, test) in enumerate(by_site(D)):
        share = np.mean(D.signs[train] == "yes")
        wanted = np.log(np.where(D.signs[test] == "yes", share, 1 - share)).mean()
        assert ours.scores_[0, fold] == pytest.approx(wanted, rel=1e-7)


def test_a_callable_scoring():
    D = make("dense")

    def nonzeros(chosen: Any, X: np.ndarray, y: np.ndarray) -> float:
        return -float(np.count_nonzero(chosen.coef_))

    ours = E.FederatedLogisticRegressionCV(Cs=CS, penalty="l1", scoring=nonzeros).fit(D.X, D.signs, sites=D.sites)
    np.testing.assert_equal(ours.C_, min(CS))
    assert (ours.scores_ <= 0).all()


def test_sample_weights_in_a_search():
    D = make("dense")
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(D.y))
    ours = E.FederatedLassoCV(alphas=[1.0, 0.1, 0.01], tol=1e-12).fit(D.X, D.y, sites=D.sites, sample_weight=weight)
    theirs = LassoCV(cv=by_site(D), **{**TIGHT, "alphas": [1.0, 0.1, 0.01]}).fit(D.dense, D.y, sample_weight=weight)
    check_same_search(ours, theirs)


def test_balanced_classes_and_sample_weights_in_a_search():
    """Scores have the sample weights, and not those of the classes."""
    D = make("dense")
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(D.y)) * np.where(D.signs == "yes", 4.0, 1.0)
    options: dict[str, Any] = {"Cs": CS, "class_weight": "balanced", "scoring": "neg_log_loss"}
    ours = E.FederatedLogisticRegressionCV("l2", tol=1e-12, **options)
    ours.fit(D.X, D.signs, sites=D.sites, sample_weight=weight)
    kind: Any = LogisticRegressionCV
    solver: dict[str, Any] = {"solver": "newton-cholesky", "tol": 1e-12, "l1_ratios": (0.0,)}
    theirs = kind(cv=by_site(D), use_legacy_attributes=False, **solver, **options)
    with config_context(enable_metadata_routing=True):
        theirs.set_params(scoring=get_scorer("neg_log_loss").set_score_request(sample_weight=True))
        theirs.fit(D.dense, D.signs, sample_weight=weight)
    np.testing.assert_allclose(ours.scores_, theirs.scores_[:, 0, :].T, rtol=1e-6)
    np.testing.assert_allclose(ours.C_, theirs.C_, rtol=1e-12)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)
