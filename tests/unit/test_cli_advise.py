"""fedlocal advise: from a file to a table, a figure and a program that runs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedlocal.cli import app

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
    options = ["--target", "ill", "--sites", "ward", "--rounds", "8", "--local-steps", "4", "--l2", "0.1"]
    said = RUN(app, ["advise", "wards.csv", *options])
    assert said.exit_code == 0, said.output
    assert "90 examples, 3 features, 3 clients" in said.output
    assert "confidence" in said.output
    folder = table.parent / "advice"
    kept = pd.read_csv(folder / "advice.csv")
    assert kept["predicted_error"].is_monotonic_increasing
    assert (folder / "figure.png").stat().st_size > 10_000
    assert json.loads((folder / "provenance.json").read_text())["configuration"]["rounds"] == 8
    program = subprocess.run([sys.executable, folder / "run.py"], cwd=table.parent, capture_output=True, text=True)
    assert program.returncode == 0, program.stderr
    assert "objective" in program.stdout


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
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    table: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
):
    monkeypatch.chdir(table.parent)
    said = RUN(app, ["advise", *arguments])
    assert said.exit_code == 2
    assert message in said.output.replace("\n", " ")
