"""fedlocal rehearse: the whole app in one process, and files that do not fit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict
from logs_as_before import logs_as_before  # noqa: F401
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal.cli import app as cli
from fedlocal.deploy import Wish, files_app, write_app
from fedlocal.deploy.experiments import experiment_app
from fedlocal.deploy.folder import component, run_config
from fedlocal.deploy.rehearse import rehearse
from fedlocal.engines.flower import InProcess

SITES = ("north", "south")


def tables(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    for site, rows in zip(SITES, (9, 14), strict=True):
        frame = pd.DataFrame(rng.standard_normal((rows, 2)) * [1, 50], columns=["age", "chol"])
        frame["ill"] = (frame["age"] + rng.logistic(size=rows) > 0).astype(int)
        frame.to_csv(folder / f"{site}.csv", index=False)
    return [folder / f"{site}.csv" for site in SITES]


def test_a_rehearsal_does_what_the_simulator_does(tmp_path: Path):
    files = tables(tmp_path)
    wish = Wish(sites=SITES, target="ill", task="least-squares", l1=0.05, l2=0.1, rounds=4, local_steps=3)
    write_app(tmp_path / "rehearsed", files_app(wish))
    history, events = rehearse(tmp_path / "rehearsed", files)
    frames = [pd.read_csv(file) for file in files]
    X = [frame[["age", "chol"]].to_numpy() for frame in frames]
    mean, scale = np.concatenate(X).mean(axis=0), np.concatenate(X).std(axis=0)
    clients = [((x - mean) / scale, frame["ill"].to_numpy()) for x, frame in zip(X, frames, strict=True)]
    problem = fl.problems.LeastSquares(fl.FederatedData.from_clients(clients), l2=0.1)
    method = fl.methods.FedDualAvg(0.0025, 1.0, fl.regularizers.L1(0.05))  # the step size of the help
    result = fl.simulate(problem, method, rounds=4, local_steps=3, weights="examples")
    assert history["objective"].iloc[-1] == pytest.approx(result.history["objective"].iloc[-1], abs=1e-12)
    assert events["what"].tolist() == ["connected", "connected"]


def test_an_experiment_is_the_experiment(tmp_path: Path):
    wish = Wish(sites=("2",), method="FedAc", client_step_size=0.2, local_steps=4, rounds=3)
    write_app(tmp_path / "speed", experiment_app("a9a-1e-3", wish))
    history, _ = rehearse(tmp_path / "speed")
    X, y = fl.data.a9a()
    problem = fl.problems.Logistic(fl.FederatedData.shared(X, y, num_clients=2), l2=1e-3)
    method = fl.methods.FedAc.one(step_size=0.2, strong_convexity=1e-3, local_steps=4)
    x0 = {"weights": np.random.RandomState(1).standard_normal(X.shape[1])}
    result = fl.simulate(problem, method, rounds=3, local_steps=4, batch_size=1, x0=x0)
    assert history["loss"].iloc[-1] == pytest.approx(result.history["loss"].iloc[-1], abs=1e-9)


@pytest.mark.thorough
def test_the_lasso_experiment_is_the_experiment(tmp_path: Path):
    write_app(tmp_path / "lasso", experiment_app("lasso-1", Wish(l1=0.2, method="FedMiD")))
    history, _ = rehearse(tmp_path / "lasso", rounds=3)
    problem = fl.problems.LeastSquares(fl.data.synthetic_lasso("I", seed=0))
    method = fl.methods.FedMiD(0.001, 0.3, fl.regularizers.L1(0.2))  # the text's step sizes
    result = fl.simulate(problem, method, rounds=3, clients_per_round=10, local_epochs=1, batch_size=10)
    expected = result.history.set_index("round")["objective"][3]
    assert history["objective"].iloc[-1] == pytest.approx(expected, rel=1e-9)


def test_the_same_run_again_continues(tmp_path: Path):
    """As the README promises: from the checkpoint, and to the same model as a run in one go."""
    north, south = tables(tmp_path)
    write_app(tmp_path / "again", files_app(Wish(sites=SITES, target="ill", local_steps=2)))
    for results, rounds in (("halves", 2), ("halves", 4), ("whole", 4)):
        config = run_config(tmp_path / "again", rounds=rounds, results=str(tmp_path / results))
        sites = {"north": {"data": str(north)}, "south": {"data": str(south)}}
        grid = InProcess(component(tmp_path / "again", "clientapp"), sites, config)
        component(tmp_path / "again", "serverapp")(grid, Context(0, 0, {}, RecordDict(), config))
    with np.load(tmp_path / "halves" / "model.npz") as halves, np.load(tmp_path / "whole" / "model.npz") as whole:
        np.testing.assert_array_equal(halves["x/weights"], whole["x/weights"])
    assert pd.read_csv(tmp_path / "halves" / "events.csv")["what"].str.contains("continued from").sum() == 1


def test_the_command_prints_history_and_events(tmp_path: Path):
    north, _ = tables(tmp_path)
    write_app(tmp_path / "printed", files_app(Wish(sites=SITES, target="ill", method="FedAvg")))
    said = CliRunner().invoke(cli, ["rehearse", str(tmp_path / "printed"), "--data", str(north), "--rounds", "2"])
    assert said.exit_code == 0, said.output
    assert "objective" in said.output
    assert "south" in said.output
    assert "round 2 of 2: objective" in said.output
    assert "[ROUND" not in said.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north.csv", "printed", "south.csv"]


def broken(folder: Path, what: str) -> list[Path]:
    north, south = tables(folder)
    frame = pd.read_csv(south)
    if what == "order":
        frame[["chol", "age", "ill"]].to_csv(south, index=False)
    elif what == "few":
        frame.head(3).to_csv(south, index=False)
    return [north] if what == "count" else [north, south, north] if what == "three" else [north, south]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("order", "must have the same columns in the same order, got 'age' and 'chol'"),
        ("few", "features must have at least 5 rows"),
        ("three", "give one --data for each of the sites north, south, in this order"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path: Path, what: str, message: str):
    write_app(tmp_path / "broken", files_app(Wish(sites=SITES, target="ill", rounds=1, local_steps=1)))
    words = [word for file in broken(tmp_path, what) for word in ("--data", str(file))]
    said = CliRunner().invoke(cli, ["rehearse", str(tmp_path / "broken"), *words])
    assert said.exit_code == 2, said.output
    assert message in " ".join(said.output.split())
