"""The example of the four hospitals."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from fedlocal.data.sets.heart import HOSPITALS, read_hospital
from paths import ROOT, SHARED
from unit.deploy.logs_as_before import logs_as_before  # noqa: F401

EXAMPLE = ROOT / "examples" / "hospitals"
DATA = SHARED / "data"
REAL = {name: DATA / "heart" / f"processed.{name}.data" for name in HOSPITALS}
HERE = all(file.exists() for file in REAL.values())
needs_files = pytest.mark.skipif(not HERE, reason="the hospitals' files are in ../shared/data, not here")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    """The example's modules."""
    monkeypatch.syspath_prepend(EXAMPLE)
    import comparison
    import run

    yield run, comparison
    for name in (
        "run",
        "comparison",
        "processes",
        "app",
        "app.hospitals_app",
        "app.hospitals_app.client_app",
        "app.hospitals_app.method",
    ):
        del sys.modules[name]


def patients(rng: np.random.Generator, rows: int) -> str:
    """Lines in UCI's format: those with chest pain 4 are ill more often; some cells are missing."""
    lines = []
    for _ in range(rows):
        pain = int(rng.integers(1, 5))
        ill = int(rng.random() < (0.9 if pain == 4 else 0.2))
        known = [rng.integers(30, 80), rng.integers(0, 2), pain, rng.integers(100, 180), rng.integers(150, 300)]
        known += [rng.integers(0, 2), rng.integers(0, 3), rng.integers(90, 190), rng.integers(0, 2), 0.5]
        known += [rng.integers(1, 4), "?" if rng.random() < 0.3 else rng.integers(0, 4), 3, ill]
        lines.append(",".join(map(str, known)))
    return "\n".join(lines) + "\n"


def simulated(files: dict[str, Path], rounds: int) -> np.ndarray:
    """The same weights from the simulator, which knows all patients."""
    hospitals = [read_hospital(file) for file in files.values()]
    rows = [(h.features[train], h.targets[train]) for h in hospitals for train in [np.arange(len(h.targets)) % 5 > 0]]
    scaling = fl.data.Moments.of(np.concatenate([features for features, _ in rows])).scaling()
    data = fl.FederatedData.from_clients([(scaling.apply(features), targets) for features, targets in rows])
    tops = [np.linalg.norm(np.c_[scaling.apply(X), np.ones(len(X))], 2) ** 2 / len(X) for X, _ in rows]
    method = fl.methods.AcceleratedProximalGradient(4 / max(tops), fl.regularizers.L1(0.02))
    problem = fl.problems.Logistic(data, intercept=True)
    x = fl.simulate(problem, method, rounds=rounds, local_steps=1, weights="examples").x
    return scaling.unscale(x["weights"], x["intercept"])[0]


def check(files: dict[str, Path], results: Path, rounds: int) -> None:
    coefficients = pd.read_csv(results / "coefficients.csv")
    np.testing.assert_allclose(coefficients["federated"][:-1], simulated(files, rounds), atol=1e-9)
    assert coefficients["column"].iloc[-1] == "(intercept)"
    assert set(pd.read_csv(results / "accuracy.csv")["hospital"]) == {*HOSPITALS, "all"}
    assert (results / "hospitals.png").read_bytes().startswith(b"\x89PNG")


def small(folder: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    files = {name: folder / f"{name}.data" for name in HOSPITALS}
    for file, rows in zip(files.values(), (130, 125, 122, 140), strict=True):
        file.write_text(patients(rng, rows))
    return files


def test_hospitals_do_what_the_simulator_does(tmp_path: Path, example, capsys: pytest.CaptureFixture[str]):
    """On the real files, where they are."""
    run, comparison = example
    files = REAL if HERE else small(tmp_path)
    run.rehearse(run.APP, list(files.values()), 6, tmp_path / "results")
    comparison.compare(files, tmp_path / "results", l1=0.02)
    check(files, tmp_path / "results", 6)
    assert run.finished(tmp_path / "results", 6)
    assert not run.finished(tmp_path / "results", 60)
    assert "round 6 of 6: objective" in capsys.readouterr().out


@needs_files
@pytest.mark.thorough
def test_hospitals_come_close_to_the_pooled_fit(tmp_path: Path, example):
    """Until the gap is small, on the real files: the same columns matter, with the same weights, as scikit-learn finds."""
    run, comparison = example
    found = run.rehearse(run.APP, list(REAL.values()), None, tmp_path / "results")
    assert found.convergence["converged"]
    assert run.finished(tmp_path / "results", 300)
    comparison.compare(REAL, tmp_path / "results", l1=0.02)
    check(REAL, tmp_path / "results", found.convergence["rounds"])
    federated, history = comparison.read(tmp_path / "results")
    pooled, optimum = comparison.fit({name: read_hospital(file) for name, file in REAL.items()}, 0.02)
    left = history["objective"].iloc[-1] - optimum
    assert -1e-9 < left < min(1e-6, history["duality_gap"].iloc[-1])
    assert np.abs(federated.weights - pooled.weights).max() < 1e-3
    assert ((np.abs(federated.weights) > 1e-9) == (np.abs(pooled.weights) > 1e-9)).all()


@pytest.mark.thorough
def test_hospitals_without_data_say_so(tmp_path: Path):
    unreachable = {"https_proxy": "http://127.0.0.1:9", "FEDLOCAL_DATA": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | unreachable,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 1
    assert "the data are not here and could not be fetched" in done.stderr


@needs_files
@pytest.mark.thorough
def test_hospitals_in_processes_of_their_own(tmp_path: Path):
    command = [sys.executable, str(EXAMPLE / "run.py"), "--data", str(DATA), "--rounds", "3", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    check(REAL, tmp_path / "results", 3)
