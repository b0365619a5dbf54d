"""Thresholds and scales of the compiled projections against the proximal maps of the regularisers, in float64."""

from typing import Any

import jax
import numba
import numpy as np
import pytest

from fedlocal.regularizers import L1Ball
from fedlocal.simulation.kernels.networks.projections import l1_threshold, norm_of

LANES = (0,) * 16


@numba.njit
def threshold(lanes: Any, weights: Any, vectors: Any, radius: Any, guess: Any) -> Any:
    return l1_threshold(lanes, (weights, 16), vectors, radius, guess)


@numba.njit
def norm(lanes: Any, weights: Any, vectors: Any) -> Any:
    return norm_of(lanes, (weights, 16), vectors)


def values(kind: str, vectors: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(16 * vectors) / 10
    if kind == "heavy":
        x = x**5
    if kind == "ties":
        x = np.sign(x) * np.where(np.abs(x) > 0.1, 0.25, 0.125)
    if kind == "one":
        x[:] = 0
        x[5] = 3
    return x.astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "heavy", "ties", "one"])
@pytest.mark.parametrize("vectors", [3, 2051])
def test_the_threshold_is_that_of_the_projection(kind: str, vectors: int):
    """From any guess, within 1e-6 of the radius, as `CLOSE` says, and rounding of sums in float32."""
    x = values(kind, vectors)
    inside = np.concatenate([np.full(16, np.nan, np.float32), x, np.full(16, np.nan, np.float32)])
    total = np.abs(x.astype(float)).sum()
    for share in (0.999, 0.5, 0.01):
        radius = share * total
        wanted = np.asarray(L1Ball(radius).array_prox(jax.numpy.asarray(x, float), 1.0))
        for guess in (0.0, 1e-3, 0.1, 10.0):
            level = threshold(LANES, inside, vectors, radius, guess)
            found = np.sign(x) * np.maximum(np.abs(x.astype(float)) - level, 0)
            assert np.abs(found).sum() == pytest.approx(radius, rel=5e-6)
            assert np.abs(found - wanted).max() < 5e-6 * np.abs(wanted).max()
    for guess in (0.0, 0.1, 10.0):
        assert threshold(LANES, inside, vectors, 1.001 * total, guess) == 0


def test_what_is_not_finite_has_no_threshold():
    for odd in (np.nan, np.inf):
        x = np.full(48, odd, np.float32)
        assert threshold(LANES, x, 1, 1.0, 0.0) == 0
        assert threshold(LANES, x, 1, 1.0, 0.5) == 0


@pytest.mark.parametrize("vectors", [1, 3, 4, 7, 8])
def test_the_norm(vectors: int):
    x = values("normal", vectors)
    inside = np.concatenate([np.full(16, np.nan, np.float32), x, np.full(16, np.nan, np.float32)])
    assert norm(LANES, inside, vectors) == pytest.approx(np.linalg.norm(x.astype(float)), rel=1e-6)
