"""The bounds of the iterate bias: arithmetic by hand, units, and on both sides of the bias computed by quadrature."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

from fedlocal.theory import Constants
from fedlocal.theory.bias.bounds import iterate_bias_lower_bound, iterate_bias_upper_bound
from fedlocal.theory.bias.quadrature import Uniform, exact_bias
from fedlocal.theory.constructions.lower_bound_instances import log_cosh_instance

PLAIN = Constants(smoothness=2.0, noise=3.0, distance=1.0)


def sizes(low: float = 1e-3, high: float = 1e3) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def test_upper_by_hand():
    # k = 4: 4 eta^2 k^(3/2) L sigma = 4*8*6/64^2, eta k^(1/2) sigma = 6/64
    assert iterate_bias_upper_bound(PLAIN, 1 / 64, 4).terms == pytest.approx({"second_order": 3 / 64})
    # eta = 1/2: 4*8*6/4 against 6/2
    assert iterate_bias_upper_bound(PLAIN, 1 / 2, 4).terms == pytest.approx({"diffusion": 3})
    # eta^3 k^2 Q sigma^2/4 = 16*9 Q/(4*64^3)
    smooth = replace(PLAIN, third_order=64.0)
    bound = iterate_bias_upper_bound(smooth, 1 / 64, 4)
    assert bound.terms == pytest.approx({"third_order": 9 / 1024})
    assert bound.theorem == "thm:fedavg:3o:bias:ub:complete"
    rough = iterate_bias_upper_bound(replace(PLAIN, third_order=640.0), 1 / 64, 4)
    assert rough.terms == pytest.approx({"second_order": 3 / 64})
    assert iterate_bias_upper_bound(replace(PLAIN, third_order=0.0), 1 / 64, 4).value == 0
    assert iterate_bias_upper_bound(PLAIN, 0.5, 4).applies
    assert not iterate_bias_upper_bound(PLAIN, 0.51, 4).applies


def test_lower_by_hand():
    # 0.002 min{eta^2 k^(3/2) L sigma = 8*6/64^2, (eta/L)^(1/2) sigma = 3/sqrt(128)}
    assert iterate_bias_lower_bound(PLAIN, 1 / 64, 4).value == pytest.approx(0.002 * 3 / 256)
    # k = 100 at eta = 1/8: min{1000*6/64, 3/4}
    assert iterate_bias_lower_bound(PLAIN, 1 / 8, 100).value == pytest.approx(0.002 * 3 / 4)
    # 0.005 eta^3 sigma^2 Q min{1/(eta L)^2 = 32^2, k (k - 1) = 12}
    smooth = replace(PLAIN, third_order=1 / 12)
    bound = iterate_bias_lower_bound(smooth, 1 / 64, 4)
    assert bound.terms == pytest.approx({"third_order": 0.005 * 9 / 12 * 12 / 64**3})
    assert bound.applies  # Q = 1/12 = L^2/(16 sigma) = 4/(16*3)
    assert iterate_bias_lower_bound(smooth, 1 / 64, 1000).applies
    assert not iterate_bias_lower_bound(replace(PLAIN, third_order=0.084), 1 / 64, 4).applies
    # k = 100 at eta = 1/8: min{4^2, 9900}
    assert iterate_bias_lower_bound(smooth, 1 / 8, 100).value == pytest.approx(0.005 * 9 / 12 * 16 / 512)
    assert iterate_bias_lower_bound(PLAIN, 1 / 4, 4).applies
    assert not iterate_bias_lower_bound(PLAIN, 0.26, 4).applies
    assert iterate_bias_lower_bound(replace(smooth, noise=0.0), 1 / 64, 4).value == 0


def test_what_is_asked_is_checked():
    for fn in (iterate_bias_upper_bound, iterate_bias_lower_bound):
        with pytest.raises(ValueError, match=f"{fn.__name__}: step_size must be > 0, got 0"):
            fn(PLAIN, 0.0, 4)
        with pytest.raises(ValueError, match=f"{fn.__name__}: steps must be a whole number >= 1, got 0"):
            fn(PLAIN, 0.1, 0)


@settings(max_examples=150, deadline=None)
@given(
    L=sizes(),
    noise=sizes() | st.just(0.0),
    Q=sizes() | st.just(0.0) | st.none(),
    fraction=sizes(1e-4, 0.5),
    steps=st.integers(1, 10_000),
    s=sizes(0.1, 10),
    c=sizes(0.1, 10),
)
def test_units_and_order(L: float, noise: float, Q: float | None, fraction: float, steps: int, s: float, c: float):
    constants = Constants(L, noise=noise, distance=1.0, third_order=Q)
    other = Constants(L * c / s**2, noise * c / s, 1.0, third_order=None if Q is None else Q * c / s**3)
    eta = fraction / L
    lower, upper = (fn(constants, eta, steps) for fn in (iterate_bias_lower_bound, iterate_bias_upper_bound))
    assert iterate_bias_lower_bound(other, eta * s**2 / c, steps).value == pytest.approx(s * lower.value, rel=1e-8)
    assert iterate_bias_upper_bound(other, eta * s**2 / c, steps).value == pytest.approx(s * upper.value, rel=1e-8)
    if lower.applies:
        assert lower.value <= upper.value


def expected_iterate(
    grad: Callable, step_size: float, nodes: np.ndarray, weights: np.ndarray, steps: int, width: float
) -> list[float]:
    """E x^(k) from 0 for k = 1, ..., by u_(k+1)(x) = E u_k(x - eta (F'(x) + noise)), u a spline on a grid."""
    grid = np.linspace(-width, width, 6001)
    u: Any = grid.copy()
    out = []
    for _ in range(steps):
        spline = CubicSpline(grid, u)
        u = sum(w * spline(grid - step_size * (grad(grid) + node)) for w, node in zip(weights, nodes, strict=True))
        out.append(float(u[3000]))
    return out


@pytest.mark.parametrize("step_size", [0.002, 0.02, 0.3])
def test_second_order_bounds_are_on_both_sides_of_the_bias(step_size: float):
    """The instance of the text, F' = L x for x >= 0 and L x/2 for x < 0 with Gaussian noise, from its optimum 0."""
    L, sigma, steps = 2.0, 0.7, 32
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    nodes, weights = sigma * nodes, weights / weights.sum()
    spread = step_size * sigma * math.sqrt(steps)
    means = expected_iterate(
        lambda x: np.where(x >= 0, L * x, L * x / 2), step_size / L, nodes, weights, steps, 20 * spread
    )
    constants = Constants(L, noise=sigma, distance=1.0)
    for k in (2, 4, 8, 16, 32):
        low, high = (fn(constants, step_size / L, k) for fn in (iterate_bias_lower_bound, iterate_bias_upper_bound))
        assert low.applies
        assert high.applies
        assert low.value <= -means[k - 1] <= high.value


@pytest.mark.parametrize("step_size", [0.01, 0.1, 0.5])
def test_third_order_bounds_are_on_both_sides_of_the_bias(step_size: float):
    """F'' = L/2 + (L/2) tanh(2 Q x/L): convex, L-smooth, F''' <= Q, equal at 0; noise uniform on [-sigma, sigma]."""
    L, sigma, K = 1.0, 0.5, 33
    Q = L**2 / (12 * K * sigma)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    nodes, weights = sigma * nodes, weights / weights.sum()
    grad = lambda x: L / 2 * x + L**2 / (4 * Q) * np.log(np.cosh(2 * Q * x / L))  # noqa: E731
    means = expected_iterate(grad, step_size, nodes, weights, K - 1, 4 * step_size * sigma * K)
    constants = Constants(L, noise=sigma, distance=1.0, third_order=Q)
    for k in (2, 4, 8, 16, 32):
        low, high = (fn(constants, step_size, k) for fn in (iterate_bias_lower_bound, iterate_bias_upper_bound))
        assert low.applies
        assert list(high.terms) == ["third_order"]
        assert low.value <= -means[k - 1] <= high.value


@pytest.mark.parametrize("part", [1.0, 0.1])
@pytest.mark.parametrize("step_size", [0.01, 0.05, 0.2, 0.5, 0.8, 0.99])
def test_third_order_lower_bound_holds_for_any_number_of_steps(step_size: float, part: float):
    """The instance of the text with the largest Q allowed and less: the bias stops to grow, as the bound does.

    Between both: eta Q sigma^2 (1 - q^(k-1)) (1 - q^k)/(12 L^2 (2 - eta L)), q = 1 - eta L, the sum of the corrected proof.
    """
    L, sigma = 1.0, 1.0
    Q, steps = part * L**2 / (16 * sigma), [2, 3, 5, 16, 64, 200, 1000, 4000]
    constants, q = Constants(L, noise=sigma, distance=1.0, third_order=Q), 1 - step_size * L
    biases = -exact_bias(log_cosh_instance(L, Q, sigma), 0.0, step_size, steps, Uniform(sigma))
    for k, bias in zip(steps, biases, strict=True):
        low = iterate_bias_lower_bound(constants, step_size, k)
        proven = step_size * Q * sigma**2 * (1 - q ** (k - 1)) * (1 - q**k) / (12 * L**2 * (2 - step_size * L))
        assert low.applies
        assert low.value <= proven <= bias <= 50 * low.value
    assert not iterate_bias_lower_bound(constants, 1.01, 4).applies


@pytest.mark.parametrize("step_size", [0.02, 0.5])
def test_the_printed_third_order_lower_bound_needs_an_instance_of_smaller_curvature(step_size: float):
    """0.005 eta^3 sigma^2 Q (k - 1) min{1/(eta L), k}, for k < K and the largest Q: the instance of the text breaks it.

    With the curvature 4 sqrt(sigma Q), which is at most L, the same construction keeps it.
    """
    L, sigma, steps = 1.0, 1.0, [2, 4, 16, 2000]
    Q = L**2 / (12 * (steps[-1] + 1) * sigma)
    printed = [0.005 * step_size**3 * sigma**2 * Q * (k - 1) * min(1 / (step_size * L), k) for k in steps]
    of_text, flatter = (
        -exact_bias(log_cosh_instance(curvature, Q, sigma), 0.0, step_size, steps, Uniform(sigma))
        for curvature in (L, 4 * math.sqrt(sigma * Q))
    )
    assert np.all(of_text[:3] >= printed[:3])
    assert of_text[3] < printed[3]
    assert np.all(flatter >= printed)


def test_the_third_order_bound_is_attained_but_for_the_variance_and_decay():
    """For eta L k -> 0 the bias is -eta^3 k (k - 1) F''' Var/4 with the variance of the noise: 1/4 cannot be less."""
    L, sigma, k, step_size = 1.0, 0.5, 16, 1e-3
    Q = 0.01
    nodes, weights = np.array([-sigma, sigma]), np.array([0.5, 0.5])
    grad = lambda x: L / 2 * x + L**2 / (4 * Q) * np.log(np.cosh(2 * Q * x / L))  # noqa: E731
    means = expected_iterate(grad, step_size, nodes, weights, k, 4 * step_size * sigma * k)
    bound = iterate_bias_upper_bound(Constants(L, noise=sigma, distance=1.0, third_order=Q), step_size, k).value
    assert -means[-1] == pytest.approx(bound * (k - 1) / k, rel=0.02)
