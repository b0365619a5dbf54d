"""Columns and targets of any unit: the fit is the one in ordinary units, or an error names the column. Never a silent zero."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression

from fedlocal.estimators import FederatedLasso, FederatedLassoCV, FederatedLinearRegression, FederatedLogisticRegression
from fedlocal.regularizers import NonNegative
from fedlocal.solvers.newton import iteration

over = pytest.mark.parametrize
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=60)
ILL = y + rng.logistic(size=60) > 0
SITES = np.arange(60) % 3
EXPONENTS = [-307, -200, -166, -160, -154, -148, -130, -60, -3, 3, 60, 130, 148, 152, 154, 160, 200, 307]
KINDS: dict[str, Any] = {"dense": np.asarray, "sparse": sp.csr_array}
HELD = (-140, 150)  # exponents of columns that standardisation has to cope with


def in_units(exponent: int) -> np.ndarray:
    """The middle column in another unit."""
    return X * [1.0, 10.0**exponent, 1.0]


def fitted(model: Any, features: Any, target: np.ndarray, exponent: int) -> np.ndarray | None:
    """The weights in the ordinary unit; None where the column was refused."""
    try:
        weights = np.ravel(model.fit(features, target, sites=SITES).coef_)
    except ValueError as refusal:
        said = str(refusal)
    else:
        return weights * [1.0, 10.0**exponent, 1.0]
    size = "large" if exponent > 0 else "small"
    assert said.startswith(f"{type(model).__name__}: column 1 (counted from 0) has values so {size} ")
    assert "change its unit" in said
    return None


@over("kind", KINDS)
@over("exponent", EXPONENTS)
def test_a_standardised_lasso(exponent: int, kind: str):
    scale = X.std(axis=0)
    truth = Lasso(0.1, tol=1e-12).fit((X if kind == "sparse" else X - X.mean(axis=0)) / scale, y).coef_ / scale
    weights = fitted(FederatedLasso(0.1, standardize=True), KINDS[kind](in_units(exponent)), y, exponent)
    assert (weights is not None) or not HELD[0] <= exponent <= HELD[1]
    if weights is not None:
        np.testing.assert_allclose(weights, truth, rtol=0, atol=1e-5)


@over("kind", KINDS)
@over("exponent", EXPONENTS)
def test_a_standardised_logistic_regression(exponent: int, kind: str):
    scale = X.std(axis=0)
    theirs = LogisticRegression(tol=1e-10, solver="newton-cholesky").fit(X / scale, ILL)
    weights = fitted(FederatedLogisticRegression(standardize=True), KINDS[kind](in_units(exponent)), ILL, exponent)
    assert (weights is not None) or not HELD[0] <= exponent <= HELD[1]
    if weights is not None:
        np.testing.assert_allclose(weights, theirs.coef_[0] / scale, rtol=0, atol=1e-4)


@over("intercept", [True, False])
@over("kind", KINDS)
@over("exponent", EXPONENTS)
def test_least_squares_without_a_penalty_in_the_columns_own_units(exponent: int, kind: str, intercept: bool):
    columns = np.column_stack([X, np.ones(60)]) if intercept else X
    truth = np.linalg.lstsq(columns, y, rcond=None)[0][:3]
    model = FederatedLinearRegression(fit_intercept=intercept)
    weights = fitted(model, KINDS[kind](in_units(exponent)), y, exponent)
    assert (weights is not None) or abs(exponent) >= 140
    if weights is not None:
        np.testing.assert_allclose(weights, truth, rtol=0, atol=1e-5)


@over("exponents", [(a, b) for a in (-130, -90, 0, 90, 130) for b in (-130, -90, 0, 90, 130)])
def test_columns_and_targets_that_are_large_or_small_together(exponents: tuple[int, int]):
    """The square of a product of both is not a number of float64."""
    column, target = 10.0 ** np.array(exponents)
    truth = np.linalg.lstsq(X, y, rcond=None)[0]
    found = FederatedLinearRegression(fit_intercept=False).fit(X * column, y * target, sites=SITES).coef_
    np.testing.assert_allclose(found * column / target, truth, rtol=0, atol=1e-5)


@over("exponent", [-307, -200, -145, 145, 200, 307])
def test_targets_that_cannot_be_squared_are_refused(exponent: int):
    for model in (FederatedLasso(), FederatedLassoCV(alphas=3), FederatedLinearRegression(standardize=True)):
        with pytest.raises(ValueError, match=rf"^{type(model).__name__}: y must be zero or .* change its unit$"):
            model.fit(X, y * 10.0**exponent, sites=SITES)


def test_a_column_of_a_table_is_named():
    table = pd.DataFrame(in_units(200), columns=["age", "charge", "weight"])
    for standardize in (True, False):
        with pytest.raises(ValueError, match=r"^FederatedLasso: column 'charge' has values so large that float64"):
            FederatedLasso(0.1, standardize=standardize).fit(table, y, sites=SITES)


def test_small_values_at_one_site_and_usual_ones_elsewhere():
    """Only the column as a whole has a unit."""
    mixed = X.copy()
    mixed[SITES == 0, 1] *= 1e-200
    truth = Lasso(0.1, tol=1e-12).fit((mixed - mixed.mean(axis=0)) / mixed.std(axis=0), y).coef_ / mixed.std(axis=0)
    model = FederatedLasso(0.1, standardize=True).fit(mixed, y, sites=SITES)
    np.testing.assert_allclose(model.coef_, truth, rtol=0, atol=1e-5)


@over("value", [1e-200, 1e100, 0.0])
def test_constant_columns_have_no_weight_in_any_unit(value: float):
    constant = X.copy()
    constant[:, 1] = value
    for standardize in (True, False):
        model = FederatedLinearRegression(standardize=standardize).fit(constant, y, sites=SITES)
        assert model.coef_[1] == 0
        assert np.abs(model.coef_[[0, 2]]).min() > 0.1


def test_weights_with_an_infinite_sum_are_refused():
    with pytest.raises(ValueError, match=r"^FederatedLasso: sample_weight must be at most 1e\+140, .* got 1e\+308$"):
        FederatedLasso(0.1).fit(X, y, sample_weight=np.full(60, 1e308))
    truth = Lasso(0.1, tol=1e-12).fit(X, y).coef_
    for weight in (1e-300, 1e130):
        found = FederatedLasso(0.1).fit(X, y, sample_weight=np.full(60, weight)).coef_
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-5)


UNPENALIZED: dict[str, tuple[Any, np.ndarray]] = {
    "squares": (FederatedLinearRegression(), y),
    "positive": (FederatedLinearRegression(positive=True), y),
    "logistic": (FederatedLogisticRegression(None), ILL),
    "logistic, not negative": (FederatedLogisticRegression(NonNegative()), ILL),
    "three classes": (FederatedLogisticRegression(None), np.digitize(y + 2 * rng.logistic(size=60), [-1, 1])),
    "local method": (FederatedLogisticRegression(None, method="fed_avg", local_rounds=10), ILL),
}


@over("scales", [[1e9, 1e-3, 1.0], [1e5, 1e10, 1e-5], [1.0, 1.0, 1e-9]])
@over("several", [False, True])
@over("name", UNPENALIZED)
def test_fits_without_a_gap_do_not_depend_on_units(name: str, scales: list[float], several: bool):
    """The KKT residual itself is that of the column with the largest unit: it says nothing about the other ones."""
    model, target = UNPENALIZED[name]
    sites = np.repeat([0, 1, 2, 3], [30, 15, 10, 5]) if several else None
    truth, iterations = model.fit(X, target, sites=sites).coef_, model.n_iter_
    found = model.fit(X * scales, target, sites=sites).coef_ * scales
    assert model.certificate_.duality_gap is None
    assert model.certificate_.relative_residual <= 1e-10
    np.testing.assert_allclose(found, truth, rtol=1e-7, atol=1e-9 * np.abs(truth).max())
    assert model.method != "prox_newton" or model.n_iter_ == iterations


def test_fits_by_gradients_alone_do_not_depend_on_units(monkeypatch: pytest.MonkeyPatch):
    truth = FederatedLogisticRegression(None).fit(X, ILL, sites=SITES).coef_
    monkeypatch.setattr(iteration, "LARGEST", 2)
    for scales in ([1.0, 1.0, 1.0], [1e9, 1e-3, 1.0]):
        model: Any = FederatedLogisticRegression(None, tol=1e-9).fit(X * scales, ILL, sites=SITES)
        assert "gradient" in set(model.history_["phase"])
        np.testing.assert_allclose(model.coef_ * scales, truth, rtol=1e-6)


def test_a_fit_that_stops_too_early_says_its_relative_residual():
    model = FederatedLogisticRegression(None, max_iter=1)
    with pytest.warns(ConvergenceWarning, match=r"at a relative KKT residual of \S+, 1e-10 asked for"):
        model.fit(X * [1e9, 1.0, 1.0], ILL)
    assert f"({model.certificate_.relative_residual:.3g} relative to the sizes of columns)" in str(model.certificate_)
