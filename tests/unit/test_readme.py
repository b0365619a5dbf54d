"""What the README says is true: its Python runs, its commands exist, its links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedlocal.cli import app
from paths import ROOT
from programs import Told, run_programs

README = (ROOT / "README.md").read_text()
THEORY = (ROOT / "docs/theory.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README + THEORY, re.DOTALL)
COMMANDS = [
    line.split("#")[0].split()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]


BLOCKS = dict(zip(["first", "own_data", "sweep", "estimators", "bounds", "advice", "shadow"], PYTHON, strict=True))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """What came of the blocks of Python that are short."""
    short = {name: code for name, code in BLOCKS.items() if name != "advice"}
    return run_programs(short, tmp_path_factory.mktemp("blocks"), "-W", "error")


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "advice"])
def test_python_in_the_readme_runs(name: str, told: dict[str, Told]):
    assert told[name].error == ""
    assert told[name].output.strip()


@pytest.mark.thorough
def test_advice_in_the_readme_runs(tmp_path: Path):
    """`fedlocal advise` shows in the plain suite what it does."""
    advice = run_programs({"advice": BLOCKS["advice"]}, tmp_path, "-W", "error")["advice"]
    assert advice.error == ""
    assert advice.output.strip()


THOROUGH = (["advise", "a9a"], ["run", "lasso-1"], ["run", "curse"])  # a test of `run_study` runs `fedlocal run curse`


@pytest.mark.optimised
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            c,
            id=" ".join(c),
            marks=pytest.mark.thorough if c[1:3] in THOROUGH else (),
        )
        for c in COMMANDS
        if c[0] == "fedlocal" and c[1] != "demo"
    ],
)
def test_fedlocal_commands_in_the_readme_run(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    where = ["--directory", str(tmp_path)] if command[1] in ("run", "advise") and command[2] != "--help" else []
    result = CliRunner().invoke(app, [*command[1:], *where])
    assert result.exit_code == 0, result.output
    if command[1] == "advise":
        assert (tmp_path / "figure.png").exists()
    elif where:
        assert "holds" in result.output
        assert list(tmp_path.glob("*/figure*.png"))


def test_the_demo_command_shows_both_studies(tmp_path: Path):
    """`fedlocal demo` whole, as `make demo` runs it: on LASSO data set I dual averaging recovers the pattern, primal does not."""
    command = [sys.executable, "-m", "fedlocal.cli", "demo", "--directory", str(tmp_path)]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}  # its programs run longer than they compile
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert output.count("holds") == 4
    assert "does not hold" not in output
    assert "FedDualAvg" in output
    for name in ("sparse", "rare_communication"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_csv(tmp_path / f"{name}.csv")) > 5
        assert "configuration" in (tmp_path / f"{name}.json").read_text()
    last: Any = pd.read_csv(tmp_path / "sparse.csv").groupby("method").last()
    assert last.loc["FedDualAvg", "round"] == last.loc["FedMiD", "round"] == 200
    assert last.loc["FedDualAvg", "f1"] > 0.99
    assert last.loc["FedMiD", "f1"] < 0.8
    assert last.loc["FedMiD", "density"] > 0.75 > 0.55 > last.loc["FedDualAvg", "density"]


def test_make_commands_in_the_readme_are_targets():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in COMMANDS:
        if command[0] == "make":
            assert command[1] in targets


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_tests_that_the_errata_name_exist():
    errata = (ROOT / "docs/errata.md").read_text()
    named = re.findall(r"`([a-z0-9_/]*\.py)(?:::(test_\w+))?`", errata) + re.findall(r"`()::(test_\w+)`", errata)
    every = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 30
    for path, name in named:
        assert not path or (ROOT / "tests" / path).exists(), path
        assert not name or f"def {name}(" in every, name
