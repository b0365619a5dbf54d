r"""Bounds of FedMiD on composite objectives Phi = F + psi, for the Euclidean h. None of them is in the text.

Theorem thm:0 is stated for FedDualAvg and FedMiD and proved for FedDualAvg. For FedMiD as boxed it is false:
    finite psi: clients and server both apply psi, so for small steps FedMiD minimises F + 2 psi;
    constraints: the mean of projected steps is not the projection of a mean step. Clients that differ, noise, or a curved
        boundary keep FedMiD away from x*, by an amount that does not fall with R at the step sizes of the theorem.
It holds for constraints whose projection is affine, so that it commutes with the mean: psi = 0 and affine sets.
What holds beyond: constraints, at the rate of R subgradient steps; and the only-server-proximal variant with a finite psi.

Letters as in `composite.py`; eta_c and eta_s are the step sizes of clients and server, eta their product.
"""

import math
from collections.abc import Mapping

from fedlocal.core import Regularizer, Zero
from fedlocal.theory.bounds.bound import Bound, Constants, Form, Setting, is_simplified, ratio
from fedlocal.theory.bounds.composite import SUBOPTIMALITY
from fedlocal.util import checks

UNPUBLISHED = "not in the text"


def fed_mid_constraint_bound(
    constants: Constants,
    setting: Setting,
    step_size: float | None = None,
    form: Form = "full",
    *,
    regularizer: Regularizer = Zero(),  # noqa: B008  (frozen)
    server_step_size: float = 1.0,
) -> Bound:
    r"""FedMiD as boxed with a convex constraint: as good as R subgradient steps, whatever the clients and the noise.

    For psi the indicator of a closed convex set that x0 is in, G a bound on the stochastic gradients there, any eta_c and eta_s,
    and x_hat the mean of the server's points before each of the R rounds,
        E F(x_hat) - F* <= B^2 / (eta K R) + max(eta, eta_c) K G^2 / 2,
    so with eta_c = sqrt(2) B / (K G sqrt(eta_s max(eta_s, 1) R)) it is at most sqrt(2 max(1, 1/eta_s)) B G / sqrt(R).
    It needs no smoothness, and gains nothing from local steps or from more clients: a mean of projected steps does not average
    the gradients. With a finite psi nothing is promised: clients and server both apply psi, and FedMiD tends to argmin F + 2 psi.

    Proof: projected steps give mean_m ||x_m - x*||^2 <= ||x - x*||^2 - 2 eta_c sum_k (F_m(x_m^k) - F_m(x*)) + eta_c^2 K G^2 after
    K steps, with F_m(x_m^k) >= F_m(x) - eta_c k G^2. The server's point is as near to x* as its argument x + eta_s D, and
    ||x + eta_s D - x*||^2 <= ||x - x*||^2 + eta_s (mean_m ||x_m - x*||^2 - ||x - x*||^2) + max(eta_s - 1, 0) eta_s (eta_c K G)^2.

    Args:
        constants, setting, form: as for every bound (`fedlocal.theory.bounds`); B is that of the Euclidean h.
        step_size: eta_c.
        regularizer: psi; the bound applies to constraints and to Zero.
        server_step_size: eta_s.

    Reference: none; it replaces theorem thm:0 for FedMiD, see docs/errata.md.

    >>> from fedlocal.regularizers import L1, Box
    >>> constants, setting = Constants(1.0, 0.0, math.sqrt(2), gradient_bound=2.0), Setting(8, rounds=4, local_steps=2)
    >>> bound = fed_mid_constraint_bound(constants, setting, step_size=0.25, regularizer=Box(-1.0, 1.0))
    >>> dict(bound.terms), bound.applies
    ({'deterministic': 0.5, 'drift': 1.0}, True)
    >>> fed_mid_constraint_bound(constants, setting, regularizer=L1(0.1)).applies
    False
    """
    owner = "fed_mid_constraint_bound"
    B, G, eta_s = _letters(owner, constants, regularizer, server_step_size)
    K, R, longest = setting.local_steps, setting.rounds, max(eta_s, 1.0)
    simplified = is_simplified(owner, step_size, form)
    if simplified:
        return _constrained({"deterministic": B * G / math.sqrt(R)}, None, regularizer)
    eta_c = ratio(math.sqrt(2) * B, K * G * math.sqrt(eta_s * longest * R)) if step_size is None else step_size
    if math.isinf(eta_c):  # G = 0: nothing moves, and nothing has to
        return _constrained({"deterministic": 0.0, "drift": 0.0}, eta_c, regularizer)
    terms = {"deterministic": B**2 / (eta_s * eta_c * K * R), "drift": longest * eta_c * K * G**2 / 2}
    return _constrained(terms, eta_c, regularizer)


def fed_mid_osp_bound(
    constants: Constants,
    setting: Setting,
    step_size: float | None = None,
    form: Form = "full",
    *,
    regularizer: Regularizer = Zero(),  # noqa: B008  (frozen)
    server_step_size: float = 1.0,
) -> Bound:
    r"""FedMiD-OSP (only server proximal) with a finite psi and gradients of length at most G.

    For eta = eta_s eta_c <= 1/(4 K L), and x_hat the mean of the R server points after each round,
        E Phi(x_hat) - Phi* <= B^2 / (eta K R) + eta sigma^2 / M + eta_c^2 L (K - 1) (2 K - 1) G^2 / 6.
    With eta_c = min(1/(4 K L eta_s), B sqrt(M) / (eta_s sigma sqrt(K R)), (6 B^2 / (eta_s L K R (K - 1) (2 K - 1) G^2))^(1/3))
    it is at most, with d = (L B^4 G^2 / (3 eta_s^2 R^2))^(1/3),
        4 L B^2 / R + 2 sigma B / sqrt(M K R) + 2 d.
    With eta fixed and eta_c to 0 the last term vanishes: theorem thm:0 holds for FedMiD-OSP, for any heterogeneity, with
    eta sigma^2 / M instead of three times that. G is that of all points, since clients leave the domain of a constraint.

    Proof: the server's step is a proximal gradient step with the mean g of the K M gradients, so with D = ||x - x*||^2 / 2
        D+ <= D - ||x+ - x||^2 / 2 - eta K (psi(x+) - psi(x*)) - eta K <g, x+ - x*>,
    convexity and smoothness of each F_m, with z = x_m^k, give
        <grad F_m(z), x+ - x*> >= F_m(x+) - F_m(x*) - L ||x+ - x||^2 - L ||z - x||^2,
    the noise costs (eta K)^2 sigma^2 / (M K) against ||x+ - x||^2 / 4, and ||z - x|| <= eta_c k G.

    Args:
        constants, setting, form: as for every bound (`fedlocal.theory.bounds`); B is that of the Euclidean h.
        step_size: eta_c.
        regularizer: psi; the bound applies where it is finite.
        server_step_size: eta_s.

    Reference: dissertation, section fco:expr, which says that a rate like thm:0 "is not hard to establish". Differs from it: it
    is established, with the client step size in the bound.

    >>> constants, setting = Constants(1.0, 2.0, math.sqrt(2), gradient_bound=4.0), Setting(8, rounds=8, local_steps=2)
    >>> bound = fed_mid_osp_bound(constants, setting, step_size=0.0625, server_step_size=2.0)
    >>> dict(bound.terms), bound.applies
    ({'deterministic': 0.5, 'statistical': 0.0625, 'drift': 0.03125}, True)
    """
    owner = "fed_mid_osp_bound"
    B, G, eta_s = _letters(owner, constants, regularizer, server_step_size)
    L, sigma = constants.smoothness, constants.noise
    M, K, R = setting.clients, setting.local_steps, setting.rounds
    simplified = is_simplified(owner, step_size, form)
    deterministic, statistical = L * B**2 / R, sigma * B / math.sqrt(M * K * R)
    drift = math.cbrt(L * B**4 * G**2 / (eta_s * R) ** 2)
    steps = (K - 1) * (2 * K - 1) / 6  # mean of k^2 for k < K
    largest = 1 / (4 * K * L * eta_s)
    if step_size is not None:
        eta_c = step_size
        terms = {
            "deterministic": B**2 / (eta_s * eta_c * K * R),
            "statistical": eta_s * eta_c * sigma**2 / M,
            "drift": eta_c**2 * L * steps * G**2,
        }
    elif simplified:
        eta_c = None
        terms = {"deterministic": deterministic, "statistical": statistical, "drift": drift}
    else:
        noisy = ratio(B * math.sqrt(M), eta_s * sigma * math.sqrt(K * R))
        drifting = ratio(math.cbrt(B**2), math.cbrt(eta_s * L * K * R * steps * G**2))
        eta_c = min(largest, noisy, drifting)
        terms = {
            "deterministic": 4 * deterministic,
            "statistical": 2 * statistical,
            "drift": 2 * drift / math.cbrt(3) if K > 1 else 0.0,
        }
    conditions = {
        "psi is finite": regularizer.is_finite(),
        "server step size * step_size <= 1/(4 K L)": eta_c is None or eta_c <= largest,
    }
    return Bound(UNPUBLISHED, "FedMiD-OSP", SUBOPTIMALITY, terms, eta_c, conditions)


def _letters(
    owner: str, constants: Constants, regularizer: Regularizer, server_step_size: float
) -> tuple[float, float, float]:
    """B, G, eta_s."""
    checks.instance(owner, "regularizer", regularizer, Regularizer)
    B = checks.number(owner, "constants.distance", constants.distance, above=0) / math.sqrt(2)
    G = constants.known(owner, "gradient_bound")
    return B, G, float(checks.number(owner, "server_step_size", server_step_size, above=0))


def _constrained(terms: Mapping[str, float], step_size: float | None, regularizer: Regularizer) -> Bound:
    conditions = {"psi is a constraint (clients and server both apply psi)": regularizer.is_constraint()}
    return Bound(UNPUBLISHED, "FedMiD", "E F(x_hat) - F*", terms, step_size, conditions)
