"""Moments of several sites are those of their rows together; what is missing, constant, rare or sparse is handled as said."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

import fedlocal as fl
from fedlocal.data.moments import Moments, Scaling

over = pytest.mark.parametrize
EPS = np.finfo(np.float64).eps
VALUES = st.floats(-1e3, 1e3, width=32) | st.just(np.nan)


@st.composite
def sites(draw: st.DrawFn) -> list[np.ndarray]:
    """One to four sites of unequal size with the same one to three columns, at any offset."""
    columns = draw(st.integers(1, 3))
    offset = draw(st.sampled_from([0.0, 0.1, 1e8]))
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    return [draw(arrays(np.float64, (rows, columns), elements=VALUES)) + offset for rows in sizes]


def merged(parts: list[np.ndarray], at_least: int = 1) -> Moments:
    return Moments.merged([Moments.of(part, at_least) for part in parts])


def same(a: Moments, b: Moments, rows: np.ndarray) -> None:
    """Means and deviations equal to a few units in the last place of the largest value, which is what a mean is known to.

    A site's mean that is wrong by u changes the deviation over all sites by at most u (triangle inequality).
    """
    rounding = 16 * EPS * np.max(np.abs(rows), axis=0, initial=0, where=~np.isnan(rows))
    np.testing.assert_array_equal(a.present, b.present)
    assert (np.abs(a.mean - b.mean) <= rounding).all()
    assert (np.abs(deviation(a) - deviation(b)) <= rounding).all()


def deviation(moments: Moments) -> np.ndarray:
    return np.sqrt(moments.squares / np.maximum(moments.present, 1))


def pooled(parts: list[np.ndarray]) -> Moments:
    """Column by column, in extended precision."""
    columns = [column[~np.isnan(column)] for column in np.concatenate(parts).astype(np.longdouble).T]
    means = [column.mean() if len(column) else np.longdouble(0) for column in columns]
    squares = [np.sum((column - mean) ** 2) for column, mean in zip(columns, means, strict=True)]
    return Moments(np.array([len(c) for c in columns], float), np.array(means, float), np.array(squares, float))


@given(sites())
@example([np.full((3, 1), 0.1), np.full((7, 1), 0.1)])
@example([np.full((2, 2), np.nan), np.array([[1.0, np.nan]])])
@settings(deadline=None)
def test_merged_moments_are_those_of_all_rows_in_any_order(parts: list[np.ndarray]):
    same(merged(parts), pooled(parts), np.concatenate(parts))
    same(merged(parts[::-1]), pooled(parts), np.concatenate(parts))


@given(sites())
@settings(deadline=None)
def test_scaling_is_scikit_learns_on_all_rows(parts: list[np.ndarray]):
    scaling, rows = merged(parts).scaling(), np.concatenate(parts)
    owned = ~np.isnan(rows).all(axis=0)
    assert np.isnan(scaling.mean[~owned]).all()
    assert (scaling.scale[~owned] == 1).all()
    assert (scaling.apply(rows)[:, ~owned] == 0).all()
    if owned.any():
        scaler = StandardScaler().fit(rows[:, owned])
        size = np.nanmax(np.abs(rows[:, owned]), axis=0)
        scale, theirs = scaling.scale[owned], np.asarray(scaler.scale_)
        clear = np.asarray(scaler.var_) > (1e4 * EPS * size) ** 2  # not constant, nor nearly
        clear |= (rows[:, owned] == rows[:1, owned]).all(axis=0)  # or exactly constant
        assert (np.abs(scale - theirs) <= 16 * EPS * size)[clear].all()
        apart = scale * (scaling.apply(rows)[:, owned] - np.nan_to_num(scaler.transform(rows[:, owned])))
        assert (np.abs(apart) <= 64 * EPS * size * (1 + size / scale))[:, clear].all()


def test_partial_fit_of_scikit_learn_agrees_site_by_site():
    rng = np.random.default_rng(0)
    parts = [rng.normal(3 * m, 1 + m, (20 * (m + 1), 4)) for m in range(4)]
    for part in parts:
        part[rng.random(part.shape) < 0.3] = np.nan
    moments, scaler = merged(parts), StandardScaler()
    for part in parts:
        scaler.partial_fit(part)
    np.testing.assert_array_equal(moments.present, scaler.n_samples_seen_)
    np.testing.assert_allclose(moments.mean, np.asarray(scaler.mean_), rtol=1e-12)
    np.testing.assert_allclose(moments.squares / moments.present, np.asarray(scaler.var_), rtol=1e-12)


def test_variance_survives_a_large_offset():
    """Values 1e8 +- 1 have variance exactly 1; the difference of raw sums of squares near 1e21 keeps no digit of it."""
    parts = [1e8 + np.resize([-1.0, 1.0], (rows, 1)) for rows in (10, 1000, 98)]
    moments = merged(parts)
    assert moments.mean.tolist() == [1e8]
    assert moments.squares.tolist() == [1108.0]
    assert set(moments.scaling().apply(parts[0]).ravel().tolist()) == {-1.0, 1.0}


@over("value", [0.0, 0.1, -1 / 3, 1e8 + 0.1])
@over("sparse", [False, True])
def test_constant_columns_are_not_blown_up(value: float, sparse: bool):
    sizes = (5, 7, 1000, 33)
    kind = scipy.sparse.csr_array if sparse else np.asarray
    parts = [kind(np.full((rows, 1), value)) for rows in sizes]
    moments = Moments.merged([Moments.of(part) for part in parts])
    scaling = moments.scaling()
    assert scaling.scale.tolist() == [1.0]
    assert abs(scaling.apply(np.full((1, 1), value)).item()) <= 1e-15 * (1 + abs(value))


@over("kind", [np.asarray, scipy.sparse.csr_array])
def test_rounding_does_not_grow_with_the_number_of_rows(kind: Any):
    """Summed one after the other, 0.1 a hundred thousand times is wrong by 2e-12 of it, 10,000 units in the last place."""
    moments = Moments.of(kind(np.full((100_000, 2), 0.1)))
    assert moments.mean.tolist() == [0.1, 0.1]
    assert moments.squares.tolist() == [0, 0]


def test_a_column_that_differs_in_its_last_digit_only_is_constant():
    scaling = merged([np.full((5, 1), 0.3), np.full((5, 1), 0.1 + 0.2)]).scaling()
    assert 0.1 + 0.2 != 0.3
    assert scaling.scale.tolist() == [1.0]


def test_missing_values_become_the_mean():
    here, there = np.array([[1.0, np.nan], [3.0, np.nan]]), np.array([[np.nan, 4.0], [8.0, 6.0]])
    moments = merged([here, there])
    assert moments.present.tolist() == [3, 2]
    assert moments.mean.tolist() == [4.0, 5.0]
    assert moments.squares.tolist() == [26.0, 2.0]  # 9 + 1 + 16, 1 + 1
    standard = moments.scaling().apply(here)
    np.testing.assert_allclose(standard, [[-3 / np.sqrt(26 / 3), 0], [-1 / np.sqrt(26 / 3), 0]], rtol=1e-15)


def test_sparse_moments_are_the_dense_ones_and_only_the_scale_is_applied():
    rng = np.random.default_rng(1)
    parts = [scipy.sparse.random_array((rows, 6), density=0.4, rng=rng, format="csr") for rows in (5, 12, 40)]
    rows = np.concatenate([part.toarray() for part in parts])
    same(Moments.merged([Moments.of(part) for part in parts]), pooled([rows]), rows)
    scaling = Moments.merged([Moments.of(part) for part in parts]).scaling()
    scaled = scaling.apply(parts[1])
    assert scipy.sparse.issparse(scaled)
    assert scaled.nnz == parts[1].nnz
    np.testing.assert_allclose(scaled.toarray(), parts[1].toarray() / scaling.scale, rtol=1e-15)
    same(Moments.of(parts[1].tocsc()), Moments.of(parts[1]), rows)


def test_an_entry_that_is_there_twice_is_summed_and_the_matrix_left_alone():
    twice = scipy.sparse.csr_array((np.array([1.0, 2.0, 5.0]), [0, 0, 0], [0, 2, 3, 3]), shape=(3, 1))
    moments = Moments.of(twice, at_least=1)
    assert moments.mean.item() == pytest.approx(8 / 3, rel=1e-15)
    assert moments.squares.item() == pytest.approx(9 + 25 - 64 / 3, rel=1e-14)
    assert twice.nnz == 3


@over("outputs", [(), (3,)])
@over("sparse", [False, True])
def test_unscaled_models_say_the_same_about_the_features_themselves(outputs: tuple[int, ...], sparse: bool):
    rng = np.random.default_rng(2)
    X = rng.normal(5, 2, (30, 4)) * (rng.random((30, 4)) < 0.7)
    kind = scipy.sparse.csr_array if sparse else np.asarray
    scaling = Moments.of(kind(X)).scaling()
    weights, intercept = rng.normal(size=(4, *outputs)), rng.normal(size=outputs)
    plain_weights, plain_intercept = scaling.unscale(weights, intercept, centred=not sparse)
    np.testing.assert_allclose(
        X @ plain_weights + plain_intercept, scaling.apply(kind(X)) @ weights + intercept, rtol=1e-12, atol=1e-12
    )


def test_least_squares_on_standardised_columns_finds_the_true_coefficients():
    rng = np.random.default_rng(3)
    X = rng.normal([50, 130, 250], [9, 19, 60], (100, 3))
    scaling = merged([X[:10], X[10:35], X[35:]]).scaling()
    fitted = LinearRegression().fit(scaling.apply(X), X @ [1.0, -2.0, 0.5] + 7)
    weights, intercept = scaling.unscale(fitted.coef_, fitted.intercept_)
    np.testing.assert_allclose(weights, [1.0, -2.0, 0.5], rtol=1e-10)
    assert intercept == pytest.approx(7, rel=1e-8)


def test_a_site_with_few_rows_is_refused():
    with pytest.raises(ValueError, match=r"^Moments.of: features must have at least 5 rows, .*got 4; leave out"):
        Moments.of(np.ones((4, 2)))
    assert Moments.of(np.ones((5, 2))).present.tolist() == [5, 5]


def test_a_column_with_few_values_is_as_if_nobody_had_any():
    X = np.arange(12.0).reshape(6, 2)
    X[:2, 1] = np.nan
    moments = Moments.of(X)
    assert moments.present.tolist() == [6, 0]
    assert (moments.mean[1], moments.squares[1]) == (0, 0)
    scaling = moments.scaling()
    assert (scaling.apply(X)[:, 1] == 0).all()  # not the raw values
    weights, intercept = scaling.unscale([1.0, 5.0], 0.5)
    assert weights[1] == 0
    assert np.isfinite(intercept)
    assert Moments.of(X, at_least=4).present.tolist() == [6, 4]


def test_what_leaves_a_site_is_three_float64_per_column():
    moments = Moments.of(np.ones((9, 4), np.float32))
    assert [(field.shape, field.dtype) for field in moments] == [((4,), np.float64)] * 3


def test_standardised_sites_go_into_a_federation():
    rng = np.random.default_rng(4)
    parts = [np.where(rng.random((rows, 3)) < 0.2, np.nan, rng.normal(size=(rows, 3))) for rows in (8, 20)]
    scaling = merged(parts, at_least=5).scaling()
    data = fl.FederatedData.from_clients([(scaling.apply(part), np.ones(len(part))) for part in parts])
    assert data.client_sizes.tolist() == [8, 20]


@over(
    ("wrong", "sentence"),
    [
        (lambda: Moments.merged([]), "^Moments.merged: at least one site is needed, got none$"),
        (
            lambda: Moments.merged([Moments.of(np.ones((5, 2))), Moments.of(np.ones((5, 3)))]),
            "^Moments.merge: all sites must have the same columns, got 2 and 3 of them$",
        ),
        (
            lambda: Moments.of(np.ones(5)),
            r"^Moments.of: features must have two axes, rows and columns, got shape \(5,\)$",
        ),
        (lambda: Moments.of(np.full((5, 1), np.inf)), "^Moments.of: features must be finite, .*got inf$"),
        (
            lambda: Moments.of(scipy.sparse.csr_array(np.full((5, 1), np.nan))),
            "^Moments.of: sparse features must be finite; what is not stored is 0",
        ),
        (lambda: Moments.of(np.ones((5, 1)), at_least=0), "^Moments.of: at_least must be a whole number >= 1, got 0$"),
        (
            lambda: Scaling(np.zeros(2), np.ones(2)).apply(np.ones((5, 3))),
            "^Scaling.apply: features must have 2 columns, got 3$",
        ),
        (
            lambda: Scaling(np.zeros(2), np.ones(2)).unscale(np.ones(3), 0.0),
            r"^Scaling.unscale: weights must have 2 rows, got shape \(3,\)$",
        ),
    ],
)
def test_wrong_input_is_told(wrong: Callable[[], Any], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        wrong()


@over("kind", [np.asarray, scipy.sparse.csr_array])
@given(exponent=st.integers(-300, 300), seed=st.integers(0, 100))
@settings(deadline=None)
def test_deviations_in_any_unit_are_right_or_refused(kind: Any, exponent: int, seed: int):
    rows = np.random.default_rng(seed).normal(0.5, 1.0, (12, 2))
    parts = [kind(part * [1.0, 10.0**exponent]) for part in (rows[:5], rows[5:])]
    said = ""
    try:
        scaling = Moments.merged([Moments.of(part) for part in parts]).scaling()
    except ValueError as refusal:
        said = str(refusal)
        scaling = None
    if scaling is None:
        assert f"column 1 (counted from 0) has values so {'large' if exponent > 0 else 'small'} that float64" in said
        assert not -149 <= exponent <= 152
    else:
        np.testing.assert_allclose(scaling.scale / [1.0, 10.0**exponent], rows.std(axis=0), rtol=1e-12)


@over("size", [1e-200, 1e200])
def test_sites_that_differ_only_from_each_other_are_refused_in_an_extreme_unit(size: float):
    """Each site has a constant column; the square of their difference is not a number of float64."""
    parts = [np.full((5, 1), size), np.full((5, 1), 3 * size)]
    with pytest.raises(ValueError, match=r"column 0 \(counted from 0\) has values so (small|large) that float64"):
        merged(parts).scaling()
    assert merged(parts[:1]).scaling().scale.tolist() == [1.0]


def test_values_around_zero_in_an_extreme_unit_are_not_constant():
    with pytest.raises(ValueError, match=r"Moments.scaling: column 0 .* so small"):
        merged([np.array([[1e-200], [-1e-200]])]).scaling()
    nobody = Moments.of(np.full((5, 1), np.nan))
    assert nobody.merge(Moments.of(np.full((5, 1), 1e200))).mean.tolist() == [1e200]


@over("kind", ["dense", "missing", "sparse"])
def test_a_weight_of_two_is_a_row_that_is_there_twice(kind: str):
    rng = np.random.default_rng(0)
    times, features = rng.integers(1, 4, 30), rng.normal(2.0, 1.0, size=(30, 4))
    features[rng.random((30, 4)) < 0.3] = np.nan if kind == "missing" else 0.0
    repeated = np.repeat(features, times, axis=0)
    make = scipy.sparse.csr_array if kind == "sparse" else np.asarray
    found, wanted = Moments.of(make(features), weights=times), Moments.of(make(repeated))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    halves = [Moments.of(make(features[some]), weights=0.01 * times[some]) for some in (slice(0, 12), slice(12, 30))]
    for a, b in zip(Moments.merged(halves).scaling(), wanted.scaling(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_few_values_are_not_hidden_by_large_weights():
    rare = np.where(np.arange(10)[:, None] < [10, 3], 1.0, np.nan)
    assert Moments.of(rare, at_least=5, weights=np.full(10, 100.0)).present.tolist() == [1000.0, 0.0]


@over("weights", [[1.0, 0.0], [1.0, np.nan], [1.0]])
def test_bad_weights_are_refused(weights: list[float]):
    with pytest.raises(ValueError, match=r"^Moments.of: weights must be 2 numbers above zero, got"):
        Moments.of(np.zeros((2, 1)), at_least=1, weights=weights)
