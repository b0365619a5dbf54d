"""How far FedAvg's clients walk apart within a round, and what that costs: the lemmas behind the bounds of FedAvg."""

import math

from fedlocal.theory.bounds.bound import Bound, Constants, Setting, homogeneous, ratio
from fedlocal.util import checks


def client_discrepancy_bound(constants: Constants, setting: Setting, step_size: float) -> Bound:
    r"""How far a client is from the mean of all, in the square.

        E ||x_m^(r,k) - x_mean^(r,k)||^2 <= 4 K eta^2 sigma^2 + 18 K^2 eta^2 zeta^2,   eta <= 1/(4 L).

    Letters: K local_steps, eta step_size, sigma noise, zeta heterogeneity, L smoothness.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, lemma lem:fedavg:2o:ub:2. Differs from it: nothing.

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0, heterogeneity=1.0)
    >>> dict(client_discrepancy_bound(constants, Setting(clients=4, rounds=1, local_steps=2), step_size=0.25).terms)
    {'drift': 0.5, 'heterogeneity': 4.5}
    """
    owner = "client_discrepancy_bound"
    eta, K = checks.number(owner, "step_size", step_size, at_least=0), setting.local_steps
    zeta = constants.known(owner, "heterogeneity")
    terms = {"drift": 4 * K * eta**2 * constants.noise**2, "heterogeneity": 18 * K**2 * eta**2 * zeta**2}
    conditions = {"step_size <= 1/(4 L)": eta <= 1 / (4 * constants.smoothness)}
    return Bound("lem:fedavg:2o:ub:2", "FedAvg", "E ||x_m^(r,k) - x_mean^(r,k)||^2", terms, eta, conditions)


def fourth_order_discrepancy_bound(constants: Constants, setting: Setting, step_size: float) -> Bound:
    r"""How far clients are from the mean of all, in the fourth power.

        E mean_m ||x_m^(r,k) - x_mean^(r,k)||^4 <= 192 eta^4 K^2 sigma^4.

    Letters: K local_steps, eta step_size, sigma fourth_moment.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, lemma fedavg:a2:stab:main. Differs from it: the condition is eta <= 2/L. The text states
    none and its proof uses eta <= 1/(4 L), while theorem thm:fedavg:3o:ub uses the lemma up to 1/(2 L). A gradient step
    of a convex F brings two points no further apart for eta <= 2/L; hence for the difference Delta of two clients
    E ||Delta+||^4 <= ||Delta||^4 + 16 eta^2 sigma^2 ||Delta||^2 + 24 eta^4 sigma^4, which gives even 64 for 192.

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0, fourth_moment=1.0)
    >>> fourth_order_discrepancy_bound(constants, Setting(clients=4, rounds=1, local_steps=2), step_size=0.5).value
    48.0
    """
    owner = "fourth_order_discrepancy_bound"
    eta, K = checks.number(owner, "step_size", step_size, at_least=0), setting.local_steps
    terms = {"drift": 192 * eta**4 * K**2 * constants.known(owner, "fourth_moment") ** 4}
    conditions = {"step_size <= 2/L": eta <= 2 / constants.smoothness} | homogeneous(constants)
    measure = "E mean_m ||x_m^(r,k) - x_mean^(r,k)||^4"
    return Bound("fedavg:a2:stab:main", "FedAvg", measure, terms, eta, conditions)


def shadow_bound(constants: Constants, setting: Setting, step_size: float, discrepancy_sum: float) -> Bound:
    r"""The mean of the clients converges as synchronised SGD does, up to how far the clients are apart.

        B^2/(2 eta K R) + eta sigma^2/M + L/(M K R) discrepancy_sum,   eta <= 1/(4 L),

    bounds the error of the means after each of the K R steps, averaged, plus ||x^(R,0) - x*||^2/(2 eta K R).

    Letters: M clients, K local_steps, R rounds, eta step_size, B distance, L smoothness, sigma noise.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        discrepancy_sum: sum over r < R, k < K and m of E ||x_m^(r,k) - x_mean^(r,k)||^2, measured or bounded.

    Reference: dissertation, lemma lem:fedavg:2o:ub:1. Differs from it: the distance on the left is that of the last
    round.

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0)
    >>> setting = Setting(clients=2, rounds=2, local_steps=2)
    >>> dict(shadow_bound(constants, setting, step_size=0.25, discrepancy_sum=1.0).terms)
    {'deterministic': 0.5, 'statistical': 0.125, 'drift': 0.125}
    """
    eta = checks.number("shadow_bound", "step_size", step_size, above=0)
    apart = checks.number("shadow_bound", "discrepancy_sum", discrepancy_sum, at_least=0)
    M, steps = setting.clients, setting.local_steps * setting.rounds
    terms = {
        "deterministic": constants.distance**2 / (2 * eta * steps),
        "statistical": eta * constants.noise**2 / M,
        "drift": constants.smoothness * apart / (M * steps),
    }
    measure = "E mean_(r,k) F(x_mean^(r,k)) - F* + ||x^(R,0) - x*||^2/(2 eta K R)"
    conditions = {"step_size <= 1/(4 L)": eta <= 1 / (4 * constants.smoothness)}
    return Bound("lem:fedavg:2o:ub:1", "FedAvg", measure, terms, eta, conditions)


def fed_avg_strongly_convex_perturbed_bound(
    constants: Constants, setting: Setting, step_size: float, discrepancy: float
) -> Bound:
    r"""FedAvg on a strongly convex F that is third-order smooth, given how far its clients are apart.

        exp(-eta mu K R/2) B^2/eta + eta sigma^2/M + Q^2/mu discrepancy,   eta <= 1/(4 L),

    bounds E F(x_hat) - F* + (mu/2) E ||x^(R,0) - x*||^2, x_hat the mean of the x_mean^(r,k), k < K, with weights
    (1 - eta mu/2)^(K R - (r K + k) - 1).

    Letters: M clients, K local_steps, R rounds, eta step_size, B distance, L smoothness, mu strong_convexity, Q
    third_order, sigma noise.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        discrepancy: the largest value over r and k, measured or bounded, of what `fourth_order_discrepancy_bound` bounds.

    Reference: dissertation, lemma fedavg:a2:conv:main. Differs from it: nothing; a step of its proof has a sign wrong.

    >>> constants = Constants(smoothness=1.0, noise=2.0, distance=0.0, strong_convexity=0.5, third_order=2.0)
    >>> setting = Setting(clients=2, rounds=2, local_steps=2)
    >>> dict(fed_avg_strongly_convex_perturbed_bound(constants, setting, step_size=0.25, discrepancy=1.0).terms)
    {'deterministic': 0.0, 'statistical': 0.5, 'drift': 8.0}
    """
    owner = "fed_avg_strongly_convex_perturbed_bound"
    L, B, sigma, mu, M, K, R = constants.letters(setting)
    eta, Q = checks.number(owner, "step_size", step_size, above=0), constants.known(owner, "third_order")
    apart = checks.number(owner, "discrepancy", discrepancy, at_least=0)
    terms = {
        "deterministic": math.exp(-eta * mu * K * R / 2) * B**2 / eta,
        "statistical": eta * sigma**2 / M,
        "drift": ratio(Q**2 * apart, mu),
    }
    conditions = {"step_size <= 1/(4 L)": eta <= 1 / (4 * L), "mu > 0": mu > 0} | homogeneous(constants)
    measure = "E F(x_hat) - F* + mu/2 ||x^(R,0) - x*||^2"
    return Bound("fedavg:a2:conv:main", "FedAvg", measure, terms, eta, conditions)
