"""A new kind of study is a folder and a row of the registry; nothing else changes."""

import importlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fedlocal import experiments
from fedlocal.experiments import studies
from fedlocal.experiments.runner.settings import StudySettings

FOLDER = {
    "__init__.py": "",
    "settings.py": """
from fedlocal.experiments.runner.settings import StudySettings

class CountingSettings(StudySettings):
    last: int
""",
    "study.py": """
import pandas as pd
from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.runner.store import StudyOutcome

def run_study(settings, store):
    frame = store.frame("numbers", lambda _: pd.DataFrame({"number": range(settings.last)}))
    verdict = Verdict.of("it counts", "it does", len(frame) == settings.last)
    return StudyOutcome(frame, frame, [verdict], {"figure": lambda target: target.write_bytes(b"")})
""",
    "problem.py": """
import numpy as np
from fedlocal.problems import quadratics

def make_problem(settings, *, seed, clients):
    return quadratics(np.ones((clients, 1, 1)), np.zeros((clients, 1)))
""",
    "count.toml": """
kind = "counting"
name = "count"
title = "Counting"
reference = "none"
seeds = [0]
last = 3
[scales.paper]
last = 30
""",
}


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "studies" / "counting"
    folder.mkdir(parents=True)
    for name, text in FOLDER.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(folder.parent)])
    importlib.invalidate_caches()
    settings = importlib.import_module(f"{studies.__name__}.counting.settings")
    monkeypatch.setitem(studies.KINDS, "counting", settings.CountingSettings)
    yield folder
    for name in [name for name in sys.modules if name.startswith(f"{studies.__name__}.counting")]:
        del sys.modules[name]


def test_a_folder_and_a_row_make_a_study(tmp_path: Path, counting: Path):
    assert "count" in experiments.names()
    text = io.StringIO()
    directory = experiments.run("count", overrides=["last=4"], root=tmp_path / "runs", console=Console(file=text))
    assert pd.read_parquet(directory / "table.parquet")["number"].tolist() == [0, 1, 2, 3]
    assert json.loads((directory / "report.json").read_text())["verdicts"][0]["outcome"] == "holds"
    assert "holds: it counts" in text.getvalue()
    assert experiments.problem_of("count", clients=2).num_clients == 2


@pytest.mark.parametrize("kind", studies.KINDS)
def test_the_name_of_a_folder_is_its_kind(kind: str):
    settings = studies.KINDS[kind]
    assert issubclass(settings, StudySettings)
    assert settings.__module__ == f"{studies.__name__}.{kind}.settings"
    folder = Path(studies.__file__).parent / kind
    assert list(folder.glob("*.toml"))
    for path in folder.glob("*.toml"):
        assert experiments.load(path.stem).kind == kind


def test_every_folder_is_in_the_registry():
    folders = {path.parent.name for path in Path(studies.__file__).parent.glob("*/settings.py")}
    assert folders == set(studies.KINDS)
