"""The lower bounds of FedAvg: arithmetic by hand, units, the text's second form, and below what is attained."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.theory import Constants, Setting
from fedlocal.theory.bounds.fed_avg import comprehensive_bound, fed_avg_convex_bound
from fedlocal.theory.bounds.lower import fed_avg_lower_bound, lower_bound_curvature

ROUNDS = Setting(clients=6, rounds=27, local_steps=8)


def sizes(low: float = 1e-3, high: float = 1e3) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


some_constants = st.builds(
    Constants,
    smoothness=sizes(),
    noise=sizes() | st.just(0.0),
    distance=sizes(),
    optimum_heterogeneity=sizes() | st.just(0.0),
)
some_settings = st.builds(
    Setting, clients=st.integers(1, 1000), rounds=st.integers(1, 1000), local_steps=st.integers(1, 1000)
)


def test_homogeneous_by_hand():
    # L B^2/(K R) = 27*64/216, sigma B/sqrt(M K R) = 64/36; drift = min{64/sqrt(216) = 4.35, 3*4*16/(2*9) = 10.7}
    constants = Constants(smoothness=27.0, noise=8.0, distance=8.0)
    bound = fed_avg_lower_bound(constants, ROUNDS)
    expected = {"deterministic": 8, "statistical": 16 / 9, "drift": 64 / math.sqrt(216)}
    assert bound.terms == pytest.approx(expected)
    assert (bound.theorem, bound.step_size, bound.applies) == ("thm:fedavg:lb:homo", None, True)
    # L = 1: L B^2/(K R) = 64/216; the drift is 4*16/(2*9) = 3.56 now
    flatter = fed_avg_lower_bound(replace(constants, smoothness=1.0), ROUNDS)
    assert flatter.terms == pytest.approx({"deterministic": 8 / 27, "statistical": 16 / 9, "drift": 32 / 9})
    # no more than L B^2 = 64 beside the first term
    loud = fed_avg_lower_bound(Constants(1.0, noise=1e9, distance=8.0), ROUNDS)
    assert loud.terms == pytest.approx({"deterministic": 8 / 27, "start": 64})
    assert not fed_avg_lower_bound(constants, replace(ROUNDS, local_steps=1)).applies


def test_heterogeneous_by_hand():
    # heterogeneity = min{zeta^2/L = 1/27, 3 zeta^(2/3) 16/9}, then min{125^2/27 = 579, 3*25*16/9 = 400/3}
    constants = Constants(smoothness=27.0, noise=8.0, distance=8.0, optimum_heterogeneity=1.0)
    bound = fed_avg_lower_bound(constants, ROUNDS)
    assert list(bound.terms) == ["deterministic", "statistical", "drift", "heterogeneity"]
    assert bound.terms["heterogeneity"] == pytest.approx(1 / 27)
    assert (bound.theorem, bound.applies) == ("thm:fedavg:lb:hetero", True)
    apart = fed_avg_lower_bound(replace(constants, optimum_heterogeneity=125.0), ROUNDS)
    assert apart.terms["heterogeneity"] == pytest.approx(400 / 3)
    assert not fed_avg_lower_bound(constants, replace(ROUNDS, clients=5)).applies
    assert fed_avg_lower_bound(replace(constants, optimum_heterogeneity=0.0), replace(ROUNDS, clients=5)).applies
    with pytest.raises(ValueError, match=r"fed_avg_lower_bound: constants\.optimum_heterogeneity must be"):
        fed_avg_lower_bound(replace(constants, optimum_heterogeneity=None), ROUNDS)


def test_curvature_by_hand():
    # 1/(2 B^2) = 1/128 of the largest of: drift 4.35 and 0 and L B^2/(K R) = 8
    constants = Constants(smoothness=27.0, noise=8.0, distance=8.0)
    assert lower_bound_curvature(constants, ROUNDS) == pytest.approx(8 / 128)
    # L = 1: drift 32/9 against 8/27
    assert lower_bound_curvature(replace(constants, smoothness=1.0), ROUNDS) == pytest.approx(32 / 9 / 128)
    # heterogeneity 400/3
    apart = replace(constants, optimum_heterogeneity=125.0)
    assert lower_bound_curvature(apart, ROUNDS) == pytest.approx(400 / 3 / 128)
    # L B^2 is the most for each: mu = L/2
    assert lower_bound_curvature(replace(constants, noise=1e12), ROUNDS) == pytest.approx(27 / 2)
    assert lower_bound_curvature(replace(constants, optimum_heterogeneity=1e12), ROUNDS) == pytest.approx(27 / 2)
    with pytest.raises(ValueError, match=r"lower_bound_curvature: constants\.distance must be > 0, got 0"):
        lower_bound_curvature(replace(constants, distance=0.0), ROUNDS)
    with pytest.raises(ValueError, match=r"lower_bound_curvature: constants\.optimum_heterogeneity must be"):
        lower_bound_curvature(replace(constants, optimum_heterogeneity=None), ROUNDS)


@pytest.mark.parametrize(
    ("noise", "zeta", "rounds", "local_steps", "wanted"),
    [
        (1.0, 0.0, 64, 8, 1 / (2 * 16)),  # 1 / (K^(1/3) R^(2/3)) = 1/32, below 1/sqrt(512)
        (1.0, 0.0, 4, 100, 1 / 20),  # sigma B / sqrt(KR) = 1/20
        (1e9, 0.0, 4, 100, 1.0),  # L B^2
        (0.0, 0.0, 4, 5, 1 / 20),  # L B^2 / (KR)
        (0.0, 1.0, 8, 100, 1 / 4),  # zeta^(2/3) / R^(2/3)
        (0.0, 0.1, 8, 1000, 0.01),  # zeta^2 / L
    ],
)
def test_curvature_takes_each_of_its_terms(noise: float, zeta: float, rounds: int, local_steps: int, wanted: float):
    constants = Constants(1.0, noise, 1.0, heterogeneity=None, optimum_heterogeneity=zeta)
    mu = lower_bound_curvature(constants, Setting(2, rounds, local_steps))
    assert 2 * mu == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=120, deadline=None)
@given(constants=some_constants, setting=some_settings, s=sizes(0.1, 10), c=sizes(0.1, 10))
def test_units(constants: Constants, setting: Setting, s: float, c: float):
    assert constants.optimum_heterogeneity is not None
    other = Constants(
        smoothness=constants.smoothness * c / s**2,
        noise=constants.noise * c / s,
        distance=constants.distance * s,
        optimum_heterogeneity=constants.optimum_heterogeneity * c / s,
    )
    before, after = fed_avg_lower_bound(constants, setting).value, fed_avg_lower_bound(other, setting).value
    assert after == pytest.approx(c * before, rel=1e-8)
    before, after = lower_bound_curvature(constants, setting), lower_bound_curvature(other, setting)
    assert after == pytest.approx(c / s**2 * before, rel=1e-8)
    assert before <= constants.smoothness / 2 * (1 + 1e-12)


@settings(max_examples=150, deadline=None)
@given(constants=some_constants, setting=some_settings)
def test_it_matches_what_is_attained(constants: Constants, setting: Setting):
    """The text's second form is the comprehensive upper bound, and the first form is at most twice the second."""
    homogeneous = replace(constants, optimum_heterogeneity=0.0)
    lower = fed_avg_lower_bound(homogeneous, setting).value
    upper = comprehensive_bound(homogeneous, setting, form="simplified").value
    assert upper * (1 - 1e-12) <= lower <= 2 * upper * (1 + 1e-12)
    uniform = replace(constants, heterogeneity=constants.optimum_heterogeneity)
    attained = fed_avg_convex_bound(uniform, setting, form="simplified").value
    assert fed_avg_lower_bound(constants, setting).value <= attained * (1 + 1e-12)


@settings(max_examples=120, deadline=None)
@given(constants=some_constants, setting=some_settings)
def test_the_curvature_is_the_order_of_the_bound(constants: Constants, setting: Setting):
    """mu B^2 is half the largest of three terms; with the statistical one they are the bound up to a factor."""
    bound = fed_avg_lower_bound(constants, setting)
    largest = 2 * lower_bound_curvature(constants, setting) * constants.distance**2
    most = 3 * largest + min(bound.terms.get("statistical", math.inf), constants.smoothness * constants.distance**2)
    assert largest <= bound.value * (1 + 1e-12)
    assert bound.value <= most * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(constants=some_constants, setting=some_settings, more=st.integers(1, 1000))
def test_more_clients_never_raise_it(constants: Constants, setting: Setting, more: int):
    larger = replace(setting, clients=setting.clients + more)
    before, after = fed_avg_lower_bound(constants, setting).value, fed_avg_lower_bound(constants, larger).value
    assert after <= before * (1 + 1e-12)
