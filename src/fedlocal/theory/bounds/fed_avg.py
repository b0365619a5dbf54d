"""FedAvg's upper bounds: convex, strongly convex and non-convex, each under second- and third-order smoothness."""

import math
from dataclasses import replace

from fedlocal.theory.bounds.bound import (
    Bound,
    Constants,
    Form,
    Setting,
    homogeneous,
    is_simplified,
    logged,
    ratio,
    smallest,
)
from fedlocal.theory.bounds.fed_avg_stability import (
    client_discrepancy_bound,
    fed_avg_strongly_convex_perturbed_bound,
    fourth_order_discrepancy_bound,
)
from fedlocal.theory.bounds.minibatch import single_client_sgd_bound

AVERAGE_ERROR = "E mean_(r,k) F(x_mean^(r,k)) - F*"
WEIGHTED_ERROR = "E F(x_hat) - F*"
GRADIENT = "E ||grad F(x_hat)||^2"


def fed_avg_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAvg on convex F_m with bounded heterogeneity; the error is averaged over the K R means of the clients.

        B^2/(2 eta K R) + eta sigma^2/M + 4 K eta^2 L sigma^2 + 18 K^2 eta^2 L zeta^2,   eta <= 1/(4 L).

    Full: at eta = min{1/(4 L), M^(1/2) B/(K^(1/2) R^(1/2) sigma), B^(2/3)/(K^(2/3) R^(1/3) L^(1/3) sigma^(2/3)),
    B^(2/3)/(K R^(1/3) L^(1/3) zeta^(2/3))}. Simplified:
        L B^2/(K R) + sigma B/sqrt(M K R)
        + L^(1/3) sigma^(2/3) B^(4/3)/(K^(1/3) R^(2/3)) + L^(1/3) zeta^(2/3) B^(4/3)/R^(2/3).

    Letters: M clients, K local_steps, R rounds, B distance, L smoothness, sigma noise, zeta heterogeneity.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, proposition thm:fedavg:2o:ub, lemmas lem:fedavg:2o:ub:1 and :2. Differs from it: nothing.

    >>> constants = Constants(smoothness=1.0, noise=0.0, distance=1.0)
    >>> fed_avg_convex_bound(constants, Setting(clients=4, rounds=4, local_steps=8)).value
    0.0625
    """
    owner = "fed_avg_convex_bound"
    L, B, sigma, _, M, K, R = constants.letters(setting)
    zeta = constants.known(owner, "heterogeneity")
    label = "thm:fedavg:2o:ub"
    if is_simplified(owner, step_size, form):
        terms = {
            "deterministic": L * B**2 / (K * R),
            "statistical": sigma * B / math.sqrt(M * K * R),
            "drift": (L * sigma**2 * B**4 / (K * R**2)) ** (1 / 3),
            "heterogeneity": (L * zeta**2 * B**4 / R**2) ** (1 / 3),
        }
        return Bound(label, "FedAvg", AVERAGE_ERROR, terms, None, {})
    eta = step_size or min(
        1 / (4 * L),
        ratio(math.sqrt(M) * B, math.sqrt(K * R) * sigma),
        ratio(B**2, K**2 * R * L * sigma**2) ** (1 / 3),
        ratio(B**2, K**3 * R * L * zeta**2) ** (1 / 3),
    )
    apart = client_discrepancy_bound(constants, setting, eta)
    terms = {
        "deterministic": ratio(B**2, 2 * eta * K * R),
        "statistical": eta * sigma**2 / M,
        **{name: L * term for name, term in apart.terms.items()},
    }
    return Bound(label, "FedAvg", AVERAGE_ERROR, terms, eta, apart.conditions)


def comprehensive_bound(constants: Constants, setting: Setting, form: Form = "full") -> Bound:
    r"""The smallest known for FedAvg on convex F_m: staying at the start, a single client's rate, or FedAvg's own.

        min{L B^2, L B^2/(K R) + sigma B/sqrt(K R), the simplified fed_avg_convex_bound}.

    Full: with constants, the first being F(x0) - F* <= L B^2/2. `step_size` is 0 where staying is best.

    Args:
        constants, setting, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, remark rem:fedavg:2o:ub. Differs from it: where clients differ the single client's rate,
    which then is not one of FedAvg, is left out, so that the minimum holds there too.

    >>> constants = Constants(smoothness=1.0, noise=1e6, distance=1.0)
    >>> dict(comprehensive_bound(constants, Setting(clients=4, rounds=4, local_steps=8)).terms)
    {'start': 0.5}
    """
    half = 1.0 if is_simplified("comprehensive_bound", None, form) else 0.5
    stay = {"start": half * constants.smoothness * constants.distance**2}
    options = [
        Bound("", "", "", stay, 0.0, {}),
        single_client_sgd_bound(constants, setting, form=form),
        fed_avg_convex_bound(constants, setting, form=form),
    ]
    return replace(smallest(options), theorem="rem:fedavg:2o:ub", method="FedAvg", measure=AVERAGE_ERROR)


def fed_avg_third_order_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAvg on a convex F that is third-order smooth, homogeneous clients.

        E F(x_hat) - F* <= 3 B^2/(eta K R) + eta sigma^2/M + 96 eta^5 Q^2 K^3 R s^4,   eta <= 1/(2 L),

    x_hat the mean of all x_m^(r,k), k < K, with weights (1 + 1/(K R))^-(r K + k + 1). Full: at eta = min{1/(2 L),
    M^(1/2) B/(K^(1/2) R^(1/2) sigma), B^(1/3)/(K^(2/3) R^(1/3) Q^(1/3) s^(2/3))}. Simplified:
        L B^2/(K R) + sigma B/sqrt(M K R) + Q^(1/3) s^(2/3) B^(5/3)/(K^(1/3) R^(2/3)).

    Letters: M clients, K local_steps, R rounds, B distance, L smoothness, Q third_order, sigma noise, s fourth_moment.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem thm:fedavg:3o:ub. Differs from it: the text has one sigma for both moments; eta up
    to 1/(2 L), as the theorem chooses it, is beyond what the proof of its lemma fedavg:a2:stab:main allows, and is
    allowed by the one here (`fourth_order_discrepancy_bound`).

    >>> constants = Constants(smoothness=1.0, noise=0.0, distance=1.0, third_order=1.0, fourth_moment=0.0)
    >>> fed_avg_third_order_bound(constants, Setting(clients=4, rounds=4, local_steps=8)).value
    0.1875
    """
    owner = "fed_avg_third_order_bound"
    L, B, sigma, _, M, K, R = constants.letters(setting)
    Q, s = constants.known(owner, "third_order"), constants.known(owner, "fourth_moment")
    label = "thm:fedavg:3o:ub"
    if is_simplified(owner, step_size, form):
        terms = {
            "deterministic": L * B**2 / (K * R),
            "statistical": sigma * B / math.sqrt(M * K * R),
            "drift": (Q * s**2 * B**5 / (K * R**2)) ** (1 / 3),
        }
        return Bound(label, "FedAvg", WEIGHTED_ERROR, terms, None, homogeneous(constants))
    eta = step_size or min(
        1 / (2 * L), ratio(math.sqrt(M) * B, math.sqrt(K * R) * sigma), ratio(B, K**2 * R * Q * s**2) ** (1 / 3)
    )
    terms = {
        "deterministic": ratio(3 * B**2, eta * K * R),
        "statistical": eta * sigma**2 / M,
        "drift": 96 * eta**5 * Q**2 * K**3 * R * s**4,
    }
    conditions = {"step_size <= 1/(2 L)": eta <= 1 / (2 * L)} | homogeneous(constants)
    return Bound(label, "FedAvg", WEIGHTED_ERROR, terms, eta, conditions)


def fed_avg_strongly_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "simplified"
) -> Bound:
    r"""FedAvg on a strongly convex F, homogeneous clients. Simplified only:

        exp(-mu K R/L) L B^2 + sigma^2/(mu M K R) + L sigma^2/(mu^2 K R^2).

    Letters: M clients, K local_steps, R rounds, B distance, L smoothness, mu strong_convexity, sigma noise.

    Args:
        constants, setting: as for every bound (`fedlocal.theory.bounds`).
        step_size, form: None and "simplified"; others are refused.

    Reference: dissertation, proposition fedavg:a1, which gives neither constants nor an inequality for a general step
    size. Differs from it: without its polylogarithmic factors.

    >>> constants = Constants(smoothness=2.0, noise=0.0, distance=1.0, strong_convexity=1.0)
    >>> round(fed_avg_strongly_convex_bound(constants, Setting(4, 2, 1)).value, 6)
    0.735759
    """
    owner = "fed_avg_strongly_convex_bound"
    if not is_simplified(owner, step_size, form):
        asked = f"form {form!r}" if step_size is None else f"step_size {step_size}"
        raise ValueError(f"{owner}: form must be 'simplified' without a step_size, the text gives no more; got {asked}")
    L, B, sigma, mu, M, K, R = constants.letters(setting)
    terms = {
        "deterministic": math.exp(-mu * K * R / L) * L * B**2,
        "statistical": ratio(sigma**2, mu * M * K * R),
        "drift": ratio(L * sigma**2, mu**2 * K * R**2),
    }
    return Bound("fedavg:a1", "FedAvg", WEIGHTED_ERROR, terms, None, {"mu > 0": mu > 0} | homogeneous(constants))


def fed_avg_strongly_convex_third_order_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAvg on a strongly convex F that is third-order smooth, homogeneous clients.

        exp(-eta mu K R/2) B^2/eta + eta sigma^2/M + 192 eta^4 Q^2 K^2 s^4/mu,   eta <= 1/(4 L),

    bounds E F(x_hat) - F* + (mu/2) E ||x^(R,0) - x*||^2, x_hat the mean of the x_mean^(r,k), k < K, with weights
    (1 - eta mu/2)^(K R - (r K + k) - 1). Full: with a = mu^2 M K^2 R^2 B^2/sigma^2, b = mu^6 K^3 R^5 B^2/(Q^2 s^4),
    at eta = min{1/(4 L), 2/(mu K R) log(e + min{a, b})}, the statement
        exp(-mu K R/(8 L)) 4 L B^2 + 3 sigma^2/(mu M K R) log(e + a) + 3073 Q^2 s^4/(mu^5 K^2 R^4) log^4(e + b).
    Simplified: the same without 3, 3073 and the logarithms.

    Letters: M clients, K local_steps, R rounds, B distance, L smoothness, mu strong_convexity, Q third_order, sigma
    noise, s fourth_moment.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem fedavg:a2:full, eq. fedavg:a2:general:eta, theorem fedavg:a2. Differs from it: the
    text has one sigma for both moments.

    >>> constants = Constants(2.0, noise=0.0, distance=1.0, strong_convexity=1.0, third_order=0.0, fourth_moment=0.0)
    >>> round(fed_avg_strongly_convex_third_order_bound(constants, Setting(4, 2, 8)).value, 6)
    2.943036
    """
    owner = "fed_avg_strongly_convex_third_order_bound"
    L, B, sigma, mu, M, K, R = constants.letters(setting)
    Q, s = constants.known(owner, "third_order"), constants.known(owner, "fourth_moment")
    measure = "E F(x_hat) - F* + mu/2 ||x^(R,0) - x*||^2"
    conditions = {"mu > 0": mu > 0} | homogeneous(constants)
    if step_size is not None:
        is_simplified(owner, step_size, form)
        apart = fourth_order_discrepancy_bound(constants, setting, step_size).value
        bound = fed_avg_strongly_convex_perturbed_bound(constants, setting, step_size, discrepancy=apart)
        return replace(bound, theorem="eq:fedavg:a2:general:eta")
    parts = {
        "deterministic": math.exp(-mu * K * R / (8 * L)) * 4 * L * B**2,
        "statistical": ratio(sigma**2, mu * M * K * R),
        "drift": ratio(Q**2 * s**4, mu**5 * K**2 * R**4),
    }
    if is_simplified(owner, step_size, form):
        return Bound("fedavg:a2", "FedAvg", WEIGHTED_ERROR, parts, None, conditions)
    a = ratio(mu**2 * M * K**2 * R**2 * B**2, sigma**2)
    b = ratio(mu**6 * K**3 * R**5 * B**2, Q**2 * s**4)
    eta = min(1 / (4 * L), ratio(2 * math.log(math.e + min(a, b)), mu * K * R))
    statistical, drift = logged(3 * parts["statistical"], 1, math.e, a), logged(3073 * parts["drift"], 4, math.e, b)
    terms = parts | {"statistical": statistical, "drift": drift}
    return Bound("fedavg:a2:full", "FedAvg", measure, terms, eta, {"step_size <= 1/(4 L)": True} | conditions)


def fed_avg_non_convex_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAvg on a smooth F, convex or not, with bounded stochastic gradients, homogeneous clients.

        E ||grad F(x_hat)||^2 <= 2 Delta/(eta K R) + L eta sigma^2/M + 8 L^2 eta^2 G^2 K^2,   eta <= 1/L,

    x_hat one of the x_mean^(r,k), k < K, at random. Full: at eta = min{1/L, sqrt(Delta M)/(sigma sqrt(L K R)),
    Delta^(1/3)/(K R^(1/3) L^(2/3) G^(2/3))}. Simplified:
        L Delta/(K R) + G sqrt(L Delta)/sqrt(M K R) + L^(2/3) G^(2/3) Delta^(2/3)/R^(2/3).

    Letters: M clients, K local_steps, R rounds, Delta gap, L smoothness, G gradient_bound, sigma noise.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem thm:fedavg:ncvx:2o. Differs from it: the proof writes L eta^2 ||g||^2 for the last
    term of smoothness, which is L eta^2/2 ||g||^2. Without the half, eta <= 1/L would have to be eta <= 1/(2 L), and
    the noise be 2 L eta sigma^2/M, as it is in the third-order proof but not in this one; with it both are as stated
    here, and the factor of the noise is exact for quadratics at eta = 1/L.

    >>> constants = Constants(smoothness=2.0, noise=0.0, distance=0.0, gap=1.0, gradient_bound=0.0)
    >>> fed_avg_non_convex_bound(constants, Setting(clients=4, rounds=4, local_steps=8)).value
    0.125
    """
    owner = "fed_avg_non_convex_bound"
    L, _, _, _, _, K, R = constants.letters(setting)
    gap, G = constants.known(owner, "gap"), constants.known(owner, "gradient_bound")
    if is_simplified(owner, step_size, form):
        return _stationary("thm:fedavg:ncvx:2o", constants, setting, None, (L * G * gap / R) ** (2 / 3))
    candidate = ratio(gap, K**3 * R * L**2 * G**2) ** (1 / 3)
    eta = step_size or min(_stationary_step(constants, setting, gap), candidate)
    return _stationary("thm:fedavg:ncvx:2o", constants, setting, eta, 8 * L**2 * eta**2 * G**2 * K**2)


def fed_avg_non_convex_third_order_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""FedAvg on a third-order smooth F, convex or not, with bounded stochastic gradients, homogeneous clients.

        E ||grad F(x_hat)||^2 <= 2 Delta/(eta K R) + L eta sigma^2/M + 8 Q^2 eta^4 G^4 K^4,   eta <= 1/L,

    x_hat one of the x_mean^(r,k), k < K, at random. Full: at eta = min{1/L, sqrt(Delta M)/(sigma sqrt(L K R)),
    Delta^(1/5)/(K R^(1/5) Q^(2/5) G^(4/5))}. Simplified:
        L Delta/(K R) + G sqrt(L Delta)/sqrt(M K R) + Q^(2/5) G^(4/5) Delta^(4/5)/R^(4/5).

    Letters: M clients, K local_steps, R rounds, Delta gap, L smoothness, Q third_order, G gradient_bound, sigma noise.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, theorem thm:fedavg:ncvx:3o. Differs from it: the noise is L eta sigma^2/M, for the reason
    given in `fed_avg_non_convex_bound`, and not twice as much; of assumption asm:fo:3o only Q is used, neither the
    convexity nor the fourth moment that it contains.

    >>> constants = Constants(smoothness=2.0, noise=0.0, distance=0.0, gap=1.0, gradient_bound=1.0, third_order=0.0)
    >>> fed_avg_non_convex_third_order_bound(constants, Setting(clients=4, rounds=4, local_steps=8)).value
    0.125
    """
    owner, R, K = "fed_avg_non_convex_third_order_bound", setting.rounds, setting.local_steps
    gap, G, Q = (constants.known(owner, name) for name in ("gap", "gradient_bound", "third_order"))
    if is_simplified(owner, step_size, form):
        return _stationary("thm:fedavg:ncvx:3o", constants, setting, None, (Q * G**2 * gap**2 / R**2) ** (2 / 5))
    candidate = ratio(gap, K**5 * R * Q**2 * G**4) ** (1 / 5)
    eta = step_size or min(_stationary_step(constants, setting, gap), candidate)
    return _stationary("thm:fedavg:ncvx:3o", constants, setting, eta, 8 * Q**2 * eta**4 * G**4 * K**4)


def _stationary(label: str, constants: Constants, setting: Setting, eta: float | None, drift: float) -> Bound:
    """2 Delta/(eta K R) + L eta sigma^2/M, without eta L Delta/(K R) + G sqrt(L Delta)/sqrt(M K R), plus the drift."""
    L, _, sigma, _, M, K, R = constants.letters(setting)
    gap, G = constants.known(label, "gap"), constants.known(label, "gradient_bound")
    if eta is None:
        terms = {"deterministic": L * gap / (K * R), "statistical": G * math.sqrt(L * gap / (M * K * R))}
        conditions = {}
    else:
        terms = {"deterministic": ratio(2 * gap, eta * K * R), "statistical": L * eta * sigma**2 / M}
        conditions = {"step_size <= 1/L": eta <= 1 / L}
    return Bound(label, "FedAvg", GRADIENT, terms | {"drift": drift}, eta, conditions | homogeneous(constants))


def _stationary_step(constants: Constants, setting: Setting, gap: float) -> float:
    """min{1/L, sqrt(Delta M)/(sigma sqrt(L K R))}."""
    L, steps = constants.smoothness, setting.local_steps * setting.rounds
    return min(1 / L, ratio(math.sqrt(gap * setting.clients), constants.noise * math.sqrt(L * steps)))
