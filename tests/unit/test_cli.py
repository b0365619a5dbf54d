"""The command line."""

import json
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal.cli import app
from fedlocal.experiments import demo

runner = CliRunner()


def test_version():
    assert runner.invoke(app, ["--version"]).stdout.strip() == f"fedlocal {fl.__version__}"


def test_list_names_everything_with_a_description():
    output = runner.invoke(app, ["list"]).stdout
    for module in (fl.methods, fl.regularizers, fl.mirrors, fl.problems):
        for name in module.__all__:
            assert name in output
    only = runner.invoke(app, ["list", "methods"]).stdout
    assert "FedDualAvg" in only
    assert "Nuclear" not in only


def test_unknown_kind_lists_what_exists():
    result = runner.invoke(app, ["list", "optimizers"])
    assert result.exit_code == 2
    assert "methods" in result.output


@pytest.mark.parametrize("command", [["--help"], ["demo", "--help"], ["list", "--help"]])
def test_help_shows_an_example(command: list[str]):
    result = runner.invoke(app, command)
    assert result.exit_code == 0
    assert "fedlocal" in result.output


@pytest.mark.thorough
def test_studies_leave_figure_table_and_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The demonstration's code path on small runs; a test of the README runs it whole."""
    small_sparse = lambda directory, seed: demo_sparse(directory, seed, rounds=5)  # noqa: E731
    small_rare = lambda directory, seed: demo_rare(directory, seed, steps=512, clients=4)  # noqa: E731
    demo_sparse, demo_rare = demo.sparse, demo.rare_communication
    monkeypatch.setattr(demo, "sparse", small_sparse)
    monkeypatch.setattr(demo, "rare_communication", small_rare)
    X, y = fl.data.a9a()
    monkeypatch.setattr(fl.data, "a9a", lambda: (X[:500], y[:500]))
    console = Console(record=True, width=120)
    demo.demo(tmp_path, 0, console)
    text = console.export_text()
    assert "FedDualAvg" in text
    assert text.count("hold") == 4
    for name in ("sparse", "rare_communication"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_csv(tmp_path / f"{name}.csv")) > 5
        assert "configuration" in json.dumps(json.loads((tmp_path / f"{name}.json").read_text()))
