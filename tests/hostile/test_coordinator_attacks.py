"""What a hostile coordinator asks an unmodified site: first what a careless site gives away, then what a usual one answers.

Attacks with minibatches are in test_coordinator_minibatches.py, on budgets in test_coordinator_budgets.py, on the format of
messages in test_coordinator_messages.py, and what a coordinator can still learn is in test_coordinator_limits.py.
"""

from typing import Any

import numpy as np
import pytest

from fedlocal.data.moments import Moments
from fedlocal.flower.messages import records
from hostile.hostile_coordinator import (
    COLUMNS,
    Coordinator,
    answered,
    careless,
    numbers_of,
    patients,
    refusal,
    unit_moments,
)

ZERO = np.zeros(5)
LARGE = 1e6


# --- what a careless site gives away


def ages(coordinator: Coordinator) -> dict[int, int]:
    """How many patients have which age, from losses of models with one large weight: each patient is a kink."""
    losses = [
        numbers_of(coordinator.evaluate(np.array([LARGE, 0, 0, 0, -LARGE * age]), age))["loss"] * 60 / LARGE
        for age in range(28, 83)
    ]
    counts = np.rint(np.diff(losses, 2)).astype(int)
    return {29 + i: n for i, n in enumerate(counts.tolist()) if n}


def test_a_careless_site_gives_the_histogram_of_a_column_to_evaluations(hospital):
    app, node = hospital
    node = {name: value for name, value in node.items() if name != "record"}
    coordinator = Coordinator(careless(app), node)
    coordinator.claim(unit_moments(coordinator.own_moments()))
    assert ages(coordinator) == patients()["age"].value_counts().to_dict()


def test_the_same_states_are_refused_by_default(coordinator: Coordinator):
    coordinator.claim(unit_moments(coordinator.own_moments()))
    for age in range(28, 83, 6):
        state = np.array([LARGE, 0, 0, 0, -LARGE * age])
        assert refusal(coordinator.evaluate(state, age)) == "point"
        assert refusal(coordinator.train(state, age)) == "point"


# --- settings that were not agreed on


SETTINGS: dict[str, dict[str, Any]] = {
    "minibatches of one row": {"settings__batch_size": 1},
    "minibatches of ten rows": {"settings__batch_size": 10},
    "another seed": {"settings__seed": 1},
    "two local steps": {"settings__local_steps": 2},
    "local steps without end": {"settings__local_steps": 2**31 - 1},
    "epochs": {"settings__local_steps": None, "settings__local_epochs": 1},
    "epochs without end": {"settings__local_steps": None, "settings__local_epochs": 2**31 - 1},
    "epochs of minibatches among more rows than there are": {
        "settings__local_steps": None,
        "settings__local_epochs": 1,
        "settings__batch_size": 1,
        "settings__largest": 2**31 - 1,
    },
    "other weights": {"settings__weights": "uniform"},
    "another method": {"method": "MinibatchSGD"},
    "a method that takes local steps": {"method": "FedAvg", "method__client_step_size": 0.1},
    "a regulariser": {"method__regularizer": "L1", "method__regularizer__strength": 0.1},
    "a step size beyond 1 / curvature": {"method__step_size": 4.0},
    "an enormous step size": {"method__step_size": 1e300},
    "a step size that is nan": {"method__step_size": float("nan")},
    "a step size that is infinite": {"method__step_size": float("inf")},
    "a negative step size": {"method__step_size": -0.1},
    "a step size that is true": {"method__step_size": True},
    "a step size that is a list": {"method__step_size": [0.1]},
    "no step size": {"method__step_size": None},
}


@pytest.mark.parametrize("what", SETTINGS)
def test_a_setting_that_was_not_agreed_on_is_refused(what: str, coordinator: Coordinator):
    assert refusal(coordinator.train(ZERO, **SETTINGS[what])) == "settings"
    assert refusal(coordinator.evaluate(ZERO, **SETTINGS[what])) == "settings"


@pytest.mark.parametrize(
    "free", [{"method__step_size": 1e-300}, {"settings__client": 2**31 - 1}, {"settings__largest": 2**31 - 1}]
)
def test_what_a_coordinator_may_choose_changes_nothing(free: dict[str, Any], coordinator: Coordinator):
    """A tiny step size, another number of the site, a larger largest site: the answer is the same gradient."""
    usual = coordinator.gradient(ZERO)
    np.testing.assert_array_equal(coordinator.gradient(ZERO, **free), usual)


# --- false moments


def own(coordinator: Coordinator) -> Moments:
    return coordinator.own_moments()


FALSE_MOMENTS: dict[str, Any] = {
    "mean 0 and deviation 1 of this site's rows": lambda m: (unit_moments(m, times=1), True),
    "fewer values than this site has": lambda m: (m._replace(present=m.present - 1), True),
    "smaller deviations, which magnify": lambda m: (m._replace(squares=m.squares / 10), True),
    "one column magnified": lambda m: (m._replace(squares=m.squares * [1e-9, 1, 1, 1]), True),
    "another mean of the same rows": lambda m: (m._replace(mean=m.mean + 1), True),
    "others too far away for the deviation": lambda m: (
        Moments(2 * m.present, m.mean + 1000, 2 * m.squares),
        True,
    ),
    "more rows than hospitals have": lambda m: (unit_moments(m, times=1e7), True),
    "not included, magnified": lambda m: (m._replace(squares=m.squares * 1e-6), False),
    "not included, constant": lambda m: (m._replace(squares=m.squares * 0), False),
}


@pytest.mark.parametrize("what", FALSE_MOMENTS)
def test_moments_that_contradict_the_sites_own_are_refused(what: str, coordinator: Coordinator):
    coordinator.claim(*FALSE_MOMENTS[what](own(coordinator)))
    assert refusal(coordinator.train(ZERO)) == "moments"
    assert refusal(coordinator.query(curvature=True)) == "moments"


def test_a_run_has_one_scaling(coordinator: Coordinator):
    answered(coordinator.train(ZERO))
    coordinator.claim(unit_moments(own(coordinator)))
    assert refusal(coordinator.train(ZERO, 1)) == "round"


@pytest.mark.parametrize(("times", "included"), [(1e5, True), (1e-4 * 1.001, False)])
def test_a_scaling_that_is_accepted_tells_nothing_new(times: float, included: bool, coordinator: Coordinator, run: int):
    """Without missing values other units and another mean only change the coordinates of states and gradients."""
    m = own(coordinator)
    total = unit_moments(m, times) if included else m._replace(squares=m.squares * times)
    usual, other = m.scaling(), total.scaling()
    z = np.array([0.3, -0.2, 0.1, 0.4, 0.1])
    in_units = z[:-1] / usual.scale
    weights = in_units * other.scale
    same = np.r_[weights, z[-1] - in_units @ (usual.mean - other.mean)]
    g = coordinator.gradient(z)
    coordinator.run = run + 100_000
    coordinator.claim(total, included)
    wanted = np.r_[(g[:-1] * usual.scale + (usual.mean - other.mean) * g[-1]) / other.scale, g[-1]]
    np.testing.assert_allclose(coordinator.gradient(same), wanted, rtol=1e-7, atol=1e-9)


# --- chosen states


def standardised() -> np.ndarray:
    columns = patients()[COLUMNS].to_numpy(float)
    return (columns - columns.mean(0)) / columns.std(0)


def against(row: int) -> np.ndarray:
    """A model that is large and wrong on one patient's side only."""
    x = standardised()[row]
    return np.r_[x, -x @ x + 0.01] * LARGE


STATES: dict[str, np.ndarray] = {
    "huge weights": np.array([1.0, 1, 1, 1, 0]) * 1e30,
    "the largest weights": np.array([1.0, 1, 1, 1, 0]) * 1e308,
    "one large weight": np.array([50.0, 0, 0, 0, 0]),
    "a large intercept": np.array([0.0, 0, 0, 0, 30]),
    "a small intercept": np.array([0.0, 0, 0, 0, -30]),
    **{f"a model that separates patient {row}": against(row) for row in range(0, 60, 12)},
}


@pytest.mark.parametrize("what", STATES)
def test_a_state_that_singles_out_rows_is_refused(what: str, coordinator: Coordinator):
    assert refusal(coordinator.train(STATES[what])) == "point"
    assert refusal(coordinator.evaluate(STATES[what])) == "point"


def test_the_point_where_gradients_are_taken_is_checked_and_not_another(coordinator: Coordinator):
    """The state of the method has a model x and a point z; steps are at z, losses at x."""
    far = STATES["one large weight"]
    assert refusal(coordinator.train([ZERO, far], 0)) == "point"
    assert numbers_of(coordinator.evaluate([ZERO, far], 0))["loss"] == pytest.approx(np.log(2))
    assert refusal(coordinator.evaluate([far, ZERO], 1)) == "point"
    arrays = records.only_arrays(answered(coordinator.train([far, ZERO], 1)).content)
    np.testing.assert_allclose(arrays["x/weights"] - far[:-1], coordinator.gradient(ZERO, 2)[:-1], atol=1e-12)


@pytest.mark.parametrize("first", ["train", "evaluate"])
@pytest.mark.parametrize("second", ["train", "evaluate"])
def test_a_round_has_one_state(first: str, second: str, coordinator: Coordinator):
    near = np.array([1e-9, 0, 0, 0, 0])
    answered(getattr(coordinator, first)(ZERO, 7))
    assert refusal(getattr(coordinator, second)(near, 7)) == "round"
    answered(getattr(coordinator, second)(ZERO, 7))


def test_two_states_that_differ_in_one_coordinate_give_a_sum_over_all_rows(coordinator: Coordinator):
    """The difference is a column of second moments, and nothing else to the last digit that there is."""
    h, A = 1e-4, np.c_[standardised(), np.ones(60)]
    difference = coordinator.gradient(np.eye(5)[0] * h, 1) - coordinator.gradient(ZERO, 0)
    np.testing.assert_allclose(difference / h, A.T @ A[:, 0] / 60 / 4, atol=1e-8)
