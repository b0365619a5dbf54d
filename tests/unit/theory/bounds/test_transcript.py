"""Every bound, step size and lambda against `oracles/theorems.py`, a transcript of the text by another hand, term by term.

A row says which of our terms are sums of the text's (we name a term by its cause, the text sometimes writes two summands of
one cause) and where we differ on purpose; what the transcript has and no row compares is listed with the reason.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedlocal.theory import Bound, Constants, Setting
from fedlocal.theory.bias.bounds import iterate_bias_lower_bound, iterate_bias_upper_bound
from fedlocal.theory.bounds.composite import (
    composite_small_step_bound,
    fed_dual_avg_bounded_gradient_bound,
    fed_dual_avg_bounded_gradient_discrepancy_bound,
    fed_dual_avg_perturbed_bound,
    fed_dual_avg_quadratic_bound,
    fed_dual_avg_quadratic_discrepancy_bound,
)
from fedlocal.theory.bounds.fed_ac import (
    fed_ac_one_bound,
    fed_ac_two_bound,
    fed_ac_two_third_order_bound,
    minibatch_ac_sgd_bound,
)
from fedlocal.theory.bounds.fed_ac_augmented import (
    fed_ac_one_augmented_bound,
    fed_ac_two_augmented_bound,
    fed_ac_two_third_order_augmented_bound,
)
from fedlocal.theory.bounds.fed_ac_convex import (
    fed_ac_one_convex_bound,
    fed_ac_two_convex_bound,
    fed_ac_two_third_order_convex_bound,
)
from fedlocal.theory.bounds.fed_ac_stability import (
    fed_ac_one_discrepancy_bound,
    fed_ac_one_growth_bound,
    fed_ac_one_perturbed_bound,
    fed_ac_two_discrepancy_bound,
    fed_ac_two_growth_bound,
    fed_ac_two_perturbed_bound,
    fed_ac_two_third_order_discrepancy_bound,
    stable_gamma,
)
from fedlocal.theory.bounds.fed_avg import (
    comprehensive_bound,
    fed_avg_convex_bound,
    fed_avg_non_convex_bound,
    fed_avg_non_convex_third_order_bound,
    fed_avg_strongly_convex_bound,
    fed_avg_strongly_convex_third_order_bound,
    fed_avg_third_order_bound,
)
from fedlocal.theory.bounds.fed_avg_stability import (
    client_discrepancy_bound,
    fed_avg_strongly_convex_perturbed_bound,
    fourth_order_discrepancy_bound,
    shadow_bound,
)
from fedlocal.theory.bounds.lower import fed_avg_lower_bound, lower_bound_curvature
from fedlocal.theory.bounds.minibatch import best_of_two, minibatch_sgd_bound, single_client_sgd_bound
from fedlocal.theory.bounds.rate_tables import rates
from oracles import theorems as text

SAME = 1e-12  # relative
DRAWS = 60  # of all letters at random, besides the edges
SPAN = 1.5  # decades on both sides of one

NOT_COMPARED = {
    "naive_improvement_factor": "a factor between two rates, of which both are compared",
    "naive_improvement_factor_corrected": "a factor between two rates, of which both are compared",
    "thm_fedavg_lb_homo_rearranged": "equivalent up to a factor of two to the form that we have",
    "lem_fedavg_lb_f1": "an order without its constant; the instance is run instead",
    "lem_fedavg_lb_f4": "an order without its constant; we have what it bounds, heterogeneous_drift",
    "lem_fedavg_lb_f4_corrected": "an order without its constant; we have what it bounds, heterogeneous_drift",
    "sde_bias": "an approximation and no bound; bias_expansion has it and test_iterate_bias its constant",
    "sde_bias_corrected": "an approximation and no bound; bias_expansion has it and test_iterate_bias its constant",
    "thm_0_eta_server": "an order; the step size with its constant is small_lr_eta",
    "thm_1_simplified_general": "an order; with its constants it is thm_1_general, which we have",
}


class Letters(NamedTuple):
    """What the text's formulas are about; k steps, c between 0 and 1 for what is between two limits."""

    L: float
    mu: float
    sigma: float
    zeta: float
    Q: float
    G: float
    Delta: float
    B: float
    M: int
    K: int
    R: int
    k: int
    eta: float
    c: float

    @property
    def setting(self) -> Setting:
        return Setting(clients=self.M, rounds=self.R, local_steps=self.K)

    @property
    def gamma(self) -> float:
        """Of FedAc, from eta (c = 0) to sqrt(eta/mu)."""
        return self.eta * (1 / (self.eta * self.mu)) ** (self.c / 2)

    def constants(self, **changes: Any) -> Constants:
        known: dict[str, Any] = {
            "smoothness": self.L,
            "noise": self.sigma,
            "distance": self.B,
            "strong_convexity": self.mu,
            "heterogeneity": self.zeta,
            "optimum_heterogeneity": self.zeta,
            "fourth_moment": self.sigma,
            "third_order": self.Q,
            "gradient_bound": self.G,
            "gap": self.Delta,
            "mirror_distance": None,
        }
        return Constants(**known | changes)


def at_random(rng: np.random.Generator) -> Letters:
    L, sigma, zeta, Q, G, Delta, B = (float(10**u) for u in rng.uniform(-SPAN, SPAN, 7))
    M, K, R, k = (int(10**u) for u in rng.uniform(0, 2.5, 4))
    mu = L * float(10 ** -rng.uniform(0, 3))
    eta = float(10 ** -rng.uniform(0, 3)) / L
    return Letters(L, mu, sigma, zeta, Q, G, Delta, B, M, K, R, k, eta, float(rng.uniform()))


def all_letters() -> Iterator[Letters]:
    """At random over decades; and with nothing that can be zero left out, one at a time and all at once."""
    rng = np.random.default_rng(0)
    yield from (at_random(rng) for _ in range(DRAWS))
    zeros = [{"sigma": 0.0}, {"zeta": 0.0}, {"Q": 0.0}, {"G": 0.0}, {"c": 0.0}, {"K": 1}, {"R": 1}, {"M": 1}, {"k": 1}]
    everything = {name: value for zero in zeros for name, value in zero.items()}
    for zero in [*zeros, {"sigma": 0.0, "zeta": 0.0, "Q": 0.0, "G": 0.0}, everything]:
        yield from (at_random(rng)._replace(**zero) for _ in range(3))


LETTERS = list(all_letters())
Terms = Callable[[Letters], list[float]]


class Row(NamedTuple):
    """One form of one of our functions, and what the text has for it."""

    ours: Callable[[Letters], Any]  # a Bound, or a number
    theirs: Terms  # grouped as ours
    step: Callable[[Letters], float] | None = None
    lam: Callable[[Letters], float] | None = None
    longest: Callable[[Letters], float] | None = None  # the largest step size that is allowed, for a given step size


def both(fn: Callable[..., Bound], form: str = "full", **changes: Any) -> Callable[[Letters], Bound]:
    return lambda a: fn(a.constants(**changes), a.setting, form=form)


def general(fn: Callable[..., Any], **changes: Any) -> Callable[[Letters], Any]:
    return lambda a: fn(a.constants(**changes), a.setting, a.eta)


def grouped(terms: list[float], *places: tuple[int, ...]) -> list[float]:
    """Sums of the text's summands."""
    return [math.fsum(terms[i] for i in group) for group in places]


def quarter(a: Letters) -> float:
    return 1 / (4 * a.L)


def Psi0(a: Letters) -> float:
    return a.Delta + a.mu * a.B**2 / 2


def Phi0(a: Letters) -> float:
    return a.Delta + a.mu * a.B**2 / 6


def Start(a: Letters) -> float:
    """What we take for both where F(x0) - F* is not known."""
    return a.L * a.B**2


def Divergence(a: Letters) -> float:
    """The B of the composite theorems, of the Euclidean h."""
    return a.B / math.sqrt(2)


def lam_one(a: Letters) -> float:
    return text.fedaci_a1_gcvx_lam(a.L, a.sigma, a.B, a.M, a.K, a.R)


def lam_two(a: Letters) -> float:
    return text.fedacii_a1_gcvx_lam(a.L, a.sigma, a.B, a.M, a.K, a.R)


def lam_three(a: Letters) -> float:
    return text.fedacii_a2_gcvx_lam(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R)


def single(a: Letters) -> Letters:
    return a._replace(M=1)


def batch(a: Letters) -> Letters:
    """Minibatch SGD as FedAvg with one local step and noise sigma / sqrt(K)."""
    return a._replace(K=1, sigma=a.sigma / math.sqrt(a.K))


def sgd_general(a: Letters) -> list[float]:
    return text.lem_fedavg_2o_ub_1(a.L, a.sigma, a.B, a.M, a.K, a.R, a.eta, variance=0.0)[:2]


def sgd_simplified(a: Letters) -> list[float]:
    return text.tab_cvx_2o_fedavg(a.L, a.sigma, a.B, a.M, a.K, a.R)[:2]


def sgd_eta(a: Letters) -> float:
    """thm:1 has the two candidates of SGD, and a third one with G."""
    return text.thm_1_eta(a.L, a.sigma, 0.0, a.B, a.M, a.K, a.R)


ROWS = {
    # ---------------------------------------------------------------- FedAvg
    "convex": Row(
        both(fed_avg_convex_bound),
        lambda a: text.thm_fedavg_2o_ub_general(
            a.L,
            a.sigma,
            a.zeta,
            a.B,
            a.M,
            a.K,
            a.R,
            text.thm_fedavg_2o_ub_eta(a.L, a.sigma, a.zeta, a.B, a.M, a.K, a.R),
        ),
        step=lambda a: text.thm_fedavg_2o_ub_eta(a.L, a.sigma, a.zeta, a.B, a.M, a.K, a.R),
    ),
    "convex, general": Row(
        general(fed_avg_convex_bound),
        lambda a: text.thm_fedavg_2o_ub_general(a.L, a.sigma, a.zeta, a.B, a.M, a.K, a.R, a.eta),
        longest=quarter,
    ),
    "convex, simplified": Row(
        both(fed_avg_convex_bound, "simplified"),
        lambda a: text.thm_fedavg_2o_ub(a.L, a.sigma, a.zeta, a.B, a.M, a.K, a.R),
    ),
    "comprehensive, simplified": Row(  # the smallest of three sums, so one number
        lambda a: both(comprehensive_bound, "simplified", heterogeneity=0.0)(a).value,
        lambda a: [min(text.rem_fedavg_2o_ub(a.L, a.sigma, a.B, a.M, a.K, a.R))],
    ),
    "third order": Row(  # ours is ordered as the simplified form: deterministic, statistical, drift
        both(fed_avg_third_order_bound),
        lambda a: grouped(
            text.thm_fedavg_3o_ub_general(
                a.sigma, a.Q, a.B, a.M, a.K, a.R, text.thm_fedavg_3o_ub_eta(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R)
            ),
            (0,),
            (2,),
            (1,),
        ),
        # the text's 1/(2 L), which its proof does not reach and a sharper lemma does; see the test below
        step=lambda a: text.thm_fedavg_3o_ub_eta(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R),
    ),
    "third order, general": Row(
        general(fed_avg_third_order_bound),
        lambda a: grouped(text.thm_fedavg_3o_ub_general(a.sigma, a.Q, a.B, a.M, a.K, a.R, a.eta), (0,), (2,), (1,)),
        longest=lambda a: 1 / (2 * a.L),
    ),
    "third order, simplified": Row(
        both(fed_avg_third_order_bound, "simplified"),
        lambda a: text.thm_fedavg_3o_ub(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R),
    ),
    "strongly convex, simplified": Row(
        both(fed_avg_strongly_convex_bound, "simplified"),
        lambda a: text.fedavg_a1(a.L, a.mu, a.sigma, a.B, a.M, a.K, a.R),
    ),
    "strongly convex, third order": Row(
        both(fed_avg_strongly_convex_third_order_bound),
        lambda a: text.fedavg_a2_full(a.L, a.mu, a.sigma, a.Q, a.B, a.M, a.K, a.R),
        step=lambda a: text.fedavg_a2_full_eta(a.L, a.mu, a.sigma, a.Q, a.B, a.M, a.K, a.R),
    ),
    "strongly convex, third order, general": Row(
        general(fed_avg_strongly_convex_third_order_bound),
        lambda a: text.fedavg_a2_general_eta(a.mu, a.sigma, a.Q, a.B, a.M, a.K, a.R, a.eta),
        longest=quarter,
    ),
    "strongly convex, third order, simplified": Row(
        both(fed_avg_strongly_convex_third_order_bound, "simplified"),
        lambda a: text.fedavg_a2(a.L, a.mu, a.sigma, a.Q, a.B, a.M, a.K, a.R),
    ),
    "non-convex": Row(  # ours is ordered as the simplified form: deterministic, statistical, drift
        both(fed_avg_non_convex_bound),
        lambda a: grouped(
            text.thm_fedavg_ncvx_2o_general(
                a.L,
                a.sigma,
                a.G,
                a.Delta,
                a.M,
                a.K,
                a.R,
                text.thm_fedavg_ncvx_2o_eta(a.L, a.sigma, a.G, a.Delta, a.M, a.K, a.R),
            ),
            (0,),
            (2,),
            (1,),
        ),
        step=lambda a: text.thm_fedavg_ncvx_2o_eta(a.L, a.sigma, a.G, a.Delta, a.M, a.K, a.R),
    ),
    "non-convex, general": Row(  # the noise as displayed: see the test below
        general(fed_avg_non_convex_bound),
        lambda a: grouped(
            text.thm_fedavg_ncvx_2o_general(a.L, a.sigma, a.G, a.Delta, a.M, a.K, a.R, a.eta), (0,), (2,), (1,)
        ),
        longest=lambda a: 1 / a.L,
    ),
    "non-convex, simplified": Row(
        both(fed_avg_non_convex_bound, "simplified"),
        lambda a: text.thm_fedavg_ncvx_2o(a.L, a.G, a.Delta, a.M, a.K, a.R),
    ),
    "non-convex, third order": Row(
        both(fed_avg_non_convex_third_order_bound),
        lambda a: half_the_noise(
            text.thm_fedavg_ncvx_3o_general(
                a.L,
                a.sigma,
                a.G,
                a.Q,
                a.Delta,
                a.M,
                a.K,
                a.R,
                text.thm_fedavg_ncvx_3o_eta(a.L, a.sigma, a.G, a.Q, a.Delta, a.M, a.K, a.R),
            )
        ),
        step=lambda a: text.thm_fedavg_ncvx_3o_eta(a.L, a.sigma, a.G, a.Q, a.Delta, a.M, a.K, a.R),
    ),
    "non-convex, third order, general": Row(
        general(fed_avg_non_convex_third_order_bound),
        lambda a: half_the_noise(
            text.thm_fedavg_ncvx_3o_general(a.L, a.sigma, a.G, a.Q, a.Delta, a.M, a.K, a.R, a.eta)
        ),
        longest=lambda a: 1 / a.L,
    ),
    "non-convex, third order, simplified": Row(
        both(fed_avg_non_convex_third_order_bound, "simplified"),
        lambda a: text.thm_fedavg_ncvx_3o(a.L, a.G, a.Q, a.Delta, a.M, a.K, a.R),
    ),
    # ---------------------------------------------------------------- rivals; the text has them as special cases
    "minibatch SGD": Row(
        both(minibatch_sgd_bound),
        lambda a: sgd_general(batch(a)._replace(eta=sgd_eta(batch(a)))),
        step=lambda a: sgd_eta(batch(a)),
    ),
    "minibatch SGD, general": Row(general(minibatch_sgd_bound), lambda a: sgd_general(batch(a)), longest=quarter),
    "minibatch SGD, simplified": Row(both(minibatch_sgd_bound, "simplified"), lambda a: sgd_simplified(batch(a))),
    "single client": Row(
        both(single_client_sgd_bound),
        lambda a: sgd_general(single(a)._replace(eta=sgd_eta(single(a)))),
        step=lambda a: sgd_eta(single(a)),
    ),
    "single client, general": Row(general(single_client_sgd_bound), lambda a: sgd_general(single(a)), longest=quarter),
    "single client, simplified": Row(both(single_client_sgd_bound, "simplified"), lambda a: sgd_simplified(single(a))),
    "minibatch AC-SGD": Row(
        both(minibatch_ac_sgd_bound),
        lambda a: text.fedaci_full(a.L, a.mu, batch(a).sigma, Psi0(a), a.M, 1, a.R),
        step=lambda a: text.fedaci_full_eta(a.L, a.mu, batch(a).sigma, Psi0(a), a.M, 1, a.R),
    ),
    # ---------------------------------------------------------------- lower bounds: the text's second summand is a minimum
    "lower, homogeneous": Row(
        lambda a: split_first(fed_avg_lower_bound(a.constants(optimum_heterogeneity=0.0), a.setting)),
        lambda a: text.thm_fedavg_lb_homo(a.L, a.sigma, a.B, a.M, a.K, a.R),
    ),
    "lower, heterogeneous": Row(
        lambda a: split_first(fed_avg_lower_bound(a.constants(), a.setting)),
        lambda a: text.thm_fedavg_lb_hetero(a.L, a.sigma, a.zeta, a.B, a.M, a.K, a.R),
    ),
    "curvature": Row(
        lambda a: lower_bound_curvature(a.constants(), a.setting),
        lambda a: [text.lb_mu(a.L, a.sigma, a.zeta, a.B, a.K, a.R)],
    ),
    # ---------------------------------------------------------------- iterate bias: minima, so one number
    "bias, upper": Row(
        lambda a: iterate_bias_upper_bound(a.constants(third_order=None), a.eta, a.k),
        lambda a: [min(text.thm_fedavg_2o_bias_ub_complete(a.L, a.sigma, a.k, a.eta))],
    ),
    "bias, upper, third order": Row(
        lambda a: iterate_bias_upper_bound(a.constants(), a.eta, a.k),
        lambda a: [min(text.thm_fedavg_3o_bias_ub_complete(a.L, a.sigma, a.Q, a.k, a.eta))],
    ),
    "bias, lower": Row(
        lambda a: iterate_bias_lower_bound(a.constants(third_order=None), a.eta, a.k + 1),
        lambda a: [min(text.thm_fedavg_2o_bias_lb_complete_corrected(a.L, a.sigma, a.k + 1, a.eta))],
    ),
    "bias, lower, third order": Row(
        lambda a: iterate_bias_lower_bound(a.constants(), a.eta, a.k),
        lambda a: [min(text.thm_fedavg_3o_bias_lb_complete_corrected(a.L, a.sigma, a.Q, a.k, a.eta))],
    ),
    # ---------------------------------------------------------------- FedAvg's lemmas
    "shadow": Row(
        lambda a: shadow_bound(a.constants(), a.setting, a.eta, discrepancy_sum=a.c * a.M * a.K * a.R),
        lambda a: text.lem_fedavg_2o_ub_1(a.L, a.sigma, a.B, a.M, a.K, a.R, a.eta, variance=a.c),
        longest=quarter,
    ),
    "discrepancy": Row(
        general(client_discrepancy_bound),
        lambda a: text.lem_fedavg_2o_ub_2(a.sigma, a.zeta, a.K, a.eta),
        longest=quarter,
    ),
    "fourth-order discrepancy": Row(  # the text states no condition; 2/L is where its inequality stops to hold
        general(fourth_order_discrepancy_bound),
        lambda a: text.fedavg_a2_stab_main(a.sigma, a.K, a.eta),
        longest=lambda a: 2 / a.L,
    ),
    "strongly convex, perturbed": Row(
        lambda a: fed_avg_strongly_convex_perturbed_bound(a.constants(), a.setting, a.eta, discrepancy=a.c),
        lambda a: text.fedavg_a2_conv_main(a.mu, a.sigma, a.Q, a.B, a.M, a.K, a.R, a.eta, fourth=a.c),
        longest=quarter,
    ),
    # ---------------------------------------------------------------- FedAc, strongly convex
    "FedAc-I": Row(
        both(fed_ac_one_bound),
        lambda a: text.fedaci_full(a.L, a.mu, a.sigma, Psi0(a), a.M, a.K, a.R),
        step=lambda a: text.fedaci_full_eta(a.L, a.mu, a.sigma, Psi0(a), a.M, a.K, a.R),
    ),
    "FedAc-I, gap not known": Row(
        both(fed_ac_one_bound, gap=None),
        lambda a: text.fedaci_full(a.L, a.mu, a.sigma, Start(a), a.M, a.K, a.R),
        step=lambda a: text.fedaci_full_eta(a.L, a.mu, a.sigma, Start(a), a.M, a.K, a.R),
    ),
    "FedAc-I, general": Row(  # two summands of noise that more clients average out, two of drift
        general(fed_ac_one_bound),
        lambda a: grouped(
            text.fedaci_general_eta(a.L, a.mu, a.sigma, Psi0(a), a.M, a.K, a.R, a.eta), (0,), (1, 2), (3, 4)
        ),
        longest=lambda a: 1 / a.L,
    ),
    "FedAc-I, simplified": Row(
        both(fed_ac_one_bound, "simplified"), lambda a: text.fedac_a1_a(a.L, a.mu, a.sigma, a.B, a.M, a.K, a.R)
    ),
    "FedAc-II": Row(
        both(fed_ac_two_bound),
        lambda a: text.fedacii_a1_full(a.L, a.mu, a.sigma, Phi0(a), a.M, a.K, a.R),
        step=lambda a: text.fedacii_a1_full_eta_corrected(a.L, a.mu, a.sigma, Phi0(a), a.M, a.K, a.R),
    ),
    "FedAc-II, general": Row(
        general(fed_ac_two_bound),
        lambda a: text.fedacii_a1_general_eta(a.L, a.mu, a.sigma, Phi0(a), a.M, a.K, a.R, a.eta),
        longest=lambda a: 1 / a.L,
    ),
    "FedAc-II, simplified": Row(
        both(fed_ac_two_bound, "simplified"), lambda a: text.fedac_a1_b(a.L, a.mu, a.sigma, a.B, a.M, a.K, a.R)
    ),
    "FedAc-II, third order": Row(
        both(fed_ac_two_third_order_bound, gap=None),
        lambda a: text.fedacii_a2_full(a.L, a.mu, a.sigma, a.Q, Start(a), a.M, a.K, a.R),
        step=lambda a: text.fedacii_a2_full_eta_corrected(a.L, a.mu, a.sigma, a.Q, Start(a), a.M, a.K, a.R),
    ),
    "FedAc-II, third order, general": Row(
        general(fed_ac_two_third_order_bound),
        lambda a: text.fedacii_a2_general_eta(a.L, a.mu, a.sigma, a.Q, Phi0(a), a.M, a.K, a.R, a.eta),
        longest=lambda a: 1 / a.L,
    ),
    "FedAc-II, third order, simplified": Row(
        both(fed_ac_two_third_order_bound, "simplified"),
        lambda a: text.fedacii_a2(a.L, a.mu, a.sigma, a.Q, a.B, a.M, a.K, a.R),
    ),
    # ---------------------------------------------------------------- FedAc's lemmas
    "gamma": Row(general(stable_gamma), lambda a: [text.fedac_gamma(a.mu, a.K, a.eta)]),
    "FedAc-I, discrepancy": Row(
        lambda a: fed_ac_one_discrepancy_bound(a.constants(), short(a).setting, a.eta, a.gamma),
        lambda a: text.fedaci_stab_main(a.mu, a.sigma, short(a).K, a.eta, a.gamma),
    ),
    "FedAc-II, discrepancy": Row(
        lambda a: fed_ac_two_discrepancy_bound(a.constants(), short(a).setting, a.eta, a.gamma),
        lambda a: text.fedacii_a1_stab_main(a.L, a.mu, a.sigma, short(a).K, a.eta, a.gamma),
    ),
    "FedAc-II, third order, discrepancy": Row(
        lambda a: fed_ac_two_third_order_discrepancy_bound(a.constants(), short(a).setting, a.eta, a.gamma),
        lambda a: text.fedacii_stab_main(a.mu, a.sigma, a.Q, short(a).K, a.eta, a.gamma),
    ),
    "FedAc-I, growth": Row(
        lambda a: fed_ac_one_growth_bound(a.constants(), a.setting, a.eta, a.gamma),
        lambda a: text.fedaci_stab_bound(a.mu, a.eta, a.gamma),
        longest=lambda a: 1 / a.L,
    ),
    "FedAc-II, growth": Row(
        lambda a: fed_ac_two_growth_bound(a.constants(), a.setting, a.eta, a.gamma),
        lambda a: text.fedacii_stab_bound(a.mu, a.eta, a.gamma),
        longest=lambda a: 1 / a.L,
    ),
    "FedAc-I, perturbed": Row(
        lambda a: fed_ac_one_perturbed_bound(a.constants(), a.setting, a.eta, discrepancy=a.c, gamma=a.gamma),
        lambda a: text.fedaci_conv_main(a.L, a.mu, a.sigma, Psi0(a), a.M, a.K, a.R, a.eta, a.gamma, overhead=a.c),
    ),
    "FedAc-II, perturbed": Row(
        lambda a: fed_ac_two_perturbed_bound(a.constants(), a.setting, a.eta, discrepancy=a.c, gamma=a.gamma),
        lambda a: text.fedacii_conv_main(a.L, a.mu, a.sigma, Phi0(a), a.M, a.K, a.R, a.eta, a.gamma, overhead=a.c),
    ),
    # ---------------------------------------------------------------- FedAc, convex; general: summands of one cause
    "FedAc-I, convex": Row(
        both(fed_ac_one_convex_bound),
        lambda a: text.fedaci_a1_gcvx(a.L, a.sigma, a.B, a.M, a.K, a.R),
        step=lambda a: text.fedaci_a1_gcvx_eta(a.L, a.sigma, a.B, a.M, a.K, a.R, lam_one(a)),
        lam=lam_one,
    ),
    "FedAc-I, convex, general": Row(
        general(fed_ac_one_convex_bound),
        lambda a: grouped(
            text.fedaci_gcvx_1(a.L, a.sigma, a.B, a.M, a.K, a.R, a.eta, lam_one(a)), (0,), (1,), (2, 3), (4, 5, 6, 7)
        ),
        lam=lam_one,
        longest=lambda a: 1 / (a.L + lam_one(a)),
    ),
    "FedAc-II, convex": Row(
        both(fed_ac_two_convex_bound),
        lambda a: text.fedacii_a1_gcvx(a.L, a.sigma, a.B, a.M, a.K, a.R),
        step=lambda a: text.fedacii_a1_gcvx_eta(a.L, a.sigma, a.B, a.M, a.K, a.R, lam_two(a)),
        lam=lam_two,
    ),
    "FedAc-II, convex, general": Row(
        general(fed_ac_two_convex_bound),
        lambda a: grouped(
            text.fedacii_a1_gcvx_1(a.L, a.sigma, a.B, a.M, a.K, a.R, a.eta, lam_two(a)), (0,), (1,), (2,), (3, 4)
        ),
        lam=lam_two,
        longest=lambda a: 1 / (a.L + lam_two(a)),
    ),
    "FedAc-II, convex, third order": Row(
        both(fed_ac_two_third_order_convex_bound),
        lambda a: text.fedacii_a2_gcvx(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R),
        step=lambda a: text.fedacii_a2_gcvx_eta(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R, lam_three(a)),
        lam=lam_three,
    ),
    "FedAc-II, convex, third order, general": Row(
        general(fed_ac_two_third_order_convex_bound),
        lambda a: grouped(
            text.fedacii_a2_gcvx_1(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R, a.eta, lam_three(a)),
            (0,),
            (1,),
            (2,),
            (3, 4),
            (5,),
        ),
        lam=lam_three,
        longest=lambda a: 1 / (a.L + lam_three(a)),
    ),
    "FedAc-II, convex, third order, simplified": Row(
        both(fed_ac_two_third_order_convex_bound, "simplified"),
        lambda a: text.tab_cvx_3o_fedac(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R),
    ),
    "FedAc, convex, simplified": Row(  # the table's row is the smaller drift of FedAc-I and FedAc-II
        lambda a: better(
            both(fed_ac_one_convex_bound, "simplified")(a), both(fed_ac_two_convex_bound, "simplified")(a)
        ),
        lambda a: text.tab_cvx_2o_fedac(a.L, a.sigma, a.B, a.M, a.K, a.R),
    ),
    # ---------------------------------------------------------------- FedAc, convex, any lambda: here the mu of the letters
    "FedAc-I, augmented, general": Row(
        lambda a: fed_ac_one_augmented_bound(a.constants(), a.setting, a.mu, a.eta),
        lambda a: grouped(
            text.fedaci_gcvx_1(a.L, a.sigma, a.B, a.M, a.K, a.R, a.eta, a.mu), (0,), (1,), (2, 3), (4, 5, 6, 7)
        ),
        lam=lambda a: a.mu,
        longest=lambda a: 1 / (a.L + a.mu),
    ),
    "FedAc-I, augmented": Row(
        lambda a: fed_ac_one_augmented_bound(a.constants(), a.setting, a.mu),
        lambda a: grouped(text.fedaci_gcvx_2(a.L, a.sigma, a.B, a.M, a.K, a.R, a.mu), (0,), (4,), (1,), (2, 3)),
        step=lambda a: text.fedaci_a1_gcvx_eta(a.L, a.sigma, a.B, a.M, a.K, a.R, a.mu),
    ),
    "FedAc-II, augmented, general": Row(
        lambda a: fed_ac_two_augmented_bound(a.constants(), a.setting, a.mu, a.eta),
        lambda a: grouped(
            text.fedacii_a1_gcvx_1(a.L, a.sigma, a.B, a.M, a.K, a.R, a.eta, a.mu), (0,), (1,), (2,), (3, 4)
        ),
        lam=lambda a: a.mu,
        longest=lambda a: 1 / (a.L + a.mu),
    ),
    "FedAc-II, augmented": Row(
        lambda a: fed_ac_two_augmented_bound(a.constants(), a.setting, a.mu),
        lambda a: grouped(text.fedacii_a1_gcvx_2(a.L, a.sigma, a.B, a.M, a.K, a.R, a.mu), (0,), (1,), (3,), (2, 4)),
        step=lambda a: text.fedacii_a1_gcvx_eta(a.L, a.sigma, a.B, a.M, a.K, a.R, a.mu),
    ),
    "FedAc-II, augmented, third order, general": Row(
        lambda a: fed_ac_two_third_order_augmented_bound(a.constants(), a.setting, a.mu, a.eta),
        lambda a: grouped(
            text.fedacii_a2_gcvx_1(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R, a.eta, a.mu), (0,), (1,), (2,), (3, 4), (5,)
        ),
        lam=lambda a: a.mu,
        longest=lambda a: 1 / (a.L + a.mu),
    ),
    "FedAc-II, augmented, third order": Row(
        lambda a: fed_ac_two_third_order_augmented_bound(a.constants(), a.setting, a.mu),
        lambda a: grouped(
            text.fedacii_a2_gcvx_2(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R, a.mu), (0,), (1,), (2,), (3, 4), (5,)
        ),
        step=lambda a: text.fedacii_a2_gcvx_eta(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R, a.mu),
    ),
    # ---------------------------------------------------------------- composite
    "FedDualAvg, perturbed": Row(
        lambda a: fed_dual_avg_perturbed_bound(a.constants(), a.setting, a.eta, discrepancy=a.c),
        lambda a: text.pia_general(a.L, a.sigma, Divergence(a), a.M, a.K, a.R, a.eta, overhead=a.c),
        longest=quarter,
    ),
    "small steps": Row(
        both(composite_small_step_bound),
        lambda a: text.small_lr(a.L, a.sigma, Divergence(a), a.M, a.K, a.R),
        step=lambda a: text.small_lr_eta(a.L, a.sigma, Divergence(a), a.M, a.K, a.R),
    ),
    "small steps, general": Row(
        general(composite_small_step_bound),
        lambda a: text.small_lr_general(a.sigma, Divergence(a), a.M, a.K, a.R, a.eta),
        longest=lambda a: 1 / (4 * a.K * a.L),
    ),
    "small steps, simplified, another mirror map": Row(
        lambda a: composite_small_step_bound(a.constants(mirror_distance=a.Delta), a.setting, form="simplified"),
        lambda a: text.thm_0(a.L, a.sigma, a.Delta, a.M, a.K, a.R),
    ),
    "bounded gradients": Row(
        both(fed_dual_avg_bounded_gradient_bound),
        lambda a: text.thm_1(a.L, a.sigma, a.G, Divergence(a), a.M, a.K, a.R),
        step=lambda a: text.thm_1_eta(a.L, a.sigma, a.G, Divergence(a), a.M, a.K, a.R),
    ),
    "bounded gradients, general": Row(
        general(fed_dual_avg_bounded_gradient_bound),
        lambda a: text.thm_1_general(a.L, a.sigma, a.G, Divergence(a), a.M, a.K, a.R, a.eta),
        longest=quarter,
    ),
    "bounded gradients, simplified": Row(
        both(fed_dual_avg_bounded_gradient_bound, "simplified"),
        lambda a: text.thm_1_simplified(a.L, a.sigma, a.G, Divergence(a), a.M, a.K, a.R),
    ),
    "bounded gradients, discrepancy": Row(  # ours is about the points before a step, k < K: see the test below
        general(fed_dual_avg_bounded_gradient_discrepancy_bound),
        lambda a: text.bounded_gradient(a.G, a.K, a.eta),
    ),
    "quadratic": Row(
        both(fed_dual_avg_quadratic_bound),
        lambda a: text.thm_2(a.L, a.sigma, a.zeta, Divergence(a), a.M, a.K, a.R),
        step=lambda a: text.thm_2_eta(a.L, a.sigma, a.zeta, Divergence(a), a.M, a.K, a.R),
    ),
    "quadratic, general": Row(
        general(fed_dual_avg_quadratic_bound),
        lambda a: text.thm_2_general(a.L, a.sigma, a.zeta, Divergence(a), a.M, a.K, a.R, a.eta),
        longest=quarter,
    ),
    "quadratic, simplified": Row(  # the text has no simplified form: ours is its theorem without constants
        both(fed_dual_avg_quadratic_bound, "simplified"),
        lambda a: [
            term / constant
            for term, constant in zip(
                text.thm_2(a.L, a.sigma, a.zeta, Divergence(a), a.M, a.K, a.R), (4, 2, 8, 15), strict=True
            )
        ],
    ),
    "quadratic, discrepancy": Row(
        general(fed_dual_avg_quadratic_discrepancy_bound),
        lambda a: [math.fsum(text.quad_stability(a.sigma, a.zeta, a.K, a.eta))],
    ),
    # ---------------------------------------------------------------- rows of the tables, as sums
    "rates, second order, mu > 0, FedAvg": Row(
        lambda a: rate(a, "second-order, mu > 0", "FedAvg"),
        lambda a: [math.fsum(text.tab_scvx_2o_fedavg(a.L, a.mu, a.sigma, a.M, a.K, a.R))],
    ),
    "rates, second order, mu > 0, FedAc": Row(
        lambda a: rate(a, "second-order, mu > 0", "FedAc"),
        lambda a: [math.fsum(text.tab_scvx_2o_fedac(a.L, a.mu, a.sigma, a.M, a.K, a.R))],
    ),
    "rates, third order, mu > 0, FedAvg": Row(
        lambda a: rate(a, "third-order, mu > 0", "FedAvg"),
        lambda a: [math.fsum(text.tab_scvx_3o_fedavg(a.mu, a.sigma, a.Q, a.M, a.K, a.R))],
    ),
    "rates, third order, mu > 0, FedAc": Row(
        lambda a: rate(a, "third-order, mu > 0", "FedAc"),
        lambda a: [math.fsum(text.tab_scvx_3o_fedac(a.mu, a.sigma, a.Q, a.M, a.K, a.R))],
    ),
    "rates, second order, FedAvg": Row(
        lambda a: rate(a, "second-order, mu = 0", "FedAvg"),
        lambda a: [math.fsum(text.tab_cvx_2o_fedavg(a.L, a.sigma, a.B, a.M, a.K, a.R))],
    ),
    "rates, second order, FedAc": Row(
        lambda a: rate(a, "second-order, mu = 0", "FedAc"),
        lambda a: [math.fsum(text.tab_cvx_2o_fedac(a.L, a.sigma, a.B, a.M, a.K, a.R))],
    ),
    "rates, third order, FedAvg": Row(
        lambda a: rate(a, "third-order, mu = 0", "FedAvg"),
        lambda a: [math.fsum(text.tab_cvx_3o_fedavg(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R))],
    ),
    "rates, third order, FedAc": Row(
        lambda a: rate(a, "third-order, mu = 0", "FedAc"),
        lambda a: [math.fsum(text.tab_cvx_3o_fedac(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R))],
    ),
    "rates, heterogeneous, FedAvg": Row(
        lambda a: rate(a, "convex, heterogeneous", "FedAvg"),
        lambda a: [math.fsum(text.thm_fedavg_2o_ub(a.L, a.sigma, a.zeta, a.B, a.M, a.K, a.R))],
    ),
}


def short(a: Letters) -> Letters:
    """With few enough local steps for what grows like 3^(2K)."""
    return a._replace(K=min(a.K, 50))


def half_the_noise(terms: list[float]) -> list[float]:
    """thm:fedavg:ncvx:3o, ordered as ours; its noise is twice what smoothness costs: see the test below."""
    deterministic, drift, noise = terms
    return [deterministic, noise / 2, drift]


def split_first(bound: Bound) -> list[float]:
    first, *rest = bound.terms.values()
    return [first, math.fsum(rest)]


def better(one: Bound, two: Bound) -> list[float]:
    (*same, drift_one), (*_, drift_two) = one.terms.values(), two.terms.values()
    assert list(two.terms.values())[:2] == same
    return [*same, min(drift_one, drift_two)]


def rate(a: Letters, assumption: str, method: str) -> float:
    heterogeneity = a.zeta if assumption.endswith("heterogeneous") else 0.0
    table: Any = rates(a.constants(heterogeneity=heterogeneity), a.setting)
    chosen = table[(table.assumption == assumption) & (table.method == method) & (table.side == "upper")]
    assert len(chosen) == 1
    return float(chosen["value"].iloc[0])


def close(ours: Any, theirs: Any) -> bool:
    """Equal to rounding; what underflows is zero for both."""
    return bool(np.allclose(ours, theirs, rtol=SAME, atol=1e-290)) and np.shape(ours) == np.shape(theirs)


def as_terms(found: Any) -> list[float]:
    return list(found.terms.values()) if isinstance(found, Bound) else list(np.atleast_1d(found))


@pytest.mark.parametrize("name", ROWS)
def test_terms(name: str):
    row = ROWS[name]
    letters = LETTERS[::6] if name.startswith("rates") else LETTERS  # a data frame takes its time
    for a in letters:
        found, theirs = row.ours(a), row.theirs(a)
        assert close(as_terms(found), theirs), (name, a)
        if isinstance(found, Bound):
            assert close(found.value, math.fsum(theirs)), (name, a)
    assert any(all(term > 0 for term in row.theirs(a)) for a in letters)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.step])
def test_step_sizes(name: str):
    row = ROWS[name]
    assert row.step is not None
    for a in LETTERS:
        assert close(row.ours(a).step_size, row.step(a)), (name, a)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.lam])
def test_lambdas(name: str):
    row = ROWS[name]
    assert row.lam is not None
    for a in LETTERS:
        assert close(row.ours(a).regularization, row.lam(a)), (name, a)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.longest])
def test_step_sizes_are_allowed_up_to_the_one_of_the_text(name: str):
    row = ROWS[name]
    assert row.longest is not None
    for a in LETTERS:
        condition, *_ = row.ours(a).conditions
        assert condition.startswith("step_size <= ")
        for factor, allowed in ((1 - 1e-9, True), (1 + 1e-9, False)):
            assert row.ours(a._replace(eta=factor * row.longest(a))).conditions[condition] is allowed, (name, a)


def test_everything_of_the_transcript_is_compared_or_says_why_not():
    written = {name for name, fn in inspect.getmembers(text, inspect.isfunction) if not name.startswith("_")}
    used = set(re.findall(r"\btext\.(\w+)", Path(__file__).read_text()))
    assert written == used | set(NOT_COMPARED)
    assert not used & set(NOT_COMPARED)


# ---------------------------------------------------------------- where we differ from what is printed


@pytest.mark.parametrize(
    ("bound_fn", "rounds", "printed"),
    [
        (fed_ac_two_bound, 10**4, lambda a: text.fedacii_a1_full_eta(a.L, a.mu, a.sigma, Phi0(a), a.M, a.K, a.R)),
        (
            fed_ac_two_third_order_bound,
            10**6,
            lambda a: text.fedacii_a2_full_eta(a.L, a.mu, a.sigma, a.Q, Phi0(a), a.M, a.K, a.R),
        ),
    ],
)
def test_fed_ac_two_at_the_printed_step_size_breaks_its_theorem(
    bound_fn: Callable[..., Bound], rounds: int, printed: Callable[[Letters], float]
):
    """min{A + B} for min{A, B}: with the printed step size the lemma is above the theorem, with ours it is not."""
    a = LETTERS[0]._replace(L=1.0, mu=1.0, sigma=1.0, B=0.0, Q=0.0, Delta=1 / rounds, M=1, K=1, R=rounds)
    theorem = bound_fn(a.constants(), a.setting)
    assert bound_fn(a.constants(), a.setting, theorem.step_size).value <= theorem.value
    assert bound_fn(a.constants(), a.setting, printed(a)).value > 3 * theorem.value


def test_noise_of_the_non_convex_theorems():
    """One of the two proofs displays 2 L eta sigma^2/M, the other half of it, which is what ours has in both."""
    for a in LETTERS:
        second = general(fed_avg_non_convex_bound)(a).terms["statistical"]
        third = general(fed_avg_non_convex_third_order_bound)(a).terms["statistical"]
        displayed = text.thm_fedavg_ncvx_3o_general(a.L, a.sigma, a.G, a.Q, a.Delta, a.M, a.K, a.R, a.eta)[2]
        doubled = text.thm_fedavg_ncvx_2o_general_corrected(a.L, a.sigma, a.G, a.Delta, a.M, a.K, a.R, a.eta)[2]
        assert second == third
        assert close(displayed, 2 * third)
        assert close(doubled, 2 * second)


def test_step_size_of_the_third_order_theorem_is_twice_what_its_proof_reaches():
    a = LETTERS[0]._replace(sigma=0.0)
    ours = both(fed_avg_third_order_bound)(a).step_size
    assert ours == 2 * text.thm_fedavg_3o_ub_eta_corrected(a.L, a.sigma, a.Q, a.B, a.M, a.K, a.R)


def test_best_of_two_is_between_half_of_the_formula_and_the_formula():
    """The text's one formula for the minimum of two sums is above it, by less than a factor of two."""
    quotients = []
    for a in LETTERS:
        found = both(best_of_two, "simplified", heterogeneity=0.0)(a).value
        formula = math.fsum(text.best_of_minibatch_and_single_client(a.L, a.sigma, a.B, a.M, a.K, a.R))
        quotients.append(formula / found)
    assert 1 - SAME <= min(quotients) < 1.01
    assert 1.2 < max(quotients) <= 2 + SAME


def test_dual_points_before_a_step_have_made_one_step_less():
    """bounded_gradient as printed, (K - 1)^2, is the lemma with k^2 at the last k before a step; at k = K it is less."""
    for a in LETTERS:
        ours = general(fed_dual_avg_bounded_gradient_discrepancy_bound)(a)
        assert close([ours], text.bounded_gradient_corrected(a.G, a.K - 1, a.eta))
        assert a.G == 0 or ours < text.bounded_gradient_corrected(a.G, a.K, a.eta)[0]


def test_step_size_of_fed_ac_one_is_the_statements_and_not_the_proofs():
    smaller = 0
    for a in LETTERS:
        proof = text.fedaci_gcvx_2_eta_in_proof(a.L, a.sigma, a.B, a.M, a.K, a.R, lam_one(a))
        ours = both(fed_ac_one_convex_bound)(a).step_size
        assert ours is not None
        assert ours <= proof * (1 + SAME)
        smaller += ours < proof * (1 - 1e-6)
    assert smaller


def test_third_order_lower_bound_on_the_bias_is_the_printed_one_up_to_one_over_eta_smoothness_steps():
    """Beyond it is smaller: the printed one grows with k."""
    smaller = 0
    for a in LETTERS:
        printed = min(text.thm_fedavg_3o_bias_lb_complete(a.L, a.sigma, a.Q, a.k, a.eta))
        ours = iterate_bias_lower_bound(a.constants(), a.eta, a.k).value
        if a.k * a.eta * a.L <= 1:
            assert close([ours], [printed])
        elif a.k >= 2 + 1 / (a.eta * a.L) and a.sigma * a.Q > 0:
            assert ours < printed
            smaller += 1
    assert smaller


def test_lower_bound_on_the_bias_begins_with_the_second_step():
    """After one step from the optimum the mean is where gradient descent is: the printed bound is positive there."""
    for a in LETTERS:
        ours = iterate_bias_lower_bound(a.constants(third_order=None), a.eta, 2)
        assert close([ours.value], [min(text.thm_fedavg_2o_bias_lb_complete_corrected(a.L, a.sigma, 2, a.eta))])
        assert not iterate_bias_lower_bound(a.constants(third_order=None), a.eta, 1).applies
        assert a.sigma == 0 or min(text.thm_fedavg_2o_bias_lb_complete(a.L, a.sigma, 1, a.eta)) > 0
