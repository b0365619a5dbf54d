"""The best intercept: the zero of a slope, also where Newton's method alone would leave."""

import numpy as np
import pytest
from scipy.special import expit

from fedlocal.solvers.intercept import SMALLEST, InterceptSlope, best_intercept


def logistic(scores, signs):
    """Slope of the mean logistic loss, and how often it is asked for."""
    calls = []

    def slope_fn(t):
        calls.append(t)
        s = scores + t
        u, h = -signs * expit(-signs * s), expit(s) * expit(-s)
        return InterceptSlope(u.mean(), h.mean(), (np.abs(u) + np.abs(s) * h).mean())

    return slope_fn, calls


@pytest.mark.parametrize("size", [1.0, 30.0, 1e3])
def test_slopes_are_zero_at_the_best_intercept(size):
    rng = np.random.default_rng(0)
    slope_fn, calls = logistic(size * rng.normal(size=100), np.where(rng.random(100) < 0.2, -1.0, 1.0))
    found = slope_fn(best_intercept(slope_fn, 0.0))
    assert abs(found.slope) <= max(1e-14 * found.size, SMALLEST)
    assert len(calls) < 100


def test_a_few_newton_steps_are_enough_for_usual_scores():
    slope_fn, calls = logistic(np.linspace(-1, 1, 50), np.where(np.arange(50) < 40, 1.0, -1.0))
    best_intercept(slope_fn, 0.0)
    assert len(calls) <= 8


def test_labels_of_one_kind_go_so_far_that_the_slope_is_rounding():
    slope_fn, _ = logistic(np.zeros(5), np.ones(5))
    found = slope_fn(best_intercept(slope_fn, 0.0))
    assert abs(found.slope) <= SMALLEST


@pytest.mark.parametrize("unit", [1e-130, 1.0, 1e130])
def test_squares_in_any_unit_take_one_step(unit):
    targets, calls = unit * np.array([1.0, 2.0, 6.0]), []

    def slope_fn(t):
        calls.append(t)
        return InterceptSlope(np.mean(t - targets), 1.0, np.mean(np.abs(t - targets)) + abs(t))

    assert best_intercept(slope_fn, 0.0) == pytest.approx(3 * unit, rel=1e-14)
    assert len(calls) <= 3


def test_a_start_far_away_on_the_flat_side():
    slope_fn, _ = logistic(np.zeros(4), np.array([1.0, 1.0, 1.0, -1.0]))
    assert best_intercept(slope_fn, -700.0) == pytest.approx(np.log(3), rel=1e-12)
    assert best_intercept(slope_fn, 700.0) == pytest.approx(np.log(3), rel=1e-12)


def test_a_slope_that_is_no_number_ends_the_search():
    assert best_intercept(lambda t: InterceptSlope(np.nan, 1.0, 1.0), 2.0) == 2.0
