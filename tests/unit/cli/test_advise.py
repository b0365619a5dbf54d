"""fedlocal advise: from a file to a table, a figure and a program that runs."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file
from typer.testing import CliRunner

from fedlocal.cli import advice_request, app, output
from fedlocal.deploy.app import write_app
from fedlocal.deploy.files import files_app
from fedlocal.deploy.options import DeployOptions
from fedlocal.deploy.rehearsal import Rehearsal, rehearse
from frame_tables import check_unbroken

RUN = CliRunner().invoke


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((90, 3)), columns=["a", "b", "c"])
    frame["ill"] = (frame["a"] - frame["b"] + rng.logistic(size=90) > 0).astype(int)
    frame["ward"] = np.arange(90) % 3
    frame.to_csv(tmp_path / "wards.csv", index=False)
    return tmp_path / "wards.csv"


def test_advice_for_a_table_of_sites(table: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(table.parent)
    monkeypatch.setattr(output.console, "width", 80)
    options = ["--target", "ill", "--sites", "ward", "--rounds", "8", "--local-steps", "4", "--l2", "0.1"]
    said = RUN(app, ["advise", "wards.csv", *options])
    assert said.exit_code == 0, said.output
    assert "90 examples, 3 features, 3 clients" in said.output
    assert "confidence" in said.output
    folder = table.parent / "advice"
    kept = pd.read_csv(folder / "advice.csv")
    assert kept["predicted_error"].is_monotonic_increasing
    check_unbroken(kept, said.output)
    assert (folder / "figure.png").stat().st_size > 10_000
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads((folder / "provenance.json").read_text())["configuration"]["rounds"] == 8
    program = subprocess.run([sys.executable, folder / "run.py"], cwd=table.parent, capture_output=True, text=True)
    assert program.returncode == 0, program.stderr
    assert "objective" in program.stdout


def test_no_advice_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert advice_request.new_folder(None) == Path("advice")
    for name in ("advice", "advice-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.py").write_text("earlier")
    assert advice_request.new_folder(None) == Path("advice-3")
    assert advice_request.new_folder(Path("empty")) == Path("empty")
    with pytest.raises(ValueError, match="advise: advice holds an earlier advice; give --directory a new folder"):
        advice_request.new_folder(Path("advice"))


def test_advice_for_a_sparse_model(table: Path):
    options = ["--target", "ill", "--sites", "ward", "--rounds", "8", "--local-steps", "2", "--l1", "0.02"]
    said = RUN(app, ["advise", str(table), *options, "--directory", str(table.parent / "sparse")])
    assert said.exit_code == 0, said.output
    assert "fl.regularizers.L1(0.02)" in (table.parent / "sparse/run.py").read_text()
    assert "FedDualAvg" in said.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv", "--rounds", "5"], "is neither a file nor one of the data sets a9a"),
        (["wards.csv", "--rounds", "5"], "say which column"),
        (["a9a", "--rounds", "5", "--sites", "ward"], "--sites names a column of a table; a9a is not one"),
        (["wards.csv", "--rounds", "5", "--target", "ill", "--sites", "town"], "has no column 'town'"),
        (["wards.csv", "--rounds", "5", "--target", "a"], "for a target of other numbers give --task least-squares"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    table: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
):
    monkeypatch.chdir(table.parent)
    said = RUN(app, ["advise", *arguments])
    assert said.exit_code == 2
    assert message in said.output.replace("\n", " ")
    assert not (table.parent / "advice").exists()


def ward(rng: np.random.Generator, empty: bool) -> pd.DataFrame:
    """People of one ward, with columns of sizes from a thousandth to thousands; some cells are empty."""
    people = rng.normal(size=(60, 3))
    frame = pd.DataFrame(people * [1e3, 1e-3, 1.0] + [5e3, 0.0, 1.0], columns=["cells", "dose", "score"])
    frame["ill"] = (people @ [1.0, -1.0, 0.5] + rng.logistic(size=60) > 0).astype(int)
    return frame.mask(rng.random(frame.shape) < 0.1).assign(ill=frame["ill"]) if empty else frame


def advised(path: Path, folder: Path, *options: str) -> tuple[pd.DataFrame, str]:
    """The table of methods for one ward's file, and what was said."""
    common = ["--target", "ill", "--rounds", "10", "--local-steps", "10", "--l2", "0.01", "--directory", str(folder)]
    said = RUN(app, ["advise", str(path), *common, *options])
    assert said.exit_code == 0, said.output
    return pd.read_csv(folder / "advice.csv").set_index("method"), " ".join(said.output.split())


def rehearsed(folder: Path, files: list[Path], step_size: float) -> Rehearsal:
    """A deployed run of FedAvg with this step size, in this process."""
    names = tuple(file.stem for file in files)
    wish = DeployOptions(sites=names, target="ill", method="FedAvg", client_step_size=float(step_size), l2=0.01)
    write_app(folder, files_app(wish))
    return rehearse(folder, files, rounds=20)


@pytest.fixture
def wards(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{name}.csv" for name in ("north", "south")]
    for seed, file in enumerate(files):
        ward(np.random.default_rng(seed), empty=True).to_csv(file, index=False)
    return files


def test_the_advised_step_size_suits_a_deployed_run(wards: list[Path], tmp_path: Path):
    """From one site's file, with columns of all sizes and empty cells, to a rehearsal of both sites."""
    table, said = advised(wards[0], tmp_path / "advice")
    assert "Step sizes are for standardised columns (of mean 0 and variance 1), as after `fedlocal deploy`" in said
    rehearsal = rehearsed(tmp_path / "deployed", wards, table.loc["FedAvg", "step_size"])
    assert not rehearsal.troubles()
    assert rehearsal.history["objective"].iloc[-1] < 0.9 * np.log(2)  # the loss at zero: nor does it stand still


def test_the_step_size_in_own_units_is_another_one(tmp_path: Path):
    """The smoothness of the loss grows with the square of the largest column."""
    file = tmp_path / "full.csv"
    ward(np.random.default_rng(0), empty=False).to_csv(file, index=False)
    standardised, _ = advised(file, tmp_path / "standardised")
    own, said = advised(file, tmp_path / "own", "--no-standardize")
    assert "Step sizes are for the columns in their own units" in said
    assert own.loc["FedAvg", "step_size"] < 1e-4 * standardised.loc["FedAvg", "step_size"]


def test_empty_cells_in_own_units_are_refused_with_what_would_work(wards: list[Path], tmp_path: Path):
    for column in ("cells", "score"):
        table = ward(np.random.default_rng(0), empty=False)
        table["ward"] = np.arange(60) % 2
        table.loc[3, column] = np.nan
        table = table[["ward", "cells", "dose", "score", "ill"]]
        table.to_csv(wards[0], index=False)
        options = ["--target", "ill", "--sites", "ward", "--rounds", "5", "--no-standardize"]
        said = RUN(app, ["advise", str(wards[0]), *options, "--directory", str(tmp_path / "advice")])
        assert said.exit_code == 2
        sentence = " ".join(said.output.split())
        assert f"column '{column}' of" in sentence
        assert (
            "has empty cells; leave out --no-standardize, which takes them as the mean, or fill them first" in sentence
        )


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("npz", "parquet")), "libsvm"]
)
def test_files_of_every_kind_are_standardised_and_the_program_runs(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
):
    """Here, without a process of its own: that of a table, above, has one."""
    frame = ward(np.random.default_rng(0), empty=kind != "libsvm")
    X, y = frame.drop(columns="ill").to_numpy(), frame["ill"].to_numpy()
    path, target = tmp_path / f"people.{kind}", ["--target", "ill"] if kind == "parquet" else []
    if kind == "npz":
        np.savez(path, X=X, y=y)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        dump_svmlight_file(X, y, str(path), zero_based=False)
    options = ["--rounds", "5", "--local-steps", "2", "--l2", "0.1", "--directory", str(tmp_path / "advice")]
    said = RUN(app, ["advise", str(path), *target, *options])
    assert said.exit_code == 0, said.output
    how = "divided by their deviation" if kind == "libsvm" else "of mean 0 and variance 1"
    assert f"standardised columns ({how})" in " ".join(said.output.split())
    runpy.run_path(str(tmp_path / "advice/run.py"), run_name="__main__")
    assert "objective" in capsys.readouterr().out


def test_known_data_sets_stay_in_their_own_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    X, y = advice_request.load("a9a")
    monkeypatch.setattr(advice_request, "load", lambda name: (X[:100], y[:100]))  # all of them take half a minute
    said = RUN(
        app, ["advise", "a9a", "--rounds", "3", "--local-steps", "2", "--l2", "0.1", "--directory", str(tmp_path)]
    )
    assert said.exit_code == 0, said.output
    assert "Step sizes are for the columns in their own units" in " ".join(said.output.split())
    assert "Moments" not in (tmp_path / "run.py").read_text()
