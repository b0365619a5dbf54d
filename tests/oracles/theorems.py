"""The rates, step sizes and lemmas of the dissertation, transcribed term by term from `dissertation.tex`.

Written from the text alone, for comparison with the library. Line numbers are those of `dissertation.tex`. A function
returns the summands of the displayed right-hand side in the order of the text (`_eta`, `_lam`: the chosen parameter, a
float). O(), Omega and "less or similar" are dropped: the terms carry the constants the text displays and no others.
Where a docstring says "min of", the bound is the min of the list and not its sum. What the text displays is kept also
where it is wrong; a function with suffix `_corrected` is the reading that makes the proof go through, with the reason.
A division by zero (sigma, zeta, G or Q equal to 0) is read as infinity, and 0 * log^p(inf) as its limit 0.
"""

import math

E = math.e


def _over(a: float, b: float) -> float:
    """a / b for a >= 0, infinite at b = 0."""
    return a / b if b else math.inf


def _log(c: float, base: float, x: float, p: float) -> float:
    """c log^p(base + x), 0 at c = 0."""
    return c * math.log(base + x) ** p if c else 0.0


# ---------------------------------------------------------------- FedAvg, second-order smoothness (chapter 2)


def thm_fedavg_2o_ub(L: float, sigma: float, zeta: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:fedavg:2o:ub, eq. (486-504): O() of the four terms; the fourth is dropped when homogeneous."""
    return [
        L * B**2 / (K * R),
        sigma * B / math.sqrt(M * K * R),
        L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R ** (2 / 3)),
        L ** (1 / 3) * zeta ** (2 / 3) * B ** (4 / 3) / R ** (2 / 3),
    ]


def thm_fedavg_2o_ub_general(
    L: float, sigma: float, zeta: float, B: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """thm:fedavg:2o:ub, proof (577-582): the telescoped inequality, for eta <= 1/(4L)."""
    return [
        B**2 / (2 * eta * K * R),
        eta * sigma**2 / M,
        4 * K * eta**2 * L * sigma**2,
        18 * K**2 * eta**2 * L * zeta**2,
    ]


def thm_fedavg_2o_ub_eta(L: float, sigma: float, zeta: float, B: float, M: int, K: int, R: int) -> float:
    """thm:fedavg:2o:ub, proof (583-586): the step size."""
    return min(
        1 / (4 * L),
        _over(M**0.5 * B, K**0.5 * R**0.5 * sigma),
        _over(B ** (2 / 3), K ** (2 / 3) * R ** (1 / 3) * L ** (1 / 3) * sigma ** (2 / 3)),
        _over(B ** (2 / 3), K * R ** (1 / 3) * L ** (1 / 3) * zeta ** (2 / 3)),
    )


def lem_fedavg_2o_ub_1(
    L: float, sigma: float, B: float, M: int, K: int, R: int, eta: float, variance: float
) -> list[float]:
    """lem:fedavg:2o:ub:1 (545-556), eta <= 1/(4L); `variance` is the mean over (r, k, m) of E||x_m - xbar||^2.

    The left side's last term has x^{(r,K)} with r unbound; the telescoping (5392-5398) makes it x^{(R-1,K)},
    which is x^{(R,0)}.
    """
    return [B**2 / (2 * eta * K * R), eta * sigma**2 / M, L * variance]


def lem_fedavg_2o_ub_2(sigma: float, zeta: float, K: int, eta: float) -> list[float]:
    """lem:fedavg:2o:ub:2 (559-566), eta <= 1/(4L)."""
    return [4 * K * eta**2 * sigma**2, 18 * K**2 * eta**2 * zeta**2]


def rem_fedavg_2o_ub(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """rem:fedavg:2o:ub (505-523), homogeneous: O() of the min of these three."""
    return [
        L * B**2,
        L * B**2 / (K * R) + sigma * B / math.sqrt(K * R),
        L * B**2 / (K * R)
        + sigma * B / math.sqrt(M * K * R)
        + L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R ** (2 / 3)),
    ]


def best_of_minibatch_and_single_client(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """The best of minibatch SGD and single-client SGD (812-815)."""
    return [
        L * B**2 / (K * R),
        sigma * B / math.sqrt(M * K * R),
        min(L * B**2 / R, sigma * B / math.sqrt(K * R)),
    ]


def naive_improvement_factor(L: float, sigma: float, K: int, R: int) -> float:
    """The factor by which the naive algorithm may improve on FedAvg (818)."""
    return (R * sigma**2 * L**2 / K) ** (1 / 3)


def naive_improvement_factor_corrected(L: float, sigma: float, B: float, K: int, R: int) -> float:
    """The factor of line 818 as the quotient of its two rates.

    (L^{1/3} sigma^{2/3} B^{4/3} K^{-1/3} R^{-2/3}) / (L B^2 / R) has L^2 B^2 in the denominator. The factor displayed
    has a unit, (F^4 / x^6)^{1/3}.
    """
    return (R * sigma**2 / (K * L**2 * B**2)) ** (1 / 3)


# ---------------------------------------------------------------- lower bounds


def thm_fedavg_lb_homo(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:fedavg:lb:homo, first display (789-797), K >= 2: Omega() of the sum."""
    third = L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R ** (2 / 3))
    return [
        L * B**2 / (K * R),
        min(L * B**2, sigma * B / math.sqrt(M * K * R) + min(sigma * B / math.sqrt(K * R), third)),
    ]


def thm_fedavg_lb_homo_rearranged(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:fedavg:lb:homo, second display (798-806), K >= 2: Omega() of the min of these three."""
    return [
        L * B**2,
        L * B**2 / (K * R) + sigma * B / math.sqrt(K * R),
        L * B**2 / (K * R)
        + sigma * B / math.sqrt(M * K * R)
        + L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R ** (2 / 3)),
    ]


def thm_fedavg_lb_hetero(L: float, sigma: float, zeta: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:fedavg:lb:hetero (835-846), K >= 2, M even, zeta is zeta_*: Omega() of the sum."""
    third = L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R ** (2 / 3))
    fourth = L ** (1 / 3) * zeta ** (2 / 3) * B ** (4 / 3) / R ** (2 / 3)
    return [
        L * B**2 / (K * R),
        min(
            L * B**2,
            sigma * B / math.sqrt(M * K * R) + min(sigma * B / math.sqrt(K * R), third) + min(zeta**2 / L, fourth),
        ),
    ]


def lb_mu(L: float, sigma: float, zeta: float, B: float, K: int, R: int) -> float:
    """mu of eq. fedavg:lb:f2:2 (1000-1009)."""
    third = L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R ** (2 / 3))
    fourth = L ** (1 / 3) * zeta ** (2 / 3) * B ** (4 / 3) / R ** (2 / 3)
    return (
        1
        / (2 * B**2)
        * max(
            min(sigma * B / math.sqrt(K * R), third, L * B**2),
            min(zeta**2 / L, fourth, L * B**2),
            L * B**2 / (K * R),
        )
    )


def lem_fedavg_lb_f1(L: float, sigma: float, K: int, R: int, eta: float) -> list[float]:
    """lem:fedavg:lb:f1, eq. fedavg:F1:lb (934-946) over C_1, eta <= 2/L: min of these three."""
    return [eta * sigma**2 * t for t in (1.0, eta * L * K, (eta * L * K) ** 3 * R**2)]


def lem_fedavg_lb_f4(L: float, zeta: float, K: int, R: int, eta: float) -> list[float]:
    """lem:fedavg:lb:f4, second display (972-985) over C_4, eta <= 2/L: min of these three."""
    return [zeta**2 / L * t for t in (1.0, eta * L * K, (eta * L * K) ** 4 * R**2)]


def lem_fedavg_lb_f4_corrected(L: float, zeta: float, K: int, R: int, eta: float) -> list[float]:
    """lem:fedavg:lb:f4, second display, squared: min of these three.

    F^(4) = 3/32 L x^2 with x <= -c/L zeta min{1, eta L K, (eta L K)^2 R} gives (eta L K)^2 as the second argument,
    which the theorem's proof uses (1089-1097). That proof in turn writes the prefactor L/zeta^2 for zeta^2/L.
    """
    return [zeta**2 / L * t for t in (1.0, (eta * L * K) ** 2, (eta * L * K) ** 4 * R**2)]


# ---------------------------------------------------------------- iterate bias, formal versions


def thm_fedavg_2o_bias_ub_complete(L: float, sigma: float, k: int, eta: float) -> list[float]:
    """thm:fedavg:2o:bias:ub:complete (5470-5487), eta <= 1/L: min of these two."""
    return [4 * eta**2 * k**1.5 * L * sigma, eta * k**0.5 * sigma]


def thm_fedavg_2o_bias_lb_complete(L: float, sigma: float, k: int, eta: float) -> list[float]:
    """thm:fedavg:2o:bias:lb:complete (5658-5667), eta <= 1/(2L), "any k <= K": min of these two."""
    return [0.002 * eta**2 * k**1.5 * L * sigma, 0.002 * eta**0.5 * L**-0.5 * sigma]


def thm_fedavg_2o_bias_lb_complete_corrected(L: float, sigma: float, k: int, eta: float) -> list[float]:
    """thm:fedavg:2o:bias:lb:complete for k >= 2, 0 below: min of these two.

    From the optimum, E x^(1) = x* - eta E grad f(x*; xi) = x* = z^(1) for every f: the bias is 0 at k = 0 and 1, while
    the display is positive at k = 1. The simplified theorem (691-703) has k in [2, K].
    """
    return thm_fedavg_2o_bias_lb_complete(L, sigma, k, eta) if k >= 2 else [0.0, 0.0]


def thm_fedavg_3o_bias_ub_complete(L: float, sigma: float, Q: float, k: int, eta: float) -> list[float]:
    """thm:fedavg:3o:bias:ub:complete (5858-5877), eta <= 1/L: min of these three.

    The proof (5922, 5948) needs every f(.; xi) convex, L-smooth and Q-third-order-smooth; the assumptions say it of F
    only.
    """
    return [0.25 * eta**3 * k**2 * Q * sigma**2, 4 * eta**2 * k**1.5 * L * sigma, eta * k**0.5 * sigma]


def thm_fedavg_3o_bias_lb_complete(L: float, sigma: float, Q: float, k: int, eta: float) -> list[float]:
    """thm:fedavg:3o:bias:lb:complete (6034-6042), Q <= L^2/(12 K sigma), eta <= 1/(2L), k < K: min of these two."""
    c = 0.005 * eta**3 * sigma**2 * Q
    return [c * (k - 1) / (eta * L), c * k * (k - 1)]


def thm_fedavg_3o_bias_lb_complete_corrected(L: float, sigma: float, Q: float, k: int, eta: float) -> list[float]:
    """thm:fedavg:3o:bias:lb:complete (6034-6042) for its instance, Q <= L^2/(16 sigma), eta <= 1/(2L): min of these two.

    Lemma lem:bias:3o:lb:enum(f) (6112) has 1 - eta L where (d) gives (1 - eta L)^k. With it the sum of 6220 is
    sum_{j<k} sum_{i<j} (1 - eta L)^{j-1+i} <= 1/(eta L)^2, so the first option cannot grow with k.
    """
    c = 0.005 * eta**3 * sigma**2 * Q
    return [c / (eta * L) ** 2, c * k * (k - 1)]


def sde_bias(sigma: float, Fxxx: float, k: int, eta: float) -> float:
    """The bias read off the SDE (1263-1265), signed."""
    return -0.5 * eta**3 * k**2 * sigma**2 * Fxxx


def sde_bias_corrected(sigma: float, Fxxx: float, k: int, eta: float) -> float:
    """The bias read off the SDE with the generator's 1/2.

    dX = -F' dt + sqrt(eta) sigma dB has u_t = -F_x u_x + 1/2 eta sigma^2 u_xx; the text (1206-1208) leaves out the 1/2.
    With F_xxx = Q the display exceeds the upper bound 1/4 eta^3 k^2 Q sigma^2 (5858-5877); this meets it.
    """
    return -0.25 * eta**3 * k**2 * sigma**2 * Fxxx


# ---------------------------------------------------------------- FedAvg, third-order smoothness


def thm_fedavg_3o_ub(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:fedavg:3o:ub (1282-1299): O() of the three terms."""
    return [
        L * B**2 / (K * R),
        sigma * B / math.sqrt(M * K * R),
        Q ** (1 / 3) * sigma ** (2 / 3) * B ** (5 / 3) / (K ** (1 / 3) * R ** (2 / 3)),
    ]


def thm_fedavg_3o_ub_general(sigma: float, Q: float, B: float, M: int, K: int, R: int, eta: float) -> list[float]:
    """thm:fedavg:3o:ub, proof (1414-1423), for the eta of the proof (1/(2L) in 1334, 1/(4L) in 1540)."""
    return [
        3 / (eta * K * R) * B**2,
        96 * eta**5 * Q**2 * K**3 * R * sigma**4,
        eta * sigma**2 / M,
    ]


def thm_fedavg_3o_ub_eta(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> float:
    """thm:fedavg:3o:ub, proof (1425-1429): the step size."""
    return min(
        1 / (2 * L),
        _over(M**0.5 * B, K**0.5 * R**0.5 * sigma),
        _over(B ** (1 / 3), K ** (2 / 3) * R ** (1 / 3) * Q ** (1 / 3) * sigma ** (2 / 3)),
    )


def thm_fedavg_3o_ub_eta_corrected(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> float:
    """thm:fedavg:3o:ub, the step size with 1/(4L) for 1/(2L).

    fedavg:a2:stab:main drops -4 eta (1 - 2 eta L - 6 eta^3 L^3) <Delta, Delta_grad> "since eta L <= 1/4" (1540); at
    eta L = 1/2 that bracket is -3/4. The rate keeps its order.
    """
    return min(1 / (4 * L), thm_fedavg_3o_ub_eta(L, sigma, Q, B, M, K, R))


def fedavg_a2_stab_main(sigma: float, K: int, eta: float) -> list[float]:
    """fedavg:a2:stab:main (1353-1360); the proof needs eta <= 1/(4L) (1540)."""
    return [192 * eta**4 * K**2 * sigma**4]


# ---------------------------------------------------------------- FedAvg, non-convex


def thm_fedavg_ncvx_2o(L: float, G: float, Delta: float, M: int, K: int, R: int) -> list[float]:
    """thm:fedavg:ncvx:2o (1590-1610): O() of the terms, for E||grad F||^2."""
    return [
        L * Delta / (K * R),
        G * math.sqrt(L * Delta) / math.sqrt(M * K * R),
        L ** (2 / 3) * G ** (2 / 3) * Delta ** (2 / 3) / R ** (2 / 3),
    ]


def thm_fedavg_ncvx_2o_general(
    L: float, sigma: float, G: float, Delta: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """thm:fedavg:ncvx:2o, proof (6367-6369), eta <= 1/L."""
    return [
        2 * Delta / (eta * K * R),
        8 * L**2 * eta**2 * G**2 * K**2,
        L * eta * sigma**2 / M,
    ]


def thm_fedavg_ncvx_2o_general_corrected(
    L: float, sigma: float, G: float, Delta: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """thm:fedavg:ncvx:2o, proof, with 2 L eta sigma^2 / M.

    The one-step display (6362-6365) has L eta^2 sigma^2 / M, and telescoping multiplies by 2/eta; the 3o proof
    (6331-6333) has the 2. (Smoothness gives L/2 eta^2, with which the text's L eta sigma^2 / M and eta <= 1/L are both
    right; with the L eta^2 that 6297-6300 display, "because eta <= 1/L" (6313) would need eta <= 1/(2L).)
    """
    a, b, c = thm_fedavg_ncvx_2o_general(L, sigma, G, Delta, M, K, R, eta)
    return [a, b, 2 * c]


def thm_fedavg_ncvx_2o_eta(L: float, sigma: float, G: float, Delta: float, M: int, K: int, R: int) -> float:
    """thm:fedavg:ncvx:2o, proof (6370). It has sigma where the rate has G: the rate follows for sigma <= G."""
    return min(
        1 / L,
        _over(math.sqrt(Delta * M), sigma * math.sqrt(L * K * R)),
        _over(Delta ** (1 / 3), K * R ** (1 / 3) * L ** (2 / 3) * G ** (2 / 3)),
    )


def thm_fedavg_ncvx_3o(L: float, G: float, Q: float, Delta: float, M: int, K: int, R: int) -> list[float]:
    """thm:fedavg:ncvx:3o (1612-1636): O() of the terms, for E||grad F||^2."""
    return [
        L * Delta / (K * R),
        G * math.sqrt(L * Delta) / math.sqrt(M * K * R),
        Q ** (2 / 5) * G ** (4 / 5) * Delta ** (4 / 5) / R ** (4 / 5),
    ]


def thm_fedavg_ncvx_3o_general(
    L: float, sigma: float, G: float, Q: float, Delta: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """thm:fedavg:ncvx:3o, proof (6331-6333), eta <= 1/L."""
    return [
        2 * Delta / (eta * K * R),
        8 * Q**2 * eta**4 * G**4 * K**4,
        2 * L * eta * sigma**2 / M,
    ]


def thm_fedavg_ncvx_3o_eta(L: float, sigma: float, G: float, Q: float, Delta: float, M: int, K: int, R: int) -> float:
    """thm:fedavg:ncvx:3o, proof (6335-6338). It has sigma where the rate has G: the rate follows for sigma <= G."""
    return min(
        1 / L,
        _over(math.sqrt(M * Delta), sigma * math.sqrt(L * K * R)),
        _over(Delta ** (1 / 5), K * R ** (1 / 5) * Q ** (2 / 5) * G ** (4 / 5)),
    )


# ---------------------------------------------------------------- FedAc, strongly convex (chapter 3)


def fedac_gamma(mu: float, K: int, eta: float) -> float:
    """gamma of FedAc-I and FedAc-II (1826-1835)."""
    return max(math.sqrt(eta / (mu * K)), eta)


def fedac_a1_a(L: float, mu: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedac:a1 (a), eq. (1849-1855), FedAc-I: the last two terms are under O~()."""
    return [
        math.exp(min(-mu * K * R / L, -math.sqrt(mu * K * R**2 / L))) * L * B**2,
        sigma**2 / (mu * M * K * R),
        L * sigma**2 / (mu**2 * K * R**3),
    ]


def fedac_a1_b(L: float, mu: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedac:a1 (b), eq. (1856-1863), FedAc-II: the last two terms are under O~()."""
    return [
        math.exp(min(-mu * K * R / (3 * L), -math.sqrt(mu * K * R**2 / (9 * L)))) * L * B**2,
        sigma**2 / (mu * M * K * R),
        L**2 * sigma**2 / (mu**3 * K * R**4),
    ]


def fedavg_a1(L: float, mu: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedavg:a1 (1868-1876): the last two terms are under O~()."""
    return [
        math.exp(-mu * K * R / L) * L * B**2,
        sigma**2 / (mu * M * K * R),
        L * sigma**2 / (mu**2 * K * R**2),
    ]


def fedacii_a2(L: float, mu: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedacii:a2 (1886-1897), R >= sqrt(L/mu): the last two terms are under O~()."""
    return [
        math.exp(min(-mu * K * R / (3 * L), -math.sqrt(mu * K * R**2 / (9 * L)))) * 2 * L * B**2,
        sigma**2 / (mu * M * K * R),
        Q**2 * sigma**4 / (mu**5 * K**2 * R**8),
    ]


def fedavg_a2(L: float, mu: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedavg:a2 (1900-1907): the last two terms are under O~()."""
    return [
        math.exp(-mu * K * R / (8 * L)) * 4 * L * B**2,
        sigma**2 / (mu * M * K * R),
        Q**2 * sigma**4 / (mu**5 * K**2 * R**4),
    ]


def fedaci_full(L: float, mu: float, sigma: float, Psi0: float, M: int, K: int, R: int) -> list[float]:
    """fedaci:full (1950-1958)."""
    return [
        min(math.exp(-mu * K * R / L), math.exp(-(mu**0.5) * K**0.5 * R / L**0.5)) * Psi0,
        _log(2 * sigma**2 / (mu * M * K * R), E, _over(mu * M * K * R * Psi0, sigma**2), 2),
        _log(400 * L * sigma**2 / (mu**2 * K * R**3), E, _over(mu**2 * K * R**3 * Psi0, L * sigma**2), 4),
    ]


def fedaci_full_eta(L: float, mu: float, sigma: float, Psi0: float, M: int, K: int, R: int) -> float:
    """fedaci:full (1947-1949): the step size."""
    x = min(_over(mu * M * K * R * Psi0, sigma**2), _over(mu**2 * K * R**3 * Psi0, L * sigma**2))
    return min(1 / L, 1 / (mu * K * R**2) * math.log(E + x) ** 2)


def fedaci_conv_main(
    L: float, mu: float, sigma: float, Psi0: float, M: int, K: int, R: int, eta: float, gamma: float, overhead: float
) -> list[float]:
    """fedaci:conv:main (1972-1982), gamma in [eta, sqrt(eta/mu)], eta <= 1/L; `overhead` is the max of 1978-1979."""
    return [
        math.exp(-gamma * mu * K * R) * Psi0,
        eta**2 * L * sigma**2 / (2 * gamma * mu),
        gamma * sigma**2 / (2 * M),
        L * overhead,
    ]


def fedaci_stab_main(mu: float, sigma: float, K: int, eta: float, gamma: float) -> list[float]:
    """fedaci:stab:main (2015-2033)."""
    if gamma > eta:
        return [7 * eta * gamma * K * sigma**2 * (1 + 2 * gamma**2 * mu / eta) ** (2 * K)]
    return [7 * eta**2 * K * sigma**2]


def fedaci_stab_bound(mu: float, eta: float, gamma: float) -> list[float]:
    """fedaci:stab:bound (2391-2414), gamma in [eta, sqrt(eta/mu)], eta in (0, 1/L]: 1 and what is added to it."""
    return [1.0, 2 * gamma**2 * mu / eta if gamma > eta else 0.0]


def fedaci_general_eta(
    L: float, mu: float, sigma: float, Psi0: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """fedaci:general:eta (2062-2077), eta <= 1/L."""
    return [
        math.exp(-max(eta * mu, math.sqrt(eta * mu / K)) * K * R) * Psi0,
        eta**0.5 * sigma**2 / (2 * mu**0.5 * M * K**0.5),
        eta * sigma**2 / (2 * M),
        390 * eta**1.5 * L * K**0.5 * sigma**2 / mu**0.5,
        7 * eta**2 * L * K * sigma**2,
    ]


def fedacii_conv_main(
    L: float, mu: float, sigma: float, Phi0: float, M: int, K: int, R: int, eta: float, gamma: float, overhead: float
) -> list[float]:
    """fedacii:conv:main (3073-3084), gamma in [eta, sqrt(eta/mu)], eta <= 1/L; `overhead` is the max of 3081."""
    return [
        math.exp(-1 / 3 * gamma * mu * K * R) * Phi0,
        3 * eta**2 * L * sigma**2 / (2 * gamma * mu * M),
        gamma * sigma**2 / (2 * M),
        3 / mu * overhead,
    ]


def fedacii_stab_bound(mu: float, eta: float, gamma: float) -> list[float]:
    """fedacii:stab:bound (6974-6997), gamma in [eta, sqrt(eta/mu)], eta in (0, 1/L]: 1 and what is added to it."""
    return [1.0, gamma**2 * mu / eta if gamma > eta else 0.0]


def fedacii_stab_main(mu: float, sigma: float, Q: float, K: int, eta: float, gamma: float) -> list[float]:
    """fedacii:stab:main (3099-3111)."""
    c = 44 * eta**4 * Q**2 * K**2 * sigma**4
    return [c * (1 + gamma**2 * mu / eta) ** (4 * K) if gamma > eta else c]


def fedacii_a2_general_eta(
    L: float, mu: float, sigma: float, Q: float, Phi0: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """fedacii:a2:general:eta (6506-6517), eta <= 1/L."""
    return [
        math.exp(-1 / 3 * max(eta * mu, math.sqrt(eta * mu / K)) * K * R) * Phi0,
        eta**0.5 * sigma**2 / (mu**0.5 * M * K**0.5),
        2 * eta**1.5 * L * K**0.5 * sigma**2 / (mu**0.5 * M),
        E**9 * eta**4 * Q**2 * K**2 * sigma**4 / mu,
    ]


def fedacii_a2_full(L: float, mu: float, sigma: float, Q: float, Phi0: float, M: int, K: int, R: int) -> list[float]:
    """fedacii:a2:full (6477-6486)."""
    return [
        min(math.exp(-mu * K * R / (3 * L)), math.exp(-(mu**0.5) * K**0.5 * R / (3 * L**0.5))) * Phi0,
        _log(4 * sigma**2 / (mu * M * K * R), E, _over(mu * M * K * R * Phi0, sigma**2), 1),
        _log(55 * L * sigma**2 / (mu**2 * M * K * R**3), E, _over(mu**2 * M * K * R**3 * Phi0, L * sigma**2), 3),
        _log(
            E**18 * Q**2 * sigma**4 / (mu**5 * K**2 * R**8),
            E,
            _over(mu**5 * K**2 * R**8 * Phi0, Q**2 * sigma**4),
            8,
        ),
    ]


def fedacii_a2_full_eta(L: float, mu: float, sigma: float, Q: float, Phi0: float, M: int, K: int, R: int) -> float:
    """fedacii:a2:full (6472-6475): the step size; the first two quantities are joined by a plus."""
    x = min(
        _over(mu * M * K * R * Phi0, sigma**2) + _over(mu**2 * M * K * R**3 * Phi0, L * sigma**2),
        _over(mu**5 * K**2 * R**8 * Phi0, Q**2 * sigma**4),
    )
    return min(1 / L, 9 / (mu * K * R**2) * math.log(E + x) ** 2)


def fedacii_a2_full_eta_corrected(
    L: float, mu: float, sigma: float, Q: float, Phi0: float, M: int, K: int, R: int
) -> float:
    """fedacii:a2:full, the step size with min{A, B, C} for min{A + B, C}.

    The proof bounds log(e + min) by log(e + A) and by log(e + B) (6614-6622), which min{A + B, C} does not give. The
    general convex version (8113-8125) has the min of three.
    """
    x = min(
        _over(mu * M * K * R * Phi0, sigma**2),
        _over(mu**2 * M * K * R**3 * Phi0, L * sigma**2),
        _over(mu**5 * K**2 * R**8 * Phi0, Q**2 * sigma**4),
    )
    return min(1 / L, 9 / (mu * K * R**2) * math.log(E + x) ** 2)


def fedacii_a1_full(L: float, mu: float, sigma: float, Phi0: float, M: int, K: int, R: int) -> list[float]:
    """fedacii:a1:full (7518-7525)."""
    return [
        min(math.exp(-mu * K * R / (3 * L)), math.exp(-(mu**0.5) * K**0.5 * R / (3 * L**0.5))) * Phi0,
        _log(4 * sigma**2 / (mu * M * K * R), E, _over(mu * M * K * R * Phi0, sigma**2), 1),
        _log(8101 * L**2 * sigma**2 / (mu**3 * K * R**4), E, _over(mu**3 * K * R**4 * Phi0, L**2 * sigma**2), 4),
    ]


def fedacii_a1_full_eta(L: float, mu: float, sigma: float, Phi0: float, M: int, K: int, R: int) -> float:
    """fedacii:a1:full (7513-7516): the step size; the min has one argument, a sum of two."""
    x = _over(mu * M * K * R * Phi0, sigma**2) + _over(mu**3 * K * R**4 * Phi0, L**2 * sigma**2)
    return min(1 / L, 9 / (mu * K * R**2) * math.log(E + x) ** 2)


def fedacii_a1_full_eta_corrected(L: float, mu: float, sigma: float, Phi0: float, M: int, K: int, R: int) -> float:
    """fedacii:a1:full, the step size with min{A, B} for min{A + B}.

    The proof bounds log(e + .) by log(e + A) and by log(e + B) (7648-7654); a min of one
    argument is a slip for the comma.
    """
    x = min(_over(mu * M * K * R * Phi0, sigma**2), _over(mu**3 * K * R**4 * Phi0, L**2 * sigma**2))
    return min(1 / L, 9 / (mu * K * R**2) * math.log(E + x) ** 2)


def fedacii_a1_stab_main(L: float, mu: float, sigma: float, K: int, eta: float, gamma: float) -> list[float]:
    """fedacii:a1:stab:main (7533-7546)."""
    c = 4 * eta**2 * L**2 * K * sigma**2
    return [c * (1 + gamma**2 * mu / eta) ** (2 * K) if gamma > eta else c]


def fedacii_a1_general_eta(
    L: float, mu: float, sigma: float, Phi0: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """fedacii:a1:general:eta (7551-7561), eta <= 1/L."""
    return [
        math.exp(-1 / 3 * max(eta * mu, math.sqrt(eta * mu / K)) * K * R) * Phi0,
        eta**0.5 * sigma**2 / (mu**0.5 * M * K**0.5),
        100 * eta**2 * L**2 * K * sigma**2 / mu,
    ]


def fedavg_a2_full(L: float, mu: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedavg:a2:full (7787-7798)."""
    return [
        math.exp(-mu * K * R / (8 * L)) * 4 * L * B**2,
        _log(3 * sigma**2 / (mu * M * K * R), E, _over(mu**2 * M * K**2 * R**2 * B**2, sigma**2), 1),
        _log(
            3073 * Q**2 * sigma**4 / (mu**5 * K**2 * R**4),
            E,
            _over(mu**6 * K**3 * R**5 * B**2, Q**2 * sigma**4),
            4,
        ),
    ]


def fedavg_a2_full_eta(L: float, mu: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> float:
    """fedavg:a2:full (7783-7785): the step size."""
    x = min(
        _over(mu**2 * M * K**2 * R**2 * B**2, sigma**2),
        _over(mu**6 * K**3 * R**5 * B**2, Q**2 * sigma**4),
    )
    return min(1 / (4 * L), 2 / (mu * K * R) * math.log(E + x))


def fedavg_a2_conv_main(
    mu: float, sigma: float, Q: float, B: float, M: int, K: int, R: int, eta: float, fourth: float
) -> list[float]:
    """fedavg:a2:conv:main (7802-7814), eta <= 1/(4L); `fourth` is the max of the mean of E||xbar - x_m||^4."""
    return [1 / eta * math.exp(-0.5 * eta * mu * K * R) * B**2, 1 / M * eta * sigma**2, Q**2 / mu * fourth]


def fedavg_a2_general_eta(
    mu: float, sigma: float, Q: float, B: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """eq. fedavg:a2:general:eta (7818-7827), eta <= 1/(4L)."""
    return [
        1 / eta * math.exp(-0.5 * eta * mu * K * R) * B**2,
        1 / M * eta * sigma**2,
        192 * eta**4 * Q**2 * K**2 * sigma**4 / mu,
    ]


# ---------------------------------------------------------------- FedAc, general convex


def fedaci_a1_gcvx(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedaci:a1:gcvx (8049-8060), T = K R >= 24."""
    return [
        2 * L * B**2 / (K * R**2) * math.log(E**2 + K * R**2) ** 2,
        _log(2 * sigma * B / (M**0.5 * K**0.5 * R**0.5), E**2, _over(L * M**0.5 * K**0.5 * R**0.5 * B, sigma), 2),
        _log(
            1005 * L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R),
            E**4,
            _over(L ** (2 / 3) * K ** (1 / 3) * R * B ** (2 / 3), sigma ** (2 / 3)),
            4,
        ),
    ]


def fedaci_a1_gcvx_lam(L: float, sigma: float, B: float, M: int, K: int, R: int) -> float:
    """fedaci:a1:gcvx (8030-8036): lambda."""
    return max(
        sigma / (M**0.5 * K**0.5 * R**0.5 * B),
        L ** (1 / 3) * sigma ** (2 / 3) / (K ** (1 / 3) * R * B ** (2 / 3)),
        2 * L / (K * R**2) * math.log(E**2 + K * R**2) ** 2,
    )


def fedaci_a1_gcvx_eta(L: float, sigma: float, B: float, M: int, K: int, R: int, lam: float) -> float:
    """fedaci:a1:gcvx (8037-8047) and fedaci:gcvx:2 (8184-8193): the step size, with log^2(e + min).

    The proof's eta_1 (8244-8245) has log^2(e^2 + min); see `fedaci_gcvx_2_eta_in_proof`. The statement's e is the right
    one: with e^2 the displayed phi_1 .. phi_4 (8254-8282), log(e + .), fail; with
    e only the "=" of phi_0(eta_1) is off.
    """
    x = min(_over(lam * L * M * K * R * B**2, sigma**2), _over(lam**2 * K * R**3 * B**2, sigma**2))
    return min(
        1 / (L + lam),
        1 / (lam * K * R**2) * math.log(E + x) ** 2,
        _over(L ** (1 / 3) * B ** (2 / 3), lam ** (2 / 3) * K ** (2 / 3) * R * sigma ** (2 / 3)),
        _over(L**0.25 * B**0.5, lam**0.75 * K**0.75 * R * sigma**0.5),
    )


def fedaci_gcvx_2_eta_in_proof(L: float, sigma: float, B: float, M: int, K: int, R: int, lam: float) -> float:
    """fedaci:gcvx:2, proof (8243-8252): the step size with log^2(e^2 + min)."""
    x = min(_over(lam * L * M * K * R * B**2, sigma**2), _over(lam**2 * K * R**3 * B**2, sigma**2))
    return min(
        1 / (L + lam),
        1 / (lam * K * R**2) * math.log(E**2 + x) ** 2,
        _over(L ** (1 / 3) * B ** (2 / 3), lam ** (2 / 3) * K ** (2 / 3) * R * sigma ** (2 / 3)),
        _over(L**0.25 * B**0.5, lam**0.75 * K**0.75 * R * sigma**0.5),
    )


def fedaci_gcvx_1(L: float, sigma: float, B: float, M: int, K: int, R: int, eta: float, lam: float) -> list[float]:
    """fedaci:gcvx:1 (8153-8176), lambda > 0, eta <= 1/(L + lambda)."""
    return [
        0.5 * lam * B**2,
        0.5 * L * B**2 * math.exp(-math.sqrt(eta * lam * K * R**2)),
        eta**0.5 * sigma**2 / (2 * lam**0.5 * M * K**0.5),
        eta * sigma**2 / (2 * M),
        390 * eta**1.5 * L * K**0.5 * sigma**2 / lam**0.5,
        7 * eta**2 * L * K * sigma**2,
        390 * eta**1.5 * lam**0.5 * K**0.5 * sigma**2,
        7 * eta**2 * lam * K * sigma**2,
    ]


def fedaci_gcvx_2(L: float, sigma: float, B: float, M: int, K: int, R: int, lam: float) -> list[float]:
    """fedaci:gcvx:2 (8181-8213), lambda > 0, at `fedaci_a1_gcvx_eta`."""
    return [
        0.5 * lam * B**2,
        _log(3 * sigma**2 / (2 * lam * M * K * R), E**2, _over(lam * L * M * K * R * B**2, sigma**2), 2),
        _log(592 * L * sigma**2 / (lam**2 * K * R**3), E**4, _over(lam**2 * K * R**3 * B**2, sigma**2), 4),
        412 * L**0.5 * sigma * B / (lam**0.5 * K**0.5 * R**1.5),
        0.5 * L * B**2 * math.exp(-math.sqrt(K * R**2 / (1 + L / lam))),
    ]


def fedacii_a1_gcvx(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedacii:a1:gcvx (8087-8098), T = K R >= 1000. The body assumes 3o (8067), the title and the proof 2o."""
    return [
        10 * L * B**2 / (K * R**2) * math.log(E**2 + K * R**2) ** 2,
        _log(5 * sigma * B / (M**0.5 * K**0.5 * R**0.5), E, _over(L * M**0.5 * K**0.5 * R**0.5 * B, sigma), 1),
        _log(
            16411 * L**0.5 * sigma**0.5 * B**1.5 / (K**0.25 * R),
            E**4,
            _over(L**0.5 * K**0.25 * R * B**0.5, sigma**0.5),
            4,
        ),
    ]


def fedacii_a1_gcvx_lam(L: float, sigma: float, B: float, M: int, K: int, R: int) -> float:
    """fedacii:a1:gcvx (8068-8073): lambda."""
    return max(
        sigma / (M**0.5 * K**0.5 * R**0.5 * B),
        L**0.5 * sigma**0.5 / (K**0.25 * R * B**0.5),
        18 * L / (K * R**2) * math.log(E**2 + K * R**2) ** 2,
    )


def fedacii_a1_gcvx_eta(L: float, sigma: float, B: float, M: int, K: int, R: int, lam: float) -> float:
    """fedacii:a1:gcvx (8074-8085) and fedacii:a1:gcvx:2 (8601-8610): the step size."""
    x = min(_over(lam * L * M * K * R * B**2, sigma**2), _over(lam**3 * K * R**4 * B**2, L * sigma**2))
    return min(
        1 / (L + lam),
        9 / (lam * K * R**2) * math.log(E + x) ** 2,
        _over(L ** (1 / 3) * B ** (2 / 3), lam ** (2 / 3) * K ** (2 / 3) * R ** (2 / 3) * sigma ** (2 / 3)),
    )


def fedacii_a1_gcvx_1(L: float, sigma: float, B: float, M: int, K: int, R: int, eta: float, lam: float) -> list[float]:
    """fedacii:a1:gcvx:1 (8579-8596), lambda > 0, eta <= 1/(L + lambda)."""
    return [
        0.5 * lam * B**2,
        0.5 * L * B**2 * math.exp(-math.sqrt(eta * lam * K * R**2 / 9)),
        eta**0.5 * sigma**2 / (lam**0.5 * M * K**0.5),
        200 * eta**2 * L**2 * K * sigma**2 / lam,
        200 * eta**2 * lam * K * sigma**2,
    ]


def fedacii_a1_gcvx_2(L: float, sigma: float, B: float, M: int, K: int, R: int, lam: float) -> list[float]:
    """fedacii:a1:gcvx:2 (8598-8630), lambda > 0, at `fedacii_a1_gcvx_eta`."""
    return [
        0.5 * lam * B**2,
        0.5 * L * B**2 * math.exp(-math.sqrt(K * R**2 / (9 * (1 + L / lam)))),
        209 * L ** (2 / 3) * B ** (4 / 3) * sigma ** (2 / 3) / (lam ** (1 / 3) * K ** (1 / 3) * R ** (4 / 3)),
        _log(4 * sigma**2 / (lam * M * K * R), E, _over(lam * L * M * K * R * B**2, sigma**2), 1),
        _log(16201 * L**2 * sigma**2 / (lam**3 * K * R**4), E**4, _over(lam**3 * K * R**4 * B**2, L * sigma**2), 4),
    ]


def fedacii_a2_gcvx(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> list[float]:
    """fedacii:a2:gcvx (8129-8145), T = K R >= 1000."""
    return [
        10 * L * B**2 / (K * R**2) * math.log(E**2 + K * R**2) ** 2,
        _log(5 * sigma * B / (M**0.5 * K**0.5 * R**0.5), E, _over(L * M**0.5 * K**0.5 * R**0.5 * B, sigma), 1),
        _log(
            139 * L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (M ** (1 / 3) * K ** (1 / 3) * R),
            E**3,
            _over(L ** (2 / 3) * M ** (1 / 3) * K ** (1 / 3) * R * B ** (2 / 3), sigma ** (2 / 3)),
            3,
        ),
        _log(
            E**19 * Q ** (1 / 3) * sigma ** (2 / 3) * B ** (5 / 3) / (K ** (1 / 3) * R ** (4 / 3)),
            E**8,
            _over(L * K ** (1 / 3) * R ** (4 / 3) * B ** (1 / 3), Q ** (1 / 3) * sigma ** (2 / 3)),
            8,
        ),
    ]


def fedacii_a2_gcvx_lam(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> float:
    """fedacii:a2:gcvx (8105-8112): lambda. The proof (8984) leaves the fourth argument out of the max, a slip."""
    return max(
        sigma / (M**0.5 * K**0.5 * R**0.5 * B),
        L ** (1 / 3) * sigma ** (2 / 3) / (M ** (1 / 3) * K ** (1 / 3) * R * B ** (2 / 3)),
        Q ** (1 / 3) * sigma ** (2 / 3) / (K ** (1 / 3) * R ** (4 / 3) * B ** (1 / 3)),
        18 * L / (K * R**2) * math.log(E**2 + K * R**2) ** 2,
    )


def fedacii_a2_gcvx_eta(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int, lam: float) -> float:
    """fedacii:a2:gcvx (8113-8127) and fedacii:a2:gcvx:2 (8839-8852): the step size."""
    x = min(
        _over(lam * L * M * K * R * B**2, sigma**2),
        _over(lam**2 * M * K * R**3 * B**2, sigma**2),
        _over(lam**5 * L * K**2 * R**8 * B**2, Q**2 * sigma**4),
    )
    return min(
        1 / (L + lam),
        9 / (lam * K * R**2) * math.log(E + x) ** 2,
        _over(L ** (1 / 3) * M ** (1 / 3) * B ** (2 / 3), lam ** (2 / 3) * K ** (2 / 3) * R * sigma ** (2 / 3)),
    )


def fedacii_a2_gcvx_1(
    L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int, eta: float, lam: float
) -> list[float]:
    """fedacii:a2:gcvx:1 (8811-8832), lambda > 0, eta <= 1/(L + lambda)."""
    return [
        0.5 * lam * B**2,
        0.5 * L * B**2 * math.exp(-math.sqrt(eta * lam * K * R**2 / 9)),
        eta**0.5 * sigma**2 / (lam**0.5 * M * K**0.5),
        2 * eta**1.5 * L * K**0.5 * sigma**2 / (lam**0.5 * M),
        2 * eta**1.5 * lam**0.5 * K**0.5 * sigma**2 / M,
        E**9 * eta**4 * Q**2 * K**2 * sigma**4 / lam,
    ]


def fedacii_a2_gcvx_2(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int, lam: float) -> list[float]:
    """fedacii:a2:gcvx:2 (8836-8875), lambda > 0, at `fedacii_a2_gcvx_eta`."""
    return [
        0.5 * lam * B**2,
        0.5 * L * B**2 * math.exp(-math.sqrt(K * R**2 / (9 * (1 + L / lam)))),
        _log(4 * sigma**2 / (lam * M * K * R), E, _over(lam * L * M * K * R * B**2, sigma**2), 1),
        _log(55 * L * sigma**2 / (lam**2 * M * K * R**3), E**3, _over(lam**2 * M * K * R**3 * B**2, sigma**2), 3),
        83 * L**0.5 * B * sigma / (lam**0.5 * M**0.5 * K**0.5 * R**1.5),
        _log(
            E**18 * Q**2 * sigma**4 / (lam**5 * K**2 * R**8),
            E**8,
            _over(lam**5 * L * K**2 * R**8 * B**2, Q**2 * sigma**4),
            8,
        ),
    ]


# ---------------------------------------------------------------- composite (chapter 4); eta is eta_client


def thm_0(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:0 (3877-3889): up to a constant, for small eta_client."""
    return [L * B**2 / R, sigma * B / math.sqrt(M * K * R)]


def thm_0_eta_server(L: float, sigma: float, B: float, M: int, K: int, R: int, eta: float) -> float:
    """thm:0 (3879): Theta() of the server learning rate, for eta = eta_client."""
    return min(1 / (eta * K * L), _over(B * M**0.5, eta * K**0.5 * R**0.5 * sigma))


def small_lr(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """small_lr, second display (9497-9505)."""
    return [4 * L * B**2 / R, 4 * sigma * B / (M**0.5 * K**0.5 * R**0.5)]


def small_lr_general(sigma: float, B: float, M: int, K: int, R: int, eta: float) -> list[float]:
    """small_lr, first display (9482-9490), eta = eta_server eta_client <= 1/(4 K L)."""
    return [B**2 / (eta * K * R), 3 * eta * sigma**2 / M]


def small_lr_eta(L: float, sigma: float, B: float, M: int, K: int, R: int) -> float:
    """small_lr (9493-9496): eta = eta_server eta_client."""
    return min(1 / (4 * K * L), _over(B * M**0.5, K**0.5 * R**0.5 * sigma))


def pia_general(L: float, sigma: float, B: float, M: int, K: int, R: int, eta: float, overhead: float) -> list[float]:
    """pia:general (4019-4038), eta <= 1/(4L); `overhead` is the mean over (r, k, m) of E||ybar - y_m||_*^2.

    The sentence after it (4039) has eta sigma^2 / (2M) and a stray L/(MKR); the lemma and its proof have
    eta sigma^2 / M.
    """
    return [1 / (eta * K * R) * B**2, eta * sigma**2 / M, L * overhead]


def thm_1_simplified_general(
    L: float, sigma: float, G: float, B: float, M: int, K: int, R: int, eta: float
) -> list[float]:
    """thm:1:simplified, first display (3912-3917): up to a constant, eta <= 1/(4L)."""
    return [B**2 / (eta * K * R), eta * sigma**2 / M, eta**2 * L * K**2 * G**2]


def thm_1_simplified(L: float, sigma: float, G: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:1:simplified, second display (3919-3928): up to a constant."""
    return [
        L * B**2 / (K * R),
        sigma * B / math.sqrt(M * K * R),
        L ** (1 / 3) * B ** (4 / 3) * G ** (2 / 3) / R ** (2 / 3),
    ]


def thm_1_general(L: float, sigma: float, G: float, B: float, M: int, K: int, R: int, eta: float) -> list[float]:
    """thm:1, first display (9350-9357), eta <= 1/(4L)."""
    return [B**2 / (eta * K * R), eta * sigma**2 / M, 4 * eta**2 * L * (K - 1) ** 2 * G**2]


def thm_1(L: float, sigma: float, G: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:1, second display (9365-9374)."""
    return [
        4 * L * B**2 / (K * R),
        2 * sigma * B / (M**0.5 * K**0.5 * R**0.5),
        5 * L ** (1 / 3) * B ** (4 / 3) * G ** (2 / 3) / R ** (2 / 3),
    ]


def thm_1_eta(L: float, sigma: float, G: float, B: float, M: int, K: int, R: int) -> float:
    """thm:1 (9360-9363): eta_client."""
    return min(
        1 / (4 * L),
        _over(M**0.5 * B, sigma * K**0.5 * R**0.5),
        _over(B ** (2 / 3), L ** (1 / 3) * K * R ** (1 / 3) * G ** (2 / 3)),
    )


def bounded_gradient(G: float, K: int, eta: float) -> list[float]:
    """bounded_gradient (9380-9386)."""
    return [4 * eta**2 * (K - 1) ** 2 * G**2]


def bounded_gradient_corrected(G: float, k: int, eta: float) -> list[float]:
    """bounded_gradient at step k.

    The sums over kappa = 0 .. k-1 (9437) have k summands, so the last line (9442) is (2 k G)^2, not (2 (k-1) G)^2. For
    k <= K - 1, all that pia:general uses, it is at most the display; at k = K it is not (K = 1: the display is 0).
    """
    return [4 * eta**2 * k**2 * G**2]


def thm_2_general(L: float, sigma: float, zeta: float, B: float, M: int, K: int, R: int, eta: float) -> list[float]:
    """thm:2, first display (3963-3971), eta <= 1/(4L). a3 (a) (3948) bounds a norm by zeta^2; every use has zeta."""
    return [
        B**2 / (eta * K * R),
        eta * sigma**2 / M,
        7 * eta**2 * L * K * sigma**2,
        14 * eta**2 * L * K**2 * zeta**2,
    ]


def thm_2(L: float, sigma: float, zeta: float, B: float, M: int, K: int, R: int) -> list[float]:
    """thm:2, second display (3983-3994)."""
    return [
        4 * L * B**2 / (K * R),
        2 * sigma * B / (M**0.5 * K**0.5 * R**0.5),
        8 * L ** (1 / 3) * B ** (4 / 3) * sigma ** (2 / 3) / (K ** (1 / 3) * R ** (2 / 3)),
        15 * L ** (1 / 3) * B ** (4 / 3) * zeta ** (2 / 3) / R ** (2 / 3),
    ]


def thm_2_eta(L: float, sigma: float, zeta: float, B: float, M: int, K: int, R: int) -> float:
    """thm:2 (3975-3981): eta_client."""
    return min(
        1 / (4 * L),
        _over(M**0.5 * B, sigma * K**0.5 * R**0.5),
        _over(B ** (2 / 3), L ** (1 / 3) * K ** (2 / 3) * R ** (1 / 3) * sigma ** (2 / 3)),
        _over(B ** (2 / 3), L ** (1 / 3) * K * R ** (1 / 3) * zeta ** (2 / 3)),
    )


def quad_stability(sigma: float, zeta: float, K: int, eta: float) -> list[float]:
    """quad:stability (4065-4074)."""
    return [7 * eta**2 * K * sigma**2, 14 * eta**2 * K**2 * zeta**2]


# ---------------------------------------------------------------- tab:conv:rate; without the exponentially small term


def tab_scvx_2o_fedavg(L: float, mu: float, sigma: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1676-1679)."""
    return [sigma**2 / (mu * M * K * R), L * sigma**2 / (mu**2 * K * R**2)]


def tab_scvx_2o_fedac(L: float, mu: float, sigma: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1681-1684)."""
    return [
        sigma**2 / (mu * M * K * R),
        min(L * sigma**2 / (mu**2 * K * R**3), L**2 * sigma**2 / (mu**3 * K * R**4)),
    ]


def tab_scvx_3o_fedavg(mu: float, sigma: float, Q: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1687-1689)."""
    return [sigma**2 / (mu * M * K * R), Q**2 * sigma**4 / (mu**5 * K**2 * R**4)]


def tab_scvx_3o_fedac(mu: float, sigma: float, Q: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1691-1694)."""
    return [sigma**2 / (mu * M * K * R), Q**2 * sigma**4 / (mu**5 * K**2 * R**8)]


def tab_cvx_2o_fedavg(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1697-1699)."""
    return [
        L * B**2 / (K * R),
        sigma * B / math.sqrt(M * K * R),
        L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R ** (2 / 3)),
    ]


def tab_cvx_2o_fedac(L: float, sigma: float, B: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1701-1703)."""
    return [
        L * B**2 / (K * R**2),
        sigma * B / math.sqrt(M * K * R),
        min(
            L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (K ** (1 / 3) * R),
            L**0.5 * sigma**0.5 * B**1.5 / (K**0.25 * R),
        ),
    ]


def tab_cvx_3o_fedavg(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1706-1708)."""
    return [
        L * B**2 / (K * R),
        sigma * B / math.sqrt(M * K * R),
        Q ** (1 / 3) * sigma ** (2 / 3) * B ** (5 / 3) / (K ** (1 / 3) * R ** (2 / 3)),
    ]


def tab_cvx_3o_fedac(L: float, sigma: float, Q: float, B: float, M: int, K: int, R: int) -> list[float]:
    """tab:conv:rate (1710-1713)."""
    return [
        L * B**2 / (K * R**2),
        sigma * B / math.sqrt(M * K * R),
        L ** (1 / 3) * sigma ** (2 / 3) * B ** (4 / 3) / (M ** (1 / 3) * K ** (1 / 3) * R),
        Q ** (1 / 3) * sigma ** (2 / 3) * B ** (5 / 3) / (K ** (1 / 3) * R ** (4 / 3)),
    ]
