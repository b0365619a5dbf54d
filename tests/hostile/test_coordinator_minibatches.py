"""Minibatches: a hostile coordinator that knows which rows are in them could compute every row."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from fedlocal.flower.messages import records
from fedlocal.flower.messages.round_settings import RoundSettings
from hostile.hostile_coordinator import (
    COLUMNS,
    TARGET,
    Coordinator,
    answered,
    careless,
    patients,
    refusal,
    unit_moments,
    with_policy,
    write_hospital,
)

ZERO = np.zeros(5)
ROWS = {tuple(row) for row in patients()[[*COLUMNS, TARGET]].to_numpy().tolist()}


def row_of(gradient: np.ndarray) -> tuple[int, ...]:
    """The patient whose gradient at the zero model this is: (1/2 - label) (columns, 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = np.nan_to_num(gradient[:-1] / gradient[-1], posinf=0, neginf=0)
    return (*np.rint(columns).astype(int).tolist(), int(gradient[-1] < 0))


def draws(rounds: int, **settings: Any) -> np.ndarray:
    """(rounds, B) the rows of the first minibatch of each round, for all that a coordinator knows."""
    problem = fl.problems.Logistic(fl.FederatedData.from_clients([(np.zeros((60, 1)), np.ones(60))]))
    plan = RoundSettings(round=0, **{"client": 0, "seed": 0, "weights": "examples", "local_steps": 1, **settings}).plan(
        problem
    )
    draw = jax.vmap(lambda r: plan.draws(plan.round_key(r), jnp.zeros((), jnp.int32)).rows[0])
    return np.asarray(draw(jnp.arange(rounds)))


def step(coordinator: Coordinator, eta: float, r: int) -> np.ndarray:
    """The gradient in a FedAvg step from zero."""
    arrays = records.only_arrays(answered(coordinator.train(ZERO, r)).content)
    return -np.r_[arrays["x/weights"], arrays["x/intercept"]] / eta


def test_a_careless_site_gives_every_row_to_minibatches_of_one(hospital):
    app, node = hospital
    node = {name: value for name, value in node.items() if name != "record"}
    coordinator = Coordinator(careless(app), node, fl.methods.FedAvg(1.0), batch_size=1)
    coordinator.claim(unit_moments(coordinator.own_moments()))
    first = {int(row): r for r, row in reversed(list(enumerate(draws(600, batch_size=1)[:, 0])))}
    assert len(first) == 60
    assert {row_of(step(coordinator, 1.0, r)) for r in first.values()} == ROWS


def least_squares_rows(gradients: np.ndarray, minibatches: np.ndarray) -> set[tuple[int, ...]]:
    """The rows whose gradients fit the means over these minibatches best."""
    counts = np.stack([np.bincount(batch, minlength=60) for batch in minibatches]) / minibatches.shape[1]
    return {row_of(g) for g in np.linalg.lstsq(counts, gradients, rcond=None)[0]}


@pytest.mark.parametrize("secret", [False, True])
def test_known_minibatches_give_every_row_away_and_secret_ones_none(secret: bool, tmp_path: Path):
    """Rounds at the zero model are equations for the gradients of its rows: seventy minibatches of twenty rows are enough."""
    app, node = write_hospital(tmp_path, patients(), method="FedAvg", local_steps=1, batch_size=20)
    app = with_policy(app, secret_draws=secret, most_states_per_row=3)
    coordinator = Coordinator(app, node, fl.methods.FedAvg(1e-6), batch_size=20)
    coordinator.claim(unit_moments(coordinator.own_moments()))
    gradients = np.stack([step(coordinator, 1e-6, r) for r in range(70)])
    found = least_squares_rows(gradients, draws(70, batch_size=20))
    if secret:  # a wrong solution hits one row by chance in 0.2 % of 4,000 simulated attacks
        assert len(found & ROWS) <= 2
    else:
        assert found >= ROWS


def test_minibatches_that_repeat_rows_are_refused(tmp_path: Path):
    """Even where draws are known and a coordinator has searched for them."""
    app, node = write_hospital(tmp_path, patients(), method="FedAvg", local_steps=1, batch_size=10)
    coordinator = Coordinator(with_policy(app, secret_draws=False), node, fl.methods.FedAvg(1e-6), batch_size=10)
    drawn = draws(5000, batch_size=10)
    searched = int(np.argmin([len(np.unique(batch)) for batch in drawn]))
    assert len(np.unique(drawn[searched])) <= 6
    assert refusal(coordinator.train(ZERO, searched)) == "smallest_share"
    fine = int(np.argmax([len(np.unique(batch)) for batch in drawn]))
    answered(coordinator.train(ZERO, fine))


def test_minibatches_of_nine_rows_are_refused(tmp_path: Path):
    """Although the app itself was made for them."""
    app, node = write_hospital(tmp_path, patients(), method="FedAvg", local_steps=1, batch_size=9)
    coordinator = Coordinator(app, node, fl.methods.FedAvg(1e-6), batch_size=9)
    assert refusal(coordinator.train(ZERO)) == "fewest_rows"


def test_an_epoch_that_ends_with_one_row_is_refused(tmp_path: Path):
    app, node = write_hospital(tmp_path, patients(61), method="FedAvg", local_epochs=1, batch_size=20)
    settings: dict[str, Any] = {"local_steps": None, "local_epochs": 1, "batch_size": 20, "largest": 61}
    assert refusal(Coordinator(app, node, fl.methods.FedAvg(1e-6), **settings).train(ZERO)) == "fewest_rows"


def test_the_largest_site_takes_no_memory_of_this_one(tmp_path: Path):
    """An order of 2^26 rows that nobody has took a gigabyte and a minute, as often as a coordinator liked."""
    app, node = write_hospital(tmp_path, patients(), method="FedAvg", local_epochs=1, batch_size=20)
    settings: dict[str, Any] = {"local_steps": None, "local_epochs": 1, "batch_size": 20, "largest": 2**26}
    coordinator = Coordinator(app, node, fl.methods.FedAvg(1e-6), **settings)
    site, context = app.site_of(coordinator.context()), coordinator.context()
    plan = site.plan(RoundSettings(round=0, **coordinator.settings), site.problem(context))
    assert plan.largest == 60
    answered(coordinator.train(ZERO))
