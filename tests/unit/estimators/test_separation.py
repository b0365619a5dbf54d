"""Separable classes have no finite optimum without a penalty: a fit says so where a linear program does, and nowhere else."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

import fedlocal as fl
from fedlocal.estimators import FederatedLogisticRegression

over = pytest.mark.parametrize
SENTENCE = "the classes are separable by a direction of the weights, so without a penalty no finite weights are optimal"
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 4))
MIXED = (X @ [1.0, -1.0, 0.5, 0.0] + rng.logistic(size=90) > 0).astype(int)
FEW = rng.random(90) < 0.15  # have a sign that only ill people have
THREE = np.argmax(X[:, :1] * [1.0, 0.0, -1.0] + rng.gumbel(size=(90, 3)), axis=1)
MIX = np.linalg.qr(rng.normal(size=(5, 5)))[0]
WITH_SIGN = np.column_stack([X, FEW])

SEPARABLE: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "one column": (X[:, :1], X[:, 0] > 0.2),
    "one column among others": (X, X[:, 0] > 0.2),
    "a direction": (X, X @ [1.0, 2.0, -1.0, 0.5] > 0.3),
    "a sign that only one class has": (WITH_SIGN, np.where(FEW, 1, MIXED)),
    "such a sign in other columns": (WITH_SIGN @ MIX, np.where(FEW, 1, MIXED)),
    "more columns than examples": (rng.normal(size=(20, 30)), np.arange(20) % 2),
    "three classes": (X, np.digitize(X[:, 0], [-0.5, 0.5])),
    "one of three classes": (WITH_SIGN, np.where(FEW, 2, MIXED)),
}
MIXTURES: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "two classes": (X, MIXED),
    "two classes, nearly told apart": (X, X @ [1.0, -1.0, 0.5, 0.0] + 0.1 * rng.logistic(size=90) > 0),
    "columns with large values": (np.exp(3 * X), MIXED),
    "three classes": (X, THREE),
    "a sign that one class has nearly alone": (WITH_SIGN, np.where(FEW, np.arange(90) != np.argmax(FEW), MIXED)),
    "a constant column": (np.column_stack([X, np.ones(90)]), MIXED),
}


def separable(X: np.ndarray, y: np.ndarray, intercept: bool) -> bool:
    """Some direction lowers no margin and raises some: the largest sum of margins, none below zero, is not zero."""
    Z = np.column_stack([X, np.ones(len(X))]) if intercept else X
    _, labels = np.unique(y, return_inverse=True)
    classes, margins = labels.max() + 1, []
    for row, own in zip(Z, labels, strict=True):
        for other in set(range(classes)) - {own}:
            margin = np.zeros((classes, Z.shape[1]))
            margin[own], margin[other] = row, -row
            margins.append(margin.ravel() / np.abs(row).max())
    A = np.array(margins)
    return -linprog(-A.sum(axis=0), A_ub=-A, b_ub=np.zeros(len(A)), bounds=(-1, 1)).fun > 1e-6


def warned(model: Any, X: Any, y: np.ndarray) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sites=np.arange(len(y)) % 3)
    assert np.isfinite(model.coef_).all()
    return any(SENTENCE in str(w.message) and issubclass(w.category, ConvergenceWarning) for w in caught)


@over(
    ("kind", "options"),
    [
        pytest.param(np.asarray, {}, id="dense-plain"),
        pytest.param(np.asarray, {"fit_intercept": False}, id="dense-no intercept"),
        pytest.param(np.asarray, {"standardize": True}, id="dense-standardised"),
        pytest.param(sp.csr_array, {}, id="sparse-plain"),
        pytest.param(sp.csr_array, {"fit_intercept": False}, id="sparse-no intercept", marks=pytest.mark.thorough),
        pytest.param(sp.csr_array, {"standardize": True}, id="sparse-standardised"),
    ],
)
@over("name", [*SEPARABLE, *(f"mixture: {name}" for name in MIXTURES)])
def test_the_warning_comes_where_a_linear_program_says_so(name: str, kind: Any, options: dict[str, Any]):
    X, y = SEPARABLE[name] if name in SEPARABLE else MIXTURES[name.removeprefix("mixture: ")]
    truth = separable(X, y, options.get("fit_intercept", True))
    if "fit_intercept" not in options:
        assert truth == (name in SEPARABLE)
    assert warned(FederatedLogisticRegression(None, **options), kind(X), y) == truth


@over("name", SEPARABLE)
@over("penalty", ["l2", "l1", fl.regularizers.Box(-5.0, 5.0)])
def test_with_a_penalty_or_bounds_there_is_an_optimum(name: str, penalty: Any):
    for C in (1.0, 1e4):
        assert not warned(FederatedLogisticRegression(penalty, C=C), *SEPARABLE[name])


def test_a_cone_of_weights_has_no_optimum_where_it_separates():
    y = X[:, 0] > 0.2
    assert warned(FederatedLogisticRegression(fl.regularizers.NonNegative()), X[:, :2], y)
    assert not warned(FederatedLogisticRegression(fl.regularizers.NonNegative()), X[:, :2], ~y)


def test_the_warning_points_to_the_line_of_the_fit_and_comes_alone():
    with pytest.warns(ConvergenceWarning, match=SENTENCE) as caught:
        FederatedLogisticRegression(None, max_iter=5, tol=1e-3).fit(X, X[:, 0] > 0.2)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_few_random_examples():
    """Six examples in two columns, three of each class: often separable, often not."""
    truths = []
    for seed in range(25):
        draw = np.random.default_rng(seed)
        few, y = draw.normal(size=(6, 2)), np.arange(6) % 2
        truths.append(separable(few, y, intercept=True))
        assert warned(FederatedLogisticRegression(None), few, y) == truths[-1]
    assert 3 < sum(truths) < 22
