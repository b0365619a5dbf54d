"""Bounds of FedAc on the l2-augmented objective of a convex F, for any lambda: the lemmas behind `fed_ac_convex`.

Letters as there: L smoothness, sigma noise, Q third-order smoothness, B initial distance, M clients, K local steps, R rounds,
eta step size, lam (lambda) the l2 augmentation.
"""

import math

from fedlocal.theory.bounds.bound import Bound, Constants, Setting, homogeneous, logged, ratio
from fedlocal.theory.bounds.fed_ac import ONE, SUBOPTIMALITY, TWO, E
from fedlocal.util import checks


def fed_ac_one_augmented_bound(
    constants: Constants, setting: Setting, regularization: float, step_size: float | None = None
) -> Bound:
    r"""FedAc-I on F + lambda/2 ||x - x0||^2 for a convex objective F and any lambda > 0, with mu = lambda in FedAc-I.

    For any eta <= 1/(L + lambda),
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(eta lambda K) R) + sqrt(eta / (lambda K)) sigma^2 / (2 M)
            + eta sigma^2 / (2 M) + 390 eta^(3/2) (L + lambda) sqrt(K / lambda) sigma^2 + 7 eta^2 (L + lambda) K sigma^2.
    With a = lambda L M K R B^2 / sigma^2, b = lambda^2 K R^3 B^2 / sigma^2 and eta the smallest of
        1/(L + lambda),  log^2(e + min(a, b)) / (lambda K R^2),
        L^(1/3) B^(2/3) / (lambda^(2/3) K^(2/3) R sigma^(2/3)),  L^(1/4) B^(1/2) / (lambda^(3/4) K^(3/4) R sigma^(1/2)),
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(K R^2 / (1 + L / lambda)))
            + 3 sigma^2 / (2 lambda M K R) log^2(e^2 + a) + 592 L sigma^2 / (lambda^2 K R^3) log^4(e^4 + b)
            + 412 sqrt(L / (lambda K R^3)) sigma B.

    Args:
        constants, setting: as for every bound (`fedlocal.theory.bounds`).
        regularization: lambda > 0.
        step_size: eta > 0; None: the smallest of those above, and the second inequality.

    Reference: dissertation, lemmas fedaci:gcvx:1 and fedaci:gcvx:2. Differs from it: nothing in the statements. The proof of the
    second has e^2 for e in eta, and 195 where 1/2 is enough: 398 could stand for 592.

    >>> quiet = Constants(1.0, noise=0.0, distance=2.0)
    >>> bound = fed_ac_one_augmented_bound(quiet, Setting(clients=4, rounds=8, local_steps=8), regularization=0.5)
    >>> bound.terms["regularization"], bound.step_size == 1 / 1.5
    (1.0, True)
    """
    owner = "fed_ac_one_augmented_bound"
    L, B, sigma, _, M, K, R = constants.letters(setting)
    lam, eta = _arguments(owner, regularization, step_size)
    if eta is not None:
        terms = {
            "regularization": lam * B**2 / 2,
            "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(eta * lam * K) * R),
            "statistical": math.sqrt(eta / (lam * K)) * sigma**2 / (2 * M) + eta * sigma**2 / (2 * M),
            "drift": (390 * eta**1.5 * math.sqrt(K / lam) + 7 * eta**2 * K) * (L + lam) * sigma**2,
        }
        return _bound("fedaci:gcvx:1", ONE, terms, constants, lam, eta)
    a, b = ratio(lam * L * M * K * R * B**2, sigma**2), ratio(lam**2 * K * R**3 * B**2, sigma**2)
    eta = min(
        1 / (L + lam),
        math.log(E + min(a, b)) ** 2 / (lam * K * R**2),
        ratio(math.cbrt(L * B**2 / (lam * K) ** 2), R * math.cbrt(sigma**2)),
        ratio((L * B**2 / (lam * K) ** 3) ** 0.25, R * math.sqrt(sigma)),
    )
    drift = logged(592 * L * sigma**2 / (lam**2 * K * R**3), 4, E**4, b)
    terms = {
        "regularization": lam * B**2 / 2,
        "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(K / (1 + L / lam)) * R),
        "statistical": logged(3 * sigma**2 / (2 * lam * M * K * R), 2, E**2, a),
        "drift": drift + 412 * math.sqrt(L / (lam * K * R**3)) * sigma * B,
    }
    return _bound("fedaci:gcvx:2", ONE, terms, constants, lam, eta)


def fed_ac_two_augmented_bound(
    constants: Constants, setting: Setting, regularization: float, step_size: float | None = None
) -> Bound:
    r"""FedAc-II on F + lambda/2 ||x - x0||^2 for a convex objective F and any lambda > 0, with mu = lambda in FedAc-II.

    For any eta <= 1/(L + lambda),
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(eta lambda K) R / 3) + sqrt(eta / (lambda K)) sigma^2 / M
            + 200 eta^2 (L^2 / lambda + lambda) K sigma^2.
    With a = lambda L M K R B^2 / sigma^2, b = lambda^3 K R^4 B^2 / (L sigma^2) and eta the smallest of
        1/(L + lambda),  9 log^2(e + min(a, b)) / (lambda K R^2),  L^(1/3) B^(2/3) / (lambda K R sigma)^(2/3),
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(K R^2 / (9 (1 + L / lambda))))
            + 4 sigma^2 / (lambda M K R) log(e + a) + 16201 L^2 sigma^2 / (lambda^3 K R^4) log^4(e^4 + b)
            + 209 L^(2/3) B^(4/3) sigma^(2/3) / (lambda^(1/3) K^(1/3) R^(4/3)).

    Args:
        constants, setting, regularization, step_size: as for `fed_ac_one_augmented_bound`.

    Reference: dissertation, lemmas fedacii:a1:gcvx:1 and fedacii:a1:gcvx:2. Differs from it: nothing.

    >>> bound = fed_ac_two_augmented_bound(Constants(1.0, 0.0, 2.0), Setting(4, 8, 8), regularization=0.5, step_size=0.25)
    >>> round(bound.terms["deterministic"] / (2 * math.exp(-8 / 3)), 12)
    1.0
    """
    owner = "fed_ac_two_augmented_bound"
    L, B, sigma, _, M, K, R = constants.letters(setting)
    lam, eta = _arguments(owner, regularization, step_size)
    if eta is not None:
        terms = {
            "regularization": lam * B**2 / 2,
            "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(eta * lam * K) * R / 3),
            "statistical": math.sqrt(eta / (lam * K)) * sigma**2 / M,
            "drift": 200 * eta**2 * (L**2 / lam + lam) * K * sigma**2,
        }
        return _bound("fedacii:a1:gcvx:1", TWO, terms, constants, lam, eta)
    a, b = ratio(lam * L * M * K * R * B**2, sigma**2), ratio(lam**3 * K * R**4 * B**2, L * sigma**2)
    eta = min(
        1 / (L + lam),
        9 * math.log(E + min(a, b)) ** 2 / (lam * K * R**2),
        ratio(math.cbrt(L * B**2), math.cbrt(lam * K * R * sigma) ** 2),
    )
    drift = logged(16201 * L**2 * sigma**2 / (lam**3 * K * R**4), 4, E**4, b)
    terms = {
        "regularization": lam * B**2 / 2,
        "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(K / (1 + L / lam)) * R / 3),
        "statistical": logged(4 * sigma**2 / (lam * M * K * R), 1, E, a),
        "drift": drift + 209 * math.cbrt(L**2 * B**4 * sigma**2 / (lam * K * R**4)),
    }
    return _bound("fedacii:a1:gcvx:2", TWO, terms, constants, lam, eta)


def fed_ac_two_third_order_augmented_bound(
    constants: Constants, setting: Setting, regularization: float, step_size: float | None = None
) -> Bound:
    r"""The same for a convex F with Q-Lipschitz Hessian and noise of bounded fourth moment sigma^4.

    For any eta <= 1/(L + lambda),
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(eta lambda K) R / 3) + sqrt(eta / (lambda K)) sigma^2 / M
            + 2 eta^(3/2) (L + lambda) sqrt(K / lambda) sigma^2 / M + e^9 eta^4 Q^2 K^2 sigma^4 / lambda.
    With a = lambda L M K R B^2 / sigma^2, b = lambda^2 M K R^3 B^2 / sigma^2, c = lambda^5 L K^2 R^8 B^2 / (Q^2 sigma^4) and eta
    the smallest of
        1/(L + lambda),  9 log^2(e + min(a, b, c)) / (lambda K R^2),  (L M B^2 / (lambda K sigma)^2)^(1/3) / R,
        E F(x_ag) - F* <= lambda B^2 / 2 + L B^2 / 2 exp(-sqrt(K R^2 / (9 (1 + L / lambda))))
            + 4 sigma^2 / (lambda M K R) log(e + a) + 55 L sigma^2 / (lambda^2 M K R^3) log^3(e^3 + b)
            + 83 sqrt(L / (lambda M K R^3)) sigma B + e^18 Q^2 sigma^4 / (lambda^5 K^2 R^8) log^8(e^8 + c).

    Args:
        constants, setting, regularization, step_size: as for `fed_ac_one_augmented_bound`.

    Reference: dissertation, lemmas fedacii:a2:gcvx:1 and fedacii:a2:gcvx:2. Differs from it: nothing.

    >>> constants = Constants(1.0, 1.0, 2.0, fourth_moment=1.0, third_order=0.0)
    >>> bound = fed_ac_two_third_order_augmented_bound(constants, Setting(4, 8, 8), regularization=0.5, step_size=0.25)
    >>> bound.terms["acceleration"], bound.terms["third_order"]
    (0.375, 0.0)
    """
    owner = "fed_ac_two_third_order_augmented_bound"
    L, B, _, _, M, K, R = constants.letters(setting)
    lam, eta = _arguments(owner, regularization, step_size)
    sigma, Q = constants.known(owner, "fourth_moment"), constants.known(owner, "third_order")
    if eta is not None:
        terms = {
            "regularization": lam * B**2 / 2,
            "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(eta * lam * K) * R / 3),
            "statistical": math.sqrt(eta / (lam * K)) * sigma**2 / M,
            "acceleration": 2 * eta**1.5 * (L + lam) * math.sqrt(K / lam) * sigma**2 / M,
            "third_order": E**9 * eta**4 * Q**2 * K**2 * sigma**4 / lam,
        }
        return _bound("fedacii:a2:gcvx:1", TWO, terms, constants, lam, eta)
    a, b = ratio(lam * L * M * K * R * B**2, sigma**2), ratio(lam**2 * M * K * R**3 * B**2, sigma**2)
    c = ratio(lam**5 * L * K**2 * R**8 * B**2, Q**2 * sigma**4)
    eta = min(
        1 / (L + lam),
        9 * math.log(E + min(a, b, c)) ** 2 / (lam * K * R**2),
        ratio(math.cbrt(L * M * B**2 / (lam * K) ** 2), R * math.cbrt(sigma**2)),
    )
    acceleration = logged(55 * L * sigma**2 / (lam**2 * M * K * R**3), 3, E**3, b)
    terms = {
        "regularization": lam * B**2 / 2,
        "deterministic": L * B**2 / 2 * math.exp(-math.sqrt(K / (1 + L / lam)) * R / 3),
        "statistical": logged(4 * sigma**2 / (lam * M * K * R), 1, E, a),
        "acceleration": acceleration + 83 * math.sqrt(L / (lam * M * K * R**3)) * sigma * B,
        "third_order": logged(E**18 * Q**2 * sigma**4 / (lam**5 * K**2 * R**8), 8, E**8, c),
    }
    return _bound("fedacii:a2:gcvx:2", TWO, terms, constants, lam, eta)


def _arguments(owner: str, regularization: float, step_size: float | None) -> tuple[float, float | None]:
    lam = checks.number(owner, "regularization", regularization, above=0)
    return lam, None if step_size is None else checks.number(owner, "step_size", step_size, above=0)


def _bound(label: str, method: str, terms: dict[str, float], constants: Constants, lam: float, eta: float) -> Bound:
    conditions = {"step_size <= 1/(L + lambda)": eta <= 1 / (constants.smoothness + lam)} | homogeneous(constants)
    return Bound(label, method, SUBOPTIMALITY, terms, eta, conditions, lam)
