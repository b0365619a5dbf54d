"""The text's constructions satisfy what they claim, and the corrected orders are the ones that hold."""

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import fedlocal as fl
from fedlocal.theory.bounds.bound import Constants, Setting
from fedlocal.theory.bounds.lower import lower_bound_curvature
from fedlocal.theory.constructions.lower_bound_instances import (
    heterogeneous_drift,
    heterogeneous_instance,
    log_cosh_instance,
    lower_bound_instance,
    piecewise_instance,
)

CONSTANTS = Constants(smoothness=3.0, noise=0.7, distance=2.0, heterogeneity=None, optimum_heterogeneity=0.4)
SETTING = Setting(clients=4, rounds=20, local_steps=5)


def points(dimension: int, count: int = 40) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, dimension)) * 3


def test_the_lower_bound_instance_is_convex_and_smooth_and_no_smoother():
    problem = lower_bound_instance(CONSTANTS, SETTING)
    at_points = jax.vmap(jax.hessian(problem.value), (0, None))
    hessians = np.asarray(jax.jit(jax.vmap(at_points, (None, 0)))(points(4), np.arange(4)))
    for m in range(4):
        eigenvalues = np.linalg.eigvalsh(hessians[m])
        assert eigenvalues.min() >= 0
        np.testing.assert_allclose(eigenvalues.max(), CONSTANTS.smoothness, rtol=1e-12, err_msg=f"client {m}")


def test_its_optimum_start_and_heterogeneity():
    problem = lower_bound_instance(CONSTANTS, SETTING)
    gradients = np.asarray(jax.jit(jax.vmap(problem.full_gradient, (None, 0)))(np.zeros(4), np.arange(4)))
    np.testing.assert_allclose(gradients.mean(axis=0), 0, atol=1e-15)  # 0 is the optimum of a convex function
    assert CONSTANTS.optimum_heterogeneity is not None
    np.testing.assert_allclose((gradients**2).sum(axis=1).mean(), CONSTANTS.optimum_heterogeneity**2, rtol=1e-12)
    assert np.linalg.norm(problem.init(jax.random.key(0))) < CONSTANTS.distance
    assert gradients[0, 3] < 0 < gradients[1, 3]  # the text's m = 1 is odd and pulls to the right


def test_its_noise_is_on_the_first_coordinate_and_has_variance_sigma_squared():
    problem = lower_bound_instance(CONSTANTS, SETTING)
    noise = problem.noise
    assert noise is not None
    keys = jax.random.split(jax.random.key(1), 20000)
    draws = np.asarray(jax.jit(jax.vmap(lambda key: noise(key, jnp.zeros(4), 0)))(keys))
    assert not draws[:, 1:].any()
    error = math.sqrt(2 / 20000)  # of a variance of normal numbers, relative
    assert abs(draws[:, 0].var() / CONSTANTS.noise**2 - 1) < 4 * error


def test_it_is_homogeneous_without_heterogeneity_and_needs_even_clients_with_it():
    problem = lower_bound_instance(Constants(3.0, 0.7, 2.0), Setting(clients=3, rounds=4, local_steps=2))
    both = jax.jit(jax.vmap(jax.value_and_grad(problem.value), (None, 0)))
    values, gradients = both(np.array([1.0, 2.0, 3.0, 4.0]), np.arange(2))
    assert values[0] == values[1]
    np.testing.assert_allclose(gradients[0, 3], 3 / 16 * 3.0 * 4.0, rtol=1e-12)  # of 3/32 L x^2, as on average
    with pytest.raises(
        ValueError, match="lower_bound_instance: clients must be even where there is heterogeneity, got 3"
    ):
        lower_bound_instance(CONSTANTS, Setting(clients=3, rounds=4, local_steps=2))


def test_its_flattest_coordinate_has_the_curvature_of_the_lower_bound():
    problem = lower_bound_instance(CONSTANTS, SETTING)
    curvatures = np.diag(jax.jit(jax.hessian(problem.value))(np.ones(4), 0))
    np.testing.assert_allclose(curvatures[1], lower_bound_curvature(CONSTANTS, SETTING), rtol=1e-12)


def test_the_piecewise_instance_has_two_curvatures():
    problem = piecewise_instance(smoothness=2.0, noise=0.3)
    curvature = jax.jit(jax.grad(jax.grad(lambda x: problem.value(x, 0))))
    assert (float(curvature(1.0)), float(curvature(-1.0))) == (2.0, 1.0)


@cache
def log_cosh_values() -> Any:
    return jax.jit(log_cosh_instance(2.0, 0.75, noise=1.0).value)


@pytest.mark.parametrize("x", [1e-5, 0.01, 0.3, 0.9, 1.1, 3.0, 40.0, -0.2, -5.0])
def test_the_log_cosh_instance_is_its_integral(x: float):
    smooth, third = 2.0, 0.75
    with mpmath.workdps(40):
        integral: Any = mpmath.quad(lambda t: mpmath.log(mpmath.cosh(t)), mpmath.linspace(0, 4 * third / smooth * x, 9))
        wanted = float(smooth**3 / (64 * third**2) * integral)
    value = float(log_cosh_values()(x, 0))
    np.testing.assert_allclose(value - 3 / 8 * smooth * x**2, wanted, rtol=1e-9, atol=1e-15 * value)


def test_the_log_cosh_instance_has_the_derivatives_of_the_lemma():
    smooth, third = 2.0, 0.75
    problem = log_cosh_instance(smooth, third, noise=1.0)

    def derivatives(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        gradient = lambda x: problem.full_gradient(x, 0)  # noqa: E731
        return jax.grad(lambda x: problem.value(x, 0))(x), gradient(x), jax.grad(gradient)(x)

    x = np.linspace(-6.0, 6.0, 201) + 0.003
    automatic, first, second = (np.asarray(a) for a in jax.jit(jax.vmap(derivatives))(x))
    np.testing.assert_allclose(first, automatic, rtol=1e-9)
    np.testing.assert_allclose(second, smooth * (3 + np.tanh(4 * third / smooth * x)) / 4, rtol=1e-9)
    slopes = np.diff(second) / np.diff(x)
    assert slopes.min() >= 0
    assert 0.99 * third < slopes.max() <= third


def test_the_noise_of_the_log_cosh_instance_is_uniform_on_the_gradient():
    problem = log_cosh_instance(1.0, 1.0, noise=0.5)
    noise = problem.noise
    assert noise is not None
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = np.asarray(jax.jit(jax.vmap(lambda key: noise(key, jnp.zeros(()), 0)))(keys))
    assert 0.49 < np.abs(draws).max() <= 0.5
    assert abs(draws.var() - 0.25 / 3) < 4 * 0.25 * math.sqrt((1 / 5 - 1 / 9) / 4000)


@pytest.mark.parametrize(("step_size", "local_steps", "rounds"), [(0.3, 4, 7), (0.01, 3, 1), (0.9, 6, 3)])
def test_the_drift_is_that_of_fed_avg(step_size: float, local_steps: int, rounds: int):
    problem = heterogeneous_instance(2.0, 0.7, clients=4)
    result = fl.simulate(problem, fl.methods.FedAvg(step_size), rounds=rounds, local_steps=local_steps, progress=False)
    drift = heterogeneous_drift(2.0, 0.7, step_size, Setting(4, rounds, local_steps))
    np.testing.assert_allclose(result.x, drift, rtol=1e-9)
    assert drift < 0


def orders() -> np.ndarray:
    """F^(4) after R rounds, over zeta^2 / L, with eta L K and R, for all step sizes up to 2 / L."""
    rows = []
    for local_steps in (2, 8, 64, 1024):
        for rounds in (1, 1000, 10**6):
            for step_size in np.geomspace(1e-7, 2.0, 25):
                x = heterogeneous_drift(1.0, 1.0, step_size, Setting(2, rounds, local_steps))
                rows.append((3 / 32 * x**2, step_size * local_steps, rounds))
    return np.array(rows).T


def test_the_middle_term_of_the_fourth_lemma_is_a_square():
    value, eta, rounds = orders()
    right = value / np.minimum(1, np.minimum(eta**2, eta**4 * rounds**2))
    text = value / np.minimum(1, np.minimum(eta, eta**4 * rounds**2))
    assert right.min() > 3 / 32 * (1 / 16000) ** 2  # c_4 of the proof
    assert right.max() / right.min() < 1e5  # so the order is exact, up to constants
    assert text.min() < 1e-2 * right.min()  # with eta L K in the middle there is no such constant


def test_the_prefactor_of_case_3_2_is_zeta_squared_over_smoothness():
    setting = Setting(2, 50, 8)
    ratios = [
        3 / 32 * smooth * heterogeneous_drift(smooth, zeta, 0.5 / smooth, setting) ** 2 / (zeta**2 / smooth)
        for smooth, zeta in ((1.0, 1.0), (10.0, 0.3), (0.2, 5.0))
    ]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-12)  # the text's L / zeta^2 would differ by 1e4


def test_case_five_of_the_claim_about_b_has_exponents_over_four():
    steps, eta = 1000, 2.01 / 1000
    b = heterogeneous_drift(1.0, 1.0, eta, Setting(2, 1, steps))
    x = eta * steps
    assert b <= (-1 - math.exp(-1.16 * x / 4) + 2 * math.exp(-0.5 * x / 4)) / 2
    assert b > (-1 - math.exp(-1.16 * x) + 2 * math.exp(-0.5 * x)) / 2  # the text's
    assert b <= -1 / 1000
