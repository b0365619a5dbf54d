"""The projection without sorting is the projection: thresholds, feasibility, and points that need none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.regularizers import L1Ball

project = jax.jit(lambda x, radius: L1Ball(radius).array_prox(x, 1.0))
NUMBERS = st.floats(-1e3, 1e3, allow_nan=False, width=32)


def projected(x: np.ndarray, radius: float) -> np.ndarray:
    """By bisection on the threshold, in plain NumPy."""
    size = np.abs(x)
    if size.sum() <= radius:
        return x
    low, high = 0.0, size.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(size - middle, 0).sum() > radius else (low, middle)
    return np.sign(x) * np.maximum(size - (low + high) / 2, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=12, max_size=12), st.floats(0.01, 100))
def test_it_is_the_nearest_point_of_the_ball(numbers: list[float], radius: float):
    x = np.array(numbers).reshape(4, 3)
    found = project(jnp.asarray(x), radius)
    np.testing.assert_allclose(found, projected(x, radius), rtol=1e-9, atol=1e-9 * max(1, np.abs(x).max()))


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_many_numbers_in_float32_keep_their_digits(shift: float):
    """Numbers near a million are known to 0.06; what is left of them above the threshold must be exact all the same."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(7840) + shift).astype(np.float32)
    found = np.asarray(project(jnp.asarray(x), 10.0))
    assert found.dtype == np.float32
    assert np.abs(found).sum() == pytest.approx(10, rel=1e-5)
    np.testing.assert_allclose(found, projected(x.astype(np.float64), 10.0), atol=1e-5)


def test_side_by_side_each_point_gets_its_own_threshold():
    rng = np.random.default_rng(1)
    points = rng.standard_normal((5, 6, 7)) * np.array([0.001, 1, 10, 100, 0.1])[:, None, None]
    found = jax.vmap(project, (0, None))(points, 2.0)
    for one, point in zip(np.asarray(found), points, strict=True):
        np.testing.assert_allclose(one, projected(point, 2.0), atol=1e-12)
    assert np.array_equal(found[0], points[0])  # inside, to the bit


def test_equal_numbers_and_infinite_ones():
    assert project(jnp.array([3.0, -3.0]), 1.0).tolist() == [0.5, -0.5]
    assert project(jnp.zeros(3), 1.0).tolist() == [0, 0, 0]
    assert not jnp.isfinite(project(jnp.array([jnp.inf, 1.0]), 1.0)).all()  # divergence stays visible
    assert not jnp.isfinite(project(jnp.array([jnp.nan, 1.0]), 1.0)).all()
