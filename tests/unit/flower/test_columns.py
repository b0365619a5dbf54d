"""Columns: sites must have the same, and the model is given by their names and in their units."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context

import fedlocal as fl
from fedlocal.flower import InProcess, Outcome, Policy, Strategy, client_app

RNG = np.random.default_rng(0)
SCALES, TRUTH = np.array([1.0, 100.0]), np.array([2.0, -0.03])


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    X = 5 + RNG.normal(size=(n, 2)) * SCALES
    return X, X @ TRUTH + 1


DATA = {"north": rows(20), "south": rows(35), "west": rows(9)}
DATA["south"][0][3, 1] = np.nan


def app(columns: dict[str, list[str]]) -> Any:
    def problem_for_node(context: Context, scaling: fl.data.Scaling | None = None) -> fl.problems.LeastSquares:
        X, y = DATA[str(context.node_config["site"])]
        scaling = scaling or fl.data.Moments.of(X).scaling()
        return fl.problems.LeastSquares(fl.FederatedData.from_clients([(scaling.apply(X), y)]))

    return client_app(
        problem_for_node,
        moments_for_node=lambda context: fl.data.Moments.of(DATA[str(context.node_config["site"])][0]),
        columns_for_node=lambda context: columns[str(context.node_config["site"])],
        policy=Policy.open(),
    )


def strategy(**more: Any) -> Strategy:
    method = fl.methods.FedAvg(client_step_size=0.45)
    return Strategy(method, sites=list(DATA), standardize=True, weights="examples", local_steps=1, **more)


def test_coefficients_are_named_and_in_the_units_of_the_columns(tmp_path: Path):
    run = strategy(rounds=40)
    run.start(InProcess(app({name: ["age", "dose"] for name in DATA}), {name: {} for name in DATA}))
    Outcome.of(run).save(tmp_path)
    found = pd.read_csv(tmp_path / "coefficients.csv").set_index("column")["in_units"]
    assert list(found.index) == ["(intercept)", "age", "dose"]
    pooled = pd.DataFrame(np.concatenate([X for X, _ in DATA.values()]))
    filled = pooled.fillna(pooled.mean()).assign(one=1.0)
    y = np.concatenate([y for _, y in DATA.values()])
    expected = np.linalg.lstsq(filled.to_numpy(), y, rcond=None)[0]
    np.testing.assert_allclose(found[["age", "dose", "(intercept)"]], expected, rtol=1e-8)


def test_a_site_with_other_columns_is_refused():
    columns = {"north": ["age", "dose"], "south": ["dose", "age"], "west": ["age", "dose"]}
    run = strategy(rounds=2, min_clients=2, patience=0.2)
    run.start(InProcess(app(columns), {name: {} for name in DATA}))
    refusals = [event.what for event in run.events if "refused" in event.what]
    assert refusals == ["refused: south has other columns than the others: column 1 is 'dose' and not 'age'"]
    assert run.history[-1]["sites"] == 2


def test_without_names_there_is_no_table(tmp_path: Path):
    run = strategy(rounds=1)
    run.start(InProcess(app(dict.fromkeys(DATA)), {name: {} for name in DATA}))  # pyright: ignore[reportArgumentType]
    assert Outcome.of(run).coefficients() is None
    Outcome.of(run).save(tmp_path)
    assert not (tmp_path / "coefficients.csv").exists()


@pytest.mark.parametrize("columns", [["age"], ["age", "dose", "more"]])
def test_the_first_difference_is_told(columns: list[str]):
    others = {"north": ["age", "dose"], "south": columns, "west": ["age", "dose"]}
    run = strategy(rounds=1, min_clients=2, patience=0.2)
    run.start(InProcess(app(others), {name: {} for name in DATA}))
    place = min(len(columns), 2) + 1
    assert any(f"column {place} is" in event.what for event in run.events)
