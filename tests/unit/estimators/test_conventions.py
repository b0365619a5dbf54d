"""The estimators keep scikit-learn's conventions: its own checks, metadata routing, pipelines, names, warnings, errors."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedlocal as fl
from unit.estimators.pooled_truths import CLASSES, make, strongest

E = fl.estimators
PLAIN = (
    E.FederatedLinearRegression,
    E.FederatedLasso,
    E.FederatedElasticNet,
    E.FederatedLogisticRegression,
    E.FederatedMatrixRegression,
    E.FederatedQuantileRegression,
)
SEARCHES = (E.FederatedLassoCV, E.FederatedElasticNetCV, E.FederatedLogisticRegressionCV)
D = make("dense")
SITES = sorted(set(D.sites))


def small(kind: Any) -> Any:
    """With a short path and few folds where there is one, for the many fits of scikit-learn's checks."""
    options: dict[str, Any] = {"Cs": [0.1, 1.0]} if "Logistic" in kind.__name__ else {"alphas": 4}
    return kind(cv=2, **options) if kind in SEARCHES else kind()


def target(kind: type) -> np.ndarray:
    return D.signs if "Logistic" in kind.__name__ else D.y


TWINS = (E.FederatedElasticNet, E.FederatedElasticNetCV)  # of the lasso: they inherit the same fit


@parametrize_with_checks([small(kind) for kind in (*PLAIN, *SEARCHES) if kind not in TWINS])
def test_scikit_learns_own_checks(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.thorough
@parametrize_with_checks([small(kind) for kind in TWINS])
def test_scikit_learns_own_checks_of_twins(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.parametrize("kind", TWINS)
def test_scikit_learns_checks_of_the_constructor_of_twins(kind: type):
    checks: list[Any] = [
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_estimators_overwrite_params,
        estimator_checks.check_sample_weight_equivalence_on_dense_data,
    ]
    for check in checks:
        check(kind.__name__, small(kind))


@pytest.mark.parametrize("kind", [*PLAIN, *SEARCHES])
def test_clone_and_parameters(kind: type):
    chosen = small(kind).set_params(tol=1e-5, fit_intercept=False)
    copy: Any = clone(chosen)
    assert copy.get_params() == chosen.get_params()
    assert copy.tol == 1e-5
    again: Any = clone(copy)
    with pytest.raises(NotFittedError):
        again.predict(D.X)
    with pytest.raises(ValueError, match="nonsense"):
        chosen.set_params(nonsense=1)


@pytest.mark.parametrize("kind", [*PLAIN, *SEARCHES])
def test_a_search_or_a_plain_fit_keeps_the_same_attributes(kind: type):
    chosen = small(kind).fit(D.X, target(kind), sites=D.sites)
    assert chosen.n_features_in_ == 8
    assert list(chosen.sites_) == SITES
    assert chosen.n_iter_ >= 1
    assert chosen.certificate_.objective > 0
    assert np.isfinite(chosen.coef_).all()
    assert isinstance(chosen.history_, pd.DataFrame)


@pytest.mark.parametrize("kind", [*PLAIN, *SEARCHES])
def test_data_frames_give_names(kind: type):
    names = [f"column {k}" for k in range(8)]
    frame = pd.DataFrame(D.X, columns=names)
    framed, plain = small(kind).fit(frame, pd.Series(target(kind)), sites=pd.Series(D.sites)), small(kind)
    plain.fit(D.X, target(kind), sites=D.sites)
    assert list(framed.feature_names_in_) == names
    np.testing.assert_allclose(framed.coef_, plain.coef_, rtol=0, atol=1e-12)
    assert not hasattr(plain, "feature_names_in_")
    with pytest.raises(ValueError, match="feature names"):
        framed.predict(frame[names[::-1]])
    with pytest.raises(ValueError, match="7 features"):
        plain.predict(D.X[:, :7])


def test_sites_of_any_kind_of_label():
    numbers = np.searchsorted(SITES, D.sites)
    labels = [D.sites, D.sites.astype(object), list(D.sites), numbers, numbers * 10.0 + 5.0, pd.Categorical(D.sites)]
    fits = [E.FederatedLasso(0.1).fit(D.X, D.y, sites=sites) for sites in labels]
    for chosen in fits:
        np.testing.assert_allclose(chosen.coef_, fits[0].coef_, rtol=0, atol=1e-12)
    assert list(fits[3].sites_) == [0, 1, 2, 3]
    assert list(fits[4].sites_) == [5.0, 15.0, 25.0, 35.0]
    assert len(E.FederatedLasso(0.1).fit(D.X, D.y).sites_) == 1


@pytest.mark.parametrize("kind", [*PLAIN, *SEARCHES])
def test_sites_and_weights_must_be_named(kind: type):
    """The third argument of scikit-learn's fit is sample_weight: without a name nobody can tell which of the two is meant."""
    weight = np.random.default_rng(0).uniform(0.5, 2, len(D.y))
    for unnamed in ((weight,), (D.sites, weight)):
        with pytest.raises(TypeError, match="positional argument"):
            small(kind).fit(D.X, target(kind), *unnamed)


def test_a_pipeline_hands_the_sites_on():
    alpha = 0.1
    with config_context(enable_metadata_routing=True):
        lasso = E.FederatedLasso(alpha).set_fit_request(sites=True)
        pipeline: Any = make_pipeline(StandardScaler(), lasso).fit(D.X, D.y, sites=D.sites)
    assert list(pipeline[-1].sites_) == SITES
    truth = make_pipeline(StandardScaler(), Lasso(alpha, tol=1e-12)).fit(D.X, D.y)
    np.testing.assert_allclose(pipeline.predict(D.X), truth.predict(D.X), rtol=0, atol=1e-4)


def test_sites_and_sample_weights_are_asked_for_separately():
    weight = np.random.default_rng(0).uniform(0.5, 2, len(D.y))
    with config_context(enable_metadata_routing=True):
        lasso = E.FederatedLasso(0.1).set_fit_request(sites=True, sample_weight=True)
        pipeline: Any = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), lasso)
        pipeline.fit(D.X, D.y, sites=D.sites, sample_weight=weight)
    Z = StandardScaler().fit_transform(D.X)
    truth = Lasso(0.1, tol=1e-12).fit(Z, D.y, sample_weight=weight)
    np.testing.assert_allclose(pipeline[-1].coef_, truth.coef_, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["lasso", "logistic"])
def test_a_grid_search_that_leaves_one_site_out(kind: str):
    """Each fit gets the sites of its own examples; choice and scores are those of the same search with scikit-learn's."""
    if kind == "lasso":
        grid, y, scoring = {"alpha": [0.01, 0.1, 1.0]}, D.y, "neg_mean_squared_error"
        ours, theirs = E.FederatedLasso(), Lasso(tol=1e-12, max_iter=100_000)
    else:
        grid, y, scoring = {"C": [0.01, 0.1, 1.0]}, D.signs, "neg_log_loss"
        ours, theirs = E.FederatedLogisticRegression("l2"), LogisticRegression(tol=1e-12, solver="newton-cholesky")
    truth = GridSearchCV(
        make_pipeline(StandardScaler(), theirs),
        {f"{type(theirs).__name__.lower()}__{key}": values for key, values in grid.items()},
        cv=LeaveOneGroupOut(),
        scoring=scoring,
    ).fit(D.X, y, groups=D.sites)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            make_pipeline(StandardScaler(), ours.set_fit_request(sites=True)),
            {f"{type(ours).__name__.lower()}__{key}": values for key, values in grid.items()},
            cv=LeaveOneGroupOut(),
            scoring=scoring,
            error_score="raise",  # pyright: ignore[reportArgumentType]
        ).fit(D.X, y, sites=D.sites, groups=D.sites)
    assert list(search.best_params_.values()) == list(truth.best_params_.values())
    assert list(search.best_estimator_[-1].sites_) == SITES
    scores, wanted = search.cv_results_["mean_test_score"], truth.cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores, wanted, rtol=1e-4)


def test_cross_validation_splits_the_sites_with_the_examples():
    with config_context(enable_metadata_routing=True):
        lasso = E.FederatedLasso(0.1).set_fit_request(sites=True)
        both = {"sites": D.sites, "groups": D.sites}
        result = cross_validate(lasso, D.X, D.y, cv=LeaveOneGroupOut(), params=both, return_estimator=True)
    for left_out, chosen in zip(SITES, result["estimator"], strict=True):
        assert list(chosen.sites_) == [site for site in SITES if site != left_out]


def test_a_warm_start_needs_fewer_iterations():
    for chosen in (E.FederatedLogisticRegression("l1", C=1.0), E.FederatedLogisticRegression("l2", C=1.0)):
        cold = chosen.fit(D.X, D.signs, sites=D.sites)
        iterations, coef = cold.n_iter_, cold.coef_
        assert iterations > 1
        warm = chosen.set_params(warm_start=True).fit(D.X, D.signs, sites=D.sites)
        assert warm.n_iter_ < iterations
        np.testing.assert_allclose(warm.coef_, coef, rtol=0, atol=1e-4)
        again = chosen.set_params(warm_start=False).fit(D.X, D.signs, sites=D.sites)
        assert again.n_iter_ == iterations


def test_a_warm_start_with_other_numbers_of_columns_or_classes_starts_anew():
    chosen = E.FederatedLogisticRegression("l2", warm_start=True)
    chosen.fit(D.X, D.kinds)
    chosen.fit(D.X, D.signs)
    assert chosen.coef_.shape == (1, 8)
    chosen.fit(D.X[:, :5], D.signs)
    truth = E.FederatedLogisticRegression("l2").fit(D.X[:, :5], D.signs)
    np.testing.assert_allclose(chosen.coef_, truth.coef_, rtol=0, atol=1e-4)


def test_one_iteration_is_said_to_be_too_few():
    """All warnings are errors here, so that the fits of the other tests show that they do not warn."""
    for penalty in ("l1", "l2"):
        chosen = E.FederatedLogisticRegression(penalty, C=10.0, max_iter=1)
        with pytest.warns(ConvergenceWarning, match="max_iter") as caught:
            chosen.fit(D.X, D.signs, sites=D.sites)
        assert len(caught) == 1
        assert chosen.n_iter_ == 1
        chosen.set_params(max_iter=100).fit(D.X, D.signs, sites=D.sites)


ERRORS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "method": (
        E.FederatedLasso(method="adam"),
        {},
        ("FederatedLasso", "method", "adam", "prox_newton", "fed_dual_avg"),
    ),
    "smooth_method": (E.FederatedLasso(method="fed_avg"), {}, ("FederatedLasso", "fed_avg", "fed_dual_avg")),
    "accelerated": (E.FederatedLogisticRegression("l1", method="fed_ac_one"), {}, ("fed_ac_one", "fed_dual_avg")),
    "short_sites": (E.FederatedLasso(), {"sites": D.sites[:-1]}, ("sites", "79", "80")),
    "weights_as_sites": (
        E.FederatedLasso(),
        {"sites": np.linspace(0.5, 2, 80)},
        ("FederatedLasso", "sites must name a site per row", "0.5", "did you mean sample_weight=?"),
    ),
    "two_axes": (E.FederatedLasso(), {"sites": np.zeros((80, 2))}, ("sites", "(80, 2)")),
    "alpha": (E.FederatedLasso(-0.5), {}, ("FederatedLasso", "alpha", "-0.5", ">= 0")),
    "alpha_text": (E.FederatedElasticNet("much"), {}, ("FederatedElasticNet", "alpha", "much")),  # pyright: ignore[reportArgumentType]
    "l1_ratio": (E.FederatedElasticNet(l1_ratio=1.5), {}, ("FederatedElasticNet", "l1_ratio", "1.5")),
    "penalty": (
        E.FederatedLogisticRegression("l3"),  # pyright: ignore[reportArgumentType]
        {},
        ("FederatedLogisticRegression", "penalty", "l3", "l1", "l2", "elasticnet", "group"),
    ),
    "C": (E.FederatedLogisticRegression(C=0.0), {}, ("FederatedLogisticRegression", "C", "0", "> 0")),
    "no_groups": (E.FederatedLogisticRegression("group"), {}, ("FederatedLogisticRegression", "groups", "None")),
    "groups": (E.FederatedLogisticRegression("group", groups=[0, 1]), {}, ("groups", "2", "8")),
    "weights": (E.FederatedLasso(weights="all"), {}, ("FederatedLasso", "weights", "all", "examples", "uniform")),  # pyright: ignore[reportArgumentType]
    "old name of weights": (E.FederatedLasso(weights="sites"), {}, ("FederatedLasso", "use weights='uniform'")),  # pyright: ignore[reportArgumentType]
    "loss": (E.FederatedLasso(loss="logistic"), {}, ("FederatedLasso", "loss", "logistic", "half_squares")),
    "penalty of regression": (
        E.FederatedLinearRegression(penalty="l1"),  # pyright: ignore[reportArgumentType]
        {},
        ("FederatedLinearRegression", "penalty", "l1", "Regularizer"),
    ),
    "two penalties": (
        E.FederatedLinearRegression(penalty=fl.regularizers.L1(1.0), positive=True),
        {},
        ("FederatedLinearRegression", "positive"),
    ),
    "tol": (E.FederatedLasso(tol=-1.0), {}, ("FederatedLasso", "tol", "-1")),
    "max_iter": (E.FederatedLasso(max_iter=0), {}, ("FederatedLasso", "max_iter", "0", ">= 1")),
    "local_steps": (E.FederatedLasso(method="fed_mid", local_steps=0), {}, ("FederatedLasso", "local_steps", "0")),
    "step_size": (E.FederatedLasso(method="fed_mid", client_step_size=-1.0), {}, ("client_step_size", "-1", "> 0")),
    "shape": (E.FederatedMatrixRegression(shape=(3, 3)), {}, ("FederatedMatrixRegression", "shape", "(3, 3)", "8")),
    "negative_weight": (E.FederatedLasso(), {"sample_weight": -np.ones(80)}, ("sample_weight",)),
    "alphas": (E.FederatedLassoCV(alphas=[0.1, -1.0]), {}, ("FederatedLassoCV", "alphas", "-1")),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_would_work(name: str):
    chosen, arguments, words = ERRORS[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        chosen.fit(D.X, target(type(chosen)), **arguments)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def test_one_class_is_an_error():
    with pytest.raises(ValueError, match=r"class"):
        E.FederatedLogisticRegression().fit(D.X, np.zeros(80), sites=D.sites)


@pytest.mark.parametrize("y", [D.signs, D.kinds], ids=["two", "three"])
def test_probabilities(y: np.ndarray):
    chosen = E.FederatedLogisticRegression("l1", C=1.0).fit(D.X, y, sites=D.sites)
    probabilities, scores = chosen.predict_proba(D.X), chosen.decision_function(D.X)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(probabilities), chosen.predict_log_proba(D.X), rtol=1e-9, atol=1e-12)
    assert list(chosen.classes_) == sorted(set(y))
    np.testing.assert_array_equal(chosen.predict(D.X), chosen.classes_[probabilities.argmax(1)])
    assert chosen.score(D.X, y) == np.mean(chosen.predict(D.X) == y)
    assert chosen.score(D.X, y) > 1 / len(chosen.classes_)
    if len(chosen.classes_) == 2:
        assert scores.shape == (80,)
        np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-10)
        np.testing.assert_allclose(scores, D.X @ chosen.coef_[0] + chosen.intercept_[0], rtol=0, atol=1e-10)
        assert (chosen.coef_.shape, chosen.intercept_.shape) == ((1, 8), (1,))
    else:
        assert scores.shape == (80, 3)
        assert (chosen.coef_.shape, chosen.intercept_.shape) == ((3, 8), (3,))
        assert list(chosen.classes_) == CLASSES


def test_regression_shapes_and_score():
    chosen = E.FederatedLasso(0.05).fit(D.X, D.y, sites=D.sites)
    assert chosen.coef_.shape == (8,)
    assert np.ndim(chosen.intercept_) == 0
    np.testing.assert_allclose(chosen.predict(D.X), D.X @ chosen.coef_ + chosen.intercept_, rtol=0, atol=1e-10)
    residual = ((D.y - chosen.predict(D.X)) ** 2).sum()
    assert chosen.score(D.X, D.y) == pytest.approx(1 - residual / ((D.y - D.y.mean()) ** 2).sum(), rel=1e-10)


COLUMNS = {"round", "phase", "objective", "kkt_residual", "duality_gap", "nonzeros", "sent"}
TELLING = {
    "lasso": (E.FederatedLasso(0.1), D.y, {"newton", "gradient"}),
    "logistic": (E.FederatedLogisticRegression("l1"), D.signs, {"newton", "gradient"}),
    "local": (E.FederatedLasso(0.1, method="fed_dual_avg", local_rounds=20), D.y, {"local", "newton", "gradient"}),
}


@pytest.mark.parametrize("name", TELLING)
def test_history_and_communication_fit_together(name: str):
    chosen, y, phases = TELLING[name]
    history = chosen.fit(D.X, y, sites=D.sites).history_
    assert set(history.columns) == COLUMNS
    assert set(history["phase"]) <= phases
    assert (name == "local") == ("local" in set(history["phase"]))
    assert (np.diff(history["round"]) > 0).all()
    assert (np.diff(history["sent"]) > 0).all()
    last, said, spent = history.iloc[-1], chosen.certificate_, chosen.communication_
    assert last["round"] == spent.rounds
    assert last["sent"] == spent.numbers_up + spent.numbers_down
    assert spent.numbers_up > 0
    assert spent.numbers_down > 0
    assert last["objective"] == pytest.approx(said.objective, rel=1e-9)
    assert last["kkt_residual"] == pytest.approx(said.kkt_residual, rel=1e-3, abs=1e-9)
    assert last["duality_gap"] == pytest.approx(said.duality_gap, rel=1e-3, abs=1e-12)
    assert last["nonzeros"] == np.count_nonzero(chosen.coef_)
    newton = history[history["phase"] != "local"]
    assert newton["objective"].iloc[-1] <= newton["objective"].iloc[0]


def test_what_a_site_sends_does_not_depend_on_the_examples():
    """Twice the examples at the same sites: the same fit in the same rounds with as many numbers."""
    once = E.FederatedLasso(0.1).fit(D.X, D.y, sites=D.sites)
    twice = E.FederatedLasso(0.1).fit(np.tile(D.X, (2, 1)), np.tile(D.y, 2), sites=np.tile(D.sites, 2))
    np.testing.assert_allclose(once.coef_, twice.coef_, rtol=0, atol=1e-6)
    assert once.communication_ == twice.communication_


def test_fits_do_not_change_what_they_are_given():
    X, y, sites, weight = D.X.copy(), D.y.copy(), D.sites.copy(), np.full(80, 2.0)
    E.FederatedLasso(0.1, standardize=True).fit(X, y, sites=sites, sample_weight=weight)
    for given, before in ((X, D.X), (y, D.y), (sites, D.sites), (weight, np.full(80, 2.0))):
        np.testing.assert_array_equal(given, before)


def test_a_fit_is_repeatable_and_does_not_depend_on_the_order_of_sites():
    first, second = (E.FederatedLasso(0.1).fit(D.X, D.y, sites=D.sites) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    order = np.random.default_rng(0).permutation(80)
    shuffled = E.FederatedLasso(0.1).fit(D.X[order], D.y[order], sites=D.sites[order])
    np.testing.assert_allclose(first.coef_, shuffled.coef_, rtol=0, atol=1e-8)


def test_above_the_strongest_alpha_everything_is_zero():
    chosen = E.FederatedLasso(1.001 * strongest(D.X, D.y)).fit(D.X, D.y, sites=D.sites)
    assert not chosen.coef_.any()
    assert chosen.intercept_ == pytest.approx(D.y.mean(), abs=1e-8)


def test_the_representation_is_short():
    assert re.fullmatch(r"FederatedLasso\(alpha=0.5\)", repr(E.FederatedLasso(0.5)))
