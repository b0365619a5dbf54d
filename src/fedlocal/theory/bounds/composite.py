"""What the theorems say about FedDualAvg on composite objectives Phi = F + psi; `fed_mid.py` is about FedMiD.

Letters in the bodies: L smoothness, sigma noise, zeta heterogeneity, G gradient bound, B = sqrt(D_h(x*, x0)), M clients,
K local steps, R rounds, eta step size. Terms of the bounds: deterministic (what is left of the initial distance), statistical
(noise that more clients average out), drift (what rare communication costs), heterogeneity (what different clients cost).
All norms are those that h is 1-strongly convex in. The text allows any; its proofs let the variance of a mean of M stochastic
gradients fall like 1/M, which holds in norms that come from an inner product and fails in others.
"""

import math
from collections.abc import Iterable

from fedlocal.theory.bounds.bound import Bound, Constants, Form, Setting, is_simplified
from fedlocal.util import checks

DUAL = "FedDualAvg"
SUBOPTIMALITY = "E Phi(x_hat) - Phi*"


def composite_small_step_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedDualAvg when clients hardly move: as good as R steps with batches of M K.

    With eta = server step size * client step size <= 1/(4 K L), and client step sizes small enough for this eta,
        E Phi(x_hat) - Phi* <= B^2 / (eta K R) + 3 eta sigma^2 / M,   x_hat = mean of the R server points after each round,
    so with eta = min(1/(4 K L), B sqrt(M) / (sqrt(K R) sigma)) it is at most 4 L B^2 / R + 4 sigma B / sqrt(M K R).
    How small is small enough for the clients is not said, nor could it be for noise = 0, where the bound is a limit.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`); step_size is this eta.

    Reference: dissertation, theorem small_lr, simplified theorem thm:0. Differs from it: FedDualAvg alone. The text states thm:0
    for FedMiD too, without a proof, and there it is false: see `fed_mid_constraint_bound`; for FedMiD-OSP it is the limit of
    `fed_mid_osp_bound`. The proof takes the expectation of a product for the product of expectations (Cauchy-Schwarz gives
    the same constants); norms as said above.

    >>> bound = composite_small_step_bound(Constants(1.0, 0.0, 2.0), Setting(clients=1, rounds=4, local_steps=5))
    >>> round(bound.value, 12), bound.step_size
    (2.0, 0.05)
    """
    owner = "composite_small_step_bound"
    L, sigma, B, M, K, R = _letters(owner, constants, setting)
    simplified = is_simplified(owner, step_size, form)
    limit = 1 / (4 * K * L)
    deterministic, statistical = L * B**2 / R, sigma * B / math.sqrt(M * K * R)
    if step_size is not None:
        eta, label = step_size, "small_lr"
        terms = {"deterministic": B**2 / (eta * K * R), "statistical": 3 * eta * sigma**2 / M}
    elif simplified:
        eta, label = None, "thm:0"
        terms = {"deterministic": deterministic, "statistical": statistical}
    else:
        eta, label = _balanced(limit, B, setting, [statistical]), "small_lr"
        terms = {"deterministic": 4 * deterministic, "statistical": 4 * statistical}
    conditions = {"step_size <= 1/(4 K L)": eta is None or eta <= limit}
    measure = f"{SUBOPTIMALITY} for small enough client step sizes"
    return Bound(label, DUAL, measure, terms, eta, conditions, product=True)


def fed_dual_avg_bounded_gradient_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedDualAvg with server step size 1 when no stochastic gradient is longer than G.

    For any client step size eta <= 1/(4 L), with x_hat the mean of the dual averages' primal images over all K R steps,
        E Phi(x_hat) - Phi* <= B^2 / (eta K R) + eta sigma^2 / M + 4 eta^2 L (K - 1)^2 G^2.
    With eta = min(1/(4 L), sqrt(M) B / (sigma sqrt(K R)), B^(2/3) / (L^(1/3) K R^(1/3) G^(2/3))) it is at most
        4 L B^2 / (K R) + 2 sigma B / sqrt(M K R) + 5 L^(1/3) B^(4/3) G^(2/3) / R^(2/3).

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem thm:1, simplified theorem thm:1:simplified. Differs from it: norms as said above; the proof's
    last step has eta sigma^2 / (2 M), which the lemma it uses does not give and the result does not need.

    >>> constants = Constants(1.0, 0.0, math.sqrt(2), gradient_bound=8.0)
    >>> fed_dual_avg_bounded_gradient_bound(constants, Setting(clients=1, rounds=8, local_steps=2)).terms["drift"]
    5.0
    """
    owner = "fed_dual_avg_bounded_gradient_bound"
    L, sigma, B, M, K, R = _letters(owner, constants, setting)
    simplified = is_simplified(owner, step_size, form)
    G = constants.known(owner, "gradient_bound")
    deterministic, statistical = L * B**2 / (K * R), sigma * B / math.sqrt(M * K * R)
    drift = math.cbrt(L * B**4 * G**2 / R**2)
    if step_size is not None:
        eta, label = step_size, "thm:1"
        terms = {
            "deterministic": B**2 / (eta * K * R),
            "statistical": eta * sigma**2 / M,
            "drift": L * fed_dual_avg_bounded_gradient_discrepancy_bound(constants, setting, eta),
        }
    elif simplified:
        eta, label = None, "thm:1:simplified"
        terms = {"deterministic": deterministic, "statistical": statistical, "drift": drift}
    else:
        eta, label = _balanced(1 / (4 * L), B, setting, [statistical, drift]), "thm:1"
        terms = {"deterministic": 4 * deterministic, "statistical": 2 * statistical, "drift": 5 * drift}
    return Bound(label, DUAL, SUBOPTIMALITY, terms, eta, _allowed(constants, eta))


def fed_dual_avg_quadratic_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedDualAvg with server step size 1 on a quadratic F, whose clients' gradients differ from its own by at most zeta.

    For any client step size eta <= 1/(4 L), with x_hat the mean of the dual averages' primal images over all K R steps,
        E Phi(x_hat) - Phi* <= B^2 / (eta K R) + eta sigma^2 / M + 7 eta^2 L K sigma^2 + 14 eta^2 L K^2 zeta^2.
    With eta = min(1/(4 L), sqrt(M) B / (sigma sqrt(K R)), B^(2/3) / (L^(1/3) K^(2/3) R^(1/3) sigma^(2/3)),
    B^(2/3) / (L^(1/3) K R^(1/3) zeta^(2/3))) it is at most
        4 L B^2 / (K R) + 2 sigma B / sqrt(M K R) + 8 L^(1/3) B^(4/3) sigma^(2/3) / (K^(1/3) R^(2/3))
        + 15 L^(1/3) B^(4/3) zeta^(2/3) / R^(2/3).
    All norms are ||x||^2 = x^T A x / ||A||, where A is the Hessian, so L = ||A||.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem thm:2. Differs from it: the first bound holds as it stands and not only up to a constant;
    assumption a3(a) bounds the norm by zeta, not by zeta^2; without logarithms, the simplified form is the second one with
    constants 1.

    >>> constants = Constants(1.0, 0.0, math.sqrt(2), heterogeneity=8.0, third_order=0.0)
    >>> bound = fed_dual_avg_quadratic_bound(constants, Setting(clients=1, rounds=8, local_steps=2))
    >>> bound.terms["heterogeneity"], bound.applies
    (15.0, True)
    """
    owner = "fed_dual_avg_quadratic_bound"
    L, sigma, B, M, K, R = _letters(owner, constants, setting)
    simplified = is_simplified(owner, step_size, form)
    zeta = constants.known(owner, "heterogeneity")
    deterministic, statistical = L * B**2 / (K * R), sigma * B / math.sqrt(M * K * R)
    drift, heterogeneity = math.cbrt(L * B**4 * sigma**2 / (K * R**2)), math.cbrt(L * B**4 * zeta**2 / R**2)
    if step_size is not None:
        eta = step_size
        terms = {
            "deterministic": B**2 / (eta * K * R),
            "statistical": eta * sigma**2 / M,
            "drift": 7 * eta**2 * L * K * sigma**2,
            "heterogeneity": 14 * eta**2 * L * K**2 * zeta**2,
        }
    elif simplified:
        eta = None
        terms = {"deterministic": deterministic, "statistical": statistical}
        terms |= {"drift": drift, "heterogeneity": heterogeneity}
    else:
        eta = _balanced(1 / (4 * L), B, setting, [statistical, drift, heterogeneity])
        terms = {"deterministic": 4 * deterministic, "statistical": 2 * statistical}
        terms |= {"drift": 8 * drift, "heterogeneity": 15 * heterogeneity}
    conditions = _allowed(constants, eta) | {"quadratic F (third_order = 0)": constants.third_order == 0}
    return Bound("thm:2", DUAL, SUBOPTIMALITY, terms, eta, conditions)


def fed_dual_avg_bounded_gradient_discrepancy_bound(constants: Constants, setting: Setting, step_size: float) -> float:
    """mean_m E ||y_m - mean y||^2 of FedDualAvg's dual points before any step of a round: at most 4 eta^2 (K - 1)^2 G^2.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, lemma bounded_gradient. Differs from it: the proof bounds k steps by k - 1 gradients; that the lemma
    holds is because only the first K - 1 steps of a round come before a step of that round.

    >>> fed_dual_avg_bounded_gradient_discrepancy_bound(Constants(1.0, 1.0, 1.0, gradient_bound=2.0), Setting(1, 1, 3), 0.5)
    16.0
    """
    owner = "fed_dual_avg_bounded_gradient_discrepancy_bound"
    G = constants.known(owner, "gradient_bound")
    eta = checks.number(owner, "step_size", step_size, above=0)
    return 4 * eta**2 * (setting.local_steps - 1) ** 2 * G**2


def fed_dual_avg_quadratic_discrepancy_bound(constants: Constants, setting: Setting, step_size: float) -> float:
    """The same for a quadratic F with heterogeneity zeta: at most 7 eta^2 K sigma^2 + 14 eta^2 K^2 zeta^2, also after a round.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, lemma quad:stability. Differs from it: nothing but the zeta of assumption a3(a), as above.

    >>> fed_dual_avg_quadratic_discrepancy_bound(Constants(1.0, 2.0, 1.0, heterogeneity=1.0), Setting(1, 1, 2), 0.5)
    28.0
    """
    owner = "fed_dual_avg_quadratic_discrepancy_bound"
    zeta = constants.known(owner, "heterogeneity")
    eta, K = checks.number(owner, "step_size", step_size, above=0), setting.local_steps
    return 7 * eta**2 * K * constants.noise**2 + 14 * eta**2 * K**2 * zeta**2


def fed_dual_avg_perturbed_bound(constants: Constants, setting: Setting, step_size: float, discrepancy: float) -> Bound:
    r"""FedDualAvg with server step size 1, given how far its clients are apart.

    For any client step size eta <= 1/(4 L), with x_hat the mean of the dual averages' primal images over all K R steps,
        E Phi(x_hat) - Phi* <= B^2 / (eta K R) + eta sigma^2 / M + L discrepancy.

    Args:
        constants, setting, step_size: as for every bound (`fedlocal.theory.bounds`).
        discrepancy: the mean over r < R and k < K, measured or bounded, of mean_m E ||y_m - mean y||^2 in the dual norm, the
            quantity of `fed_dual_avg_bounded_gradient_discrepancy_bound`.

    Reference: dissertation, lemma pia:general. Differs from it: norms as said above. The sentence after it has eta sigma^2 / (2
    M), and L / (M K R) besides.

    >>> constants = Constants(1.0, 2.0, math.sqrt(2))
    >>> setting = Setting(clients=2, rounds=2, local_steps=2)
    >>> [round(term, 12) for term in fed_dual_avg_perturbed_bound(constants, setting, 0.25, discrepancy=3.0).terms.values()]
    [1.0, 0.5, 3.0]
    """
    owner = "fed_dual_avg_perturbed_bound"
    L, sigma, B, M, K, R = _letters(owner, constants, setting)
    eta = checks.number(owner, "step_size", step_size, above=0)
    terms = {
        "deterministic": B**2 / (eta * K * R),
        "statistical": eta * sigma**2 / M,
        "drift": L * checks.number(owner, "discrepancy", discrepancy, at_least=0),
    }
    return Bound("pia:general", DUAL, SUBOPTIMALITY, terms, eta, _allowed(constants, eta))


def _letters(owner: str, constants: Constants, setting: Setting) -> tuple[float, float, float, int, int, int]:
    """L, sigma, B, M, K, R."""
    B = checks.number(owner, "constants.divergence", constants.divergence, above=0)
    return constants.smoothness, constants.noise, B, setting.clients, setting.local_steps, setting.rounds


def _balanced(largest: float, B: float, setting: Setting, terms: Iterable[float]) -> float:
    """The largest step size at which B^2 / (eta K R) is at least each term: where it equals them, the text's candidates are."""
    steps = setting.local_steps * setting.rounds
    return min([largest, *(B**2 / (steps * term) for term in terms if term > 0)])


def _allowed(constants: Constants, step_size: float | None) -> dict[str, bool]:
    allowed = step_size is None or step_size <= 1 / (4 * constants.smoothness)
    return {"step_size <= 1/(4 L)": allowed}
