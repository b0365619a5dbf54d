"""Sentences, displays and proof steps of the text that are not so: each as printed, with numbers that refute it, and mended.

`docs/errata.md` lists them. Those that say what a theorem promises have their tests beside the theorem.
"""

import itertools
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from fedlocal.theory import Constants, Setting
from fedlocal.theory.bounds.composite import (
    composite_small_step_bound,
    fed_dual_avg_bounded_gradient_bound,
    fed_dual_avg_perturbed_bound,
)
from fedlocal.theory.bounds.lower import fed_avg_lower_bound, lower_bound_curvature
from fedlocal.theory.constructions.lower_bound_instances import heterogeneous_drift, lower_bound_instance

E = math.e

# ---------------------------------------------------------------- notation, definitions, propositions


def test_the_bregman_divergence_needs_the_gradient_of_h():
    """h(x) - h(w) - h(w) (x - w) is negative for h = x^2/2 at x = -1, w = -2, where the divergence is (x - w)^2/2."""
    x, w = -1.0, -2.0
    half = lambda a: a**2 / 2  # noqa: E731
    assert half(x) - half(w) - half(w) * (x - w) == -3.5
    assert half(x) - half(w) - w * (x - w) == (x - w) ** 2 / 2


def test_the_conjugate_is_smooth_from_the_dual_norm_to_the_norm():
    """g = ||x||_2^2/2 is 1-strongly convex in the maximum norm; grad g* is the identity."""
    y = np.array([1.0, 1.0])
    norm, dual = np.abs(y).max(), np.abs(y).sum()
    assert norm <= dual
    assert not dual <= norm  # as printed: the dual norm of the difference at most the norm of that of the points


def test_the_norm_of_a_block_matrix_needs_the_larger_of_its_outer_blocks():
    rng = np.random.default_rng(0)
    below_smaller = []
    for _ in range(50):
        blocks = rng.standard_normal((2, 2, 3, 3)) * rng.uniform(0, 2, (2, 2, 1, 1))
        length = np.linalg.norm(np.block([[*blocks[0]], [*blocks[1]]]), 2)
        (a, b), (c, d) = (tuple(float(np.linalg.norm(block, 2)) for block in row) for row in blocks)
        assert length <= max(a, d) + max(b, c) + 1e-12
        below_smaller.append(length <= max(a, d) + min(b, c))
    assert not all(below_smaller)


# ---------------------------------------------------------------- the iterate bias and the lower bounds of FedAvg


def test_smoothness_in_the_proof_of_the_bias_has_no_step_size():
    """||E grad F(x) - grad F(z)|| <= L E ||x - z||, with equality for a quadratic; printed with eta L."""
    L, eta, x, z = 2.0, 0.1, 3.0, 1.0
    assert L * abs(x - z) == abs(L * x - L * z)
    assert abs(L * x - L * z) > eta * L * abs(x - z)


@pytest.mark.parametrize("x", [0.02, 0.1, 0.25, 0.5])
def test_the_double_sum_of_the_third_order_lower_bound_has_half_as_many_terms(x: float):
    """sum_(j<k) sum_(i<j) q^(2 i + 1), q = 1 - x, x = eta L: k (k - 1)/2 terms, so not at least k (k - 1) q^(2 k - 3)."""
    q = 1 - x
    for k in range(2, round(1 / x) + 1):
        total = sum(q ** (2 * i + 1) for j in range(1, k) for i in range(j))
        assert total >= k * (k - 1) / 2 * q ** (2 * k - 3) * (1 - 1e-12)
        assert total >= k * (k - 1) / 16  # the end is right
        assert k > 2 or total < k * (k - 1) * q ** (2 * k - 3)


def test_fed_avg_is_no_better_than_the_heterogeneous_lower_bound_on_its_instance():
    """E F - F* >= 0.001 times the order, without noise, at every step size; above 2/L the third coordinate diverges."""
    ratios = []
    for zeta, K, R in itertools.product(np.geomspace(1e-3, 1e3, 7), (2, 16, 256), (1, 16, 4096)):
        constants = Constants(1.0, noise=0.0, distance=1.0, heterogeneity=None, optimum_heterogeneity=float(zeta))
        setting = Setting(clients=2, rounds=R, local_steps=K)
        mu = lower_bound_curvature(constants, setting)
        errors = [
            (mu * (1 - eta * mu) ** (2 * K * R) + (1 - eta) ** (2 * K * R)) / 8
            + 3 / 32 * heterogeneous_drift(1.0, zeta, eta, setting) ** 2
            for eta in np.geomspace(1e-7, 2.0, 100)
        ]
        ratios.append(min(errors) / fed_avg_lower_bound(constants, setting).value)
    assert 1e-3 < min(ratios) < 1e-2
    assert max(ratios) < 1  # so the constant of Omega is below one


def test_the_fourth_lemma_needs_a_start_that_is_not_positive():
    """FedAvg from x0 > 0 ends above 0 where the lemma says "from some x0" that it ends below a negative number."""
    L, zeta, eta, K, R = 1.0, 1.0, 0.1, 4, 3

    def run(x: float) -> float:
        for _ in range(R):
            one, two = x, x
            for _ in range(K):
                one, two = one - eta * (L / 4 * one - zeta), two - eta * (L / 8 * two + zeta)
            x = (one + two) / 2
        return x

    largest = -1 / 16000 * zeta / L * min(1, eta * L * K, (eta * L * K) ** 2 * R)
    assert run(0.0) == pytest.approx(heterogeneous_drift(L, zeta, eta, Setting(2, R, K)), rel=1e-9)
    assert run(-1.0) < run(0.0) <= largest
    assert run(1.0) > 0


def test_the_heterogeneous_instance_is_bounded_at_the_optimum_only():
    """mean_m ||grad F_m(x*)||^2 = zeta_*^2, while ||grad F_m - grad F|| grows without end away from it."""
    constants = Constants(1.0, noise=1.0, distance=1.0, heterogeneity=None, optimum_heterogeneity=0.5)
    problem = lower_bound_instance(constants, Setting(clients=2, rounds=4, local_steps=4))

    def heterogeneity(far: float) -> float:
        x = jnp.zeros(4).at[3].set(far)
        grads = np.stack([problem.full_gradient(x, jnp.asarray(m)) for m in (0, 1)])
        return float(np.sqrt(((grads - grads.mean(axis=0)) ** 2).sum(axis=1).max()))

    assert heterogeneity(0.0) == pytest.approx(0.5)
    assert heterogeneity(-1e4) > 500


def test_case_3_1_has_twice_and_not_four_times_the_minimum():
    """At eta = 1/(mu K R) min{eta sigma^2, eta^2 L K sigma^2} is 2 sigma B/sqrt(K R), where that is the smaller option."""
    L, B, sigma, K, R = 1.0, 1.0, 0.1, 4, 100
    options = [sigma * B / math.sqrt(K * R), (L * sigma**2 * B**4 / (K * R**2)) ** (1 / 3), L * B**2]
    mu = min(options) / (2 * B**2)
    eta = 1 / (mu * K * R)
    assert min(options) > L * B**2 / (K * R)  # the condition of the case
    assert eta <= 2 / L
    reached = min(eta * sigma**2, eta**2 * L * K * sigma**2)
    assert reached == pytest.approx(2 * min(options)) == pytest.approx(4 * mu * B**2)
    assert reached < 4 * min(options)


def b_of_the_claim(x: float, K: int) -> float:
    """b of FedAvg on two clients, for L = 1 and x = eta L."""
    return 2 * (1 - (1 - x / 4) ** K) - 4 * (1 - (1 - x / 8) ** K)


@pytest.mark.parametrize("x", np.linspace(0.51, 2.0, 12))
def test_cases_two_and_three_of_the_claim_about_b(x: float):
    """The cubic term of K = 3 is 3/128, printed as 1/64; all of K = 4 is twice what is printed. The ends are right."""
    two, three = b_of_the_claim(x, 3), b_of_the_claim(x, 4)
    assert two == pytest.approx(-3 / 16 * x**2 + 3 / 128 * x**3, rel=1e-12)
    assert two > -3 / 16 * x**2 + 1 / 64 * x**3 + 1e-4
    assert three == pytest.approx(2 * (-3 / 16 * x**2 + 3 / 64 * x**3 - 7 / 2048 * x**4), rel=1e-12)
    assert three <= -3 / 128
    if 3 * x > 2:
        assert two <= -5 / 72
    assert (two <= -5 / 32 * x**2) == (x <= 4 / 3)  # the inequality between them in case two


@pytest.mark.parametrize("K", [2, 3, 10, 100])
def test_the_first_case_of_the_claim_about_b_lacks_one_over_smoothness(K: int):
    """For eta L K <= 2: b <= -(1/64 L) binom(K, 2) (eta L)^2, printed without L, which is false for L > 1."""
    for x in np.linspace(0.01, 2.0, 20) / K:
        pairs = K * (K - 1) / 2
        b = b_of_the_claim(x, K)
        assert b <= -pairs * x**2 / 64 <= -((x * K) ** 2) / 256
        assert b / 100 > -pairs * x**2 / 64  # L = 100


def test_case_five_of_the_claim_about_b_bounds_by_minus_two_thousandths():
    """-1 - e^(-1.16 x/4) + 2 e^(-0.5 x/4) <= -0.002 for x >= 2; with the printed + 0.002 nothing negative would follow."""
    x = np.linspace(2.0, 200.0, 100_000)
    values = -1 - np.exp(-1.16 * x / 4) + 2 * np.exp(-0.5 * x / 4)
    assert values.max() <= -0.002
    assert values.max() / 2 <= -1 / 1000 < 0.002 / 2


# ---------------------------------------------------------------- FedAvg and FedAc, steps of proofs


def test_a_step_of_strong_convexity_and_smoothness_has_a_plus():
    """-2 eta <grad F, x - x*> <= -eta (mu |x - x*|^2 + 2 (F - F*)); with the printed minus the next line does not follow."""
    mu, L, eta, away, gap = 0.5, 2.0, 0.1, 3.0, 4.0
    next_line = (1 - eta * mu) * away**2 - 2 * eta * (1 - eta * L) * gap
    right, printed = (away**2 - eta * (mu * away**2 + sign * 2 * gap) + eta**2 * 2 * L * gap for sign in (+1, -1))
    assert right == pytest.approx(next_line, rel=1e-12)
    assert printed == pytest.approx(next_line + 4 * eta * gap, rel=1e-12)


def test_the_variance_of_a_step_of_fed_ac_has_the_square_of_gamma():
    """E |a - gamma mean noise|^2 over all signs of M = 2 clients, sigma = 1: a^2 + gamma^2/M."""
    a, gamma = 3.0, 0.1
    squares = [(a - gamma * (one + two) / 2) ** 2 for one, two in itertools.product((-1.0, 1.0), repeat=2)]
    assert np.mean(squares) == pytest.approx(a**2 + gamma**2 / 2, rel=1e-12)
    assert abs(np.mean(squares) - (a**2 + 1 / 2)) > 0.4


def transition(kind: str, eta: float, gamma: float, mu: float, h: float) -> np.ndarray:
    """How a step of FedAc changes the difference (x_ag, x) of two clients, from the definition; h the curvature between."""
    alpha = 1 / (gamma * mu) if kind == "one" else 3 / (2 * gamma * mu) - 1 / 2
    beta = alpha + 1 if kind == "one" else (2 * alpha**2 - 1) / (alpha - 1)
    middle = np.array([1 - 1 / beta, 1 / beta])
    main = np.array([0.0, 1 - 1 / alpha])
    return np.stack([(1 - eta * h) * middle, main + (1 / alpha - gamma * h) * middle])


def transform(eta: float, gamma: float) -> np.ndarray:
    """X(gamma, eta)."""
    return np.array([[eta / gamma, 0.0], [1.0, 1.0]])


def test_the_step_of_fed_ac_one_is_seen_through_x_inverse():
    """X^-1 A Delta is (X^-1 A X) (X^-1 Delta); printed with X^-1 A X^-1, whose norm is not bounded, and X Delta."""
    eta, gamma, mu, h = 0.01, 0.5, 0.01, 1.0
    A, X = transition("one", eta, gamma, mu, h), transform(eta, gamma)
    inverse = np.linalg.inv(X)
    bound = 1 + 2 * gamma**2 * mu / eta
    assert np.linalg.norm(inverse @ A @ X, 2) <= bound
    assert np.linalg.norm(inverse @ A @ inverse, 2) > 100 * bound


def test_the_lower_left_block_of_fed_ac_two_has_the_factor_mu():
    eta, gamma, mu, h = 0.1, 0.3, 0.2, 1.5
    X, c = transform(eta, gamma), gamma * mu
    block = (np.linalg.inv(X) @ transition("two", eta, gamma, mu, h) @ X)[1, 0]
    without = -(gamma - eta) * (3 * gamma + 6 * eta - c * (3 * gamma + 4 * eta)) / ((9 - (6 + c) * c) * eta)
    assert block == pytest.approx(mu * without, rel=1e-9)


def test_the_fourth_moment_of_fed_ac_two_is_below_the_root():
    """Without noise the root of the new fourth power is the old square times (1 + gamma^2 mu/eta)^2, not the old length."""
    eta, gamma, mu = 0.1, 0.3, 0.2
    X = transform(eta, gamma)
    old = np.array([100.0, 0.0])  # X^-1 Delta
    new = np.linalg.inv(X) @ transition("two", eta, gamma, mu, mu) @ X @ old
    growth = (1 + gamma**2 * mu / eta) ** 2
    root = math.sqrt(np.linalg.norm(new) ** 4)
    assert root <= growth * math.sqrt(np.linalg.norm(old) ** 4)
    assert root > growth * math.sqrt(np.linalg.norm(old) ** 2)


L, SIGMA, Q, B = 2.0, 0.5, 3.0, 1.5
TERMS: dict[
    str, Callable[[float, int, int, int], float]
] = {  # psi_2, psi_3 and psi_5 of the proof, of (lambda, M, K, R)
    "second": lambda lam, M, K, R: (
        4 * SIGMA**2 / (lam * M * K * R) * math.log(E + lam * L * M * K * R * B**2 / SIGMA**2)
    ),
    "third": lambda lam, M, K, R: (
        55 * L * SIGMA**2 / (lam**2 * M * K * R**3) * math.log(E**3 + lam**2 * M * K * R**3 * B**2 / SIGMA**2) ** 3
    ),
    "fifth": lambda lam, M, K, R: (
        (E**18 * Q**2 * SIGMA**4 / (lam**5 * K**2 * R**8))
        * math.log(E**8 + lam**5 * L * K**2 * R**8 * B**2 / (Q**2 * SIGMA**4)) ** 8
    ),
}


@pytest.mark.parametrize("name", TERMS)
def test_the_terms_of_convex_fed_ac_two_decrease_in_lambda(name: str):
    """The proof of fedacii:a2:gcvx calls them increasing, and uses that they decrease."""
    values = [TERMS[name](lam, 4, 16, 64) for lam in np.geomspace(1e-8, 1e4, 200)]
    assert np.all(np.diff(values) < 0)


def test_lambda_of_convex_fed_ac_two_needs_its_fourth_candidate():
    """With little noise the first three leave L B^2/2 almost as it is; the fourth makes it L B^2/(2 K R^2), with "<=" for "="."""
    sigma, M, K, R = 1e-6, 4, 16, 64
    printed = max(
        sigma / (math.sqrt(M * K * R) * B),
        (L * sigma**2 / (M * K * B**2)) ** (1 / 3) / R,
        (Q * sigma**2 / (K * R**4 * B)) ** (1 / 3),
    )
    fourth = 18 * L / (K * R**2) * math.log(E**2 + K * R**2) ** 2
    left = lambda lam: L * B**2 / 2 * math.exp(-math.sqrt(K * R**2 / (9 * (1 + L / lam))))  # noqa: E731
    claimed = L * B**2 / 2 / (E**2 + K * R**2)
    assert fourth < L
    assert left(fourth) < claimed <= L * B**2 / (2 * K * R**2) < left(printed)


def test_the_step_size_of_convex_fed_ac_one_has_e_and_not_its_square():
    """Proof of fedaci:gcvx:2, a = lambda L M K R B^2/sigma^2 and c = lambda^2 K R^3 B^2/sigma^2.

    eta_1 is log^2(e + min{a, c}) in the lemma, log^2(e^2 + min{a, c}) in the proof. Its bounds of phi_1 to phi_4 have log(e + a)
    and log(e + c), which hold for the lemma's. phi_0(eta_1) = (L B^2/2)/(e + min{a, c}) is at most (L B^2/2) (1/a + 1/c), where
    1/c is the printed 195 L sigma^2/(lambda^2 K R^3) with 1/2 for 195.
    """
    for a, c in itertools.product(np.geomspace(1e-6, 1e6, 13), repeat=2):
        least = min(a, c)
        assert math.log(E + least) <= min(math.log(E + a), math.log(E + c))
        assert 1 / (E + least) <= 1 / a + 1 / c
    assert math.log(E**2 + 1e-6) > 1.99 * math.log(E + 1e-6)  # with a = c = 1e-6 phi_4 is 15 times what is printed


# ---------------------------------------------------------------- composite objectives


def test_local_steps_pay_where_communication_is_rare():
    """The drift is below L B^2/R for R < L^2 B^2/G^2, for few rounds; the text concludes "when not too infrequent"."""
    constants = Constants(1.0, noise=0.0, distance=1.0, gradient_bound=0.1, mirror_distance=1.0)
    for rounds, rare in ((10, True), (99, True), (101, False), (1000, False)):  # L^2 B^2/G^2 = 100
        setting = Setting(clients=4, rounds=rounds, local_steps=10**9)
        local = fed_dual_avg_bounded_gradient_bound(constants, setting, form="simplified").value
        assert (local < composite_small_step_bound(constants, setting, form="simplified").value) is rare


def printed_rate(smooth: float, noise: float, divergence: float, eta: float, setting: Setting) -> np.ndarray:
    """The terms of the sentence after lemma pia:general: B^2/(eta K R), eta sigma^2/(2 M), L/(M K R)."""
    M, steps = setting.clients, setting.local_steps * setting.rounds
    return np.array([divergence**2 / (eta * steps), eta * noise**2 / (2 * M), smooth / (M * steps)])


def test_synchronised_fed_dual_avg_has_the_rate_of_the_lemma_and_not_of_the_sentence_after_it():
    """K = 1, so that clients are never apart. Once from 1e-6 beside the optimum, without noise, and once with much noise."""
    setting, eta, away, psi = Setting(clients=2, rounds=8, local_steps=1), 0.25, 1e-6, fl.regularizers.L1(0.1)
    problem = fl.problems.quadratics(np.ones((2, 1, 1)), np.array([[0.03], [0.07]]), noise_std=0.0)  # optimum 0
    method = fl.methods.FedDualAvg(eta, 1.0, psi)
    run = fl.simulate(problem, method, rounds=8, local_steps=1, x0=np.full(1, away), average="uniform", progress=False)
    x = float(run.x[0])
    error = (x**2 - 0.1 * x) / 2 + 0.1 * abs(x)
    lemma = fed_dual_avg_perturbed_bound(Constants(1.0, 0.0, away), setting, eta, discrepancy=0.0).value
    assert error <= lemma < 1e-12
    assert printed_rate(1.0, 0.0, away / math.sqrt(2), eta, setting).sum() > 1e10 * lemma  # of L/(M K R) alone
    noisy = fed_dual_avg_perturbed_bound(Constants(1.0, 100.0, away), setting, eta, discrepancy=0.0).value
    assert printed_rate(1.0, 100.0, away / math.sqrt(2), eta, setting).sum() < 0.51 * noisy


def test_the_rate_of_synchronised_fed_dual_avg_has_one_unit():
    """Its sentence adds L/(M K R), which in other units x -> s x, F -> c F changes by c/s^2 where the others change by c."""
    s, c, setting = 3.0, 5.0, Setting(clients=4, rounds=16, local_steps=8)
    other = printed_rate(L * c / s**2, SIGMA * c / s, B * s, s**2 / c, setting)
    np.testing.assert_allclose(other / printed_rate(L, SIGMA, B, 1.0, setting), [c, c, c / s**2], rtol=1e-12)


def test_both_errors_of_a_stochastic_gradient_are_subtracted():
    """y - eta g with g = grad F + delta + epsilon; the middle display adds them, its last line has them right."""
    eta, y, grad_F, grad_m, g = 0.1, 1.0, 2.0, 2.5, 2.2
    epsilon, delta = g - grad_m, grad_m - grad_F
    assert y - eta * g == pytest.approx(y - eta * grad_F - eta * epsilon - eta * delta, rel=1e-12)
    assert abs(y - eta * g - (y - eta * grad_F + eta * delta + eta * epsilon)) > 0.01


@pytest.mark.parametrize("method", [fl.methods.FedMiD, fl.methods.FedDualAvg])
def test_clients_of_the_only_server_proximal_variants_leave_the_constraint(method: type):
    """After one step: the full methods' clients are feasible, those of the variants are not; the server always is."""
    ball = fl.regularizers.L2Ball(1.0)
    for prox_on_clients in (True, False):
        one = method(1.0, 1.0, ball, prox_on_clients=prox_on_clients)
        server = one.init(jnp.zeros(2))
        client = one.step(one.start(server, ()), lambda x: x - jnp.array([3.0, 4.0]))
        length = float(jnp.linalg.norm(one.primal(client)))
        assert length == pytest.approx(1.0 if prox_on_clients else 5.0, rel=1e-6)
        server = one.update(server, one.finish(server, client)[0], fl.core.Round())
        assert float(jnp.linalg.norm(one.solution(server))) <= 1 + 1e-6
