"""FedMiD's and FedDualAvg's bounds: values by hand, units, lemmas against theorems, two closed-form instances."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.theory.bounds.bound import Bound, Constants, Setting, tightest
from fedlocal.theory.bounds.composite import (
    composite_small_step_bound,
    fed_dual_avg_bounded_gradient_bound,
    fed_dual_avg_bounded_gradient_discrepancy_bound,
    fed_dual_avg_perturbed_bound,
    fed_dual_avg_quadratic_bound,
    fed_dual_avg_quadratic_discrepancy_bound,
)

ALL = (composite_small_step_bound, fed_dual_avg_bounded_gradient_bound, fed_dual_avg_quadratic_bound)
CLOSE = 1 + 1e-9  # rounding of sums of exact inequalities


def decades(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10**exponent)


PROBLEMS = st.builds(
    Constants,
    smoothness=decades(-3, 3),
    noise=decades(-4, 4),
    distance=decades(-4, 4),
    heterogeneity=decades(-4, 4),
    gradient_bound=decades(-4, 4),
    mirror_distance=st.none() | decades(-4, 4),
    third_order=st.just(0.0),
)
CUTS = st.builds(
    Setting,
    clients=decades(0, 4).map(int),
    rounds=decades(0, 6).map(int),
    local_steps=decades(0, 4).map(int),
)

# L = 2, sigma = 4, B = sqrt(D_h) = 2, zeta = 8, G = 3
HAND = Constants(2.0, 4.0, 1.0, heterogeneity=8.0, gradient_bound=3.0, mirror_distance=2.0, third_order=0.0)


def terms(bound: Bound) -> list[float]:
    return list(bound.terms.values())


def test_general_step_sizes_by_hand():
    # M = 4, K = 2, R = 8, eta = 1/16 = 1/(4 K L): 4 / ((1/16) 16) = 4; 3 (1/16) 16 / 4
    setting = Setting(clients=4, rounds=8, local_steps=2)
    bound = composite_small_step_bound(HAND, setting, step_size=1 / 16)
    assert terms(bound) == [4, 0.75]
    assert bound.applies
    # eta = 1/8 = 1/(4 L): 4 / ((1/8) 16) = 2; (1/8) 16 / 4 = 1/2; 4 (1/64) 2 * 1 * 9 = 9/8
    assert terms(fed_dual_avg_bounded_gradient_bound(HAND, setting, step_size=1 / 8)) == [2, 0.5, 1.125]
    # 7 (1/64) 2 * 2 * 16 = 7; 14 (1/64) 2 * 4 * 64 = 112
    bound = fed_dual_avg_quadratic_bound(HAND, setting, step_size=1 / 8)
    assert terms(bound) == [2, 0.5, 7, 112]
    assert bound.applies
    for bound_fn in ALL:
        assert not bound_fn(HAND, setting, step_size=0.126).applies
    assert not fed_dual_avg_quadratic_bound(replace(HAND, third_order=None), setting).applies


def test_theorems_by_hand():
    # L = 2, sigma = 4, B = 2, M = 4, K = 4, R = 64: L B^2 = 8, sigma B / sqrt(M K R) = 8 / 32 = 1/4
    setting = Setting(clients=4, rounds=64, local_steps=4)
    bound = composite_small_step_bound(HAND, setting)
    assert terms(bound) == [4 * 8 / 64, 4 / 4]
    assert bound.step_size == 1 / 32  # 1/(4 K L), and 2 * 2 / (16 * 4) = 1/16
    # (2 * 16 * 9)^(1/3) / 16
    bound = fed_dual_avg_bounded_gradient_bound(HAND, setting)
    assert terms(bound) == pytest.approx([4 * 8 / 256, 2 / 4, 5 * 288 ** (1 / 3) / 16], rel=1e-12)
    # 1/8, 1/16 and 2^(2/3) / (2^(1/3) 4 * 4 * 3^(2/3)) = 0.0379
    assert bound.step_size == pytest.approx(2 ** (1 / 3) / (16 * 3 ** (2 / 3)), rel=1e-12)
    # (2 * 16 * 16)^(1/3) / (4^(1/3) 16) = 8 / (4^(1/3) 16); (2 * 16 * 64)^(1/3) / 16
    bound = fed_dual_avg_quadratic_bound(HAND, setting)
    drift, heterogeneity = 8 * 8 / (4 ** (1 / 3) * 16), 15 * 2048 ** (1 / 3) / 16
    assert terms(bound) == pytest.approx([0.125, 0.5, drift, heterogeneity], rel=1e-12)
    # the last candidate, 2^(2/3) / (2^(1/3) 4 * 4 * 4)
    assert bound.step_size == pytest.approx(2 ** (1 / 3) / 64, rel=1e-12)
    simplified = fed_dual_avg_quadratic_bound(HAND, setting, form="simplified")
    assert terms(simplified) == pytest.approx([8 / 256, 0.25, drift / 8, heterogeneity / 15], rel=1e-12)
    assert terms(composite_small_step_bound(HAND, setting, form="simplified")) == [8 / 64, 0.25]
    simplified = fed_dual_avg_bounded_gradient_bound(HAND, setting, form="simplified")
    assert terms(simplified) == pytest.approx([8 / 256, 0.25, 288 ** (1 / 3) / 16], rel=1e-12)


@pytest.mark.parametrize("bound_fn", ALL)
@given(constants=PROBLEMS, setting=CUTS)
@settings(max_examples=100, deadline=None)
def test_theorem_follows_from_lemma(bound_fn, constants, setting):
    theorem = bound_fn(constants, setting)
    assert theorem.applies
    assert bound_fn(constants, setting, step_size=theorem.step_size).value <= theorem.value * CLOSE


@pytest.mark.parametrize("bound_fn", ALL)
@given(constants=PROBLEMS, setting=CUTS, s=decades(-2, 2), c=decades(-2, 2))
@settings(max_examples=30, deadline=None)
def test_units(bound_fn, constants, setting, s, c):
    """Length in another unit, x -> s x, and objective in another, F -> c F."""
    slope = c / s
    other = replace(
        constants,
        smoothness=constants.smoothness * c / s**2,
        noise=constants.noise * slope,
        distance=constants.distance * s,
        heterogeneity=(constants.heterogeneity or 0) * slope,
        gradient_bound=(constants.gradient_bound or 0) * slope,
        mirror_distance=None if constants.mirror_distance is None else constants.mirror_distance * s,
    )
    for form in ("full", "simplified"):
        one, two = bound_fn(constants, setting, form=form), bound_fn(other, setting, form=form)
        assert terms(two) == pytest.approx([c * term for term in terms(one)], rel=1e-9)
    one, two = bound_fn(constants, setting), bound_fn(other, setting)
    assert two.step_size == pytest.approx(one.step_size * s**2 / c, rel=1e-9)
    one = bound_fn(constants, setting, step_size=1.0)
    two = bound_fn(other, setting, step_size=s**2 / c)
    assert terms(two) == pytest.approx([c * term for term in terms(one)], rel=1e-9)


@pytest.mark.parametrize("bound_fn", ALL)
@given(constants=PROBLEMS, setting=CUTS, more=st.integers(1, 1000))
@settings(max_examples=30, deadline=None)
def test_more_clients_never_hurt_and_tightest_is_below(bound_fn, constants, setting, more):
    other = replace(setting, clients=setting.clients + more)
    theorem = bound_fn(constants, setting)
    assert bound_fn(constants, other).value <= theorem.value * CLOSE
    largest = 1 / (4 * constants.smoothness * (setting.local_steps if bound_fn is composite_small_step_bound else 1))
    if theorem.step_size > 1e-11 * largest:  # within the decades that are searched
        assert tightest(bound_fn, constants, setting, largest).value <= theorem.value * CLOSE


@given(constants=PROBLEMS, setting=CUTS, part=decades(-6, 0))
@settings(max_examples=50, deadline=None)
def test_drift_is_smoothness_times_discrepancy(constants, setting, part):
    """The perturbed-iterate lemma of FedDualAvg adds L times the mean discrepancy to what synchronised clients do."""
    eta = part / (4 * constants.smoothness)
    synchronised = {"deterministic", "statistical"}
    for bound_fn, discrepancy_fn in (
        (fed_dual_avg_bounded_gradient_bound, fed_dual_avg_bounded_gradient_discrepancy_bound),
        (fed_dual_avg_quadratic_bound, fed_dual_avg_quadratic_discrepancy_bound),
    ):
        parts = bound_fn(constants, setting, step_size=eta).terms
        drift = math.fsum(value for name, value in parts.items() if name not in synchronised)
        apart = discrepancy_fn(constants, setting, eta)
        assert drift == pytest.approx(constants.smoothness * apart, rel=1e-12)
        perturbed = fed_dual_avg_perturbed_bound(constants, setting, eta, discrepancy=apart)
        assert perturbed.value == pytest.approx(math.fsum(parts.values()), rel=1e-12)
        assert perturbed.applies


def test_given_how_far_clients_are_apart_by_hand():
    # L = 2, sigma = 4, B = 2, M = 4, K = 2, R = 8, eta = 1/8: 4 / 2, 2 / 4, 2 * 3
    setting = Setting(clients=4, rounds=8, local_steps=2)
    assert terms(fed_dual_avg_perturbed_bound(HAND, setting, 1 / 8, discrepancy=3.0)) == [2, 0.5, 6]
    assert not fed_dual_avg_perturbed_bound(HAND, setting, 0.126, discrepancy=3.0).applies
    with pytest.raises(ValueError, match="fed_dual_avg_perturbed_bound: discrepancy must be >= 0, got -1"):
        fed_dual_avg_perturbed_bound(HAND, setting, 1 / 8, discrepancy=-1.0)


@pytest.mark.parametrize("K", [1, 2, 5])
def test_discrepancy_of_two_clients_that_pull_apart(K):
    """Gradients G and -G: after k steps y = -+ eta k G, so the discrepancy is (eta k G)^2."""
    constants, eta, G = Constants(1.0, 0.0, 1.0, heterogeneity=3.0, gradient_bound=3.0), 0.1, 3.0
    setting = Setting(clients=2, rounds=1, local_steps=K)
    before_any_step = (eta * (K - 1) * G) ** 2
    after_the_round = (eta * K * G) ** 2
    bounded = fed_dual_avg_bounded_gradient_discrepancy_bound(constants, setting, eta)
    assert before_any_step <= bounded
    assert K > 1 or after_the_round > bounded  # the lemma counts the K - 1 steps before a step
    assert after_the_round <= fed_dual_avg_quadratic_discrepancy_bound(constants, setting, eta)


def test_variance_of_a_mean_falls_like_one_over_clients_in_inner_product_norms_only():
    """Two independent sign vectors in three dimensions, all 64 pairs: the theorems' step from sigma^2 to sigma^2 / M."""
    signs = [np.array(one) for one in itertools.product([-1.0, 1.0], repeat=3)]
    means = [(a + b) / 2 for a in signs for b in signs]
    euclidean = np.mean([mean @ mean for mean in means])
    assert euclidean == pytest.approx(3 / 2, rel=1e-12)  # sigma^2 = 3
    largest = np.mean([np.abs(mean).max() ** 2 for mean in means])
    assert largest == pytest.approx(1 - 2**-3, rel=1e-12)  # sigma^2 = 1, and not 1/2


@pytest.mark.parametrize("bound_fn", ALL)
def test_without_noise_and_heterogeneity(bound_fn):
    quiet = Constants(2.0, 0.0, 1.0, heterogeneity=0.0, gradient_bound=0.0, third_order=0.0)
    setting = Setting(clients=3, rounds=100, local_steps=20)
    bound = bound_fn(quiet, setting)
    assert bound.value == bound.terms["deterministic"]
    assert bound.step_size == (1 / 160 if bound_fn is composite_small_step_bound else 1 / 8)


def test_what_is_missing_is_named():
    setting = Setting(clients=3, rounds=100, local_steps=20)
    for bound_fn, name in (
        (fed_dual_avg_bounded_gradient_bound, "gradient_bound"),
        (fed_dual_avg_quadratic_bound, "heterogeneity"),
    ):
        with pytest.raises(ValueError, match=f"{bound_fn.__name__}: constants.{name}"):
            bound_fn(replace(HAND, **{name: None}), setting)
    with pytest.raises(ValueError, match=r"constants.divergence must be > 0"):
        composite_small_step_bound(Constants(1.0, 1.0, 0.0), setting)
