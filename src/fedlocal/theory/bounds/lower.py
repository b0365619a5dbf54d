"""What FedAvg cannot beat: its lower bounds, and the curvature of the instance that shows them."""

import math

from fedlocal.theory.bounds.bound import Bound, Constants, Setting
from fedlocal.util import checks


def fed_avg_lower_bound(constants: Constants, setting: Setting) -> Bound:
    r"""For every step size FedAvg's last iterate is at least this far from F*, on some convex instance; orders only.

        L B^2/(K R) + min{L B^2, statistical + drift + heterogeneity},
        statistical = sigma B/sqrt(M K R),
        drift = min{sigma B/sqrt(K R), L^(1/3) sigma^(2/3) B^(4/3)/(K^(1/3) R^(2/3))},
        heterogeneity = min{zeta_*^2/L, L^(1/3) zeta_*^(2/3) B^(4/3)/R^(2/3)}, only where zeta_* > 0.

    The constant of Omega is not known and is 1 here by convention. Where L B^2 is the smaller one, it is the term
    "start".
    Letters: M clients, K local_steps, R rounds, B distance, L smoothness, sigma noise, zeta_* optimum_heterogeneity.

    Args:
        constants, setting: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorems thm:fedavg:lb:homo and, for zeta_* > 0, thm:fedavg:lb:hetero. Differs from it:
    nothing; of the two equivalent forms of the first one this is the first, at most twice the second.

    >>> constants = Constants(smoothness=2.0, noise=0.0, distance=1.0)
    >>> dict(fed_avg_lower_bound(constants, Setting(clients=4, rounds=4, local_steps=8)).terms)
    {'deterministic': 0.0625, 'statistical': 0.0, 'drift': 0.0}
    """
    L, B, sigma, _, M, K, R = constants.letters(setting)
    inner = {"statistical": sigma * B / math.sqrt(M * K * R), "drift": _drift(constants, setting)}
    label, conditions = "thm:fedavg:lb:homo", {"local_steps >= 2": K >= 2}
    zeta = constants.known("fed_avg_lower_bound", "optimum_heterogeneity")
    if zeta > 0:
        inner["heterogeneity"] = _heterogeneity(constants, setting, zeta)
        label, conditions = "thm:fedavg:lb:hetero", conditions | {"clients even": M % 2 == 0}
    start = L * B**2
    rest = inner if math.fsum(inner.values()) <= start else {"start": start}
    terms = {"deterministic": start / (K * R)} | rest
    return Bound(label, "FedAvg", "E F(x^(R,0)) - F*", terms, None, conditions)


def lower_bound_curvature(constants: Constants, setting: Setting) -> float:
    r"""The curvature mu of the flattest coordinate of the instance behind the lower bounds.

        mu = 1/(2 B^2) max{min{drift, L B^2}, min{heterogeneity, L B^2}, L B^2/(K R)},

    with the terms of `fed_avg_lower_bound`. It is at most L/2, and E F - F* = Omega(mu B^2) for every step size.

    Args:
        constants, setting: as for every bound (`fedlocal.theory.bounds`); the distance must be > 0.

    Reference: dissertation, eq. fedavg:lb:f2:2. Differs from it: nothing.

    >>> constants = Constants(smoothness=2.0, noise=0.0, distance=1.0)
    >>> lower_bound_curvature(constants, Setting(clients=4, rounds=4, local_steps=8))
    0.03125
    """
    owner = "lower_bound_curvature"
    checks.number(owner, "constants.distance", constants.distance, above=0)
    zeta = constants.known(owner, "optimum_heterogeneity")
    start = constants.smoothness * constants.distance**2
    parts = min(_drift(constants, setting), start), min(_heterogeneity(constants, setting, zeta), start)
    largest = max(*parts, start / (setting.local_steps * setting.rounds))
    return largest / (2 * constants.distance**2)


def _drift(constants: Constants, setting: Setting) -> float:
    """min{sigma B/sqrt(K R), L^(1/3) sigma^(2/3) B^(4/3)/(K^(1/3) R^(2/3))}."""
    L, B, sigma, _, _, K, R = constants.letters(setting)
    return min(sigma * B / math.sqrt(K * R), (L * sigma**2 * B**4 / (K * R**2)) ** (1 / 3))


def _heterogeneity(constants: Constants, setting: Setting, zeta: float) -> float:
    """min{zeta_*^2/L, L^(1/3) zeta_*^(2/3) B^(4/3)/R^(2/3)}."""
    L, B = constants.smoothness, constants.distance
    return min(zeta**2 / L, (L * zeta**2 * B**4 / setting.rounds**2) ** (1 / 3))
