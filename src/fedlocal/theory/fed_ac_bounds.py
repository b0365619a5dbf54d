"""What the theorems say about FedAc: upper bounds for strongly convex objectives, and for convex ones through l2 augmentation.

Letters in the bodies: L smoothness, mu strong convexity, sigma noise, B initial distance, Q third-order smoothness, M clients,
K local steps, R rounds, eta step size, lam (lambda) the l2 augmentation. Terms of the bounds:
    deterministic   what is left of the initial error (for convex objectives with the cost of the augmentation)
    regularization  lambda B^2 / 2, where the augmentation is given on its own
    statistical     noise that more clients average out
    acceleration    noise that acceleration amplifies and more clients average out
    drift           what rare communication costs because of noise
    third_order     the same when the Hessian is Lipschitz
"""

import math
from dataclasses import replace

from fedlocal import checks
from fedlocal.theory.bound import Bound, Constants, Setting, homogeneous, is_simplified, known, ratio

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
    constants: Constants, setting: Setting, step_size: float | None = None, form: str = "full"
) -> Bound:
    r"""FedAc-I on a strongly convex objective.

    For any eta <= 1/L, with Psi = F(x_ag) - F* + mu/2 ||x - x*||^2 and Psi0 its initial value,
        E Psi <= exp(-max(eta mu, sqrt(eta mu / K)) K R) Psi0 + sqrt(eta / (mu K)) sigma^2 / (2 M) + eta sigma^2 / (2 M)
                 + 390 eta^(3/2) L sqrt(K / mu) sigma^2 + 7 eta^2 L K sigma^2.
    With a = mu M K R Psi0 / sigma^2, b = mu^2 K R^3 Psi0 / (L sigma^2) and eta = min(1/L, log^2(e + min(a, b)) / (mu K R^2)),
        E Psi <= exp(-max(mu K R / L, sqrt(mu K / L) R)) Psi0 + 2 sigma^2 / (mu M K R) log^2(e + a)
                 + 400 L sigma^2 / (mu^2 K R^3) log^4(e + b).

    Reference: dissertation, theorem fedaci:full, lemma fedaci:general:eta, simplified theorem fedac:a1(a). Differs from it:
    Psi0 is computed from the gap where that is known, and is L B^2 otherwise.

    >>> bound = fed_ac_one_bound(Constants(1.0, 0.0, 2.0, strong_convexity=1.0), Setting(clients=4, rounds=3, local_steps=1))
    >>> round(bound.value, 6), bound.step_size, bound.applies
    (0.199148, 1.0, True)
    """
    L, mu, sigma, M, K, R = _letters(constants, setting)
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
            "deterministic": _decay(L, mu, K, R) * L * constants.distance**2,
            "statistical": ratio(sigma**2, mu * M * K * R),
            "drift": ratio(L * sigma**2, mu**2 * K * R**3),
        }
    else:
        label = "fedaci:full"
        a, b = ratio(mu * M * K * R * psi, sigma**2), ratio(mu**2 * K * R**3 * psi, L * sigma**2)
        eta = min(1 / L, ratio(math.log(E + min(a, b)) ** 2, mu * K * R**2))
        terms = {
            "deterministic": _decay(L, mu, K, R) * psi,
            "statistical": _logged(ratio(2 * sigma**2, mu * M * K * R), 2, E, a),
            "drift": _logged(ratio(400 * L * sigma**2, mu**2 * K * R**3), 4, E, b),
        }
    return Bound(label, ONE, POTENTIAL_ONE, terms, eta, strongly_convex(constants, eta))


def minibatch_ac_sgd_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: str = "full"
) -> Bound:
    """Minibatch accelerated SGD: R steps with the mean of M K stochastic gradients at one point.

    It is FedAc-I with one local step and noise sigma / sqrt(K), and has its bound.

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
    constants: Constants, setting: Setting, step_size: float | None = None, form: str = "full"
) -> Bound:
    r"""FedAc-II on a strongly convex objective.

    For any eta <= 1/L, with Phi = F(x_ag) - F* + mu/6 ||x - x*||^2 and Phi0 its initial value,
        E Phi <= exp(-1/3 max(eta mu, sqrt(eta mu / K)) K R) Phi0 + sqrt(eta / (mu K)) sigma^2 / M + 100 eta^2 L^2 K sigma^2 / mu.
    With a = mu M K R Phi0 / sigma^2, b = mu^3 K R^4 Phi0 / (L^2 sigma^2), eta = min(1/L, 9 log^2(e + min(a, b)) / (mu K R^2)),
        E Phi <= exp(-1/3 max(mu K R / L, sqrt(mu K / L) R)) Phi0 + 4 sigma^2 / (mu M K R) log(e + a)
                 + 8101 L^2 sigma^2 / (mu^3 K R^4) log^4(e + b).

    Reference: dissertation, theorem fedacii:a1:full, lemma fedacii:a1:general:eta, simplified theorem fedac:a1(b). Differs from
    it: the step size has min(a, b) where the text prints min{a + b}, with which the lemma does not give the theorem; Phi0 as in
    `fed_ac_one_bound`.

    >>> bound = fed_ac_two_bound(Constants(1.0, 0.0, 2.0, strong_convexity=1.0), Setting(clients=4, rounds=3, local_steps=1))
    >>> round(bound.value, 6), bound.step_size
    (1.471518, 1.0)
    """
    L, mu, sigma, M, K, R = _letters(constants, setting)
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
            "deterministic": _decay(L, mu, K, R, 1 / 3) * L * constants.distance**2,
            "statistical": ratio(sigma**2, mu * M * K * R),
            "drift": ratio(L**2 * sigma**2, mu**3 * K * R**4),
        }
    else:
        label = "fedacii:a1:full"
        a, b = ratio(mu * M * K * R * phi, sigma**2), ratio(mu**3 * K * R**4 * phi, L**2 * sigma**2)
        eta = min(1 / L, ratio(9 * math.log(E + min(a, b)) ** 2, mu * K * R**2))
        terms = {
            "deterministic": _decay(L, mu, K, R, 1 / 3) * phi,
            "statistical": _logged(ratio(4 * sigma**2, mu * M * K * R), 1, E, a),
            "drift": _logged(ratio(8101 * L**2 * sigma**2, mu**3 * K * R**4), 4, E, b),
        }
    return Bound(label, TWO, POTENTIAL_TWO, terms, eta, strongly_convex(constants, eta))


def fed_ac_two_third_order_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: str = "full"
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

    Reference: dissertation, theorem fedacii:a2:full, lemma fedacii:a2:general:eta, simplified theorem fedacii:a2. Differs from
    it: the step size has min(a, b, c) where the text prints min{a + b, c}, with which the lemma does not give the theorem; Phi0
    as in `fed_ac_one_bound`.

    >>> constants = Constants(1.0, 1.0, 1.0, strong_convexity=1.0, fourth_moment=1.0, third_order=0.0)
    >>> bound = fed_ac_two_third_order_bound(constants, Setting(clients=2, rounds=10, local_steps=5), form="simplified")
    >>> [round(value, 9) for value in bound.terms.values()]
    [1.16e-07, 0.01, 0.0]
    """
    owner = "fed_ac_two_third_order_bound"
    L, mu, _, M, K, R = _letters(constants, setting)
    simplified = is_simplified(owner, step_size, form)
    sigma, Q = known(owner, constants, "fourth_moment"), known(owner, constants, "third_order")
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
            "deterministic": _decay(L, mu, K, R, 1 / 3) * 2 * L * constants.distance**2,
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
            "statistical": _logged(ratio(4 * sigma**2, mu * M * K * R), 1, E, a),
            "acceleration": _logged(ratio(55 * L * sigma**2, mu**2 * M * K * R**3), 3, E, b),
            "third_order": _logged(ratio(E**18 * Q**2 * sigma**4, mu**5 * K**2 * R**8), 8, E, c),
        }
    return Bound(label, TWO, POTENTIAL_TWO, terms, eta, strongly_convex(constants, eta) | conditions)


def fed_ac_one_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: str = "full"
) -> Bound:
    r"""FedAc-I on F + lambda/2 ||x - x0||^2 for a convex objective F.

    For any eta <= 1/(L + lambda), with mu = lambda in FedAc-I,
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(eta lambda K) R) + sqrt(eta / (lambda K)) sigma^2 / (2 M)
            + eta sigma^2 / (2 M) + 390 eta^(3/2) (L + lambda) sqrt(K / lambda) sigma^2 + 7 eta^2 (L + lambda) K sigma^2.
    With lambda the largest of
        sigma / (sqrt(M K R) B),  L^(1/3) sigma^(2/3) / (K^(1/3) R B^(2/3)),  2 L / (K R^2) log^2(e^2 + K R^2)
    and eta the smallest of
        1/(L + lambda),  log^2(e + min(lambda L M K R, lambda^2 K R^3) B^2 / sigma^2) / (lambda K R^2),
        L^(1/3) B^(2/3) / (lambda^(2/3) K^(2/3) R sigma^(2/3)),  L^(1/4) B^(1/2) / (lambda^(3/4) K^(3/4) R sigma^(1/2)),
        E F(x_ag) - F* <= 2 L B^2 / (K R^2) log^2(e^2 + K R^2)
            + 2 sigma B / sqrt(M K R) log^2(e^2 + L sqrt(M K R) B / sigma)
            + 1005 L^(1/3) sigma^(2/3) B^(4/3) / (K^(1/3) R) log^4(e^4 + L^(2/3) K^(1/3) R B^(2/3) / sigma^(2/3)).
    A given step size is taken with this lambda.

    Reference: dissertation, theorem fedaci:a1:gcvx, lemma fedaci:gcvx:1, simplified in table tab:conv:rate. Differs from it:
    nothing in the statement; the proof's eta has e^2 for e.

    >>> bound = fed_ac_one_convex_bound(Constants(1.0, 0.0, 1.0), Setting(1, rounds=10, local_steps=10), form="simplified")
    >>> bound.terms["deterministic"], bound.value
    (0.001, 0.001)
    """
    owner = "fed_ac_one_convex_bound"
    L, _, sigma, M, K, R = _letters(constants, setting)
    simplified = is_simplified(owner, step_size, form)
    B = checks.number(owner, "constants.distance", constants.distance, above=0)
    statistical, drift = sigma * B / math.sqrt(M * K * R), math.cbrt(L * sigma**2 * B**4 / K) / R
    deterministic = L * B**2 / (K * R**2)
    lam = max(2 * deterministic * math.log(E**2 + K * R**2) ** 2, statistical, drift) / B**2
    if step_size is not None:
        eta, label = step_size, "fedaci:gcvx:1"
        terms = {
            "regularization": lam * B**2 / 2,
            "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(eta * lam * K) * R),
            "statistical": math.sqrt(eta / (lam * K)) * sigma**2 / (2 * M) + eta * sigma**2 / (2 * M),
            "drift": (390 * eta**1.5 * math.sqrt(K / lam) + 7 * eta**2 * K) * (L + lam) * sigma**2,
        }
    elif simplified:
        eta, lam, label = None, None, "tab:conv:rate"
        terms = {"deterministic": deterministic, "statistical": statistical, "drift": drift}
    else:
        label = "fedaci:a1:gcvx"
        inside = ratio(min(lam * L * M * K * R, lam**2 * K * R**3) * B**2, sigma**2)
        eta = min(
            1 / (L + lam),
            math.log(E + inside) ** 2 / (lam * K * R**2),
            ratio(math.cbrt(L * B**2 / (lam * K) ** 2), R * math.cbrt(sigma**2)),
            ratio((L * B**2 / (lam * K) ** 3) ** 0.25, R * math.sqrt(sigma)),
        )
        terms = {
            "deterministic": 2 * deterministic * math.log(E**2 + K * R**2) ** 2,
            "statistical": _logged(2 * statistical, 2, E**2, ratio(L * B**2, statistical)),
            "drift": _logged(1005 * drift, 4, E**4, ratio(L * B**2, drift)),
        }
    return Bound(label, ONE, SUBOPTIMALITY, terms, eta, _convex(constants, setting, eta, lam, 24), lam)


def fed_ac_two_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: str = "full"
) -> Bound:
    r"""FedAc-II on F + lambda/2 ||x - x0||^2 for a convex objective F.

    For any eta <= 1/(L + lambda), with mu = lambda in FedAc-II,
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(eta lambda K) R / 3) + sqrt(eta / (lambda K)) sigma^2 / M
            + 200 eta^2 (L^2 / lambda + lambda) K sigma^2.
    With lambda the largest of
        sigma / (sqrt(M K R) B),  L^(1/2) sigma^(1/2) / (K^(1/4) R B^(1/2)),  18 L / (K R^2) log^2(e^2 + K R^2)
    and eta the smallest of
        1/(L + lambda),  9 log^2(e + min(lambda L M K R, lambda^3 K R^4 / L) B^2 / sigma^2) / (lambda K R^2),
        L^(1/3) B^(2/3) / (lambda K R sigma)^(2/3),
        E F(x_ag) - F* <= 10 L B^2 / (K R^2) log^2(e^2 + K R^2) + 5 sigma B / sqrt(M K R) log(e + L sqrt(M K R) B / sigma)
            + 16411 L^(1/2) sigma^(1/2) B^(3/2) / (K^(1/4) R) log^4(e^4 + L^(1/2) K^(1/4) R B^(1/2) / sigma^(1/2)).
    A given step size is taken with this lambda.

    Reference: dissertation, theorem fedacii:a1:gcvx, lemma fedacii:a1:gcvx:1, simplified in table tab:conv:rate. Differs from it:
    assumes what its title says (smoothness and bounded variance), not third-order smoothness as its first sentence.

    >>> bound = fed_ac_two_convex_bound(Constants(1.0, 16.0, 1.0), Setting(4, rounds=4, local_steps=16), form="simplified")
    >>> bound.terms["drift"]
    0.5
    """
    owner = "fed_ac_two_convex_bound"
    L, _, sigma, M, K, R = _letters(constants, setting)
    simplified = is_simplified(owner, step_size, form)
    B = checks.number(owner, "constants.distance", constants.distance, above=0)
    statistical, drift = sigma * B / math.sqrt(M * K * R), math.sqrt(L * sigma * B**3) / (K**0.25 * R)
    deterministic = L * B**2 / (K * R**2)
    lam = max(18 * deterministic * math.log(E**2 + K * R**2) ** 2, statistical, drift) / B**2
    if step_size is not None:
        eta, label = step_size, "fedacii:a1:gcvx:1"
        terms = {
            "regularization": lam * B**2 / 2,
            "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(eta * lam * K) * R / 3),
            "statistical": math.sqrt(eta / (lam * K)) * sigma**2 / M,
            "drift": 200 * eta**2 * (L**2 / lam + lam) * K * sigma**2,
        }
    elif simplified:
        eta, lam, label = None, None, "tab:conv:rate"
        terms = {"deterministic": deterministic, "statistical": statistical, "drift": drift}
    else:
        label = "fedacii:a1:gcvx"
        inside = ratio(min(lam * L * M * K * R, lam**3 * K * R**4 / L) * B**2, sigma**2)
        eta = min(
            1 / (L + lam),
            9 * math.log(E + inside) ** 2 / (lam * K * R**2),
            ratio(math.cbrt(L * B**2), math.cbrt(lam * K * R * sigma) ** 2),
        )
        terms = {
            "deterministic": 10 * deterministic * math.log(E**2 + K * R**2) ** 2,
            "statistical": _logged(5 * statistical, 1, E, ratio(L * B**2, statistical)),
            "drift": _logged(16411 * drift, 4, E**4, ratio(L * B**2, drift)),
        }
    return Bound(label, TWO, SUBOPTIMALITY, terms, eta, _convex(constants, setting, eta, lam, 1000), lam)


def fed_ac_two_third_order_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: str = "full"
) -> Bound:
    r"""FedAc-II on F + lambda/2 ||x - x0||^2 for a convex F with Q-Lipschitz Hessian and noise of bounded fourth moment sigma^4.

    For any eta <= 1/(L + lambda), with mu = lambda in FedAc-II,
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(eta lambda K) R / 3) + sqrt(eta / (lambda K)) sigma^2 / M
            + 2 eta^(3/2) (L + lambda) sqrt(K / lambda) sigma^2 / M + e^9 eta^4 Q^2 K^2 sigma^4 / lambda.
    With lambda the largest of
        sigma / (sqrt(M K R) B),  L^(1/3) sigma^(2/3) / ((M K)^(1/3) R B^(2/3)),  Q^(1/3) sigma^(2/3) / (K^(1/3) R^(4/3) B^(1/3)),
        18 L / (K R^2) log^2(e^2 + K R^2)
    and eta the smallest of
        1/(L + lambda),  L^(1/3) M^(1/3) B^(2/3) / (lambda^(2/3) K^(2/3) R sigma^(2/3)),  9 log^2(e + c) / (lambda K R^2) with
        c = min(lambda L M K R B^2 / sigma^2, lambda^2 M K R^3 B^2 / sigma^2, lambda^5 L K^2 R^8 B^2 / (Q^2 sigma^4)),
        E F(x_ag) - F* <= 10 L B^2 / (K R^2) log^2(e^2 + K R^2) + 5 sigma B / sqrt(M K R) log(e + L sqrt(M K R) B / sigma)
            + 139 L^(1/3) sigma^(2/3) B^(4/3) / ((M K)^(1/3) R) log^3(e^3 + L^(2/3) (M K)^(1/3) R B^(2/3) / sigma^(2/3))
            + e^19 Q^(1/3) sigma^(2/3) B^(5/3) / (K^(1/3) R^(4/3)) log^8(e^8 + L K^(1/3) R^(4/3) B^(1/3) / (Q^(1/3) sigma^(2/3))).
    A given step size is taken with this lambda.

    Reference: dissertation, theorem fedacii:a2:gcvx, lemma fedacii:a2:gcvx:1, simplified in table tab:conv:rate. Differs from it:
    nothing in the statement; its proof leaves the last candidate out of the maximum and calls decreasing functions increasing.

    >>> constants = Constants(1.0, 8.0, 1.0, fourth_moment=8.0, third_order=8.0)
    >>> bound = fed_ac_two_third_order_convex_bound(constants, Setting(clients=8, rounds=8, local_steps=8), form="simplified")
    >>> [round(value, 9) for value in bound.terms.values()]
    [0.001953125, 0.353553391, 0.125, 0.25]
    """
    owner = "fed_ac_two_third_order_convex_bound"
    L, _, _, M, K, R = _letters(constants, setting)
    simplified = is_simplified(owner, step_size, form)
    sigma, Q = known(owner, constants, "fourth_moment"), known(owner, constants, "third_order")
    B = checks.number(owner, "constants.distance", constants.distance, above=0)
    statistical, acceleration = sigma * B / math.sqrt(M * K * R), math.cbrt(L * sigma**2 * B**4 / (M * K)) / R
    third_order, deterministic = math.cbrt(Q * sigma**2 * B**5 / (K * R**4)), L * B**2 / (K * R**2)
    augmentation = 18 * deterministic * math.log(E**2 + K * R**2) ** 2
    lam = max(augmentation, statistical, acceleration, third_order) / B**2
    if step_size is not None:
        eta, label = step_size, "fedacii:a2:gcvx:1"
        terms = {
            "regularization": lam * B**2 / 2,
            "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(eta * lam * K) * R / 3),
            "statistical": math.sqrt(eta / (lam * K)) * sigma**2 / M,
            "acceleration": 2 * eta**1.5 * (L + lam) * math.sqrt(K / lam) * sigma**2 / M,
            "third_order": E**9 * eta**4 * Q**2 * K**2 * sigma**4 / lam,
        }
    elif simplified:
        eta, lam, label = None, None, "tab:conv:rate"
        terms = {"deterministic": deterministic, "statistical": statistical}
        terms |= {"acceleration": acceleration, "third_order": third_order}
    else:
        label = "fedacii:a2:gcvx"
        inside = min(
            ratio(lam * L * M * K * R * B**2, sigma**2),
            ratio(lam**2 * M * K * R**3 * B**2, sigma**2),
            ratio(lam**5 * L * K**2 * R**8 * B**2, Q**2 * sigma**4),
        )
        eta = min(
            1 / (L + lam),
            9 * math.log(E + inside) ** 2 / (lam * K * R**2),
            ratio(math.cbrt(L * M * B**2 / (lam * K) ** 2), R * math.cbrt(sigma**2)),
        )
        terms = {
            "deterministic": 10 * deterministic * math.log(E**2 + K * R**2) ** 2,
            "statistical": _logged(5 * statistical, 1, E, ratio(L * B**2, statistical)),
            "acceleration": _logged(139 * acceleration, 3, E**3, ratio(L * B**2, acceleration)),
            "third_order": _logged(E**19 * third_order, 8, E**8, ratio(L * B**2, third_order)),
        }
    return Bound(label, TWO, SUBOPTIMALITY, terms, eta, _convex(constants, setting, eta, lam, 1000), lam)


def _letters(constants: Constants, setting: Setting) -> tuple[float, float, float, int, int, int]:
    """L, mu, sigma, M, K, R."""
    known_of_problem = constants.smoothness, constants.strong_convexity, constants.noise
    return *known_of_problem, setting.clients, setting.local_steps, setting.rounds


def strongly_convex(constants: Constants, step_size: float | None) -> dict[str, bool]:
    """What every theorem for strongly convex objectives asks for."""
    allowed = step_size is None or step_size <= 1 / constants.smoothness
    return {"step_size <= 1/L": allowed, "mu > 0": constants.strong_convexity > 0} | homogeneous(constants)


def _convex(
    constants: Constants, setting: Setting, step_size: float | None, lam: float | None, total_steps: int
) -> dict[str, bool]:
    allowed = step_size is None or lam is None or step_size <= 1 / (constants.smoothness + lam)
    enough = setting.local_steps * setting.rounds >= total_steps
    return {"step_size <= 1/(L + lambda)": allowed, f"K R >= {total_steps}": enough} | homogeneous(constants)


def _decay(L: float, mu: float, K: int, R: int, rate: float = 1.0) -> float:
    """exp(-rate max(mu K R / L, sqrt(mu K / L) R)): what the largest step size leaves of the initial potential."""
    return math.exp(-rate * max(mu * K / L, math.sqrt(mu * K / L)) * R)


def _logged(amount: float, power: int, offset: float, argument: float) -> float:
    """amount log^power(offset + argument); zero where the amount is, though the argument is infinite then."""
    return amount * math.log(offset + argument) ** power if amount else 0.0
