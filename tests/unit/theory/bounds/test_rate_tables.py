"""The tables of rates: formulas and exponents as printed, values against the bounds, rounds for linear speed-up."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.theory.bounds.bound import Constants, Setting
from fedlocal.theory.bounds.fed_ac import fed_ac_one_bound, fed_ac_two_bound, fed_ac_two_third_order_bound
from fedlocal.theory.bounds.fed_ac_convex import (
    fed_ac_one_convex_bound,
    fed_ac_two_convex_bound,
    fed_ac_two_third_order_convex_bound,
)
from fedlocal.theory.bounds.fed_avg import (
    fed_avg_convex_bound,
    fed_avg_strongly_convex_bound,
    fed_avg_strongly_convex_third_order_bound,
    fed_avg_third_order_bound,
)
from fedlocal.theory.bounds.rate_tables import rates, rounds_for_linear_speedup

BOUNDS = {
    ("second-order, mu > 0", "FedAvg"): [fed_avg_strongly_convex_bound],
    ("second-order, mu > 0", "FedAc"): [fed_ac_one_bound, fed_ac_two_bound],
    ("third-order, mu > 0", "FedAvg"): [fed_avg_strongly_convex_third_order_bound],
    ("third-order, mu > 0", "FedAc"): [fed_ac_two_third_order_bound],
    ("second-order, mu = 0", "FedAvg"): [fed_avg_convex_bound],
    ("second-order, mu = 0", "FedAc"): [fed_ac_one_convex_bound, fed_ac_two_convex_bound],
    ("third-order, mu = 0", "FedAvg"): [fed_avg_third_order_bound],
    ("third-order, mu = 0", "FedAc"): [fed_ac_two_third_order_convex_bound],
}


def table_row(table, assumption: str, method: str):
    return table[(table.table == "tab:conv:rate") & (table.assumption == assumption) & (table.method == method)].iloc[0]


def test_rows_read_like_the_tables():
    table = rates()
    assert list(table.table) == ["table:complexity"] * 6 + ["tab:conv:rate"] * 8
    assert "value" not in table
    drift = "L^(1/3) sigma^(2/3) B^(4/3)/(K^(1/3) R^(2/3))"
    assert table.rate[1] == (f"L B^2/(K R) + sigma B/sqrt(M K R) + {drift} + L^(1/3) zeta^(2/3) B^(4/3)/R^(2/3)")
    assert table.rate[5].endswith("min{L B^2/R, L^(1/3) zeta_*^(2/3) B^(4/3)/R^(2/3)}")
    row = table_row(table, "second-order, mu > 0", "FedAc")
    drifts = "min{L sigma^2/(mu^2 K R^3), L^2 sigma^2/(mu^3 K R^4)}"
    assert row.rate == f"exp. decay + sigma^2/(mu M K R) + {drifts}"
    assert [tuple(one) for one in row.overhead] == [("drift", 0, -1, -3), ("drift", 0, -1, -4)]
    row = table_row(table, "third-order, mu = 0", "FedAc")
    assert [one.term for one in row.overhead] == ["acceleration", "third_order"]
    assert [one[1:] for one in row.overhead] == [
        pytest.approx((-1 / 3, -1 / 3, -1)),
        pytest.approx((0, -1 / 3, -4 / 3)),
    ]


@given(
    constants=st.builds(
        lambda L, ratio, sigma, B, Q: Constants(
            L, sigma, B, strong_convexity=ratio * L, fourth_moment=sigma, third_order=Q
        ),
        *(st.floats(0.1, 10), st.floats(0.001, 1), st.floats(0, 10), st.floats(0.1, 10), st.floats(0, 10)),
    ),
    setting=st.builds(Setting, st.integers(1, 99), st.integers(1, 99), st.integers(1, 99)),
)
@settings(max_examples=15, deadline=None)
def test_values_are_the_simplified_bounds_without_exponential_decay(constants, setting):
    table = rates(constants, setting)
    for (assumption, method), bound_fns in BOUNDS.items():
        skip = {"deterministic"} if assumption.endswith("mu > 0") else set()
        simplified = [bound_fn(constants, setting, form="simplified").terms for bound_fn in bound_fns]
        expected = min(math.fsum(v for name, v in terms.items() if name not in skip) for terms in simplified)
        assert table_row(table, assumption, method).value == pytest.approx(expected, rel=1e-9)


def test_values_of_the_first_table_by_hand():
    # L = 8, sigma = 8, B = 1, zeta = 64, zeta_* = 27, M = 4, K = 8, R = 8: L B^2 = 8, sigma B / sqrt(256) = 1/2,
    # 2 * 4 / (2 * 4) = 1, old: 2 * 4 / (4 * 4) = 1/2, 2 * 16 / 4 = 8, 2 * 9 / 4 = 9/2, L B^2 / R = 1
    constants = Constants(8.0, 8.0, 1.0, heterogeneity=64.0, optimum_heterogeneity=27.0)
    values = rates(constants, Setting(clients=4, rounds=8, local_steps=8)).value[:6]
    assert list(values[[1, 3, 5]]) == pytest.approx(
        [1 / 8 + 1 / 2 + 1 + 8, 1 / 8 + 1 / 2 + 1 + 9 / 2, 1 / 2 + 1 / 2 + 1]
    )
    assert values[[0, 2, 4]].isna().all()  # not homogeneous
    same = rates(Constants(8.0, 8.0, 1.0), Setting(clients=4, rounds=8, local_steps=8))
    assert list(same.value[[0, 2, 4]]) == pytest.approx([1 / 8 + 1 / 2 + 1] * 2 + [1])
    assert same.value[6:10].isna().all()  # mu = 0
    assert same.value[12:].isna().all()  # Q is not known
    with pytest.raises(ValueError, match="rates: setting must be given"):
        rates(constants)


# exponents of M and of T = K R in the number of rounds, where overhead = statistical with K = T / R
SPEEDUP = [
    ("FedAvg", 1e9, 0.5, None, 1, 0),  # T^-1 R^-1 = (M T)^-1
    ("FedAc", 1e9, 0.5, None, 1 / 3, 0),  # T^-1 R^-3
    ("FedAvg", 1e9, 0.5, 1.0, 1 / 2, -1 / 2),  # T^-2 R^-2
    ("FedAc", 1e9, 0.5, 1.0, 1 / 6, -1 / 6),  # T^-2 R^-6
    ("FedAvg", 1e6, 0.0, None, 3 / 2, 1 / 2),  # T^(-1/3) R^(-1/3) = (M T)^(-1/2)
    ("FedAc", 1e6, 0.0, None, 2 / 3, 1 / 3),  # FedAc-II, better with large noise: T^(-1/4) R^(-3/4)
    ("FedAc", 1.0, 0.0, None, 3 / 4, 1 / 4),  # FedAc-I: T^(-1/3) R^(-2/3)
    ("FedAvg", 1e6, 0.0, 1.0, 3 / 2, 1 / 2),
    ("FedAc", 1.0, 0.0, 0.0, 1 / 4, 1 / 4),  # M^(-1/3) T^(-1/3) R^(-2/3)
    ("FedAc", 1.0, 0.0, 1e12, 1 / 2, 1 / 6),  # the other term, T^(-1/3) R^(-1)
]


@pytest.mark.parametrize(("method", "noise", "mu", "third_order", "in_clients", "in_steps"), SPEEDUP)
def test_rounds_grow_like_the_table_says(method, noise, mu, third_order, in_clients, in_steps):
    constants = Constants(1.0, noise, 1.0, strong_convexity=mu, fourth_moment=noise, third_order=third_order)
    clients, steps = 10**6, 10**9
    rounds = [rounds_for_linear_speedup(method, constants, *at) for at in ((clients, steps), (8 * clients, steps))]
    more_steps = rounds_for_linear_speedup(method, constants, clients, 8 * steps)
    assert min(rounds) > 1
    assert max(*rounds, more_steps) < steps
    # in the last row the smaller term has its share of a thousandth
    assert math.log(rounds[1] / rounds[0], 8) == pytest.approx(in_clients, abs=1e-3)
    assert math.log(more_steps / rounds[0], 8) == pytest.approx(in_steps, abs=1e-3)


def test_rounds_by_hand():
    constants = Constants(1.0, 3.0, 1.0, strong_convexity=0.25)
    # FedAvg: L sigma^2 / (mu^2 T R) = sigma^2 / (mu M T) at R = M L / mu; FedAc: R^3 = M (L / mu)^2 or R^2 = M L / mu
    assert rounds_for_linear_speedup("FedAvg", constants, 16, 10_000) == pytest.approx(64)
    assert rounds_for_linear_speedup("FedAc", constants, 4, 10_000) == pytest.approx(4)  # 64^(1/3) and sqrt(16)
    assert rounds_for_linear_speedup("FedAc", constants, 32, 10_000) == pytest.approx(8)  # 512^(1/3), not sqrt(128)
    assert rounds_for_linear_speedup("FedAc", constants, 1, 10_000) == pytest.approx(2)  # sqrt(4), not 16^(1/3)
    assert rounds_for_linear_speedup("FedAvg", constants, 16, 63) == math.inf
    quiet = Constants(1.0, 0.0, 1.0, strong_convexity=0.25)
    assert rounds_for_linear_speedup("FedAvg", quiet, 16, 100) == 1.0


def test_both_overheads_of_the_third_order_convex_row_count():
    constants = Constants(2.0, 50.0, 1.0, fourth_moment=50.0, third_order=30.0)
    rounds, M, T = rounds_for_linear_speedup("FedAc", constants, 1000, 10**6), 1000, 10**6
    K = T / rounds
    overhead = (2 * 50**2 / (M * K)) ** (1 / 3) / rounds + (30 * 50**2 / (K * rounds**4)) ** (1 / 3)
    assert overhead == pytest.approx(50 / math.sqrt(M * T), rel=1e-9)


def test_how_much_minibatches_gain_on_fed_avg_has_no_unit():
    """Drift over L B^2 / R is (R sigma^2 / (K L^2 B^2))^(1/3); the text prints (R sigma^2 L^2 / K)^(1/3)."""
    L, sigma, B, K, R = 2.0, 5.0, 3.0, 7, 11
    setting = Setting(clients=1, rounds=R, local_steps=K)
    drift = fed_avg_convex_bound(Constants(L, sigma, B), setting, form="simplified").terms["drift"]
    assert drift / (L * B**2 / R) == pytest.approx((R * sigma**2 / (K * L**2 * B**2)) ** (1 / 3), rel=1e-12)


def test_errors_say_what_would_work():
    with pytest.raises(ValueError, match="method must be one of 'FedAvg', 'FedAc', got 'FedMiD'"):
        rounds_for_linear_speedup("FedMiD", Constants(1.0, 1.0, 1.0), 4, 100)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="fourth_moment"):
        rounds_for_linear_speedup("FedAc", Constants(1.0, 1.0, 1.0, third_order=1.0), 4, 100)
