"""How far FedAc's clients drift apart within a round, and what that costs: the two lemmas behind every bound of FedAc.

Letters in the bodies: L smoothness, mu strong convexity, sigma noise, Q third-order smoothness, M clients, K local steps,
R rounds, eta step size; gamma is the step size of FedAc's main sequence, between eta and sqrt(eta / mu).
"""

import math

from fedlocal.theory.bounds.bound import Bound, Constants, Setting
from fedlocal.theory.bounds.fed_ac import ONE, POTENTIAL_ONE, POTENTIAL_TWO, TWO, initial_potential, strongly_convex
from fedlocal.util import checks

ROUNDING = 1e-12  # relative


def stable_gamma(constants: Constants, setting: Setting, step_size: float) -> float:
    """max(sqrt(eta / (mu K)), eta): the gamma of FedAc-I and FedAc-II, with which the drift grows linearly in K.

    >>> stable_gamma(Constants(1.0, 1.0, 1.0, strong_convexity=0.25), Setting(1, 1, local_steps=4), step_size=0.25)
    0.5
    """
    mu = checks.number("stable_gamma", "constants.strong_convexity", constants.strong_convexity, above=0)
    eta = checks.number("stable_gamma", "step_size", step_size, above=0)
    return max(math.sqrt(eta / (mu * setting.local_steps)), eta)


def fed_ac_one_growth_bound(
    constants: Constants, setting: Setting, step_size: float, gamma: float | None = None
) -> Bound:
    r"""By which factor a local step of FedAc-I can lengthen the difference of two clients, in the norm of the text.

    Without noise the difference v = (Delta_ag, Delta) of two clients becomes A v after a step, with some Hessian between mu
    and L in A. In the norm ||X^-1 v||, X = [[eta / gamma, 0], [1, 1]], it is at most
        ||X^-1 A X|| <= 1 + 2 gamma^2 mu / eta,   and 1 for gamma = eta
    times as long. In the Euclidean norm it can be far longer.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        gamma: as for `fed_ac_one_discrepancy_bound`.

    Reference: dissertation, proposition fedaci:stab:bound. Differs from it: nothing.

    >>> constants = Constants(1.0, 2.0, 1.0, strong_convexity=0.25)
    >>> fed_ac_one_growth_bound(constants, Setting(1, 1, local_steps=4), step_size=0.25).value  # gamma = 1/2
    1.5
    """
    eta, gamma, mu = _steps("fed_ac_one_growth_bound", constants, setting, step_size, gamma)
    return _growth("fedaci:stab:bound", ONE, constants, eta, 2 * _amplified(eta, gamma, mu))


def fed_ac_two_growth_bound(
    constants: Constants, setting: Setting, step_size: float, gamma: float | None = None
) -> Bound:
    r"""The same as `fed_ac_one_growth_bound` for FedAc-II: 1 + gamma^2 mu / eta, and 1 for gamma = eta.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        gamma: as for `fed_ac_two_discrepancy_bound`.

    Reference: dissertation, proposition fedacii:stab:bound. Differs from it: nothing; its proof leaves mu out of one block.

    >>> constants = Constants(1.0, 2.0, 1.0, strong_convexity=0.25)
    >>> fed_ac_two_growth_bound(constants, Setting(1, 1, local_steps=4), step_size=0.25).value  # gamma = 1/2
    1.25
    """
    eta, gamma, mu = _steps("fed_ac_two_growth_bound", constants, setting, step_size, gamma)
    return _growth("fedacii:stab:bound", TWO, constants, eta, _amplified(eta, gamma, mu))


def fed_ac_one_discrepancy_bound(
    constants: Constants, setting: Setting, step_size: float, gamma: float | None = None
) -> float:
    r"""E mean_m ||Delta_md|| ||Delta / (1 + gamma mu) + gamma mu Delta_ag / (1 + gamma mu)|| of FedAc-I at any step of a round.

    At most 7 eta gamma K sigma^2 (1 + 2 gamma^2 mu / eta)^(2 K), without the last factor for gamma = eta; Delta, Delta_ag and
    Delta_md are a client's distances from the means of x, x_ag and x_md.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        gamma: step size of x, from eta to sqrt(eta / mu); None: that of FedAc-I, max(sqrt(eta / (mu K)), eta).

    Reference: dissertation, lemma fedaci:stab:main. Differs from it: nothing.

    >>> fed_ac_one_discrepancy_bound(Constants(1.0, 2.0, 1.0, strong_convexity=1.0), Setting(1, 1, local_steps=5), 0.5, gamma=0.5)
    35.0
    """
    eta, gamma, mu = _steps("fed_ac_one_discrepancy_bound", constants, setting, step_size, gamma)
    K, sigma = setting.local_steps, constants.noise
    growth = _grown(2 * _amplified(eta, gamma, mu), 2 * K)
    return 7 * eta * gamma * K * sigma**2 * growth


def fed_ac_two_discrepancy_bound(
    constants: Constants, setting: Setting, step_size: float, gamma: float | None = None
) -> float:
    r"""E ||grad F(mean_m x_md) - mean_m grad F(x_md)||^2 of FedAc-II at any step of a round.

    At most 4 eta^2 L^2 K sigma^2 (1 + gamma^2 mu / eta)^(2 K), without the last factor for gamma = eta.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        gamma: as for `fed_ac_one_discrepancy_bound`; None: that of FedAc-II, which is the same.

    Reference: dissertation, lemma fedacii:a1:stab:main. Differs from it: nothing.

    >>> fed_ac_two_discrepancy_bound(Constants(1.0, 2.0, 1.0, strong_convexity=1.0), Setting(1, 1, local_steps=5), 0.5, gamma=0.5)
    20.0
    """
    eta, gamma, mu = _steps("fed_ac_two_discrepancy_bound", constants, setting, step_size, gamma)
    L, K, sigma = constants.smoothness, setting.local_steps, constants.noise
    growth = _grown(_amplified(eta, gamma, mu), 2 * K)
    return 4 * eta**2 * L**2 * K * sigma**2 * growth


def fed_ac_two_third_order_discrepancy_bound(
    constants: Constants, setting: Setting, step_size: float, gamma: float | None = None
) -> float:
    r"""The same as `fed_ac_two_discrepancy_bound` with a Q-Lipschitz Hessian and noise of bounded fourth moment sigma^4.

    At most 44 eta^4 Q^2 K^2 sigma^4 (1 + gamma^2 mu / eta)^(4 K), without the last factor for gamma = eta.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        gamma: as for `fed_ac_two_discrepancy_bound`.

    Reference: dissertation, lemma fedacii:stab:main. Differs from it: nothing.

    >>> constants = Constants(1.0, 1.0, 1.0, strong_convexity=1.0, fourth_moment=2.0, third_order=1.0)
    >>> fed_ac_two_third_order_discrepancy_bound(constants, Setting(1, 1, local_steps=2), 0.5, gamma=0.5)
    176.0
    """
    owner = "fed_ac_two_third_order_discrepancy_bound"
    eta, gamma, mu = _steps(owner, constants, setting, step_size, gamma)
    K = setting.local_steps
    sigma, Q = constants.known(owner, "fourth_moment"), constants.known(owner, "third_order")
    growth = _grown(_amplified(eta, gamma, mu), 4 * K)
    return 44 * eta**4 * Q**2 * K**2 * sigma**4 * growth


def fed_ac_one_perturbed_bound(
    constants: Constants, setting: Setting, step_size: float, discrepancy: float, gamma: float | None = None
) -> Bound:
    r"""FedAc-I given how far its clients are apart.

    E Psi <= exp(-gamma mu K R) Psi0 + eta^2 L sigma^2 / (2 gamma mu) + gamma sigma^2 / (2 M) + L discrepancy.
    The second term is called acceleration here: other than in FedAc-II, more clients do not average it out.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        discrepancy: the largest value, measured or bounded, of what `fed_ac_one_discrepancy_bound` bounds.
        gamma: as for `fed_ac_one_discrepancy_bound`.

    Reference: dissertation, lemma fedaci:conv:main. Differs from it: Psi0 as in `fed_ac_one_bound`.

    >>> constants = Constants(1.0, 2.0, 1.0, strong_convexity=1.0)
    >>> fed_ac_one_perturbed_bound(constants, Setting(clients=1, rounds=1, local_steps=1), 1.0, discrepancy=3.0).terms["drift"]
    3.0
    """
    owner = "fed_ac_one_perturbed_bound"
    eta, gamma, mu = _steps(owner, constants, setting, step_size, gamma)
    L, sigma, M = constants.smoothness, constants.noise, setting.clients
    terms = {
        "deterministic": _left(gamma * mu, setting) * initial_potential(constants, 1 / 2),
        "acceleration": eta**2 * L * sigma**2 / (2 * gamma * mu),
        "statistical": gamma * sigma**2 / (2 * M),
        "drift": L * checks.number(owner, "discrepancy", discrepancy, at_least=0),
    }
    return Bound("fedaci:conv:main", ONE, POTENTIAL_ONE, terms, eta, strongly_convex(constants, eta))


def fed_ac_two_perturbed_bound(
    constants: Constants, setting: Setting, step_size: float, discrepancy: float, gamma: float | None = None
) -> Bound:
    r"""FedAc-II given how far its clients are apart.

    E Phi <= exp(-gamma mu K R / 3) Phi0 + 3 eta^2 L sigma^2 / (2 gamma mu M) + gamma sigma^2 / (2 M) + 3 discrepancy / mu.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        discrepancy: the largest value, measured or bounded, of what `fed_ac_two_discrepancy_bound` bounds.
        gamma: as for `fed_ac_two_discrepancy_bound`.

    Reference: dissertation, lemma fedacii:conv:main. Differs from it: Phi0 as in `fed_ac_two_bound`; Phi is the centralised
    potential, which the lemma calls decentralised.

    >>> constants = Constants(1.0, 2.0, 1.0, strong_convexity=0.5)
    >>> fed_ac_two_perturbed_bound(constants, Setting(clients=1, rounds=1, local_steps=1), 1.0, discrepancy=3.0).terms["drift"]
    18.0
    """
    owner = "fed_ac_two_perturbed_bound"
    eta, gamma, mu = _steps(owner, constants, setting, step_size, gamma)
    L, sigma, M = constants.smoothness, constants.noise, setting.clients
    terms = {
        "deterministic": _left(gamma * mu / 3, setting) * initial_potential(constants, 1 / 6),
        "acceleration": 3 * eta**2 * L * sigma**2 / (2 * gamma * mu * M),
        "statistical": gamma * sigma**2 / (2 * M),
        "drift": 3 / mu * checks.number(owner, "discrepancy", discrepancy, at_least=0),
    }
    return Bound("fedacii:conv:main", TWO, POTENTIAL_TWO, terms, eta, strongly_convex(constants, eta))


def _growth(label: str, method: str, constants: Constants, eta: float, amplified: float) -> Bound:
    terms = {"deterministic": 1.0, "acceleration": amplified}
    return Bound(label, method, "||X^-1 A X||_2", terms, eta, {"step_size <= 1/L": eta <= 1 / constants.smoothness})


def _steps(
    owner: str, constants: Constants, setting: Setting, step_size: float, gamma: float | None
) -> tuple[float, float, float]:
    """eta, gamma and mu, checked."""
    mu = checks.number(owner, "constants.strong_convexity", constants.strong_convexity, above=0)
    eta = checks.number(owner, "step_size", step_size, above=0)
    if gamma is None:
        return eta, stable_gamma(constants, setting, eta), mu
    gamma = float(checks.number(owner, "gamma", gamma, above=0))
    largest = math.sqrt(eta / mu)
    if not eta <= gamma <= largest * (1 + ROUNDING):
        wanted = f"step_size = {eta:g} and sqrt(step_size / strong_convexity) = {largest:g}"
        raise ValueError(f"{owner}: gamma must be between {wanted}, got {gamma}")
    return eta, gamma, mu


def _amplified(eta: float, gamma: float, mu: float) -> float:
    """gamma^2 mu / eta, 0 for gamma = eta."""
    return 0.0 if gamma == eta else gamma**2 * mu / eta


def _left(rate: float, setting: Setting) -> float:
    return math.exp(-rate * setting.local_steps * setting.rounds)


def _grown(rate: float, steps: int) -> float:
    """(1 + rate)^steps, infinite where that is too large a number."""
    logarithm = steps * math.log1p(rate)
    return math.exp(logarithm) if logarithm < 700 else math.inf
