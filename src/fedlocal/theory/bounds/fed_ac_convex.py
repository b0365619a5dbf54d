"""Bounds of FedAc for general convex objectives, by way of the l2-augmented objective.

Letters as in `fed_ac_bounds`; lam (lambda) is the l2 augmentation.
"""

import math

from fedlocal.theory.bounds.bound import Bound, Constants, Form, Setting, homogeneous, is_simplified, logged, ratio
from fedlocal.theory.bounds.fed_ac import ONE, SUBOPTIMALITY, TWO, E
from fedlocal.theory.bounds.fed_ac_augmented import (
    fed_ac_one_augmented_bound,
    fed_ac_two_augmented_bound,
    fed_ac_two_third_order_augmented_bound,
)
from fedlocal.util import checks


def fed_ac_one_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAc-I on F + lambda/2 ||x - x0||^2 for a convex objective F.

    With mu = lambda in FedAc-I, lambda the largest of
        sigma / (sqrt(M K R) B),  L^(1/3) sigma^(2/3) / (K^(1/3) R B^(2/3)),  2 L / (K R^2) log^2(e^2 + K R^2)
    and eta the smallest of
        1/(L + lambda),  log^2(e + min(lambda L M K R, lambda^2 K R^3) B^2 / sigma^2) / (lambda K R^2),
        L^(1/3) B^(2/3) / (lambda^(2/3) K^(2/3) R sigma^(2/3)),  L^(1/4) B^(1/2) / (lambda^(3/4) K^(3/4) R sigma^(1/2)),
        E F(x_ag) - F* <= 2 L B^2 / (K R^2) log^2(e^2 + K R^2)
            + 2 sigma B / sqrt(M K R) log^2(e^2 + L sqrt(M K R) B / sigma)
            + 1005 L^(1/3) sigma^(2/3) B^(4/3) / (K^(1/3) R) log^4(e^4 + L^(2/3) K^(1/3) R B^(2/3) / sigma^(2/3)).
    For any eta and lambda: `fed_ac_one_augmented_bound`; a step size given here is taken with this lambda.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedaci:a1:gcvx, lemma fedaci:gcvx:1, simplified in table tab:conv:rate. Differs from it:
    nothing in the statement; the proof's eta has e^2 for e.

    >>> bound = fed_ac_one_convex_bound(Constants(1.0, 0.0, 1.0), Setting(1, rounds=10, local_steps=10), form="simplified")
    >>> bound.terms["deterministic"], bound.value
    (0.001, 0.001)
    """
    owner = "fed_ac_one_convex_bound"
    L, _, sigma, _, M, K, R = constants.letters(setting)
    simplified = is_simplified(owner, step_size, form)
    B = checks.number(owner, "constants.distance", constants.distance, above=0)
    statistical, drift = sigma * B / math.sqrt(M * K * R), math.cbrt(L * sigma**2 * B**4 / K) / R
    deterministic = L * B**2 / (K * R**2)
    lam = max(2 * deterministic * math.log(E**2 + K * R**2) ** 2, statistical, drift) / B**2
    if step_size is not None:
        return fed_ac_one_augmented_bound(constants, setting, lam, step_size)
    if simplified:
        eta, lam, label = None, None, "tab:conv:rate"
        terms = {"deterministic": deterministic, "statistical": statistical, "drift": drift}
    else:
        label = "fedaci:a1:gcvx"
        eta = fed_ac_one_augmented_bound(constants, setting, lam).step_size
        terms = {
            "deterministic": 2 * deterministic * math.log(E**2 + K * R**2) ** 2,
            "statistical": logged(2 * statistical, 2, E**2, ratio(L * B**2, statistical)),
            "drift": logged(1005 * drift, 4, E**4, ratio(L * B**2, drift)),
        }
    return Bound(label, ONE, SUBOPTIMALITY, terms, eta, _convex(constants, setting, 24), lam)


def fed_ac_two_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAc-II on F + lambda/2 ||x - x0||^2 for a convex objective F.

    With mu = lambda in FedAc-II, lambda the largest of
        sigma / (sqrt(M K R) B),  L^(1/2) sigma^(1/2) / (K^(1/4) R B^(1/2)),  18 L / (K R^2) log^2(e^2 + K R^2)
    and eta the smallest of
        1/(L + lambda),  9 log^2(e + min(lambda L M K R, lambda^3 K R^4 / L) B^2 / sigma^2) / (lambda K R^2),
        L^(1/3) B^(2/3) / (lambda K R sigma)^(2/3),
        E F(x_ag) - F* <= 10 L B^2 / (K R^2) log^2(e^2 + K R^2) + 5 sigma B / sqrt(M K R) log(e + L sqrt(M K R) B / sigma)
            + 16411 L^(1/2) sigma^(1/2) B^(3/2) / (K^(1/4) R) log^4(e^4 + L^(1/2) K^(1/4) R B^(1/2) / sigma^(1/2)).
    For any eta and lambda: `fed_ac_two_augmented_bound`; a step size given here is taken with this lambda.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedacii:a1:gcvx, lemma fedacii:a1:gcvx:1, simplified in table tab:conv:rate. Differs from it:
    assumes what its title says (smoothness and bounded variance), not third-order smoothness as its first sentence.

    >>> bound = fed_ac_two_convex_bound(Constants(1.0, 16.0, 1.0), Setting(4, rounds=4, local_steps=16), form="simplified")
    >>> bound.terms["drift"]
    0.5
    """
    owner = "fed_ac_two_convex_bound"
    L, _, sigma, _, M, K, R = constants.letters(setting)
    simplified = is_simplified(owner, step_size, form)
    B = checks.number(owner, "constants.distance", constants.distance, above=0)
    statistical, drift = sigma * B / math.sqrt(M * K * R), math.sqrt(L * sigma * B**3) / (K**0.25 * R)
    deterministic = L * B**2 / (K * R**2)
    lam = max(18 * deterministic * math.log(E**2 + K * R**2) ** 2, statistical, drift) / B**2
    if step_size is not None:
        return fed_ac_two_augmented_bound(constants, setting, lam, step_size)
    if simplified:
        eta, lam, label = None, None, "tab:conv:rate"
        terms = {"deterministic": deterministic, "statistical": statistical, "drift": drift}
    else:
        label = "fedacii:a1:gcvx"
        eta = fed_ac_two_augmented_bound(constants, setting, lam).step_size
        terms = {
            "deterministic": 10 * deterministic * math.log(E**2 + K * R**2) ** 2,
            "statistical": logged(5 * statistical, 1, E, ratio(L * B**2, statistical)),
            "drift": logged(16411 * drift, 4, E**4, ratio(L * B**2, drift)),
        }
    return Bound(label, TWO, SUBOPTIMALITY, terms, eta, _convex(constants, setting, 1000), lam)


def fed_ac_two_third_order_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAc-II on F + lambda/2 ||x - x0||^2 for a convex F with Q-Lipschitz Hessian and noise of bounded fourth moment sigma^4.

    With mu = lambda in FedAc-II, lambda the largest of
        sigma / (sqrt(M K R) B),  L^(1/3) sigma^(2/3) / ((M K)^(1/3) R B^(2/3)),  Q^(1/3) sigma^(2/3) / (K^(1/3) R^(4/3) B^(1/3)),
        18 L / (K R^2) log^2(e^2 + K R^2)
    and eta the smallest of
        1/(L + lambda),  L^(1/3) M^(1/3) B^(2/3) / (lambda^(2/3) K^(2/3) R sigma^(2/3)),  9 log^2(e + c) / (lambda K R^2) with
        c = min(lambda L M K R B^2 / sigma^2, lambda^2 M K R^3 B^2 / sigma^2, lambda^5 L K^2 R^8 B^2 / (Q^2 sigma^4)),
        E F(x_ag) - F* <= 10 L B^2 / (K R^2) log^2(e^2 + K R^2) + 5 sigma B / sqrt(M K R) log(e + L sqrt(M K R) B / sigma)
            + 139 L^(1/3) sigma^(2/3) B^(4/3) / ((M K)^(1/3) R) log^3(e^3 + L^(2/3) (M K)^(1/3) R B^(2/3) / sigma^(2/3))
            + e^19 Q^(1/3) sigma^(2/3) B^(5/3) / (K^(1/3) R^(4/3)) log^8(e^8 + L K^(1/3) R^(4/3) B^(1/3) / (Q^(1/3) sigma^(2/3))).
    For any eta and lambda: `fed_ac_two_third_order_augmented_bound`; a step size given here is taken with this lambda.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedacii:a2:gcvx, lemma fedacii:a2:gcvx:1, simplified in table tab:conv:rate. Differs from it:
    nothing in the statement; its proof leaves the last candidate out of the maximum and calls decreasing functions increasing.

    >>> constants = Constants(1.0, 8.0, 1.0, fourth_moment=8.0, third_order=8.0)
    >>> bound = fed_ac_two_third_order_convex_bound(constants, Setting(clients=8, rounds=8, local_steps=8), form="simplified")
    >>> [round(value, 9) for value in bound.terms.values()]
    [0.001953125, 0.353553391, 0.125, 0.25]
    """
    owner = "fed_ac_two_third_order_convex_bound"
    L, _, _, _, M, K, R = constants.letters(setting)
    simplified = is_simplified(owner, step_size, form)
    sigma, Q = constants.known(owner, "fourth_moment"), constants.known(owner, "third_order")
    B = checks.number(owner, "constants.distance", constants.distance, above=0)
    statistical, acceleration = sigma * B / math.sqrt(M * K * R), math.cbrt(L * sigma**2 * B**4 / (M * K)) / R
    third_order, deterministic = math.cbrt(Q * sigma**2 * B**5 / (K * R**4)), L * B**2 / (K * R**2)
    augmentation = 18 * deterministic * math.log(E**2 + K * R**2) ** 2
    lam = max(augmentation, statistical, acceleration, third_order) / B**2
    if step_size is not None:
        return fed_ac_two_third_order_augmented_bound(constants, setting, lam, step_size)
    if simplified:
        eta, lam, label = None, None, "tab:conv:rate"
        terms = {"deterministic": deterministic, "statistical": statistical}
        terms |= {"acceleration": acceleration, "third_order": third_order}
    else:
        label = "fedacii:a2:gcvx"
        eta = fed_ac_two_third_order_augmented_bound(constants, setting, lam).step_size
        terms = {
            "deterministic": 10 * deterministic * math.log(E**2 + K * R**2) ** 2,
            "statistical": logged(5 * statistical, 1, E, ratio(L * B**2, statistical)),
            "acceleration": logged(139 * acceleration, 3, E**3, ratio(L * B**2, acceleration)),
            "third_order": logged(E**19 * third_order, 8, E**8, ratio(L * B**2, third_order)),
        }
    return Bound(label, TWO, SUBOPTIMALITY, terms, eta, _convex(constants, setting, 1000), lam)


def _convex(constants: Constants, setting: Setting, total_steps: int) -> dict[str, bool]:
    enough = setting.local_steps * setting.rounds >= total_steps
    return {f"K R >= {total_steps}": enough} | homogeneous(constants)
