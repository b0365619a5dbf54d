"""The command line."""

import errno
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal.cli import app
from fedlocal.experiments import demonstration

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


def test_the_help_says_how_long_a_quick_run_takes():
    said = " ".join(runner.invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output.split())
    assert "quick: small, up to two minutes" in said
    assert "seconds" not in said


@pytest.mark.thorough
def test_studies_leave_figure_table_and_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The demonstration's code path on small runs; a test of the README runs it whole."""
    small_sparse = lambda directory, seed: demo_sparse(directory, seed, rounds=5)  # noqa: E731
    small_rare = lambda directory, seed: demo_rare(directory, seed, steps=512, clients=4)  # noqa: E731
    demo_sparse, demo_rare = demonstration.sparse, demonstration.rare_communication
    monkeypatch.setattr(demonstration, "sparse", small_sparse)
    monkeypatch.setattr(demonstration, "rare_communication", small_rare)
    X, y = fl.data.a9a()
    monkeypatch.setattr(fl.data, "a9a", lambda: (X[:500], y[:500]))
    console = Console(record=True, width=120)
    demonstration.demo(tmp_path, 0, console)
    text = console.export_text()
    assert "FedDualAvg" in text
    assert text.count("hold") == 4
    for name in ("sparse", "rare_communication"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert len(pd.read_csv(tmp_path / f"{name}.csv")) > 5
        assert "configuration" in json.dumps(json.loads((tmp_path / f"{name}.json").read_text()))


@pytest.mark.parametrize("command", [["demo"], ["run", "lasso-3"], ["advise", "a9a", "--rounds", "5"]])
def test_a_folder_that_cannot_be_written_is_one_sentence_before_the_work(tmp_path: Path, command: list[str]):
    """A folder below a file cannot be made, not even by root."""
    (tmp_path / "file").touch()
    result = runner.invoke(app, [*command, "--directory", str(tmp_path / "file" / "results")])
    assert result.exit_code == 2, result.output
    said = result.output.replace("\n", "")
    assert said.startswith(f"cannot write {tmp_path}/file/results/")
    assert said.endswith("give --directory a folder that can be written")
    assert isinstance(result.exception, SystemExit)


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = runner.invoke(app, ["run", "lasso-3", "--directory", str(tmp_path)])
    assert result.exit_code == 2, result.output
    said = result.output.replace("\n", "")
    assert said.startswith(f"cannot write {tmp_path}/lasso-3-quick-")
    assert said.endswith("provenance.json: No space left on device")
