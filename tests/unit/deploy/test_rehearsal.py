"""fedlocal rehearse: the whole app in one process, and files that do not fit."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal.cli import app as cli
from fedlocal.deploy.app import write_app
from fedlocal.deploy.experiments import experiment_app
from fedlocal.deploy.files import files_app
from fedlocal.deploy.folder import component, run_config
from fedlocal.deploy.options import DeployOptions
from fedlocal.deploy.rehearsal import rehearse
from fedlocal.flower import InProcess, TooFewSites
from unit.deploy.logs_as_before import logs_as_before  # noqa: F401

SITES = ("north", "south")


def tables(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    for site, rows in zip(SITES, (40, 60), strict=True):
        frame = pd.DataFrame(rng.standard_normal((rows, 2)) * [1, 50], columns=["age", "chol"])
        frame["ill"] = (frame["age"] + rng.logistic(size=rows) > 0).astype(int)
        frame.to_csv(folder / f"{site}.csv", index=False)
    return [folder / f"{site}.csv" for site in SITES]


def test_a_rehearsal_does_what_the_simulator_does(tmp_path: Path):
    files = tables(tmp_path)
    options = DeployOptions(sites=SITES, target="ill", task="least-squares", l1=0.05, l2=0.1, rounds=4, local_steps=3)
    write_app(tmp_path / "rehearsed", files_app(options))
    history, events, convergence = rehearse(tmp_path / "rehearsed", files)
    frames = [pd.read_csv(file) for file in files]
    X = [frame[["age", "chol"]].to_numpy() for frame in frames]
    mean, scale = np.concatenate(X).mean(axis=0), np.concatenate(X).std(axis=0)
    clients = [((x - mean) / scale, frame["ill"].to_numpy()) for x, frame in zip(X, frames, strict=True)]
    problem = fl.problems.LeastSquares(fl.FederatedData.from_clients(clients), l2=0.1)
    tops = [np.linalg.norm(np.c_[x, np.ones(len(x))], 2) ** 2 / len(x) for x, _ in clients]
    method = fl.methods.FedDualAvg(1 / (2 * max(tops) + 0.1), 1.0, fl.regularizers.L1(0.05))
    result = fl.simulate(problem, method, rounds=4, local_steps=3, weights="examples")
    assert history["objective"].iloc[-1] == pytest.approx(result.history["objective"].iloc[-1], abs=1e-12)
    assert events["what"].tolist() == ["connected", "connected"]
    assert not convergence["converged"]
    expected = fl.certificate(problem, method.regularizer, result.x, weights="examples")
    assert convergence["kkt_residual"] == pytest.approx(expected.kkt_residual, rel=1e-9)


@pytest.mark.thorough
def test_an_experiment_is_the_experiment(tmp_path: Path):
    options = DeployOptions(sites=("2",), method="FedAc-I", client_step_size=0.2, local_steps=4, rounds=3)
    write_app(tmp_path / "speed", experiment_app("a9a-1e-3", options))
    history, *_ = rehearse(tmp_path / "speed")
    X, y = fl.data.a9a()
    problem = fl.problems.Logistic(fl.FederatedData.shared(X, y, num_clients=2), l2=1e-3)
    method = fl.methods.FedAc.one(step_size=0.2, strong_convexity=1e-3, local_steps=4)
    x0 = {"weights": np.random.RandomState(1).standard_normal(123)}
    result = fl.simulate(problem, method, rounds=3, local_steps=4, batch_size=1, x0=x0)
    assert history["loss"].iloc[-1] == pytest.approx(result.history["loss"].iloc[-1], abs=1e-9)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a9a-1e-3", DeployOptions(sites=("2",), client_step_size=0.2, local_steps=2, rounds=1)),
        pytest.param("lasso-1", DeployOptions(l1=0.2, rounds=1), marks=pytest.mark.thorough),
    ],
)
def test_sites_whose_precision_is_single_take_part_in_double(tmp_path: Path, name: str, options: DeployOptions):
    """As real sites do: they hear of the run's precision with the first model, after they have said who they are."""
    folder = tmp_path / f"single-{name}"
    write_app(folder, experiment_app(name, options))
    config = run_config(folder, results=str(tmp_path / "results")) | {"patience": 0.0}
    app = component(folder, "clientapp")

    def answer(message: Message, context: Context) -> Message:
        with jax.enable_x64(False):
            return app(message, context)

    grid = InProcess(answer, {str(i): {"partition-id": i} for i in range(config["sites"])}, config)  # type: ignore
    component(folder, "serverapp")(grid, Context(0, 0, {}, RecordDict(), config))
    assert pd.read_csv(tmp_path / "results" / "history.csv")["sites"].tolist() == [config["sites"]]
    with np.load(tmp_path / "results" / "model.npz") as model:
        assert model["x/weights"].dtype == np.float64


@pytest.mark.thorough
def test_the_lasso_experiment_is_the_experiment(tmp_path: Path):
    write_app(tmp_path / "lasso", experiment_app("lasso-1", DeployOptions(l1=0.2, method="FedMiD")))
    history, *_ = rehearse(tmp_path / "lasso", rounds=3)
    problem = fl.problems.LeastSquares(fl.data.synthetic_lasso("I", seed=0))
    method = fl.methods.FedMiD(0.001, 0.3, fl.regularizers.L1(0.2))  # the text's step sizes
    result = fl.simulate(problem, method, rounds=3, clients_per_round=10, local_epochs=1, batch_size=10)
    expected = result.history.set_index("round")["objective"][3]
    assert history["objective"].iloc[-1] == pytest.approx(expected, rel=1e-9)


def test_the_same_run_again_continues(tmp_path: Path):
    """As the README promises: from the checkpoint, and to the same model as a run in one go."""
    north, south = tables(tmp_path)
    write_app(tmp_path / "again", files_app(DeployOptions(sites=SITES, target="ill", local_steps=2)))
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
    write_app(tmp_path / "printed", files_app(DeployOptions(sites=SITES, target="ill", method="FedAvg")))
    said = CliRunner().invoke(cli, ["rehearse", str(tmp_path / "printed"), "--data", str(north), "--rounds", "2"])
    assert said.exit_code == 0, said.output
    assert "objective" in said.output
    assert "south" in said.output
    assert "round 2 of 2: objective" in said.output
    assert "[ROUND" not in said.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north.csv", "printed", "south.csv"]


@pytest.mark.parametrize(
    ("steps", "rounds", "said_to_be"),
    [
        ((0.1, 1.0), 4, "the rehearsal ran through; not converged after 4 rounds: KKT residual"),
        ((0.1, 1.0), 1, "tol is 1e-06. Nothing was kept"),
        ((5.0, 1.0), 2, "the rehearsal did not go well: the objective grew from"),
        ((5.0, 1e308), 2, "the rehearsal did not go well: diverged in round 1; try smaller step sizes"),
        ((5.0, 1e200), 1, "the objective is not finite; try smaller step sizes"),
        ((1e120, 1.0), 2, "the rehearsal did not go well: too few sites answered"),
    ],
)
def test_a_rehearsal_that_diverges_did_not_go_well(tmp_path: Path, steps: tuple, rounds: int, said_to_be: str):
    """With a policy that bears bad models; the usual one refuses them."""
    (tmp_path / "policy.toml").write_text("largest_loss = inf\nfewest_rows = 1\n")
    words = [word for file in tables(tmp_path) for word in ("--data", str(file))]
    model = {"target": "ill", "task": "least-squares", "method": "FedAvg", "local_steps": 3}
    options = DeployOptions(sites=SITES, client_step_size=steps[0], server_step_size=steps[1], **model)
    folder = tmp_path / tmp_path.name  # another package for every case: Python loads a package once
    write_app(folder, files_app(options))
    said = CliRunner().invoke(cli, ["rehearse", str(folder), *words, "--rounds", str(rounds)])
    assert said_to_be in " ".join(said.output.split())
    assert said.exit_code == (0 if steps[0] < 1 else 1)
    assert ("ran through" in said.output) == (said.exit_code == 0)


def test_a_rehearsal_without_one_of_the_sites_did_not_go_well(tmp_path: Path):
    """An npz file has no column to name as target; enough sites are there without it."""
    north, south = tables(tmp_path)[0], tmp_path / "south.npz"
    np.savez(south, X=np.ones((9, 2)), y=np.ones(9))
    options = DeployOptions(sites=SITES, target="ill", min_clients=1, standardize=False, client_step_size=1e-4)
    write_app(tmp_path / "less", files_app(options))
    words = ["--data", str(north), "--data", str(south), "--rounds", "2"]
    said = CliRunner().invoke(cli, ["rehearse", str(tmp_path / "less"), *words])
    assert said.exit_code == 1, said.output
    assert "the rehearsal did not go well: node 2 refused: ValueError" in " ".join(said.output.split())


class Leaving:
    """A site's app that fails in the second round."""

    def __init__(self, app: ClientApp):
        self.app = app

    def __call__(self, message: Message, context: Context) -> Message:
        if message.metadata.message_type == MessageType.TRAIN and message.metadata.group_id == "1":
            raise OSError("gone")
        return self.app(message, context)


@pytest.mark.parametrize("there", [SITES, ()])
def test_a_run_that_stops_early_keeps_what_it_has(tmp_path: Path, there: tuple[str, ...]):
    files = tables(tmp_path)
    folder, kept = tmp_path / f"early{len(there)}", tmp_path / "kept"
    write_app(folder, files_app(DeployOptions(sites=SITES, target="ill", local_steps=2)))
    config = run_config(folder, results=str(kept)) | {"patience": 0.0, "eval-every": 1}
    sites = {name: {"data": str(file)} for name, file in zip(there, files, strict=False)}
    grid = InProcess(Leaving(component(folder, "clientapp")), sites, config)  # type: ignore
    with pytest.raises(TooFewSites):  # and not a complaint that there is nothing to save
        component(folder, "serverapp")(grid, Context(0, 0, {}, RecordDict(), config))
    assert (kept / "model.npz").exists() == bool(there)
    if there:
        assert pd.read_csv(kept / "history.csv")["round"].tolist() == [1]
        assert "left out" in (kept / "events.csv").read_text()
        assert pd.read_csv(kept / "coefficients.csv")["column"].tolist() == ["(intercept)", "age", "chol"]


def broken(folder: Path, what: str) -> list[Path]:
    north, south = tables(folder)
    frame = pd.read_csv(south)
    if what == "other":
        frame.rename(columns={"chol": "ldl"}).to_csv(south, index=False)
    elif what == "few":
        frame.head(9).to_csv(south, index=False)
    return [north] if what == "count" else [north, south, north] if what == "three" else [north, south]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "other",
            "all files must have the same columns; {south} lacks 'chol' and {south} has 'ldl', which {north} has not",
        ),
        ("few", "there are 9 rows; fewest_rows of the policy is 10"),
        ("three", "give one --data for each of the sites north, south, in this order"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path: Path, what: str, message: str):
    write_app(tmp_path / "broken", files_app(DeployOptions(sites=SITES, target="ill", rounds=1, local_steps=1)))
    files = broken(tmp_path, what)
    words = [word for file in files for word in ("--data", str(file))]
    said = CliRunner().invoke(cli, ["rehearse", str(tmp_path / "broken"), *words])
    assert said.exit_code == (1 if what == "few" else 2), said.output  # what only the run itself can see: 1
    assert message.format(north=files[0], south=files[1]) in " ".join(said.output.split())
