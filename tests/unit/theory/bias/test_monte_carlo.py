"""The iterate bias: sampled, exact, in continuous time and in formulas, against closed forms and against each other."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import fedlocal as fl
from fedlocal.problems.oracle import Oracle, piecewise_quadratic
from fedlocal.theory.bias import monte_carlo
from fedlocal.theory.bias.expansion import small_noise_bias, small_step_bias
from fedlocal.theory.bias.monte_carlo import monte_carlo_bias
from fedlocal.theory.bias.quadrature import Gaussian, Uniform, exact_bias, exact_law
from fedlocal.theory.bias.sde import backward_bias, sde_bias
from fedlocal.theory.constructions.lower_bound_instances import log_cosh_instance, piecewise_instance

PIECEWISE = piecewise_quadratic()  # F' = 2 x on the right, 0.2 x on the left; noise of std 0.1
QUADRATIC = Oracle(lambda x, m: 0.7 * (x - 1.0) ** 2, noise=lambda key, x, m: 0.3 * jax.random.normal(key))


def test_a_quadratic_has_no_bias():
    """E x^(k) = z^(k) when the gradient is linear."""
    for noise in (Gaussian(0.3), Uniform(0.3)):
        np.testing.assert_allclose(exact_bias(QUADRATIC, 0.2, 0.1, [1, 5, 40], noise), 0, atol=2e-14)
    found = monte_carlo_bias(QUADRATIC, 0.2, 0.1, [1, 5, 40], 4000)
    assert (np.abs(found.bias) < 4 * found.standard_error).all()
    np.testing.assert_allclose(backward_bias(QUADRATIC, 0.2, 0.1, [1, 5, 40], 0.09), 0, atol=1e-12)
    np.testing.assert_allclose(small_noise_bias(QUADRATIC, 0.2, 0.1, [40], 0.09), 0, atol=1e-15)


def test_the_law_on_a_quadratic_is_normal_with_the_variance_of_the_recurrence():
    a, eta, std, k = 1 - 0.1 * 1.4, 0.1, 0.3, 20
    law = exact_law(QUADRATIC, 0.2, eta, [k], Gaussian(std))
    variance = (eta * std) ** 2 * (1 - a ** (2 * k)) / (1 - a**2)
    np.testing.assert_allclose(
        law.density[0], norm.pdf(law.points, law.descent[0], variance**0.5), atol=1e-12 * law.density.max()
    )


@pytest.mark.parametrize("x0", [0.0, 0.0004, -0.0007])
def test_two_steps_on_the_piecewise_quadratic_are_half_normal_moments(x0: float):
    """x^(1) is normal, and E F'(x^(1)) needs E max(x, 0) alone."""
    eta, std = 0.01, 0.1
    z1, s = x0 - eta * (2 if x0 > 0 else 0.2) * x0, eta * std
    positive = z1 * norm.cdf(z1 / s) + s * norm.pdf(z1 / s)
    mean_slope = 2 * positive + 0.2 * (z1 - positive)
    expected = -eta * (mean_slope - (2 if z1 > 0 else 0.2) * z1)
    bias = exact_bias(PIECEWISE, x0, eta, [1, 2], Gaussian(std), kinks=[0.0])
    assert abs(bias[0]) < 1e-17
    assert bias[1] == pytest.approx(expected, rel=1e-9)


def test_finer_panels_change_nothing_once_the_kink_is_named(monkeypatch: pytest.MonkeyPatch):
    def bias(kinks: list[float]) -> float:
        return exact_bias(PIECEWISE, 0.0004, 0.01, [64], Gaussian(0.1), kinks=kinks)[0]

    coarse, unnamed = bias([0.0]), bias([])
    monkeypatch.setattr(sys.modules["fedlocal.theory.bias.quadrature"], "PANEL_WIDTH", 1.5)
    assert coarse == pytest.approx(bias([0.0]), rel=1e-10)
    assert abs(unnamed / coarse - 1) > 1e-7


@pytest.mark.parametrize("noise", [Gaussian(0.8), Uniform(1.5)])
def test_three_steps_are_the_integral_over_two_draws(noise: Any):
    """The third draw has no mean; the first two are integrated on a product of nodes."""
    problem, eta, x0 = log_cosh_instance(1.0, 0.7, 1.0), 0.5, 0.3
    if isinstance(noise, Gaussian):
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        nodes, weights = noise.std * nodes, weights / weights.sum()
    else:
        nodes, weights = np.polynomial.legendre.leggauss(40)
        nodes, weights = noise.half_width * nodes, weights / 2

    def step(x: Any) -> Any:
        return x - eta * (0.75 * x + np.log(np.cosh(4 * 0.7 * x)) / (16 * 0.7))

    first = step(x0) + eta * nodes[:, None]
    third = step(step(first) + eta * nodes[None, :])
    expected = weights @ third @ weights - step(step(step(x0)))
    assert exact_bias(problem, x0, eta, [1, 3], noise)[1] == pytest.approx(expected, rel=1e-8)


def test_samples_have_the_exact_law():
    steps, levels = [2, 64], (-0.005, 0.0, 0.003)
    law = exact_law(PIECEWISE, 0.0, 0.02, steps, Gaussian(0.1), kinks=levels)  # panels that end at the levels too
    found = monte_carlo_bias(PIECEWISE, 0.0, 0.02, steps, 20_000, seed=1, keep_samples=True)
    assert (np.abs(found.bias - law.bias) < 4 * found.standard_error).all()
    assert abs(law.bias[1]) > 10 * found.standard_error[1]
    for x, density in zip(found.samples, law.density, strict=True):  # pyright: ignore
        for level in levels:
            expected = np.sum(law.weights * density * (law.points < level))
            error = np.sqrt(expected * (1 - expected) / len(x))
            assert abs(np.mean(x < level) - expected) < 4 * error + 1e-9


def logistic() -> fl.problems.Logistic:
    rng = np.random.default_rng(0)
    data = fl.FederatedData.from_clients([(rng.standard_normal((12, 3)), np.where(rng.random(12) < 0.3, 1, -1))])
    return fl.problems.Logistic(data, l2=0.1)


@pytest.mark.parametrize("problem", [PIECEWISE, logistic()], ids=["oracle", "data"])
def test_a_repeat_is_a_round_of_one_client_of_the_engine(problem: Any):
    """The first repeat draws what FedAvg's client draws in round 0."""
    x0 = jax.tree.map(lambda a: a + 0.3, problem.init(jax.random.key(0)))
    found = monte_carlo_bias(problem, x0, 0.1, [3, 8], 4, seed=5, batch_size=2, keep_samples=True)
    run = fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=1, local_steps=8, batch_size=2, seed=5, x0=x0)
    ours = jax.tree.map(lambda a: a[1, 0], found.samples)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), ours, run.x)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch):
    whole = monte_carlo_bias(PIECEWISE, 0.1, 0.2, [4, 9], 103, keep_samples=True)
    monkeypatch.setattr(monte_carlo, "NUMBERS_AT_ONCE", 200)
    parts = monte_carlo_bias(PIECEWISE, 0.1, 0.2, [4, 9], 103, keep_samples=True)
    np.testing.assert_allclose(whole.bias, parts.bias, rtol=1e-10)
    np.testing.assert_allclose(whole.standard_error, parts.standard_error, rtol=1e-10)
    x: Any = parts.samples
    assert x.shape == (2, 103)
    np.testing.assert_allclose(parts.standard_error, x.std(axis=1, ddof=1) / np.sqrt(103), rtol=1e-10)


def slope(x: Any, y: Any) -> float:
    return float(np.polyfit(np.log(x), np.log(np.abs(y)), 1)[0])


def test_exponents_and_leading_constant_on_the_piecewise_quadratic():
    """eta^2 k^(3/2), theorem thm:fedavg:2o:bias:lb. To first order in eta, x^(j) is N(0, j eta^2 sigma^2), so that
    E F'(x^(j)) = (L/2) eta sigma sqrt(j / (2 pi)), and the bias is minus eta times the sum of these."""
    problem, steps = piecewise_instance(1.0, 1.0), np.array([16, 32, 64, 128])
    bias = exact_bias(problem, 0.0, 1e-5, list(steps), Gaussian(1.0), kinks=[0.0])
    sums = [np.sqrt(np.arange(k)).sum() for k in steps]
    np.testing.assert_allclose(bias, -(1e-5**2) / 2 * np.array(sums) / np.sqrt(2 * np.pi), rtol=2e-3)
    assert slope(steps, bias) == pytest.approx(1.5, abs=0.1)
    etas = [1e-4, 2e-4, 4e-4, 8e-4]
    against = [exact_bias(problem, 0.0, eta, [64], Gaussian(1.0), kinks=[0.0])[0] for eta in etas]
    assert slope(etas, against) == pytest.approx(2.0, abs=0.1)


def test_exponents_on_log_cosh_with_uniform_noise():
    """eta^3 k^2, theorem thm:fedavg:3o:bias:lb."""
    problem, steps = log_cosh_instance(1.0, 0.001, 1.0), [16, 32, 64]
    assert slope(steps, exact_bias(problem, 0.0, 5e-4, steps, Uniform(1.0))) == pytest.approx(2.0, abs=0.1)
    etas = [2e-4, 4e-4, 8e-4]
    against = [exact_bias(problem, 0.0, eta, [32], Uniform(1.0))[0] for eta in etas]
    assert slope(etas, against) == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("noise", [Gaussian(1.0), Uniform(1.0)])
def test_the_constant_is_a_quarter_and_not_a_half(noise: Any):
    """The variance of U[-1, 1] is 1/3. The text's display has 1/2; F''' = Q at 0."""
    Q, eta, k = 0.5, 0.004 / 128, 128
    problem = log_cosh_instance(1.0, Q, 1.0)
    bias = exact_bias(problem, 0.0, eta, [k], noise)[0]
    assert -bias / (eta**3 * k**2 * noise.variance * Q) == pytest.approx(0.25, rel=0.02)
    assert small_step_bias(problem, 0.0, eta, [k], noise.variance)[0] == pytest.approx(bias, rel=0.02)


def test_two_steps_have_half_of_the_leading_term():
    """k (k - 1) / 4 instead of k^2 / 4."""
    problem, eta = log_cosh_instance(1.0, 0.5, 1.0), 1e-3
    steps = np.array([1, 2, 3, 5])
    bias = exact_bias(problem, 0.0, eta, list(steps), Gaussian(1.0))
    np.testing.assert_allclose(bias / (eta**3 * 0.5), -steps * (steps - 1) / 4, rtol=5e-3, atol=1e-6)
    np.testing.assert_allclose(small_noise_bias(problem, 0.0, eta, list(steps), 1.0), bias, rtol=1e-4, atol=1e-18)


def test_small_noise_holds_far_from_the_optimum_and_for_large_steps():
    problem, steps, std = log_cosh_instance(1.0, 0.5, 1.0), [2, 7, 30], 0.02
    bias = exact_bias(problem, 1.5, 0.8, steps, Gaussian(std))
    np.testing.assert_allclose(small_noise_bias(problem, 1.5, 0.8, steps, std**2), bias, rtol=2e-3)


def test_the_backward_equation_has_half_of_the_noise():
    """With eta sigma^2 u_xx, as in the text, it would be twice the bias of SGD and of the paths of the SDE."""
    problem, steps = log_cosh_instance(1.0, 0.5, 1.0), [32, 64]
    bias = backward_bias(problem, 0.3, 0.005, steps, 1.0)
    np.testing.assert_allclose(bias, exact_bias(problem, 0.3, 0.005, steps, Gaussian(1.0)), rtol=0.04)
    paths = sde_bias(problem, 0.3, 0.005, steps, 1.0, pairs=2000)
    assert (np.abs(paths.bias - bias) < 4 * paths.standard_error).all()
    assert (np.abs(paths.bias - 2 * bias) > 10 * paths.standard_error).all()


def test_the_text_equation_is_twice_too_noisy():
    problem = log_cosh_instance(1.0, 0.5, 1.0)
    eta, k = 0.004 / 128, 128
    unit = eta**3 * k**2 * 0.5
    assert -backward_bias(problem, 0.0, eta, [k], 1.0)[0] / unit == pytest.approx(0.25, rel=0.01)
    assert -backward_bias(problem, 0.0, eta, [k], 2.0)[0] / unit == pytest.approx(0.5, rel=0.01)  # eta sigma^2 u_xx


def test_the_backward_equation_handles_a_kink():
    """Small steps: discrete and continuous time agree to the first order in 1/k."""
    bias = backward_bias(PIECEWISE, 0.0, 0.0005, [400], 0.01)[0]
    assert bias == pytest.approx(exact_bias(PIECEWISE, 0.0, 0.0005, [400], Gaussian(0.1), kinks=[0.0])[0], rel=0.01)


RNG = np.random.default_rng(3)
CUBIC = RNG.standard_normal((3, 3, 3))
CUBIC = np.mean([np.transpose(CUBIC, p) for p in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]], 0)
ANISOTROPIC = np.array([[1.0, 0.6, 0.0], [0.6, 0.5, -0.1], [0.0, -0.1, 0.2]])


def test_the_direction_in_three_dimensions_is_the_contraction_of_the_third_derivatives():
    def value(x: jax.Array, m: Any) -> jax.Array:
        return jnp.einsum("ijl,i,j,l->", CUBIC, x, x, x) / 6

    expected = -(0.01**3) / 4 * np.einsum("ijl,jl->i", CUBIC, ANISOTROPIC)
    x0, steps = np.array([0.1, -0.2, 0.3]), np.array([1, 10])
    found = small_step_bias(Oracle(value), x0, 0.01, list(steps), ANISOTROPIC)
    np.testing.assert_allclose(found, expected * steps[:, None] ** 2, rtol=1e-12)
    discrete = small_noise_bias(Oracle(value), np.zeros(3), 0.01, list(steps), ANISOTROPIC)
    np.testing.assert_allclose(discrete, expected * (steps * (steps - 1))[:, None], rtol=1e-12)


def plateaus(covariance: np.ndarray) -> Oracle:
    """Two soft plateaus, and noise with this covariance."""
    root = jnp.asarray(np.linalg.cholesky(covariance))
    directions = jnp.array([[1.0, 0.5, 0.0], [-0.5, 1.0, 0.8]])

    def value(x: jax.Array, m: Any) -> jax.Array:
        return 6 * jnp.sum(jax.nn.softplus(directions @ x)) + 0.05 * jnp.sum(x**2)

    return Oracle(value, noise=lambda key, x, m: root @ jax.random.normal(key, (3,)))


def test_the_direction_in_three_dimensions_is_that_of_samples():
    problem, x0, steps, eta = plateaus(ANISOTROPIC), np.array([1.0, -0.5, 0.4]), [12], 0.1
    found = monte_carlo_bias(problem, x0, eta, steps, 60_000, seed=2)
    expected = small_noise_bias(problem, x0, eta, steps, ANISOTROPIC)
    assert (np.abs(found.bias - expected) < 4 * found.standard_error).all()
    even = small_noise_bias(problem, x0, eta, steps, np.eye(3) * np.trace(ANISOTROPIC) / 3)
    assert (np.abs(found.bias - even) / found.standard_error).max() > 6
    paths = sde_bias(problem, x0, eta / 4, [48], 4 * ANISOTROPIC, pairs=1000, seed=4)  # the same eta Sigma and eta k
    cosine = np.vdot(paths.bias, expected) / np.linalg.norm(paths.bias) / np.linalg.norm(expected)
    assert cosine > 0.99


def test_the_expansion_works_for_parameters_of_a_problem_with_data():
    """Against the third derivative b s (1 - s) (1 - 2 s) of the logistic loss, s = 1 / (1 + exp(-b a'x))."""
    problem, x = logistic(), np.array([0.4, -0.2, 0.1])
    found = small_step_bias(problem, {"weights": x}, 0.1, [4], ANISOTROPIC)["weights"][0]
    features, labels = (np.asarray(a) for a in problem.data.arrays)
    s = 1 / (1 + np.exp(-labels * (features @ x)))
    along = np.einsum("ij,jl,il->i", features, ANISOTROPIC, features)
    third = features.T @ (labels * s * (1 - s) * (1 - 2 * s) * along) / len(labels)
    np.testing.assert_allclose(found, -(0.1**3) * 16 / 4 * third, rtol=1e-10)


MISTAKES: dict[str, tuple[Any, str]] = {
    "steps": (lambda: monte_carlo_bias(PIECEWISE, 0.0, 0.1, [4, 2], 8), "steps must be numbers of steps that ascend"),
    "no_steps": (lambda: exact_bias(PIECEWISE, 0.0, 0.1, [], Gaussian(1.0)), "steps must be .*, got \\[\\]"),
    "step_size": (lambda: exact_bias(PIECEWISE, 0.0, -1, [2], Gaussian(1.0)), "step_size must be > 0, got -1"),
    "repeats": (lambda: monte_carlo_bias(PIECEWISE, 0.0, 0.1, [2], 1), "repeats must be a whole number >= 2, got 1"),
    "kinks": (lambda: exact_bias(PIECEWISE, 0.0, 0.1, [2], Uniform(1.0), kinks=[0.0]), "F must be smooth"),
    "rough": (lambda: exact_bias(PIECEWISE, 0.0, 0.1, [9], Uniform(1.0)), "F is not smooth enough"),
    "unstable": (lambda: exact_law(QUADRATIC, 0.0, 2.0, [9], Gaussian(1.0)), "step_size at most 2/L"),
    "covariance": (lambda: small_step_bias(PIECEWISE, 0.0, 0.1, [2], np.eye(2)), r"shape \(1, 1\), got \(2, 2\)"),
    "negative": (lambda: sde_bias(PIECEWISE, 0.0, 0.1, [2], -1.0, pairs=2), "no negative eigenvalue"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told(name: str):
    call, sentence = MISTAKES[name]
    with pytest.raises(ValueError, match=sentence):
        call()
