"""When a run calls its callbacks, and with what."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlocal as fl
from unit.callbacks.short_runs import interrupt, interrupted_run, rows_of, short_run


class Noting(fl.callbacks.Callback):
    """Keeps what it was called with."""

    def __init__(self) -> None:
        self.starts: list[Any] = []
        self.rows: list[Any] = []
        self.ends: list[Any] = []

    def start(self, configuration: Any, rows: Any) -> None:
        self.starts.append((configuration, rows))

    def evaluated(self, round: int, row: dict[str, float], x: Any) -> None:
        self.rows.append((round, row, float(x[0])))

    def end(self, error: BaseException | None) -> None:
        self.ends.append(error)


@pytest.mark.parametrize("run", [fl.simulate, fl.loop])
def test_functions_and_objects_are_called_after_every_evaluation(run: Any):
    seen, noting = [], Noting()
    result = short_run(lambda round, row, x: seen.append((round, row, float(x[0]))), noting, run=run)
    assert [row for _, row, _ in seen] == rows_of(result)
    assert [r for r, _, _ in seen] == [0, 2, 4, 6]
    points = np.array([x for _, _, x in seen])
    np.testing.assert_allclose(points, 0.75 + 1.25 * 0.8 ** np.array([0, 2, 4, 6]), rtol=1e-6)  # mean curvature 2
    assert noting.rows == seen
    assert noting.ends == [None]
    ((configuration, rows),) = noting.starts
    assert rows == []
    assert (configuration["rounds"], configuration["eval_every"]) == (6, 2)
    assert configuration["engine"] == result.provenance["configuration"]["engine"]


def test_a_row_that_a_function_changes_is_not_the_run_s():
    assert "mine" not in short_run(lambda round, row, x: row.update(mine=1.0, loss=7.0)).history
    assert 7.0 not in set(short_run(lambda round, row, x: row.update(loss=7.0)).history["loss"])


def test_a_resumed_run_starts_with_the_rows_that_there_are(tmp_path: Path):
    """Each evaluation is told once: those before the resumption at the start, later ones as they come."""
    first, second, checkpoint = Noting(), Noting(), tmp_path / "run.npz"
    interrupted_run(first, checkpoint)
    assert [round for round, _, _ in first.rows] == [0, 2]
    assert [type(error) for error in first.ends] == [KeyboardInterrupt]
    result = short_run(second, checkpoint=checkpoint)
    ((_, rows),) = second.starts
    assert rows == rows_of(result)[:2]
    assert [row for _, row, _ in second.rows] == rows_of(result)[2:]
    assert second.ends == [None]


def test_all_that_started_are_ended_if_one_fails():
    class Failing(Noting):
        def start(self, configuration: Any, rows: Any) -> None:
            raise OSError("no disk")

    before, failing, after = Noting(), Failing(), Noting()
    with pytest.raises(OSError, match="no disk"):
        short_run(before, failing, after)
    assert [len(each.ends) for each in (before, failing, after)] == [1, 0, 0]
    assert isinstance(before.ends[0], OSError)
    assert before.rows == after.starts == []


def test_an_error_of_a_function_ends_the_run_and_the_callbacks():
    def fail(round: int, row: dict[str, float], x: Any) -> None:
        raise RuntimeError("mine")

    noting = Noting()
    with pytest.raises(RuntimeError, match="mine"):
        short_run(noting, fail)
    assert [str(error) for error in noting.ends] == ["mine"]
    noting = Noting()
    with pytest.raises(KeyboardInterrupt):
        short_run(noting, interrupt, run=fl.loop)
    assert [type(error) for error in noting.ends] == [KeyboardInterrupt]


def test_only_the_first_process_calls_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fedlocal.simulation.single_run.leads", lambda mesh: False)
    noting = Noting()
    assert len(short_run(noting).history) == 4
    assert noting.starts == noting.rows == noting.ends == []


BAD: dict[str, tuple[Any, str]] = {
    "class": ([fl.callbacks.CSV], r"callbacks holds the class CSV; give CSV\(...\)"),
    "number": ([3], r"callbacks must be functions of \(round, row, x\) or objects of fl.callbacks, got 3"),
    "no_list": (lambda round, row, x: None, "callbacks must be a list, got function"),
    "other_arguments": ([lambda row: None], r"<lambda> must take \(round, row, x\), but its arguments are \(row\)"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("run", [fl.simulate, fl.loop])
def test_bad_callbacks_are_told_before_the_run(case: str, run: Any):
    callbacks, message = BAD[case]
    measured = []
    arguments: dict[str, Any] = {"rounds": 1, "local_steps": 1, "metrics": [lambda x: measured.append(x) or 0.0]}
    problem = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[0.0]])
    with pytest.raises(TypeError, match=rf"^{run.__name__}: .*{message}"):
        run(problem, fl.methods.FedAvg(0.1), callbacks=callbacks, **arguments)
    assert measured == []


def test_only_public_names_are_listed():
    assert dir(fl.callbacks) == ["CSV", "Callback", "MLflow", "TensorBoard", "WandB"]


@pytest.mark.parametrize(
    ("name", "package"), [("MLflow", "mlflow"), ("TensorBoard", "tensorboardX"), ("WandB", "wandb")]
)
def test_a_package_that_is_missing_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    message = rf'{name} needs {package}: pip install "fedlocal\[{name.lower()}\]"'
    with pytest.raises(ModuleNotFoundError, match=message):
        getattr(fl.callbacks, name)(str(tmp_path))
