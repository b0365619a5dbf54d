"""Experiments from the command line to the store, small."""

import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal import experiments
from fedlocal.cli import app
from fedlocal.experiments.runner import pair_sweeps, tuning
from fedlocal.experiments.runner.configuration import load, recorded
from fedlocal.experiments.runner.methods import COMPOSITE
from fedlocal.experiments.runner.store import Store
from fedlocal.experiments.studies.recovery import problem
from fedlocal.experiments.studies.recovery.settings import RecoverySettings
from fedlocal.report.tables import with_intervals
from frame_tables import check_unbroken

SMALL = ["rounds=6", "eval_every=2", "score.window=3", "strength=0.2", "grid.client_step_size=[0.0003, 1.0]"]
SMALL += ["grid.server_step_size=[0.5, 1.0]", 'methods=["FedDualAvg", "FedMiD"]', "claims=[]"]
FILES = {
    "provenance.json",
    "history.parquet",
    "table.parquet",
    "optimum.parquet",
    "figure.png",
    "figure.pdf",
    "report.json",
    "parts",
}


def run(root: Path, name: str = "lasso-3", overrides: list[str] = SMALL, **arguments: Any) -> Path:
    console = arguments.pop("console", Console(file=io.StringIO()))
    return experiments.run(name, overrides=overrides, root=root, console=console, **arguments)


def settings(*changes: str) -> RecoverySettings:
    loaded = load("lasso-3", overrides=[*SMALL, *changes])
    assert isinstance(loaded, RecoverySettings)
    return loaded


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs"), seeds=[0, 1])


def test_a_run_leaves_everything_needed_to_cite_it(finished: Path):
    assert {path.name for path in finished.iterdir()} == FILES
    origin = json.loads((finished / "provenance.json").read_text())
    assert {"fedlocal", "commit", "libraries", "configuration"} <= origin.keys()
    assert origin["configuration"]["seeds"] == [0, 1]
    assert origin["configuration"]["rounds"] == 6
    assert not list((finished / "parts").glob("*.npz"))


def test_the_table_of_a_run_has_each_number_on_one_line_of_80_characters(finished: Path):
    console = Console(width=80, file=io.StringIO(), record=True)
    experiments.show(finished, console)
    check_unbroken(with_intervals(pd.read_parquet(finished / "table.parquet")), console.export_text())


def test_the_settings_of_an_experiment_are_shown_whole():
    console = Console(width=80, file=io.StringIO(), record=True)
    experiments.show(Path("lasso-1"), console)
    assert "…" not in console.export_text()


def test_the_history_has_every_method_pair_seed_and_round(finished: Path):
    history: Any = pd.read_parquet(finished / "history.parquet")
    finite = history[history["diverged"].isna()]
    assert len(finite) == 2 * 2 * 2 * 4  # methods, seeds, server step sizes, rounds 0 2 4 6
    assert (history[history["client_step_size"] == 1.0]["diverged"].notna()).all()


def test_the_table_is_the_tuned_history(finished: Path):
    history: Any
    history, table = pd.read_parquet(finished / "history.parquet"), pd.read_parquet(finished / "table.parquet")
    row = table.set_index("method").loc["FedMiD"]
    client, server = (float(v) for v in row["step_sizes"].split(", "))
    own = history[(history["method"] == "FedMiD") & (history["client_step_size"] == client)]
    late = own[(own["server_step_size"] == server) & (own["round"] > 3)]
    np.testing.assert_allclose(row["f1"], late["f1"].mean(), rtol=1e-12)
    others = history[(history["method"] == "FedMiD") & (history["round"] > 3) & history["diverged"].isna()]
    assert row["f1"] == pytest.approx(others.groupby(["client_step_size", "server_step_size"])["f1"].mean().max())
    assert row["diverged"] == "2"


def test_a_part_of_the_history_is_the_run_of_that_pair(finished: Path):
    history: Any = pd.read_parquet(finished / "history.parquet")
    data = fl.data.synthetic_lasso("III", seed=1)
    method = fl.methods.FedMiD(0.0003, 0.5, fl.regularizers.L1(0.2))
    sampling: dict[str, Any] = {"clients_per_round": 10, "local_epochs": 1, "batch_size": 10}
    alone = fl.simulate(fl.problems.LeastSquares(data), method, rounds=6, eval_every=2, seed=1, **sampling).history
    part = history[(history["method"] == "FedMiD") & (history["seed"] == 1) & (history["server_step_size"] == 0.5)]
    np.testing.assert_allclose(part[part["client_step_size"] == 0.0003]["loss"], alone["loss"], rtol=1e-9)


def test_the_optimum_is_the_centralised_solution(finished: Path):
    optimum: Any = pd.read_parquet(finished / "optimum.parquet")
    history: Any = pd.read_parquet(finished / "history.parquet")
    assert (optimum["kkt_residual"] < 1e-8).all()
    assert history["objective"].min() > optimum["objective"].min()


def test_show_prints_what_run_printed(finished: Path):
    text = io.StringIO()
    experiments.show(finished, Console(file=text, width=150))
    text = text.getvalue()
    assert "FedDualAvg" in text
    assert "lambda = 0.2" in text
    assert "figure.png" in text


def test_an_interrupted_run_resumes_to_the_same_result(tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch):
    """The second sweep is interrupted; what was finished before is not run again."""
    swept = []
    real = pair_sweeps.sweep

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        swept.append(1)
        if len(swept) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(pair_sweeps, "sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seeds=[0, 1])
    directory = run(tmp_path, seeds=[0, 1], resume=True)
    assert len(swept) == 5  # of four sweeps the interrupted one twice
    assert len(list(tmp_path.glob("lasso-3-*"))) == 1
    again, whole = (pd.read_parquet(d / "history.parquet").drop(columns="seconds") for d in (directory, finished))
    pd.testing.assert_frame_equal(again, whole)


@pytest.mark.thorough
def test_a_killed_process_continues_with_resume(tmp_path: Path):
    """SIGKILL in the middle of a sweep; the same command with --resume brings the result of an undisturbed run."""
    base = [sys.executable, "-m", "fedlocal.cli", "run", "lasso-3", "--directory", str(tmp_path)]
    for change in [*SMALL, "rounds=3000", "eval_every=50", "grid.client_step_size=[0.0003]", 'methods=["FedDualAvg"]']:
        base += ["--set", change]
    process = subprocess.Popen(base, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/parts/FedDualAvg-0.npz")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (directory,) = tmp_path.glob("lasso-3-*")
    assert not (directory / "report.json").exists()
    subprocess.run([*base, "--resume"], check=True, capture_output=True)
    whole = tmp_path / "whole"
    subprocess.run([*base[:6], str(whole), *base[7:]], check=True, capture_output=True)
    frames = [pd.read_parquet(d / "history.parquet") for d in (directory, next(whole.iterdir()))]
    again, undisturbed = (frame.drop(columns="seconds") for frame in frames)
    pd.testing.assert_frame_equal(again, undisturbed)


def test_resume_without_an_unfinished_run_starts_anew(tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch):
    """Beside a finished one, which is not given to the study; what a study does then is tested above."""
    shutil.copytree(finished, tmp_path / finished.name)
    said, started = io.StringIO(), []

    def study(_: Any, store: Store) -> Any:
        started.append(store.directory)
        raise KeyboardInterrupt

    monkeypatch.setattr("fedlocal.experiments.runner.run_study.study_of", lambda kind: study)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seeds=[0, 1], resume=True, console=Console(file=said))
    assert "no unfinished run of lasso-3" in said.getvalue()
    assert len(list(tmp_path.glob("lasso-3-*"))) == 2
    assert started != [tmp_path / finished.name]
    (tmp_path / finished.name / "report.json").unlink()  # and continues it where it is not finished
    shutil.rmtree(started[0])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seeds=[0, 1], resume=True)
    assert started[1:] == [tmp_path / finished.name]


def test_another_configuration_is_not_continued(tmp_path: Path):
    store = Store.create(tmp_path, settings().model_dump(mode="json"), "quick")
    assert Store.unfinished(tmp_path, settings().model_dump(mode="json")) is not None
    assert Store.unfinished(tmp_path, settings("rounds=7").model_dump(mode="json")) is None
    store.write_json("report.json", {})
    assert Store.unfinished(tmp_path, settings().model_dump(mode="json")) is None


def test_a_rule_is_applied_to_every_seed_and_then_averaged():
    rows = [
        {
            "method": "a",
            "seed": i,
            "client_step_size": c,
            "server_step_size": 1.0,
            "round": 6,
            "f1": f1,
            "diverged": None,
        }
        for c, values in {0.1: [0.7, 0.7], 0.2: [0.9, 0.1]}.items()
        for i, f1 in enumerate(values)
    ]
    assert tuning.tune(settings("score.rule=best"), pd.DataFrame(rows)).client_step_size == 0.1


def test_other_experiments_are_compared_with_only_when_run_with_the_same_options(tmp_path: Path, finished: Path):
    def beside(root: Path, seeds: list[int]) -> Store:
        return Store.create(root, recorded(load("lasso-4", seeds=seeds), "quick", "text"), "quick")

    assert beside(finished.parent, [0, 1]).finished_run_of("lasso-3") is None  # it was run with overrides
    store = Store.create(tmp_path, recorded(load("lasso-3"), "quick", "text"), "quick")
    here = beside(tmp_path, [0])
    assert here.finished_run_of("lasso-3") is None  # it is not finished
    history: Any = pd.read_parquet(finished / "history.parquet")
    own: Any = load("lasso-3", seeds=[0])
    history["round"] += own.rounds - 6  # the last rounds are what is scored
    history = pd.concat([history[history["method"] == "FedMiD"].assign(method=m) for m in COMPOSITE])
    store.write_frame("history.parquet", history)
    store.write_json("report.json", {})
    assert beside(tmp_path, [1]).finished_run_of("lasso-3") is None  # other seeds
    run = here.finished_run_of("lasso-3")
    assert run is not None
    assert run.directory == store.directory
    results = tuning.tuned_results(own, history, here).results_of("lasso-3")
    assert results is not None
    assert (results.rounds, [*results.methods]) == (own.rounds, own.methods)
    assert tuning.tuned_results(own, history).results_of("lasso-3") is None


def test_strange_directories_are_told_or_skipped(tmp_path: Path):
    (tmp_path / "lasso-3-x").mkdir()
    (tmp_path / "lasso-3-x" / "provenance.json").write_text("not json")
    assert Store.unfinished(tmp_path, settings().model_dump(mode="json")) is None
    with pytest.raises(ValueError, match="is not the directory of a run"):
        experiments.show(tmp_path / "lasso-3-x")


def test_a_continuation_by_another_version_is_noted(tmp_path: Path):
    store = Store.create(tmp_path, settings().model_dump(mode="json"), "quick")
    store.write_json("provenance.json", store.read_json("provenance.json") | {"commit": "older"})
    again = Store.unfinished(tmp_path, settings().model_dump(mode="json"))
    assert again is not None
    assert len(again.read_json("provenance.json")["continued_by"]) == 1


def test_of_pairs_with_the_same_score_the_fastest_is_taken():
    curves = {0.5: [0.0, 0.2, 1.0, 1.0], 1.0: [0.0, 0.9, 1.0, 1.0], 2.0: [0.0, 1.0, 0.9, 1.0]}
    rows = [
        {
            "method": "a",
            "seed": 0,
            "client_step_size": 0.1,
            "server_step_size": s,
            "round": 2 * i,
            "f1": f1,
            "diverged": None,
        }
        for s, values in curves.items()
        for i, f1 in enumerate(values)
    ]
    tuned = tuning.tune(settings(), pd.DataFrame(rows))
    assert (tuned.client_step_size, tuned.server_step_size) == (0.1, 1.0)
    assert tuned.tied == [(0.1, 0.5), (0.1, 1.0)]


def test_the_strength_is_in_the_middle_of_those_that_recover_the_pattern():
    strengths = np.array([8.0, 4.0, 2.0, 1.0, 0.5, 0.25])
    assert problem._middle(strengths, np.array([False, True, True, True, False, True])) == 2.0
    assert problem._middle(strengths, np.array([True, False, False, False, True, True])) == 0.35


@pytest.mark.optimised
def test_the_strength_found_recovers_the_true_support_centrally():
    task = problem.RecoveryTask(settings(), seed=0)
    path = problem.choose_strength(task, "uniform")
    assert len(path) == 31
    chosen = path["chosen"].iloc[0]
    solution = fl.solvers.centralized(task.problem, fl.regularizers.L1(chosen))
    found = np.abs(solution.x["weights"]) > 1e-2
    np.testing.assert_array_equal(found, task.data.truth["weights"] > 0)
    assert path["density"].iloc[0] == 0  # the path begins where every weight is zero
    assert path["density"].iloc[1] > 0


@pytest.mark.thorough
def test_low_rank_experiments_measure_rank_and_validation_error(tmp_path: Path):
    directory = run(tmp_path, "nuclear-3", [*SMALL, 'methods=["FedDualAvg-OSP"]'])
    history = pd.read_parquet(directory / "history.parquet")
    assert {"rank", "rank_error", "validation_error", "frobenius_error"} <= set(history)
    assert history["rank_error"].iloc[0] == 1  # zero at the start, true rank 1


def test_methods_that_always_diverge_are_told(tmp_path: Path):
    with pytest.raises(ValueError, match="FedMiD diverged with every pair of step sizes"):
        run(tmp_path, overrides=[*SMALL, "grid.client_step_size=[1.0]", 'methods=["FedMiD"]'])


@pytest.mark.optimised
def test_the_curse_of_primal_averaging_shows(tmp_path: Path):
    """By the command of the README."""
    result = CliRunner().invoke(app, ["run", "curse", "--directory", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "holds" in result.output
    (directory,) = tmp_path.glob("curse-*")
    assert list(directory.glob("figure*.png"))
    report = json.loads((directory / "report.json").read_text())
    assert [verdict["outcome"] for verdict in report["verdicts"]] == ["holds"] * 3
    models = pd.read_parquet(directory / "history.parquet")
    weights = models[models["method"] == "FedMiD"].pivot(index="who", columns="feature", values="weight")
    average = weights.filter(like="client", axis=0).mean()
    np.testing.assert_allclose(weights.loc["average"], average, atol=1e-6)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["run", "lasso-9"], "there is no experiment 'lasso-9'"),
        (["run", "lasso-1", "--set", "lr=1"], "unknown key 'lr'"),
        (["run", "lasso-1", "--seeds", "a"], "--seeds must be whole numbers"),
        (["show", "nowhere"], "is not the directory of a run"),
    ],
)
def test_mistakes_on_the_command_line_are_one_sentence(command: list[str], sentence: str):
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert sentence in result.output.replace("\n", " ")


def test_show_prints_the_settings_of_an_experiment_at_both_scales():
    said = CliRunner().invoke(app, ["show", "lasso-1"], env={"COLUMNS": "200"})
    assert said.exit_code == 0, said.output
    rows = {line.split()[0]: line.split()[1:] for line in said.output.splitlines() if line.strip()}
    both = [load("lasso-1", scale).model_dump() for scale in ("quick", "paper")]
    assert rows["rounds"] == [str(settings["rounds"]) for settings in both]
    assert rows["score.rule"] == ["mean", "mean"]
    assert rows["setting"] == ["quick", "paper"]


def test_show_says_how_to_finish_an_unfinished_run(tmp_path: Path):
    store = Store.create(tmp_path, settings().model_dump(mode="json"), "quick")
    with pytest.raises(ValueError, match="not finished; `fedlocal run lasso-3 --resume`"):
        experiments.show(store.directory)
