"""What the theorems say about FedAc on strongly convex objectives.

Letters in the bodies: L smoothness, mu strong convexity, sigma noise, B initial distance, Q third-order smoothness, M clients,
K local steps, R rounds, eta step size. Terms of the bounds: deterministic (what is left of the initial error, with the
cost of the augmentation for convex objectives), regularization (lambda B^2 / 2, if the augmentation is given on its
own), statistical (noise that more clients average out), acceleration (what acceleration amplifies and more clients
average out), drift (what rare communication costs because of noise), third_order (the same with a Lipschitz Hessian).
"""

import math
from dataclasses import replace

from fedlocal.theory.bounds.bound import Bound, Constants, Form, Setting, homogeneous, is_simplified, logged, ratio

E = math.e
ONE, TWO = "FedAc-I", "FedAc-II"
POTENTIAL_ONE = "E F(x_ag) - F* + mu/2 E ||x - x*||^2"
POTENTIAL_TWO = "E F(x_ag) - F* + mu/6 E ||x - x*||^2"
SUBOPTIMALITY = "E F(x_ag) - F*"


def initial_potential(constants: Constants, weight: float) -> float:
    """F(x0) - F* + weight mu B^2 where the gap is known, else L B^2; weight 1/2: Psi of FedAc-I, 1/6: Phi of FedAc-II."""
    if constants.gap is None:
        return constants.smoothness * constants.distance**2
    return constants.gap + weight * constants.strong_convexity * constants.distance**2


def fed_ac_one_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAc-I on a strongly convex objective.

    For any eta <= 1/L, with Psi = F(x_ag) - F* + mu/2 ||x - x*||^2 and Psi0 its initial value,
        E Psi <= exp(-max(eta mu, sqrt(eta mu / K)) K R) Psi0 + sqrt(eta / (mu K)) sigma^2 / (2 M) + eta sigma^2 / (2 M)
                 + 390 eta^(3/2) L sqrt(K / mu) sigma^2 + 7 eta^2 L K sigma^2.
    With a = mu M K R Psi0 / sigma^2, b = mu^2 K R^3 Psi0 / (L sigma^2) and eta = min(1/L, log^2(e + min(a, b)) / (mu K R^2)),
        E Psi <= exp(-max(mu K R / L, sqrt(mu K / L) R)) Psi0 + 2 sigma^2 / (mu M K R) log^2(e + a)
                 + 400 L sigma^2 / (mu^2 K R^3) log^4(e + b).

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedaci:full, lemma fedaci:general:eta, simplified theorem fedac:a1(a). Differs from it:
    Psi0 is computed from the gap where that is known, and is L B^2 otherwise.

    >>> bound = fed_ac_one_bound(Constants(1.0, 0.0, 2.0, strong_convexity=1.0), Setting(clients=4, rounds=3, local_steps=1))
    >>> round(bound.value, 6), bound.step_size, bound.applies
    (0.199148, 1.0, True)
    """
    L, B, sigma, mu, M, K, R = constants.letters(setting)
    simplified = is_simplified("fed_ac_one_bound", step_size, form)
    psi = initial_potential(constants, 1 / 2)
    if step_size is not None:
        eta, label = step_size, "fedaci:general:eta"
        terms = {
            "deterministic": math.exp(-max(eta * mu, math.sqrt(eta * mu / K)) * K * R) * psi,
            "statistical": ratio(math.sqrt(eta) * sigma**2, 2 * math.sqrt(mu * K) * M) + eta * sigma**2 / (2 * M),
            "drift": ratio(390 * eta**1.5 * L * math.sqrt(K) * sigma**2, math.sqrt(mu)) + 7 * eta**2 * L * K * sigma**2,
        }
    elif simplified:
        eta, label = None, "fedac:a1(a)"
        terms = {
            "deterministic": _decay(L, mu, K, R) * L * B**2,
            "statistical": ratio(sigma**2, mu * M * K * R),
            "drift": ratio(L * sigma**2, mu**2 * K * R**3),
        }
    else:
        label = "fedaci:full"
        a, b = ratio(mu * M * K * R * psi, sigma**2), ratio(mu**2 * K * R**3 * psi, L * sigma**2)
        eta = min(1 / L, ratio(math.log(E + min(a, b)) ** 2, mu * K * R**2))
        terms = {
            "deterministic": _decay(L, mu, K, R) * psi,
            "statistical": logged(ratio(2 * sigma**2, mu * M * K * R), 2, E, a),
            "drift": logged(ratio(400 * L * sigma**2, mu**2 * K * R**3), 4, E, b),
        }
    return Bound(label, ONE, POTENTIAL_ONE, terms, eta, strongly_convex(constants, eta))


def minibatch_ac_sgd_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    """Minibatch accelerated SGD: R steps with the mean of M K stochastic gradients at one point.

    It is FedAc-I with one local step and noise sigma / sqrt(K), and has its bound.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedaci:full with K = 1. Differs from it: the text states no theorem of its own for it.

    >>> constants, setting = Constants(1.0, 3.0, 2.0, strong_convexity=0.1), Setting(clients=4, rounds=9, local_steps=9)
    >>> one_step = fed_ac_one_bound(Constants(1.0, 1.0, 2.0, strong_convexity=0.1), Setting(4, 9, 1))
    >>> minibatch_ac_sgd_bound(constants, setting).value == one_step.value
    True
    """
    batch = replace(constants, noise=constants.noise / math.sqrt(setting.local_steps))
    bound = fed_ac_one_bound(batch, replace(setting, local_steps=1), step_size, form)
    return replace(bound, method="MB-AC-SGD")


def fed_ac_two_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAc-II on a strongly convex objective.

    For any eta <= 1/L, with Phi = F(x_ag) - F* + mu/6 ||x - x*||^2 and Phi0 its initial value,
        E Phi <= exp(-1/3 max(eta mu, sqrt(eta mu / K)) K R) Phi0 + sqrt(eta / (mu K)) sigma^2 / M + 100 eta^2 L^2 K sigma^2 / mu.
    With a = mu M K R Phi0 / sigma^2, b = mu^3 K R^4 Phi0 / (L^2 sigma^2), eta = min(1/L, 9 log^2(e + min(a, b)) / (mu K R^2)),
        E Phi <= exp(-1/3 max(mu K R / L, sqrt(mu K / L) R)) Phi0 + 4 sigma^2 / (mu M K R) log(e + a)
                 + 8101 L^2 sigma^2 / (mu^3 K R^4) log^4(e + b).

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedacii:a1:full, lemma fedacii:a1:general:eta, simplified theorem fedac:a1(b). Differs from
    it: the step size has min(a, b) where the text prints min{a + b}, with which the lemma does not give the theorem; Phi0 as in
    `fed_ac_one_bound`.

    >>> bound = fed_ac_two_bound(Constants(1.0, 0.0, 2.0, strong_convexity=1.0), Setting(clients=4, rounds=3, local_steps=1))
    >>> round(bound.value, 6), bound.step_size
    (1.471518, 1.0)
    """
    L, B, sigma, mu, M, K, R = constants.letters(setting)
    simplified = is_simplified("fed_ac_two_bound", step_size, form)
    phi = initial_potential(constants, 1 / 6)
    if step_size is not None:
        eta, label = step_size, "fedacii:a1:general:eta"
        terms = {
            "deterministic": math.exp(-max(eta * mu, math.sqrt(eta * mu / K)) * K * R / 3) * phi,
            "statistical": ratio(math.sqrt(eta) * sigma**2, math.sqrt(mu * K) * M),
            "drift": ratio(100 * eta**2 * L**2 * K * sigma**2, mu),
        }
    elif simplified:
        eta, label = None, "fedac:a1(b)"
        terms = {
            "deterministic": _decay(L, mu, K, R, 1 / 3) * L * B**2,
            "statistical": ratio(sigma**2, mu * M * K * R),
            "drift": ratio(L**2 * sigma**2, mu**3 * K * R**4),
        }
    else:
        label = "fedacii:a1:full"
        a, b = ratio(mu * M * K * R * phi, sigma**2), ratio(mu**3 * K * R**4 * phi, L**2 * sigma**2)
        eta = min(1 / L, ratio(9 * math.log(E + min(a, b)) ** 2, mu * K * R**2))
        terms = {
            "deterministic": _decay(L, mu, K, R, 1 / 3) * phi,
            "statistical": logged(ratio(4 * sigma**2, mu * M * K * R), 1, E, a),
            "drift": logged(ratio(8101 * L**2 * sigma**2, mu**3 * K * R**4), 4, E, b),
        }
    return Bound(label, TWO, POTENTIAL_TWO, terms, eta, strongly_convex(constants, eta))


def fed_ac_two_third_order_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAc-II on a strongly convex objective with Q-Lipschitz Hessian and noise of bounded fourth moment sigma^4.

    For any eta <= 1/L, with Phi and Phi0 as in `fed_ac_two_bound`,
        E Phi <= exp(-1/3 max(eta mu, sqrt(eta mu / K)) K R) Phi0 + sqrt(eta / (mu K)) sigma^2 / M
                 + 2 eta^(3/2) L sqrt(K / mu) sigma^2 / M + e^9 eta^4 Q^2 K^2 sigma^4 / mu.
    With a = mu M K R Phi0 / sigma^2, b = mu^2 M K R^3 Phi0 / (L sigma^2), c = mu^5 K^2 R^8 Phi0 / (Q^2 sigma^4) and
    eta = min(1/L, 9 log^2(e + min(a, b, c)) / (mu K R^2)),
        E Phi <= exp(-1/3 max(mu K R / L, sqrt(mu K / L) R)) Phi0 + 4 sigma^2 / (mu M K R) log(e + a)
                 + 55 L sigma^2 / (mu^2 M K R^3) log^3(e + b) + e^18 Q^2 sigma^4 / (mu^5 K^2 R^8) log^8(e + c).
    The simplified form drops the term in b, which R >= sqrt(L / mu) allows.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedacii:a2:full, lemma fedacii:a2:general:eta, simplified theorem fedacii:a2. Differs from
    it: the step size has min(a, b, c) where the text prints min{a + b, c}, with which the lemma does not give the theorem; Phi0
    as in `fed_ac_one_bound`.

    >>> constants = Constants(1.0, 1.0, 1.0, strong_convexity=1.0, fourth_moment=1.0, third_order=0.0)
    >>> bound = fed_ac_two_third_order_bound(constants, Setting(clients=2, rounds=10, local_steps=5), form="simplified")
    >>> [round(value, 9) for value in bound.terms.values()]
    [1.16e-07, 0.01, 0.0]
    """
    owner = "fed_ac_two_third_order_bound"
    L, B, _, mu, M, K, R = constants.letters(setting)
    simplified = is_simplified(owner, step_size, form)
    sigma, Q = constants.known(owner, "fourth_moment"), constants.known(owner, "third_order")
    phi = initial_potential(constants, 1 / 6)
    conditions = {}
    if step_size is not None:
        eta, label = step_size, "fedacii:a2:general:eta"
        terms = {
            "deterministic": math.exp(-max(eta * mu, math.sqrt(eta * mu / K)) * K * R / 3) * phi,
            "statistical": ratio(math.sqrt(eta) * sigma**2, math.sqrt(mu * K) * M),
            "acceleration": ratio(2 * eta**1.5 * L * math.sqrt(K) * sigma**2, math.sqrt(mu) * M),
            "third_order": ratio(E**9 * eta**4 * Q**2 * K**2 * sigma**4, mu),
        }
    elif simplified:
        eta, label = None, "fedacii:a2"
        conditions = {"R >= sqrt(L/mu)": mu * R**2 >= L}
        terms = {
            "deterministic": _decay(L, mu, K, R, 1 / 3) * 2 * L * B**2,
            "statistical": ratio(sigma**2, mu * M * K * R),
            "third_order": ratio(Q**2 * sigma**4, mu**5 * K**2 * R**8),
        }
    else:
        label = "fedacii:a2:full"
        a, b = ratio(mu * M * K * R * phi, sigma**2), ratio(mu**2 * M * K * R**3 * phi, L * sigma**2)
        c = ratio(mu**5 * K**2 * R**8 * phi, Q**2 * sigma**4)
        eta = min(1 / L, ratio(9 * math.log(E + min(a, b, c)) ** 2, mu * K * R**2))
        terms = {
            "deterministic": _decay(L, mu, K, R, 1 / 3) * phi,
            "statistical": logged(ratio(4 * sigma**2, mu * M * K * R), 1, E, a),
            "acceleration": logged(ratio(55 * L * sigma**2, mu**2 * M * K * R**3), 3, E, b),
            "third_order": logged(ratio(E**18 * Q**2 * sigma**4, mu**5 * K**2 * R**8), 8, E, c),
        }
    return Bound(label, TWO, POTENTIAL_TWO, terms, eta, strongly_convex(constants, eta) | conditions)


def strongly_convex(constants: Constants, step_size: float | None) -> dict[str, bool]:
    """What every theorem for strongly convex objectives asks for."""
    allowed = step_size is None or step_size <= 1 / constants.smoothness
    return {"step_size <= 1/L": allowed, "mu > 0": constants.strong_convexity > 0} | homogeneous(constants)


def _decay(L: float, mu: float, K: int, R: int, rate: float = 1.0) -> float:
    """exp(-rate max(mu K R / L, sqrt(mu K / L) R)): what the largest step size leaves of the initial potential."""
    return math.exp(-rate * max(mu * K / L, math.sqrt(mu * K / L)) * R)
