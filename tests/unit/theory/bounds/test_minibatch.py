"""Minibatch SGD and single-client SGD: arithmetic by hand, an exact run, and the text's claims about the better."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.theory import Bound, Constants, Setting, tightest
from fedlocal.theory.bounds.fed_avg import fed_avg_convex_bound
from fedlocal.theory.bounds.fed_avg_stability import shadow_bound
from fedlocal.theory.bounds.lower import fed_avg_lower_bound
from fedlocal.theory.bounds.minibatch import best_of_two, minibatch_sgd_bound, single_client_sgd_bound

BOTH = (minibatch_sgd_bound, single_client_sgd_bound)
SMALL = Setting(clients=4, rounds=4, local_steps=16)
PLAIN = Constants(smoothness=2.0, noise=3.0, distance=1.0)


def sizes(low: float = 1e-3, high: float = 1e3) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


some_constants = st.builds(Constants, smoothness=sizes(), noise=sizes() | st.just(0.0), distance=sizes())
some_settings = st.builds(
    Setting, clients=st.integers(1, 1000), rounds=st.integers(1, 1000), local_steps=st.integers(1, 1000)
)


def test_by_hand():
    # B^2/(2 eta R) = 1/(8/8), eta sigma^2/(M K) = 9/(8*64)
    assert minibatch_sgd_bound(PLAIN, SMALL, step_size=1 / 8).terms == {"deterministic": 1, "statistical": 9 / 512}
    # B^2/(2 eta K R) = 1/(128/8), eta sigma^2 = 9/8
    single = single_client_sgd_bound(PLAIN, SMALL, step_size=1 / 8)
    assert single.terms == {"deterministic": 1 / 16, "statistical": 9 / 8}
    # L B^2/R = 2/4, sigma B/sqrt(M K R) = 3/16; L B^2/(K R) = 2/64, sigma B/sqrt(K R) = 3/8
    simple = [fn(PLAIN, SMALL, form="simplified") for fn in BOTH]
    assert [list(bound.terms.values()) for bound in simple] == [[1 / 2, 3 / 16], [1 / 32, 3 / 8]]
    assert best_of_two(PLAIN, SMALL, form="simplified") == simple[1]
    for fn in BOTH:
        assert fn(PLAIN, SMALL, step_size=1 / 8).applies
        assert not fn(PLAIN, SMALL, step_size=0.126).applies


def test_step_sizes_by_hand():
    loud = replace(PLAIN, noise=64.0)
    # sqrt(M K) B/(sqrt(R) sigma) = 8/(2*64), B/(sqrt(K R) sigma) = 1/(8*64); without noise 1/(4 L)
    assert [fn(loud, SMALL).step_size for fn in BOTH] == [1 / 16, 1 / 512]
    assert [fn(replace(PLAIN, noise=0.0), SMALL).step_size for fn in BOTH] == [1 / 8, 1 / 8]
    assert [fn(replace(loud, distance=0.0), SMALL).value for fn in BOTH] == [0, 0]


@pytest.mark.parametrize("fn", [*BOTH, best_of_two], ids=lambda fn: fn.__name__)
@settings(max_examples=60, deadline=None)
@given(constants=some_constants, setting=some_settings, s=sizes(0.1, 10), c=sizes(0.1, 10))
def test_units(fn: Callable[..., Bound], constants: Constants, setting: Setting, s: float, c: float):
    other = Constants(constants.smoothness * c / s**2, constants.noise * c / s, constants.distance * s)
    step_size = 0.1 / constants.smoothness
    for asked in ({}, {"form": "simplified"}, {"step_size": step_size}):
        there = asked | ({"step_size": step_size * s**2 / c} if "step_size" in asked else {})
        before, after = fn(constants, setting, **asked), fn(other, setting, **there)
        assert after.value == pytest.approx(c * before.value, rel=1e-8)
        if before.step_size is not None and fn is not best_of_two:
            assert after.step_size == pytest.approx(before.step_size * s**2 / c, rel=1e-8)


@settings(max_examples=120, deadline=None)
@given(constants=some_constants, setting=some_settings)
def test_they_are_the_shadow_lemma_with_one_local_step(constants: Constants, setting: Setting):
    step_size, K = 0.2 / constants.smoothness, setting.local_steps
    batch = replace(constants, noise=constants.noise / math.sqrt(K))
    together = shadow_bound(batch, replace(setting, local_steps=1), step_size, discrepancy_sum=0.0)
    assert minibatch_sgd_bound(constants, setting, step_size).value == pytest.approx(together.value, rel=1e-12)
    alone = shadow_bound(constants, replace(setting, clients=1), step_size, discrepancy_sum=0.0)
    assert single_client_sgd_bound(constants, setting, step_size).value == pytest.approx(alone.value, rel=1e-12)
    for fn in BOTH:  # 1/eta <= 4 L + 1/the other candidate: the order of the text, with its constants
        deterministic, statistical = fn(constants, setting, form="simplified").terms.values()
        assert fn(constants, setting).value <= (2 * deterministic + 1.5 * statistical) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(constants=some_constants, setting=some_settings, more=st.integers(1, 1000))
def test_more_clients_help_minibatches_and_not_a_single_client(constants: Constants, setting: Setting, more: int):
    larger = replace(setting, clients=setting.clients + more)
    options: list[dict[str, Any]] = [{}, {"form": "simplified"}, {"step_size": 0.1}]
    for asked in options:
        assert minibatch_sgd_bound(constants, larger, **asked).value <= minibatch_sgd_bound(
            constants, setting, **asked
        ).value * (1 + 1e-12)
        assert single_client_sgd_bound(constants, larger, **asked) == single_client_sgd_bound(
            constants, setting, **asked
        )


@pytest.mark.parametrize("fn", BOTH, ids=lambda fn: fn.__name__)
@settings(max_examples=20, deadline=None)
@given(constants=some_constants, setting=some_settings)
def test_the_best_step_size_is_no_worse(fn: Callable[..., Bound], constants: Constants, setting: Setting):
    best = tightest(fn, constants, setting, largest=1 / (4 * constants.smoothness))
    assert best.value <= fn(constants, setting).value * (1 + 1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.5, 20.0])
def test_sgd_on_a_quadratic_stays_below_its_bound(noise: float):
    """F = x^2/2: E x_(t+1)^2 = (1 - eta)^2 E x_t^2 + eta^2 sigma^2/batch, no simulation needed."""
    constants = Constants(1.0, noise=noise, distance=2.0)
    for fn, steps, batch in ((minibatch_sgd_bound, 4, 64), (single_client_sgd_bound, 64, 1)):
        bound = fn(constants, SMALL)
        eta: Any = bound.step_size
        second, errors = 4.0, []
        for _ in range(steps):
            second = (1 - eta) ** 2 * second + eta**2 * noise**2 / batch
            errors.append(second / 2)
        assert np.mean(errors) <= bound.value


def test_only_what_applies_is_the_best_of_two():
    loose = Constants(1.0, noise=0.0, distance=1.0, heterogeneity=1.0)
    assert best_of_two(replace(loose, heterogeneity=0.0), SMALL).method == "single-client SGD"
    assert best_of_two(loose, SMALL).method == "MinibatchSGD"


@settings(max_examples=120, deadline=None)
@given(constants=some_constants, setting=some_settings)
def test_with_the_start_the_better_of_two_is_never_above_the_sharp_rate_of_fed_avg(
    constants: Constants, setting: Setting
):
    L, B, sigma = constants.smoothness, constants.distance, constants.noise
    M, R, K = setting.clients, setting.rounds, setting.local_steps
    text = L * B**2 / (K * R) + sigma * B / math.sqrt(M * K * R) + min(L * B**2 / R, sigma * B / math.sqrt(K * R))
    best = best_of_two(constants, setting, form="simplified").value
    assert best * (1 - 1e-12) <= text <= 2 * best * (1 + 1e-12)
    assert min(best, L * B**2) <= fed_avg_lower_bound(constants, setting).value * (1 + 1e-12)
    assert best <= fed_avg_convex_bound(constants, setting, form="simplified").value * (1 + 1e-12)


def test_without_the_start_it_is():
    """The text's "always": with sigma B/sqrt(M K R) = 10^6 FedAvg's rate is 1.25 L B^2, and its rivals' are not."""
    constants, setting = Constants(1.0, noise=4e6, distance=1.0), Setting(clients=4, rounds=1, local_steps=4)
    assert fed_avg_lower_bound(constants, setting).value == 1.25
    assert best_of_two(constants, setting, form="simplified").value > 1e6


def test_the_gain_over_fed_avg_is_a_number_without_unit():
    """drift/(L B^2/R) = (R sigma^2/(K L^2 B^2))^(1/3), where the text has (R sigma^2 L^2/K)^(1/3)."""
    constants = Constants(smoothness=1e4, noise=1e9, distance=math.sqrt(10.0))
    setting = Setting(clients=10**9, rounds=1024, local_steps=1024)
    drift = fed_avg_convex_bound(constants, setting, form="simplified").terms["drift"]
    naive = minibatch_sgd_bound(constants, setting, form="simplified").terms["deterministic"]
    # R = K and sigma^2/(L^2 B^2) = 10^18/(10^8 * 10) = 10^9
    assert drift / naive == pytest.approx(1000, rel=1e-9)
