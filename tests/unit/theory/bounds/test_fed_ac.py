"""FedAc's bounds: values by hand, units, lemmas against theorems, exact second moments on quadratics against lemmas."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.theory.bounds.bound import Bound, Constants, Setting, tightest
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

STRONGLY_CONVEX = (fed_ac_one_bound, fed_ac_two_bound, fed_ac_two_third_order_bound)
CONVEX = (fed_ac_one_convex_bound, fed_ac_two_convex_bound, fed_ac_two_third_order_convex_bound)
AUGMENTED = (fed_ac_one_augmented_bound, fed_ac_two_augmented_bound, fed_ac_two_third_order_augmented_bound)
ALL = (*STRONGLY_CONVEX, *CONVEX)
E = math.e
CLOSE = 1 + 1e-9  # rounding of sums of exact inequalities


def decades(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10**exponent)


@st.composite
def problems(draw: st.DrawFn) -> Constants:
    L, B, sigma = draw(decades(-3, 3)), draw(decades(-4, 4)), draw(decades(-4, 4))
    gap = draw(st.none() | st.floats(1e-6, 1).map(lambda part: part * L * B**2 / 2))
    mu, Q = L * draw(decades(-6, 0)), draw(decades(-6, 6))
    return Constants(L, sigma, B, strong_convexity=mu, fourth_moment=sigma, third_order=Q, gap=gap)


def wholes(high: float) -> st.SearchStrategy[int]:
    return decades(0, high).map(int)


CUTS = st.builds(Setting, clients=wholes(4), rounds=wholes(6), local_steps=wholes(4))

# L = 2, mu = 1/2, sigma = 2, B = 1, gap = 1, M = 4, K = 2, R = 2, eta = 1/4, Q = 3
HAND = Constants(2.0, 2.0, 1.0, strong_convexity=0.5, fourth_moment=2.0, third_order=3.0, gap=1.0)
CUT = Setting(clients=4, rounds=2, local_steps=2)


def terms(bound: Bound) -> list[float]:
    return list(bound.terms.values())


def test_lemma_of_fed_ac_one_by_hand():
    # max(1/8, sqrt(1/16)) K R = 1, Psi0 = 1 + 1/4; (1/2) 4 / (2 * 1 * 4) + (1/4) 4 / 8 = 1/4 + 1/8;
    # 390 (1/8) 2 sqrt(2 / (1/2)) 4 + 7 (1/16) 2 * 2 * 4 = 780 + 7
    bound = fed_ac_one_bound(HAND, CUT, step_size=0.25)
    assert terms(bound) == pytest.approx([1.25 / E, 0.375, 787], rel=1e-12)
    assert bound.applies
    assert not fed_ac_one_bound(HAND, CUT, step_size=0.51).applies


def test_lemmas_of_fed_ac_two_by_hand():
    # Phi0 = 1 + 1/12; (1/2) 4 / (1 * 4) = 1/2; 100 (1/16) 4 * 2 * 4 / (1/2) = 400
    phi = 13 / 12 * math.exp(-1 / 3)
    assert terms(fed_ac_two_bound(HAND, CUT, step_size=0.25)) == pytest.approx([phi, 0.5, 400], rel=1e-12)
    # 2 (1/8) 2 sqrt(2 / (1/2)) 4 / 4 = 1; e^9 (1/256) 9 * 4 * 16 / (1/2) = 4.5 e^9
    third = fed_ac_two_third_order_bound(HAND, CUT, step_size=0.25)
    assert terms(third) == pytest.approx([phi, 0.5, 1, 4.5 * E**9], rel=1e-12)


def test_theorem_of_fed_ac_one_by_hand():
    # mu = 1/2, L = 2, sigma = 2, M = 2, K = 2, R = 3: a = 6 Psi0 / 4, b = (1/4) 2 * 27 Psi0 / (2 * 4) = (13.5 / 8) Psi0.
    # B = 0 and gap = (e^2 - e) / 1.5 make a = e^2 - e, so log(e + a) = 2 and b = 1.125 (e^2 - e).
    constants = Constants(2.0, 2.0, 0.0, strong_convexity=0.5, gap=(E**2 - E) / 1.5)
    bound = fed_ac_one_bound(constants, Setting(clients=2, rounds=3, local_steps=2))
    # max(mu K R / L, sqrt(mu K / L) R) = max(3/2, sqrt(1/2) 3); 2 * 4 / 6 * 2^2; 400 * 2 * 4 / 13.5 log^4
    expected = [
        (E**2 - E) / 1.5 * math.exp(-3 / math.sqrt(2)),
        16 / 3,
        3200 / 13.5 * math.log(E + 1.125 * (E**2 - E)) ** 4,
    ]
    assert terms(bound) == pytest.approx(expected, rel=1e-12)
    assert bound.step_size == pytest.approx(4 / 9, rel=1e-12)  # 2^2 / (mu K R^2 = 9) < 1/L


def test_theorems_of_fed_ac_two_by_hand():
    # as above with Phi0 for Psi0: b = (1/8) 2 * 81 Phi0 / (4 * 4) = (20.25 / 16) Phi0 = 0.84375 (e^2 - e) is the smaller one
    constants = Constants(2.0, 2.0, 0.0, strong_convexity=0.5, gap=(E**2 - E) / 1.5, fourth_moment=2.0, third_order=1.0)
    setting, phi, left = Setting(clients=2, rounds=3, local_steps=2), (E**2 - E) / 1.5, math.exp(-1 / math.sqrt(2))
    log_b = math.log(E + 0.84375 * (E**2 - E))
    bound = fed_ac_two_bound(constants, setting)
    # 4 * 4 / 6 * 2; 8101 * 4 * 4 / 20.25 log^4
    assert terms(bound) == pytest.approx([phi * left, 16 / 3, 8101 * 16 / 20.25 * log_b**4], rel=1e-12)
    assert bound.step_size == pytest.approx(min(0.5, 9 * log_b**2 / 9), rel=1e-12)
    # b = (1/4) 2 * 2 * 27 Phi0 / (2 * 4) = 3.375 Phi0; c = (1/32) 4 * 6561 Phi0 / 16
    third = fed_ac_two_third_order_bound(constants, setting)
    log_b, log_c = math.log(E + 3.375 * phi), math.log(E + 6561 / 128 * phi)
    # 55 * 2 * 4 / 27 log^3; e^18 * 16 / (6561 / 8) log^8
    expected = [phi * left, 16 / 3, 440 / 27 * log_b**3, E**18 * 128 / 6561 * log_c**8]
    assert terms(third) == pytest.approx(expected, rel=1e-12)


def test_simplified_strongly_convex_by_hand():
    # L = 2, mu = 1/2, sigma = 2, B = 1, M = 4, K = 2, R = 2: mu K / L = 1/2, so the larger rate is sqrt(1/2) R = sqrt(2)
    one = fed_ac_one_bound(HAND, CUT, form="simplified")
    assert terms(one) == pytest.approx([2 * math.exp(-math.sqrt(2)), 4 / 8, 2 * 4 / (0.25 * 2 * 8)], rel=1e-12)
    two = fed_ac_two_bound(HAND, CUT, form="simplified")
    assert terms(two) == pytest.approx([2 * math.exp(-math.sqrt(2) / 3), 0.5, 4 * 4 / (0.125 * 2 * 16)], rel=1e-12)
    third = fed_ac_two_third_order_bound(HAND, CUT, form="simplified")
    # 9 * 16 / ((1/32) 4 * 256) = 144 / 32
    assert terms(third) == pytest.approx([4 * math.exp(-math.sqrt(2) / 3), 0.5, 4.5], rel=1e-12)
    assert third.applies  # R = 2 = sqrt(L / mu)
    assert not fed_ac_two_third_order_bound(HAND, Setting(4, rounds=1, local_steps=2), form="simplified").applies


def test_convex_fed_ac_two_needs_no_third_derivative():
    constants, setting = Constants(8.0, 16.0, 1.0), Setting(clients=4, rounds=64, local_steps=16)
    assert fed_ac_two_convex_bound(constants, setting).applies
    with pytest.raises(ValueError, match=r"fourth_moment|third_order"):
        fed_ac_two_third_order_convex_bound(constants, setting)


def test_convex_theorems_by_hand():
    # L = 8, sigma = 16, B = 1, Q = 27, M = 4, K = 16, R = 16: M K R = 1024, K R^2 = 4096
    constants = Constants(8.0, 16.0, 1.0, fourth_moment=16.0, third_order=27.0)
    setting = Setting(clients=4, rounds=16, local_steps=16)
    statistical, log = 16 / 32, math.log(E**2 + 4096)
    # 8^(1/3) 16^(2/3) / (16^(1/3) 16) = 2 * 16^(1/3) / 16
    drift = 2 * 16 ** (1 / 3) / 16
    one = fed_ac_one_convex_bound(constants, setting)
    expected = [
        2 * 8 / 4096 * log**2,
        2 * statistical * math.log(E**2 + 8 / 0.5) ** 2,
        1005 * drift * math.log(E**4 + 8 / drift) ** 4,
    ]
    assert terms(one) == pytest.approx(expected, rel=1e-12)
    assert one.regularization == pytest.approx(0.5, rel=1e-12)  # the largest of 0.5, 0.315 and 0.27
    # eta_1 = log^2(e + min(0.5 * 8 * 1024, 0.25 * 16 * 16^3) / 256) / (0.5 * 4096) = log^2(e + 16) / 2048,
    # eta_2 = 2 / (8^(2/3) 16 * 16^(2/3)) = 2 / (64 * 16^(2/3)), eta_3 = 8^(1/4) / (8^(3/4) 16 * 4) = 1 / (64 sqrt(8))
    assert one.step_size == pytest.approx(math.log(E + 16) ** 2 / 2048, rel=1e-12)
    two = fed_ac_two_convex_bound(constants, setting)
    drift = math.sqrt(8 * 16) / (2 * 16)
    expected = [80 / 4096 * log**2, 5 * statistical * math.log(E + 16), 16411 * drift * math.log(E**4 + 8 / drift) ** 4]
    assert terms(two) == pytest.approx(expected, rel=1e-12)
    assert two.regularization == pytest.approx(18 * 8 / 4096 * log**2, rel=1e-12)  # 2.43, against 0.5 and 0.354
    third = fed_ac_two_third_order_convex_bound(constants, setting)
    # 8^(1/3) 16^(2/3) / (64^(1/3) 16) = 2 * 16^(2/3) / 64; 27^(1/3) 16^(2/3) / (16^(1/3) 16^(4/3)) = 3 / 16
    noise, q = 2 * 16 ** (2 / 3) / 64, 3 / 16
    assert terms(third)[2:] == pytest.approx(
        [139 * noise * math.log(E**3 + 8 / noise) ** 3, E**19 * q * math.log(E**8 + 8 / q) ** 8], rel=1e-12
    )
    assert two.applies is False  # K R = 256 < 1000
    assert one.applies


def test_convex_step_sizes_in_the_letters_of_the_text():
    L, s, B, Q, M, K, R = 3.0, 5.0, 0.2, 7.0, 6, 50, 40
    constants = Constants(L, s, B, fourth_moment=s, third_order=Q)
    setting = Setting(M, rounds=R, local_steps=K)
    one = fed_ac_one_convex_bound(constants, setting)
    lam = one.regularization
    assert lam is not None
    candidates = [
        1 / (L + lam),
        math.log(E + min(lam * L * M * K * R * B**2 / s**2, lam**2 * K * R**3 * B**2 / s**2)) ** 2 / (lam * K * R**2),
        L ** (1 / 3) * B ** (2 / 3) / (lam ** (2 / 3) * K ** (2 / 3) * R * s ** (2 / 3)),
        L ** (1 / 4) * B ** (1 / 2) / (lam ** (3 / 4) * K ** (3 / 4) * R * s ** (1 / 2)),
    ]
    assert one.step_size == pytest.approx(min(candidates), rel=1e-12)
    two = fed_ac_two_convex_bound(constants, setting)
    lam = two.regularization
    assert lam is not None
    inside = min(lam * L * M * K * R * B**2 / s**2, lam**3 * K * R**4 * B**2 / (L * s**2))
    third = L ** (1 / 3) * B ** (2 / 3) / (lam ** (2 / 3) * K ** (2 / 3) * R ** (2 / 3) * s ** (2 / 3))
    assert two.step_size == pytest.approx(
        min(1 / (L + lam), 9 / (lam * K * R**2) * math.log(E + inside) ** 2, third), rel=1e-12
    )
    two = fed_ac_two_third_order_convex_bound(constants, setting)
    lam = two.regularization
    assert lam is not None
    inside = min(lam * L * M * K * R * B**2 / s**2, lam**2 * M * K * R**3 * B**2 / s**2)
    inside = min(inside, lam**5 * L * K**2 * R**8 * B**2 / (Q**2 * s**4))
    third = L ** (1 / 3) * M ** (1 / 3) * B ** (2 / 3) / (lam ** (2 / 3) * K ** (2 / 3) * R * s ** (2 / 3))
    assert two.step_size == pytest.approx(
        min(1 / (L + lam), 9 / (lam * K * R**2) * math.log(E + inside) ** 2, third), rel=1e-12
    )


@pytest.mark.parametrize("bound_fn", ALL)
@given(constants=problems(), setting=CUTS)
@settings(max_examples=60, deadline=None)
def test_theorem_follows_from_lemma(bound_fn, constants, setting):
    theorem = bound_fn(constants, setting)
    if theorem.applies:  # false where K R is small, for the convex ones
        lemma = bound_fn(constants, setting, step_size=theorem.step_size)
        assert lemma.applies
        assert lemma.value <= theorem.value * CLOSE


def test_step_sizes_as_printed_do_not_give_the_theorems():
    # with L = mu = 1, M = K = 1: a = R Phi0 / sigma^2 = 1, b = R^3 a resp. R^2 a, so log(e + a + b) is about 27.6 and not 1.3
    for bound_fn, rounds in ((fed_ac_two_bound, 10**4), (fed_ac_two_third_order_bound, 10**6)):
        setting = Setting(clients=1, rounds=rounds, local_steps=1)
        constants = Constants(1.0, 1.0, 0.0, strong_convexity=1.0, gap=1 / rounds, fourth_moment=1.0, third_order=0.0)
        theorem = bound_fn(constants, setting)
        assert theorem.step_size == pytest.approx(9 / rounds**2 * math.log(E + 1) ** 2, rel=1e-12)
        assert bound_fn(constants, setting, step_size=theorem.step_size).value <= theorem.value
        printed = 9 / rounds**2 * math.log(E + 1 + 1e12) ** 2
        assert bound_fn(constants, setting, step_size=printed).value > 3 * theorem.value


@pytest.mark.parametrize("form", ["full", "simplified"])
@pytest.mark.parametrize("bound_fn", [*ALL, minibatch_ac_sgd_bound])
@given(constants=problems(), setting=CUTS, s=decades(-2, 2), c=decades(-2, 2))
@settings(max_examples=15, deadline=None)
def test_units(bound_fn, form, constants, setting, s, c):
    """Length in another unit, x -> s x, and objective in another, F -> c F."""
    other = Constants(
        constants.smoothness * c / s**2,
        constants.noise * c / s,
        constants.distance * s,
        strong_convexity=constants.strong_convexity * c / s**2,
        fourth_moment=constants.noise * c / s,
        third_order=(constants.third_order or 0) * c / s**3,
        gap=None if constants.gap is None else constants.gap * c,
    )
    one, two = bound_fn(constants, setting, form=form), bound_fn(other, setting, form=form)
    tiny = 1e-290 * c  # an exponential that underflows
    assert terms(two) == pytest.approx([c * term for term in terms(one)], rel=1e-6, abs=tiny)
    if form == "full":
        assert two.step_size == pytest.approx(one.step_size * s**2 / c, rel=1e-6)
    if one.regularization is not None:
        assert two.regularization == pytest.approx(one.regularization * c / s**2, rel=1e-6)


@pytest.mark.parametrize("form", ["full", "simplified"])
@pytest.mark.parametrize("bound_fn", [*ALL, minibatch_ac_sgd_bound])
@given(constants=problems(), setting=CUTS, more=st.integers(1, 1000))
@settings(max_examples=15, deadline=None)
def test_more_clients_never_hurt(bound_fn, form, constants, setting, more):
    other = replace(setting, clients=setting.clients + more)
    assert bound_fn(constants, other, form=form).value <= bound_fn(constants, setting, form=form).value * CLOSE


@pytest.mark.parametrize("bound_fn", ALL)
@given(constants=problems(), setting=CUTS)
@settings(max_examples=15, deadline=None)
def test_tightest_is_never_above_the_theorem(bound_fn, constants, setting):
    theorem = bound_fn(constants, setting)
    if theorem.applies and theorem.step_size * constants.smoothness > 1e-11:  # within the decades that are searched
        largest = 1 / (constants.smoothness + (theorem.regularization or 0.0))
        assert tightest(bound_fn, constants, setting, largest).value <= theorem.value * CLOSE


@given(constants=problems(), setting=CUTS, part=decades(-6, 0))
@settings(max_examples=80, deadline=None)
def test_lemmas_follow_from_discrepancy_and_perturbed_iterates(constants, setting, part):
    eta = part / constants.smoothness
    discrepancy = fed_ac_one_discrepancy_bound(constants, setting, eta)
    combined = fed_ac_one_perturbed_bound(constants, setting, eta, discrepancy)
    assert combined.value <= fed_ac_one_bound(constants, setting, step_size=eta).value * CLOSE
    for bound_fn, discrepancy_fn in (
        (fed_ac_two_bound, fed_ac_two_discrepancy_bound),
        (fed_ac_two_third_order_bound, fed_ac_two_third_order_discrepancy_bound),
    ):
        discrepancy = discrepancy_fn(constants, setting, eta)
        combined = fed_ac_two_perturbed_bound(constants, setting, eta, discrepancy)
        assert combined.value <= bound_fn(constants, setting, step_size=eta).value * CLOSE


@pytest.mark.parametrize(("convex", "strongly_convex"), list(zip(CONVEX, STRONGLY_CONVEX, strict=True)))
@given(constants=problems(), setting=CUTS, part=decades(-6, 0))
@settings(max_examples=60, deadline=None)
def test_convex_lemmas_follow_from_the_augmented_objective(convex, strongly_convex, constants, setting, part):
    lam = convex(constants, setting).regularization
    start = constants.smoothness * constants.distance**2 / 2  # bounds the potential of the augmented objective
    eta = part / (constants.smoothness + lam)
    augmented = replace(constants, smoothness=constants.smoothness + lam, strong_convexity=lam, distance=0.0, gap=start)
    below = strongly_convex(augmented, setting, step_size=eta).value + lam * constants.distance**2 / 2
    assert below <= convex(constants, setting, step_size=eta).value * CLOSE


def test_augmented_by_hand():
    # L = 2, sigma = 2, B = 1, M = 4, K = 2, R = 2, lambda = 1/2: a = (1/2) 2 * 16 / 4 = 4, b = (1/4) 16 / 4 = 1
    bound = fed_ac_one_augmented_bound(HAND, CUT, 0.5)
    # 3 * 4 / (2 (1/2) 16) = 3/4; 592 * 2 * 4 / ((1/4) 16) = 1184; 412 sqrt(2 / ((1/2) 16)) 2 = 412
    drift = 1184 * math.log(E**4 + 1) ** 4 + 412
    expected = [0.25, math.exp(-math.sqrt(8 / 5)), 0.75 * math.log(E**2 + 4) ** 2, drift]
    assert terms(bound) == pytest.approx(expected, rel=1e-12)
    # log^2(e + 1)/4 = 0.431; (2 / 1)^(1/3) / (2 4^(1/3)) = 2^(-4/3) = 0.397; 2^(1/4) / (2 sqrt 2) = 2^(-5/4)
    assert bound.step_size == pytest.approx(2 ** (-4 / 3), rel=1e-12)
    assert bound.regularization == 0.5
    assert bound.applies
    # b = (1/8) 2 * 16 / 8 = 1/2; 4 * 4 / 8 = 2; 16201 * 16 / 4; 209 (4 * 4 / (1/2 * 32))^(1/3)
    bound = fed_ac_two_augmented_bound(HAND, CUT, 0.5)
    drift = 16201 * 4 * math.log(E**4 + 0.5) ** 4 + 209
    expected = [0.25, math.exp(-math.sqrt(8 / 5) / 3), 2 * math.log(E + 4), drift]
    assert terms(bound) == pytest.approx(expected, rel=1e-12)
    assert bound.step_size == pytest.approx(0.4, rel=1e-12)  # 1/(L + lambda); 2^(1/3) / 4^(2/3) = 1/2 is larger
    # b = (1/4) 64 / 4 = 4, c = (1/32) 2 * 4 * 256 / (9 * 16) = 4/9; 55 * 8 / 16; 83 sqrt(2 / 32) 2; e^18 9 * 16 * 32 / 1024
    bound = fed_ac_two_third_order_augmented_bound(HAND, CUT, 0.5)
    acceleration = 27.5 * math.log(E**3 + 4) ** 3 + 41.5
    expected = [*expected[:3], acceleration, 4.5 * E**18 * math.log(E**8 + 4 / 9) ** 8]
    assert terms(bound) == pytest.approx(expected, rel=1e-12)
    for bound_fn in AUGMENTED:
        assert not bound_fn(HAND, CUT, 0.5, step_size=0.41).applies
        with pytest.raises(ValueError, match=f"{bound_fn.__name__}: regularization must be > 0, got 0"):
            bound_fn(HAND, CUT, 0.0)
        with pytest.raises(ValueError, match=f"{bound_fn.__name__}: step_size must be > 0, got 0"):
            bound_fn(HAND, CUT, 0.5, step_size=0.0)


@pytest.mark.parametrize(("augmented", "convex"), list(zip(AUGMENTED, CONVEX, strict=True)))
@given(constants=problems(), setting=CUTS, part=decades(-6, 3))
@settings(max_examples=100, deadline=None)
def test_augmented_lemmas_follow_from_each_other(augmented, convex, constants, setting, part):
    """The second from the first at its own step size, for any lambda; the theorem from the second at its own lambda."""
    second = augmented(constants, setting, part * constants.smoothness)
    assert second.applies
    first = augmented(constants, setting, part * constants.smoothness, second.step_size)
    assert first.value <= second.value * CLOSE
    theorem = convex(constants, setting)
    if theorem.applies:
        lemma = augmented(constants, setting, theorem.regularization)
        assert lemma.step_size == theorem.step_size
        assert lemma.value <= theorem.value * CLOSE


@pytest.mark.parametrize("sigma", [0.0, 0.3])
@pytest.mark.parametrize("kind", [1, 2])
@given(
    part=decades(-3, 0),
    lam=decades(-5, 1),
    height=st.floats(0, 1),
    setting=st.builds(Setting, clients=st.integers(1, 20), rounds=st.integers(1, 20), local_steps=st.integers(1, 10)),
)
@settings(max_examples=60, deadline=None)
def test_augmented_lemmas_on_quadratics(kind, sigma, part, lam, height, setting):
    """E F(x_ag) - F* exactly, F = h x^2/2 with h <= L and x0 = B, of FedAc on F + lambda/2 (x - B)^2."""
    L, B, h = 1.0, 2.0, height
    constants = Constants(L, sigma, B)
    bound_fn = AUGMENTED[kind - 1]
    for step_size in (None, part / (L + lam)):
        bound = bound_fn(constants, setting, lam, step_size)
        assert bound.applies
        eta = bound.step_size
        gamma = stable_gamma(replace(constants, strong_convexity=lam), setting, eta)
        _, step = quadratic_step(kind, h + lam, eta, gamma, lam)
        optimum = lam * B / (h + lam)
        steps, kick = setting.local_steps * setting.rounds, np.array([gamma, eta])
        mean, moments = np.full(2, B - optimum), np.zeros((2, 2))
        for _ in range(steps):
            mean = step @ mean
            moments = step @ moments @ step.T + sigma**2 / setting.clients * np.outer(kick, kick)
        assert h / 2 * (moments[1, 1] + (mean[1] + optimum) ** 2) <= bound.value * CLOSE


@pytest.mark.parametrize(("kind", "bound_fn"), [(1, fed_ac_one_growth_bound), (2, fed_ac_two_growth_bound)])
def test_growth_in_the_norm_of_the_text(kind, bound_fn):
    """The largest norm over curvatures, exactly: within the bound, and for small mu and large gamma a fair part of it."""
    constants, attained = Constants(1.0, 1.0, 1.0), []
    for mu in (1e-6, 1e-3, 0.1, 1.0):
        for eta in (1e-4, 0.1, 1.0):
            for speed in (0.0, 0.3, 1.0):
                gamma = max(eta, eta ** (1 - speed) * math.sqrt(eta / mu) ** speed)
                bound = bound_fn(replace(constants, strong_convexity=mu), Setting(1, 1, 1), eta, gamma)
                assert bound.applies
                X = np.array([[1.0, 1.0], [0.0, eta / gamma]])  # on (x, x_ag)
                norms = [
                    np.linalg.norm(np.linalg.solve(X, quadratic_step(kind, h, eta, gamma, mu)[1] @ X), 2)
                    for h in np.linspace(mu, 1.0, 9)
                ]
                assert max(norms) <= bound.value * CLOSE
                if gamma == eta:
                    assert bound.value == 1
                else:
                    attained.append((max(norms) - 1) / (bound.value - 1))
    assert max(attained) > 0.35
    assert not bound_fn(replace(constants, strong_convexity=0.1), Setting(1, 1, 4), 1.1, 1.2).applies


def test_perturbed_iterates_by_hand():
    # eta = 1/4, gamma = 1/2 (= sqrt(1/(4 mu K)) with mu = 1/2, K = 2), L = 2, sigma = 2, M = 4, R = 2: gamma mu K R = 1
    assert stable_gamma(HAND, CUT, 0.25) == 0.5
    # (1/16) 2 * 4 / (2 (1/2) (1/2)) = 1; (1/2) 4 / 8 = 1/4; L * 3
    one = fed_ac_one_perturbed_bound(HAND, CUT, 0.25, discrepancy=3.0)
    assert terms(one) == pytest.approx([1.25 / E, 1, 0.25, 6], rel=1e-12)
    # three times the second one over M; 3 / mu * 3
    two = fed_ac_two_perturbed_bound(HAND, CUT, 0.25, discrepancy=3.0)
    assert terms(two) == pytest.approx([13 / 12 * math.exp(-1 / 3), 0.75, 0.25, 18], rel=1e-12)
    # gamma^2 mu / eta = 1/2: 7 (1/4) (1/2) 2 * 4 * 2^4; 4 (1/16) 4 * 2 * 4 * 1.5^4; 44 (1/256) 9 * 4 * 16 * 1.5^8
    assert fed_ac_one_discrepancy_bound(HAND, CUT, 0.25) == pytest.approx(112, rel=1e-12)
    assert fed_ac_two_discrepancy_bound(HAND, CUT, 0.25) == pytest.approx(40.5, rel=1e-12)
    assert fed_ac_two_third_order_discrepancy_bound(HAND, CUT, 0.25) == pytest.approx(99 * 1.5**8, rel=1e-12)
    with pytest.raises(ValueError, match="gamma must be between step_size ="):
        fed_ac_one_discrepancy_bound(HAND, CUT, 0.25, gamma=0.1)


def quadratic_step(kind: int, h: float, eta: float, gamma: float, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """x_md and the next (x, x_ag) as matrices on (x, x_ag), for the gradient h x_md."""
    alpha = 1 / (gamma * mu) if kind == 1 else 3 / (2 * gamma * mu) - 1 / 2
    over_beta = 1 / (alpha + 1) if kind == 1 else (alpha - 1) / (2 * alpha**2 - 1)
    md = np.array([over_beta, 1 - over_beta])
    return md, np.array([np.array([1 - 1 / alpha, 0]) + md / alpha - gamma * h * md, md - eta * h * md])


@pytest.mark.parametrize("kind", [1, 2])
@given(
    part=decades(-2, 0), ratio=decades(-4, -0.01), height=st.floats(0, 1), K=st.integers(1, 40), speed=st.floats(0, 1)
)
@settings(max_examples=60, deadline=None)
def test_discrepancy_on_quadratics(kind, part, ratio, height, K, speed):
    """Second moments of a client's distance from the mean of infinitely many, exactly, for any gamma that is allowed."""
    L, mu, sigma, eta = 1.0, ratio, 1.5, part
    h = mu + height * (L - mu)
    gamma = eta ** (1 - speed) * math.sqrt(eta / mu) ** speed
    gamma = min(max(gamma, eta), math.sqrt(eta / mu))
    md, step = quadratic_step(kind, h, eta, gamma, mu)
    kick = np.array([gamma, eta])
    moments, setting = np.zeros((2, 2)), Setting(1, 1, K)
    constants = Constants(L, sigma, 1.0, strong_convexity=mu)
    other = np.array([1, gamma * mu]) / (1 + gamma * mu)
    for _ in range(K):
        if kind == 1:
            measured = math.sqrt((md @ moments @ md) * (other @ moments @ other))
            assert measured <= fed_ac_one_discrepancy_bound(constants, setting, eta, gamma) * CLOSE
        else:
            assert L**2 * (md @ moments @ md) <= fed_ac_two_discrepancy_bound(constants, setting, eta, gamma) * CLOSE
        moments = step @ moments @ step.T + sigma**2 * np.outer(kick, kick)


@pytest.mark.parametrize("kind", [1, 2])
@given(
    part=decades(-2, 0),
    ratio=decades(-4, -0.01),
    height=st.floats(0, 1),
    setting=st.builds(Setting, clients=st.integers(1, 20), rounds=st.integers(1, 20), local_steps=st.integers(1, 10)),
)
@settings(max_examples=60, deadline=None)
def test_perturbed_iterates_on_quadratics(kind, part, ratio, height, setting):
    """The expected potential, exactly: on a quadratic the means of the clients do not feel that clients differ."""
    L, mu, sigma, eta, B = 1.0, ratio, 0.3, part, 2.0
    h = mu + height * (L - mu)
    constants = Constants(L, sigma, B, strong_convexity=mu, gap=h * B**2 / 2)
    gamma = stable_gamma(constants, setting, eta)
    _, step = quadratic_step(kind, h, eta, gamma, mu)
    kick = np.array([gamma, eta])
    moments = np.full((2, 2), B**2)
    for _ in range(setting.local_steps * setting.rounds):
        moments = step @ moments @ step.T + sigma**2 / setting.clients * np.outer(kick, kick)
    if kind == 1:
        bound = fed_ac_one_perturbed_bound(constants, setting, eta, discrepancy=0.0)
    else:
        bound = fed_ac_two_perturbed_bound(constants, setting, eta, discrepancy=0.0)
    weight = 1 / 2 if kind == 1 else 1 / 6
    assert h / 2 * moments[1, 1] + weight * mu * moments[0, 0] <= bound.value * CLOSE


@pytest.mark.parametrize("bound_fn", ALL)
def test_without_noise_or_third_derivative(bound_fn):
    setting = Setting(clients=3, rounds=100, local_steps=20)
    quiet = Constants(2.0, 0.0, 1.0, strong_convexity=0.01, fourth_moment=0.0, third_order=1.0)
    bound = bound_fn(quiet, setting)
    assert bound.value == bound.terms["deterministic"]
    assert bound.step_size == 1 / (2 + (bound.regularization or 0))
    noisy = Constants(2.0, 1.0, 1.0, strong_convexity=0.01, fourth_moment=1.0, third_order=0.0)
    assert math.isfinite(bound_fn(noisy, setting).value)
    assert bound_fn(noisy, setting).terms.get("third_order", 0.0) == 0.0


def test_what_does_not_apply_is_said():
    flat, setting = Constants(1.0, 1.0, 1.0, fourth_moment=1.0, third_order=1.0), Setting(2, rounds=4, local_steps=4)
    for bound_fn in STRONGLY_CONVEX:
        for form in ("full", "simplified"):
            bound = bound_fn(flat, setting, form=form)
            assert bound.value == math.inf
            assert bound.conditions["mu > 0"] is False
    for bound_fn in ALL:
        assert not bound_fn(replace(HAND, heterogeneity=0.1), setting).conditions["homogeneous clients"]
        with pytest.raises(ValueError, match=f"{bound_fn.__name__}: form must be one of"):
            bound_fn(HAND, setting, form="half")  # pyright: ignore[reportArgumentType]
    for bound_fn in (fed_ac_two_third_order_bound, fed_ac_two_third_order_convex_bound):
        for name in ("fourth_moment", "third_order"):
            with pytest.raises(ValueError, match=f"{bound_fn.__name__}: constants.{name}"):
                bound_fn(replace(HAND, **{name: None}), setting)
