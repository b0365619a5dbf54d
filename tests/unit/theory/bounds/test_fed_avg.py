"""FedAvg's upper bounds against arithmetic by hand, units, their own proofs and exact expectations of small runs."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.theory import Bound, Constants, Setting, tightest
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
    fourth_order_discrepancy_bound,
    shadow_bound,
)

# bound: the largest step size that it allows, times L
CONVEX = {
    fed_avg_convex_bound: 1 / 4,
    fed_avg_third_order_bound: 1 / 2,
    fed_avg_strongly_convex_third_order_bound: 1 / 4,
}
NON_CONVEX = {fed_avg_non_convex_bound: 1.0, fed_avg_non_convex_third_order_bound: 1.0}
ALL = CONVEX | NON_CONVEX
# the constants C such that each term of the simplified form, times its C, adds up to at least the full one
PROVED = {
    # 1/eta <= sum of 1/candidates: B^2/(2 eta K R) <= 2 det + (stat + drift + het)/2; then eta <= its candidate in each
    fed_avg_convex_bound: (2, 1.5, 4.5, 18.5),
    fed_avg_third_order_bound: (6, 4, 99),  # 3 B^2/(eta K R) <= 6 det + 3 stat + 3 drift
    fed_avg_non_convex_bound: (2, 3, 10),  # 2 Delta/(eta K R) <= 2 det + 2 stat + 2 drift
    fed_avg_non_convex_third_order_bound: (2, 3, 10),
}
SMALL = Setting(clients=4, rounds=2, local_steps=8)
PLAIN = Constants(smoothness=2.0, noise=3.0, distance=1.0)


def sizes(low: float = 1e-3, high: float = 1e3) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


constants_of_all = st.builds(
    Constants,
    smoothness=sizes(),
    noise=sizes() | st.just(0.0),
    distance=sizes(),
    strong_convexity=sizes(1e-6, 1e-3),
    heterogeneity=sizes() | st.just(0.0),
    fourth_moment=sizes() | st.just(0.0),
    third_order=sizes() | st.just(0.0),
    gradient_bound=sizes() | st.just(0.0),
    gap=sizes(),
)
settings_of_all = st.builds(
    Setting, clients=st.integers(1, 1000), rounds=st.integers(1, 1000), local_steps=st.integers(1, 1000)
)


def rescaled(constants: Constants, s: float, c: float) -> Constants:
    """The constants of c F(x/s): x is s times as large, F is c times as large."""
    scales = {"smoothness": c / s**2, "strong_convexity": c / s**2, "noise": c / s, "distance": s, "gap": c}
    scales |= {"heterogeneity": c / s, "fourth_moment": c / s, "gradient_bound": c / s, "third_order": c / s**3}
    return replace(constants, **{name: scale * getattr(constants, name) for name, scale in scales.items()})


def terms(bound: Bound) -> list[float]:
    return list(bound.terms.values())


def test_convex_by_hand():
    # B^2/(2 eta K R) = 1/(2/8 * 16), eta sigma^2/M = 9/(8*4), 4 K eta^2 L sigma^2 = 4*8*2*9/64,
    # 18 K^2 eta^2 L zeta^2 = 18*64*2/(64*4)
    bound = fed_avg_convex_bound(replace(PLAIN, heterogeneity=0.5), SMALL, step_size=1 / 8)
    assert bound.terms == pytest.approx({"deterministic": 1 / 4, "statistical": 9 / 32, "drift": 9, "heterogeneity": 9})
    assert bound.applies
    assert not fed_avg_convex_bound(PLAIN, SMALL, step_size=0.126).applies
    # L B^2/(K R) = 27*64/216, sigma B/sqrt(M K R) = 64/36,
    # L^(1/3) sigma^(2/3) B^(4/3)/(K^(1/3) R^(2/3)) = 3*4*16/(2*9), L^(1/3) zeta^(2/3) B^(4/3)/R^(2/3) = 3*25*16/9
    constants = Constants(smoothness=27.0, noise=8.0, distance=8.0, heterogeneity=125.0)
    simple = fed_avg_convex_bound(constants, Setting(clients=6, rounds=27, local_steps=8), form="simplified")
    assert terms(simple) == pytest.approx([8, 16 / 9, 32 / 3, 400 / 3])
    assert simple.step_size is None


@pytest.mark.parametrize(
    ("noise", "zeta", "clients", "expected"),
    [
        (0.0, 0.0, 1, 1 / 4),  # 1/(4 L)
        (8.0, 0.0, 1, 1 / 64),  # sqrt(M) B/(sqrt(K R) sigma) = 1/(8*8)
        (8.0, 0.0, 16, 1 / 32),  # B^(2/3)/(K^(2/3) R^(1/3) L^(1/3) sigma^(2/3)) = 1/(4*2*4)
        (0.0, 27.0, 16, 1 / 144),  # B^(2/3)/(K R^(1/3) L^(1/3) zeta^(2/3)) = 1/(8*2*9)
    ],
)
def test_step_size_of_the_convex_bound_by_hand(noise: float, zeta: float, clients: int, expected: float):
    constants = Constants(smoothness=1.0, noise=noise, distance=1.0, heterogeneity=zeta)
    setting = Setting(clients=clients, rounds=8, local_steps=8)
    bound = fed_avg_convex_bound(constants, setting)
    assert bound.step_size == pytest.approx(expected, rel=1e-12)
    assert bound.terms == pytest.approx(fed_avg_convex_bound(constants, setting, step_size=bound.step_size).terms)


def test_third_order_by_hand():
    constants = replace(PLAIN, third_order=1 / 16, fourth_moment=2.0)
    # 3 B^2/(eta K R) = 3/(16/4), eta sigma^2/M = 9/16, 96 eta^5 Q^2 K^3 R s^4 = 96/1024 /256 *512*2*16 = 6
    bound = fed_avg_third_order_bound(constants, SMALL, step_size=1 / 4)
    assert bound.terms == pytest.approx({"deterministic": 3 / 4, "statistical": 9 / 16, "drift": 6})
    assert bound.applies  # the step size 1/(2 L) of the theorem
    assert not fed_avg_third_order_bound(constants, SMALL, step_size=0.251).applies
    assert not fed_avg_third_order_bound(replace(constants, heterogeneity=0.1), SMALL).applies
    constants = Constants(smoothness=1.0, noise=8.0, distance=8.0, third_order=27.0, fourth_moment=8.0)
    setting = Setting(clients=6, rounds=27, local_steps=8)
    # L B^2/(K R) = 64/216, sigma B/sqrt(M K R) = 64/36, Q^(1/3) s^(2/3) B^(5/3)/(K^(1/3) R^(2/3)) = 3*4*32/(2*9)
    assert terms(fed_avg_third_order_bound(constants, setting, form="simplified")) == pytest.approx(
        [8 / 27, 16 / 9, 64 / 3]
    )
    # min{1/2, sqrt(6) 8/(sqrt(216) 8) = 1/6, B^(1/3)/(K^(2/3) R^(1/3) Q^(1/3) s^(2/3)) = 2/(4*3*3*4)}
    step_size = fed_avg_third_order_bound(constants, setting).step_size
    assert step_size == pytest.approx(1 / 72, rel=1e-12)
    quadratic = fed_avg_third_order_bound(replace(constants, third_order=0.0), setting)
    assert quadratic.step_size == pytest.approx(1 / 6, rel=1e-12)
    assert quadratic.terms["drift"] == 0


def test_strongly_convex_by_hand():
    constants = replace(PLAIN, strong_convexity=1 / 4, third_order=1 / 16, fourth_moment=2.0)
    # exp(-mu K R/L) L B^2 = 2 exp(-2), sigma^2/(mu M K R) = 9/(64/4), L sigma^2/(mu^2 K R^2) = 18*16/32
    simple = fed_avg_strongly_convex_bound(constants, SMALL)
    assert terms(simple) == pytest.approx([2 * math.exp(-2), 9 / 16, 9])
    # exp(-eta mu K R/2) B^2/eta = 8 exp(-1/4), eta sigma^2/M = 9/32, 192 eta^4 Q^2 K^2 s^4/mu = 192/4096 /256 *64*16*4
    general = fed_avg_strongly_convex_third_order_bound(constants, SMALL, step_size=1 / 8)
    assert terms(general) == pytest.approx([8 * math.exp(-1 / 4), 9 / 32, 3 / 4])
    # exp(-mu K R/(8 L)) 4 L B^2 = 8 exp(-4/16), Q^2 s^4/(mu^5 K^2 R^4) = 1/16 * 1024/(64*16)
    simple = fed_avg_strongly_convex_third_order_bound(constants, SMALL, form="simplified")
    assert terms(simple) == pytest.approx([8 * math.exp(-1 / 4), 9 / 16, 1 / 16])
    # mu^2 M K^2 R^2 B^2/sigma^2 = 4*256/16/9, mu^6 K^3 R^5 B^2/(Q^2 s^4) = 512*32/4096 * 16
    full = fed_avg_strongly_convex_third_order_bound(constants, SMALL)
    logs = math.log(math.e + 64 / 9), math.log(math.e + 64) ** 4
    assert terms(full) == pytest.approx([8 * math.exp(-1 / 4), 3 * 9 / 16 * logs[0], 3073 / 16 * logs[1]])
    assert full.step_size == 1 / 8  # 2/(mu K R) log(...) = log(e + 64/9)/2 is larger
    # K R = 1024: 2/(mu K R) = 1/128, mu^2 M K^2 R^2 B^2/sigma^2 = 4*1024^2/16/9, the other one is larger
    longer = fed_avg_strongly_convex_third_order_bound(constants, Setting(clients=4, rounds=128, local_steps=8))
    assert longer.step_size == pytest.approx(math.log(math.e + 2**18 / 9) / 128, rel=1e-12)
    without = fed_avg_strongly_convex_third_order_bound(replace(constants, strong_convexity=0.0), SMALL)
    assert not without.applies
    assert without.value == math.inf


def test_non_convex_by_hand():
    constants = replace(PLAIN, gap=4.0, gradient_bound=0.5, third_order=2.0)
    # 2 Delta/(eta K R) = 8/(16/4), L eta sigma^2/M = 2*9/16, 8 L^2 eta^2 G^2 K^2 = 8*4*64/(16*4)
    bound = fed_avg_non_convex_bound(constants, SMALL, step_size=1 / 4)
    assert bound.terms == pytest.approx({"deterministic": 2, "statistical": 9 / 8, "drift": 32})
    # 8 Q^2 eta^4 G^4 K^4 = 8*4*4096/(256*16)
    third = fed_avg_non_convex_third_order_bound(constants, SMALL, step_size=1 / 4)
    assert third.terms == pytest.approx({"deterministic": 2, "statistical": 9 / 8, "drift": 32})
    for fn in NON_CONVEX:
        assert fn(constants, SMALL, step_size=1 / 2).applies
        assert not fn(constants, SMALL, step_size=0.51).applies


def test_rates_and_step_sizes_of_the_non_convex_bounds_by_hand():
    constants = Constants(smoothness=8.0, noise=16.0, distance=0.0, gap=8.0, gradient_bound=27.0)
    setting = Setting(clients=2, rounds=8, local_steps=4)
    # L Delta/(K R) = 64/32, G sqrt(L Delta)/sqrt(M K R) = 27*8/8, L^(2/3) G^(2/3) Delta^(2/3)/R^(2/3) = 4*9*4/4
    assert terms(fed_avg_non_convex_bound(constants, setting, form="simplified")) == pytest.approx([2, 27, 36])
    # min{1/8, sqrt(Delta M)/(sigma sqrt(L K R)) = 4/(16*16), Delta^(1/3)/(K R^(1/3) L^(2/3) G^(2/3)) = 2/(4*2*4*9)}
    assert fed_avg_non_convex_bound(constants, setting).step_size == pytest.approx(1 / 144, rel=1e-12)
    flat = replace(constants, gradient_bound=0.0)
    assert fed_avg_non_convex_bound(flat, setting).step_size == pytest.approx(1 / 64, rel=1e-12)
    constants = Constants(smoothness=2.0, noise=0.0, distance=0.0, gap=32.0, gradient_bound=32.0, third_order=32.0)
    setting = Setting(clients=4, rounds=32, local_steps=2)
    # L Delta/(K R) = 64/64, G sqrt(L Delta)/sqrt(M K R) = 32*8/16, Q^(2/5) G^(4/5) Delta^(4/5)/R^(4/5) = 4*16*16/16
    rate = fed_avg_non_convex_third_order_bound(constants, setting, form="simplified")
    assert terms(rate) == pytest.approx([1, 16, 64])
    # Delta^(1/5)/(K R^(1/5) Q^(2/5) G^(4/5)) = 2/(2*2*4*16)
    assert fed_avg_non_convex_third_order_bound(constants, setting).step_size == pytest.approx(1 / 128, rel=1e-12)


def test_lemmas_by_hand():
    constants = replace(PLAIN, heterogeneity=0.5, fourth_moment=2.0)
    # 4 K eta^2 sigma^2 = 4*8*9/64, 18 K^2 eta^2 zeta^2 = 18/4; 192 eta^4 K^2 s^4 = 192*64*16/8^4
    assert terms(client_discrepancy_bound(constants, SMALL, 1 / 8)) == [9 / 2, 9 / 2]
    assert terms(fourth_order_discrepancy_bound(constants, SMALL, 1 / 8)) == [48]
    # B^2/(2 eta K R) = 8/32, eta sigma^2/M = 9/32, L/(M K R) 32 = 2*32/64
    assert terms(shadow_bound(constants, SMALL, 1 / 8, discrepancy_sum=32.0)) == [1 / 4, 9 / 32, 1]
    assert not client_discrepancy_bound(constants, SMALL, 0.126).applies
    assert not shadow_bound(constants, SMALL, 0.126, discrepancy_sum=0.0).applies


def test_comprehensive_bound_is_the_smallest_of_three():
    few, many = Setting(clients=1000, rounds=1, local_steps=100), Setting(clients=100, rounds=1000, local_steps=10)
    loud, quiet = Constants(1.0, noise=100.0, distance=1.0), Constants(1.0, noise=1.0, distance=1.0)
    # L B^2 = 1; sigma B/sqrt(K R) = 10; the drift (L sigma^2/(K R^2))^(1/3) = 100^(1/3)
    assert comprehensive_bound(loud, few, form="simplified").terms == {"start": 1.0}
    assert comprehensive_bound(loud, few).terms == {"start": 0.5}
    # K R = 100: 1/100 + 1/10 for one client, drift (1/100)^(1/3) = 0.215 otherwise
    single = comprehensive_bound(quiet, few, form="simplified")
    assert single.value == pytest.approx(0.11)
    assert (single.method, single.theorem) == ("FedAvg", "rem:fedavg:2o:ub")
    # K R = 10^4: 1e-4 + 1e-3 + (1/10^7)^(1/3) = 0.00574 below the single client's 0.0101
    assert comprehensive_bound(quiet, many, form="simplified").value == pytest.approx(0.0011 + 1e-7 ** (1 / 3))
    # clients that differ: no single client's rate; drift and heterogeneity (L zeta^2/R^2)^(1/3) are both 0.01^(1/3)
    mixed = comprehensive_bound(replace(quiet, heterogeneity=0.1), few, form="simplified")
    assert mixed.value == pytest.approx(0.01 + 1e5**-0.5 + 2 * 0.01 ** (1 / 3))


@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
@settings(max_examples=60, deadline=None)
@given(constants=constants_of_all, setting=settings_of_all, s=sizes(0.1, 10), c=sizes(0.1, 10), fraction=sizes(0.01, 1))
def test_units(fn: Callable[..., Bound], constants: Constants, setting: Setting, s: float, c: float, fraction: float):
    scale = (c / s) ** 2 if fn in NON_CONVEX else c
    other = rescaled(constants, s, c)
    step_size = fraction * ALL[fn] / constants.smoothness
    for asked in ({}, {"form": "simplified"}, {"step_size": step_size}):
        there = asked | ({"step_size": step_size * s**2 / c} if "step_size" in asked else {})
        before, after = fn(constants, setting, **asked), fn(other, setting, **there)
        assert after.terms == pytest.approx({k: scale * v for k, v in before.terms.items()}, rel=1e-8, abs=0)
        if before.step_size is not None:
            assert after.step_size == pytest.approx(before.step_size * s**2 / c, rel=1e-8)


@settings(max_examples=60, deadline=None)
@given(constants=constants_of_all, setting=settings_of_all, s=sizes(0.1, 10), c=sizes(0.1, 10))
def test_units_of_what_has_no_step_size(constants: Constants, setting: Setting, s: float, c: float):
    other = rescaled(constants, s, c)
    for fn in (fed_avg_strongly_convex_bound, comprehensive_bound):
        before, after = fn(constants, setting, form="simplified"), fn(other, setting, form="simplified")
        assert after.value == pytest.approx(c * before.value, rel=1e-8)


@settings(max_examples=150, deadline=None)
@given(constants=constants_of_all, setting=settings_of_all)
def test_the_strongly_convex_theorem_follows_from_its_inequality(constants: Constants, setting: Setting):
    fn = fed_avg_strongly_convex_third_order_bound
    full = fn(constants, setting)
    general = fn(constants, setting, step_size=full.step_size)
    assert full.applies == general.applies == (constants.heterogeneity == 0)
    assert full.value >= general.value * (1 - 1e-9)


@pytest.mark.parametrize("fn", PROVED, ids=lambda fn: fn.__name__)
@settings(max_examples=120, deadline=None)
@given(constants=constants_of_all, setting=settings_of_all)
def test_the_order_follows_from_the_inequality_at_the_chosen_step_size(
    fn: Callable[..., Bound], constants: Constants, setting: Setting
):
    assert constants.gradient_bound is not None
    if constants.gradient_bound < constants.noise:  # G bounds the gradients, hence the noise
        constants = replace(constants, gradient_bound=constants.noise)
    full, simple = fn(constants, setting), fn(constants, setting, form="simplified")
    most = sum(C * term for C, term in zip(PROVED[fn], simple.terms.values(), strict=True))
    assert full.value <= most * (1 + 1e-9)
    assert full.conditions[next(iter(full.conditions))]  # the step size is allowed


@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
@settings(max_examples=60, deadline=None)
@given(constants=constants_of_all, setting=settings_of_all, more=st.integers(1, 1000), fraction=sizes(0.001, 1))
def test_more_clients_never_hurt(
    fn: Callable[..., Bound], constants: Constants, setting: Setting, more: int, fraction: float
):
    larger = replace(setting, clients=setting.clients + more)
    for asked in ({"form": "simplified"}, {"step_size": fraction * ALL[fn] / constants.smoothness}):
        assert fn(constants, larger, **asked).value <= fn(constants, setting, **asked).value
    if fn is fed_avg_strongly_convex_third_order_bound:
        assert fn(constants, larger).value <= fn(constants, setting).value


def test_more_clients_may_raise_the_bound_at_the_chosen_step_size():
    """The text's step size grows with M until the drift, whose constant 4 it leaves out, is what counts."""
    constants = Constants(smoothness=1.0, noise=8.0, distance=1.0)
    few, many = (Setting(clients=M, rounds=8, local_steps=8) for M in (1, 4))
    assert fed_avg_convex_bound(constants, many).value > fed_avg_convex_bound(constants, few).value
    best = [tightest(fed_avg_convex_bound, constants, setting, largest=1 / 4).value for setting in (few, many)]
    assert best[1] < best[0]


@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
@settings(max_examples=15, deadline=None)
@given(constants=constants_of_all, setting=settings_of_all)
def test_the_best_step_size_is_no_worse_than_the_chosen_one(
    fn: Callable[..., Bound], constants: Constants, setting: Setting
):
    constants = replace(constants, heterogeneity=0.0)
    best = tightest(fn, constants, setting, largest=ALL[fn] / constants.smoothness)
    assert best.applies
    assert best.value <= fn(constants, setting).value * (1 + 1e-6)


@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
def test_nothing_to_do_is_no_division_by_zero(fn: Callable[..., Bound]):
    zeros: dict[str, Any] = {"fourth_moment": 0.0, "third_order": 0.0, "gradient_bound": 0.0}
    exact = Constants(2.0, noise=0.0, distance=1.0, strong_convexity=1.0, gap=1.0, **zeros)
    for form in ("full", "simplified"):
        assert list(fn(exact, SMALL, form=form).terms.values())[1:] in ([0.0, 0.0], [0.0, 0.0, 0.0])
    there = replace(exact, distance=0.0, gap=0.0)
    assert fn(there, SMALL).value == 0
    noisy = fn(replace(there, noise=1.0, fourth_moment=1.0, third_order=1.0, gradient_bound=1.0), SMALL)
    assert math.isfinite(noisy.value)


@pytest.mark.parametrize(
    ("fn", "missing"),
    [
        (fed_avg_convex_bound, "heterogeneity"),
        (fed_avg_third_order_bound, "third_order"),
        (fed_avg_third_order_bound, "fourth_moment"),
        (fed_avg_strongly_convex_third_order_bound, "third_order"),
        (fed_avg_strongly_convex_third_order_bound, "fourth_moment"),
        (fed_avg_non_convex_bound, "gap"),
        (fed_avg_non_convex_bound, "gradient_bound"),
        (fed_avg_non_convex_third_order_bound, "third_order"),
    ],
)
def test_a_missing_constant_is_named(fn: Callable[..., Bound], missing: str):
    values: dict[str, Any] = {
        "heterogeneity": 0.0,
        "third_order": 1.0,
        "fourth_moment": 1.0,
        "gap": 1.0,
        "gradient_bound": 1.0,
    }
    constants = Constants(1.0, noise=1.0, distance=1.0, strong_convexity=0.5, **values)
    assert fn(constants, SMALL).value > 0
    with pytest.raises(ValueError, match=rf"^{fn.__name__}: constants.{missing} must be .* got None"):
        fn(replace(constants, **{missing: None}), SMALL)


def test_what_cannot_be_asked():
    with pytest.raises(ValueError, match="fed_avg_convex_bound: form must be one of 'full', 'simplified', got 'best'"):
        fed_avg_convex_bound(PLAIN, SMALL, form="best")  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ValueError, match=r"fed_avg_convex_bound: step_size must be None for form 'simplified', got 0\.1"
    ):
        fed_avg_convex_bound(PLAIN, SMALL, step_size=0.1, form="simplified")
    with pytest.raises(ValueError, match="fed_avg_convex_bound: step_size must be > 0, got 0"):
        fed_avg_convex_bound(PLAIN, SMALL, step_size=0.0)
    for step_size in (None, 0.1):
        with pytest.raises(ValueError, match=r"fed_avg_strongly_convex_bound: .* the text gives no more"):
            fed_avg_strongly_convex_bound(PLAIN, SMALL, step_size, form="full")
    with pytest.raises(ValueError, match="comprehensive_bound: form must be one of"):
        comprehensive_bound(PLAIN, SMALL, form="best")  # pyright: ignore[reportArgumentType]


# --- exact expectations of small runs: one coordinate, noise +-sigma with even odds, all 2^(M K R) of its paths ---

MEASURED = Setting(clients=2, rounds=3, local_steps=2)


def paths(grads: list[Callable], step_size: float, x0: float, noise: float, setting: Setting) -> np.ndarray:
    """x_m^(r,k) of FedAvg for each path of the noise, shape (paths, R, K + 1, M); the last k is before averaging."""
    M, R, K = setting.clients, setting.rounds, setting.local_steps
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=M * K * R))).reshape(-1, R, K, M)
    out = np.empty((len(signs), R, K + 1, M))
    x = np.full((len(signs), M), x0)
    for r in range(R):
        x = np.repeat(x.mean(axis=1, keepdims=True), M, axis=1)
        out[:, r, 0] = x
        for k in range(K):
            g = np.stack([grad(x[:, m]) for m, grad in enumerate(grads)], axis=1) + noise * signs[:, r, k]
            x = x - step_size * g
            out[:, r, k + 1] = x
    return out


def discrepancy(x: np.ndarray, power: int) -> np.ndarray:
    """E |x_m^(r,k) - x_mean^(r,k)|^power for k < K, shape (R, K, M)."""
    return (abs(x - x.mean(axis=-1, keepdims=True)) ** power)[:, :, :-1].mean(axis=0)


@pytest.mark.parametrize("fraction", [0.05, 0.3, 1.0])
@pytest.mark.parametrize(("noise", "zeta"), [(0.0, 0.5), (0.3, 0.0), (2.0, 0.3)])
def test_convex_bounds_hold_exactly_computed(noise: float, zeta: float, fraction: float):
    """F_m(x) = log cosh x +- zeta x: L = 1, Q = max |F'''| = 4/(3 sqrt 3)."""
    Q = 4 / (3 * math.sqrt(3))
    constants = Constants(1.0, noise=noise, distance=1.5, heterogeneity=zeta, fourth_moment=noise, third_order=Q)
    grads = [lambda x: np.tanh(x) + zeta, lambda x: np.tanh(x) - zeta]
    eta, K, R = fraction / 4, MEASURED.local_steps, MEASURED.rounds
    x = paths(grads, eta, 1.5, noise, MEASURED)
    mean = x.mean(axis=-1)
    error = np.log(np.cosh(mean)).mean(axis=0)  # (R, K + 1)
    bound = fed_avg_convex_bound(constants, MEASURED, step_size=eta)
    assert error[:, 1:].mean() <= bound.value
    apart = discrepancy(x, 2)
    assert apart.max() <= client_discrepancy_bound(constants, MEASURED, eta).value
    shadow = shadow_bound(constants, MEASURED, eta, discrepancy_sum=apart.sum())
    left = error[:, 1:].mean() + (mean[:, -1, -1] ** 2).mean() / (2 * eta * K * R)
    assert left <= shadow.value <= bound.value
    if zeta == 0:
        assert discrepancy(x, 4).mean(axis=-1).max() <= fourth_order_discrepancy_bound(constants, MEASURED, eta).value
        weights = (1 + 1 / (K * R)) ** -(np.arange(K * R) + 1.0)
        hat = mean[:, :, :-1].reshape(len(x), K * R) @ weights / weights.sum()
        third = fed_avg_third_order_bound(constants, MEASURED, step_size=eta)
        assert np.log(np.cosh(hat)).mean() <= third.value


@pytest.mark.parametrize("step", [0.5, 1.0, 1.9])
def test_fourth_order_stability_holds_beyond_the_step_sizes_of_its_proof(step: float):
    """The text's proof asks for eta <= 1/(4 L), its use for 1/(2 L); 64 in place of 192 is proved for eta <= 2/L."""
    constants = Constants(1.0, noise=1.0, distance=1.0, fourth_moment=1.0)
    grads: list[Callable] = [lambda x: np.where(x > 0, x, 0.01 * x)] * 2
    setting = Setting(clients=2, rounds=1, local_steps=6)
    x = paths(grads, step, 0.0, 1.0, setting)
    bound = fourth_order_discrepancy_bound(constants, setting, step)
    assert bound.applies
    pair = ((x[..., 0] - x[..., 1]) ** 4).mean(axis=0).max()
    assert pair <= 64 / 192 * bound.value
    assert not fourth_order_discrepancy_bound(constants, setting, 2.1).applies


@pytest.mark.parametrize("step_size", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_non_convex_bounds_hold_exactly_computed(noise: float, step_size: float):
    """F(x) = sin x: L = Q = 1, stochastic gradients of at most 1 + noise, min F = -1; it starts where F'' = -sin x < 0."""
    start = 1.2
    constants = Constants(
        1.0, noise=noise, distance=0.0, gap=1 + math.sin(start), gradient_bound=1 + noise, third_order=1.0
    )
    x = paths([np.cos, np.cos], step_size, start, noise, MEASURED).mean(axis=-1)[:, :, :-1]
    assert np.mean(np.sin(x) > 0) > 1 / 4
    for fn in NON_CONVEX:
        bound = fn(constants, MEASURED, step_size=step_size)
        assert bound.applies
        assert (np.cos(x) ** 2).mean() <= bound.value


@pytest.mark.parametrize("fn", NON_CONVEX, ids=lambda fn: fn.__name__)
def test_the_noise_of_the_non_convex_bounds_is_exact_for_quadratics(fn: Callable[..., Bound]):
    """F = L x^2/2 at eta = 1/L forgets its past: each gradient but the first is the last step's mean noise, sigma^2/M.

    So with one local step E mean ||grad F||^2 = (2 L Delta + (R - 1) sigma^2/M)/R, against 2 L Delta/R + sigma^2/M: the
    statistical term can be neither half of L eta sigma^2/M nor, to be the smallest that holds for eta <= 1/L, twice.
    """
    L, sigma, M, R, gap = 2.0, 3.0, 4, 10_000, 5.0
    constants = Constants(L, noise=sigma, distance=0.0, gap=gap, gradient_bound=0.0, third_order=0.0)
    bound = fn(constants, Setting(clients=M, rounds=R, local_steps=1), step_size=1 / L)
    exact = (2 * L * gap + (R - 1) * sigma**2 / M) / R
    assert bound.applies
    assert exact <= bound.value <= exact * (1 + 2 / R)
