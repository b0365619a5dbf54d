"""MLflow: the calls of its client, and what a real one keeps in files."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedlocal as fl
from unit.callbacks.short_runs import interrupted_run, rows_of, short_run


class FakeMetric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class FakeParam(NamedTuple):
    key: str
    value: str


class FakeClient:
    """Keeps experiments and runs in memory, and refuses what MLflow's limits refuse."""

    def __init__(self, tracking_uri: str | None):
        self.tracking_uri = tracking_uri

    experiments: dict[str, str]
    runs: dict[str, dict[str, Any]]

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        self.experiments[name] = f"number {len(self.experiments)}"
        return self.experiments[name]

    def create_run(self, experiment_id: str) -> Any:
        run_id = f"run {len(self.runs)}"
        self.runs[run_id] = {"experiment": experiment_id, "metrics": [], "params": [], "status": "RUNNING"}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(metrics) <= 1000
        assert len(params) <= 100
        self.runs[run_id]["metrics"] += metrics
        self.runs[run_id]["params"] += params

    def set_terminated(self, run_id: str, status: str) -> None:
        self.runs[run_id]["status"] = status


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """The runs that are made while a fake package stands for mlflow."""
    FakeClient.experiments, FakeClient.runs = {}, {}
    entities = SimpleNamespace(Metric=FakeMetric, Param=FakeParam)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=FakeClient, entities=entities))
    return FakeClient.runs


def logged(run: dict[str, Any]) -> list[tuple[str, float, int]]:
    return [(metric.key, metric.value, metric.step) for metric in run["metrics"]]


def wanted(rows: list[dict[str, float]]) -> list[tuple[str, float, int]]:
    return [(name, row[name], int(row["round"])) for row in rows for name in row if name != "round"]


def test_a_run_is_logged_as_parameters_and_metrics(runs: dict[str, Any]):
    callback = fl.callbacks.MLflow("mine", tracking_uri="somewhere")
    result = short_run(callback)
    (run,) = runs.values()
    assert callback.run_id == "run 0"
    assert callback.client.tracking_uri == "somewhere"
    assert (run["experiment"], run["status"]) == ("number 0", "FINISHED")
    assert logged(run) == wanted(rows_of(result))
    configuration = result.provenance["configuration"]
    assert run["params"] == [(name, str(value)) for name, value in configuration.items()]
    short_run(fl.callbacks.MLflow("mine"))
    assert [run["experiment"] for run in runs.values()] == ["number 0", "number 0"]


def test_a_resumed_run_logs_all_rows_to_a_run_of_its_own(runs: dict[str, Any], tmp_path: Path):
    interrupted_run(fl.callbacks.MLflow(), tmp_path / "run.npz")
    result = short_run(fl.callbacks.MLflow(), checkpoint=tmp_path / "run.npz")
    first, second = runs.values()
    assert (first["status"], second["status"]) == ("KILLED", "FINISHED")
    assert logged(first) == wanted(rows_of(result)[:2])
    assert logged(second) == wanted(rows_of(result))


def test_an_error_marks_the_run_as_failed(runs: dict[str, Any]):
    with pytest.raises(ZeroDivisionError):
        short_run(fl.callbacks.MLflow(), lambda round, row, x: 1 / 0)
    assert [run["status"] for run in runs.values()] == ["FAILED"]


def test_the_limits_of_mlflow_are_kept(runs: dict[str, Any]):
    """1,500 metrics, a parameter of 8,000 characters, and a name that MLflow refuses."""
    many = {f"m{k}": float(k) for k in range(1500)} | {"<lambda>": 1.0}
    data = fl.FederatedData.shared(np.ones((1, 1)), np.ones(1), num_clients=2000)
    problem, arguments = fl.problems.LeastSquares(data), {"rounds": 0, "local_steps": [1] * 1000 + [10] * 1000}
    fl.simulate(
        problem, fl.methods.FedAvg(0.1), metrics=[lambda x: many], callbacks=[fl.callbacks.MLflow()], **arguments
    )
    (run,) = runs.values()
    metrics = {key: value for key, value, _ in logged(run)}
    assert {f"m{k}": float(k) for k in range(1500)}.items() <= metrics.items()
    assert metrics["_lambda_"] == 1.0
    assert max(len(value) for _, value in run["params"]) == 500
    assert dict(run["params"])["local_steps"].startswith("[1, 1, 1")


def test_bad_arguments_are_told(runs: dict[str, Any]):
    with pytest.raises(TypeError, match="MLflow: experiment must be a str, got 3"):
        fl.callbacks.MLflow(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="MLflow: tracking_uri must be a str, got 3"):
        fl.callbacks.MLflow(tracking_uri=3)  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore")  # of packages that MLflow imports
def test_a_real_client_keeps_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "store").as_uri()
    callback = fl.callbacks.MLflow("mine", tracking_uri=place)
    result = short_run(callback, metrics=[lambda x: float("nan")])
    assert callback.run_id is not None
    run = (client := mlflow.MlflowClient(tracking_uri=place)).get_run(callback.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["rounds"] == "6"
    history = client.get_metric_history(callback.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(row["round"], row["loss"]) for row in rows_of(result)]
    assert np.isnan(run.data.metrics["_lambda_"])
