"""Aggregation: the same whatever the order of the sites, as NumPy and SciPy have it, and one false answer moves it little."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedlocal.flower.checks.aggregation import AGGREGATES, change_norms, median, norm_bounded, trimmed

SENT = {"x": np.array([0.5, -1.0, 2.0])}
ROBUST = {name: combine for name, combine in AGGREGATES.items() if combine is not None}
NUMBERS = st.floats(-100, 100, width=32)
ANSWERS = st.integers(3, 12).flatmap(
    lambda n: st.tuples(arrays(float, (n, 3), elements=NUMBERS), st.permutations(range(n)))
)


def weights_of(n: int) -> np.ndarray:
    return 1.0 + np.arange(n) % 4


@pytest.mark.parametrize("name", ROBUST)
@given(drawn=ANSWERS)
def test_the_order_of_the_sites_does_not_matter(name: str, drawn):
    stack, order = drawn
    weights = weights_of(len(stack))
    found = ROBUST[name]({"x": stack}, weights, SENT)["x"]
    again = ROBUST[name]({"x": stack[list(order)]}, weights[list(order)], SENT)["x"]
    np.testing.assert_allclose(found, again, rtol=1e-12, atol=1e-10)


@given(drawn=ANSWERS)
def test_median_and_trimmed_mean_are_those_of_numpy_and_scipy(drawn):
    stack, n = drawn[0], len(drawn[0])
    np.testing.assert_array_equal(median({"x": stack}, np.ones(n), SENT)["x"], np.median(stack, axis=0))
    cut = max(0.2, 1.0000001 / n)  # a fifth at each end, and at least one
    expected = scipy.stats.trim_mean(stack, cut, axis=0)
    np.testing.assert_allclose(trimmed({"x": stack}, np.ones(n), SENT)["x"], expected, rtol=1e-12, atol=1e-12)


@given(drawn=ANSWERS)
def test_changes_of_one_size_are_averaged_as_they_are(drawn):
    """Where no change is longer than the median, the bounded mean is the weighted mean."""
    changes = drawn[0] - SENT["x"]
    norms = np.linalg.norm(changes, axis=1, keepdims=True)
    stack = SENT["x"] + np.where(norms > 1e-3, changes / np.maximum(norms, 1e-3), np.eye(3)[0])
    weights = weights_of(len(stack))
    found = norm_bounded({"x": stack}, weights, SENT)["x"]
    np.testing.assert_allclose(found, np.average(stack, axis=0, weights=weights), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ROBUST)
@given(honest=arrays(float, (3, 3), elements=NUMBERS), false=arrays(float, 3, elements=st.floats(-1e300, 1e300)))
def test_one_false_answer_of_four_is_bounded(name: str, honest: np.ndarray, false: np.ndarray):
    """By the answers of the others: inside of their range, or no longer a change than the longest of theirs."""
    found = ROBUST[name]({"x": np.vstack([honest, false])}, np.ones(4), SENT)["x"]
    if name == "norm-bounded":
        longest = np.linalg.norm(honest - SENT["x"], axis=1).max()
        assert np.linalg.norm(found - SENT["x"]) <= longest * (1 + 1e-9) + 1e-12
    else:
        assert (found >= honest.min(axis=0) - 1e-9).all()
        assert (found <= honest.max(axis=0) + 1e-9).all()


def test_norms_go_over_all_arrays_and_do_not_overflow():
    states = {"x": np.array([[3.0, 0.0], [3e300, 0.0]]), "y": np.array([[4.0], [4e300]])}
    found = change_norms(states, {"x": np.zeros(2), "y": np.zeros(1)})
    np.testing.assert_allclose(found, [5.0, 5e300], rtol=1e-15)
