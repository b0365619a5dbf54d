"""The lower-bound study, small, and its limit of infinitely many clients against sampling."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedlocal import experiments
from fedlocal.experiments.runner.claims import FAILS, HOLDS
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.studies.lower_bound.study import (
    about_function,
    average_drifts,
    first_part,
    single_client_paths,
    tune,
)

SMALL = [
    "num_step_sizes=15",
    "limit.local_steps=[2,4]",
    "limit.rounds=[4,16]",
    "limit.paths=16",
    "limit.fit_local_steps=2",
    "limit.fit_rounds=4",
]
SMALL += ["cases=[{clients=4,local_steps=2,rounds=8,heterogeneity=0.0}]"]


@pytest.fixture(scope="module")
def settings() -> Any:
    return load("lower-bound", overrides=SMALL)


def test_the_limit_is_what_many_clients_do(settings: Any):
    """A round of a million clients, twice, by plain sampling."""
    eta, steps, rounds, clients = 0.8, 6, 2, 10**6
    random, place = np.random.default_rng(0), 0.0
    for _ in range(rounds):
        x = np.full(clients, place)
        for _ in range(steps):
            x -= eta * (np.where(x >= 0, 2, 1) * x / 24 + random.standard_normal(clients))
        place = float(x.mean())
    found = average_drifts(settings, np.array([eta]), steps, [rounds])[rounds][0]
    assert place < 0
    drift = -np.sqrt(48 * found)  # from L/48 x^2
    assert abs(drift - place) < 4 * rounds * eta * np.sqrt(steps / clients)


def test_one_client_is_sgd(settings: Any):
    """Before the kink matters, x_1 is a sum of normal numbers: E F = L/24 (1 + 1/2)/2 eta^2 sigma^2 t."""
    wide = settings.model_copy(update={"limit": settings.limit.model_copy(update={"paths": 20000})})
    told: list[int] = []
    found = single_client_paths(wide, np.array([0.0, 1e-6]), [9], told.append)[9]
    assert told == [1, 2, 3, 4, 5, 6, 7, 8, 10]  # tenths of nine steps
    assert found[0] == 0
    np.testing.assert_allclose(found[1], 1 / 24 * 0.75 * 1e-12 * 9, rtol=4 * np.sqrt(3 / 20000))


def test_tuning_takes_the_mean_over_seeds_and_counts_divergence_as_infinite(settings: Any):
    rows = [(0.1, 0, 1.0), (0.1, 1, 3.0), (0.2, 0, 0.5), (0.2, 1, np.inf), (0.3, 0, 1.9), (0.3, 1, 1.9)]
    history = pd.DataFrame(rows, columns=["step_size", "seed", "error"]).assign(
        method="FedAvg", clients=2.0, local_steps=2, rounds=8, heterogeneity=0.0
    )
    best = tune(settings, history).iloc[0]
    assert (best["step_size"], best["error"]) == (0.3, 1.9)
    np.testing.assert_allclose(best["order"], 0.5 * min(16**-0.5, 2 ** (-1 / 3) * 8 ** (-2 / 3)), rtol=1e-12)


def test_the_function_of_the_figure_is_that_of_the_text(settings: Any):
    """F = L/24 psi, psi = x^2 on the right and x^2/2 on the left, by hand; another function does not pass."""
    wide = settings.model_copy(update={"smoothness": 48.0, "distance": 3.0})
    found = first_part(wide)
    x = found["x"].to_numpy()
    assert (x[0], x[-1]) == (-3, 3)
    np.testing.assert_allclose(found["value"], np.where(x > 0, 2, 1) * x**2, rtol=1e-12)
    np.testing.assert_allclose(found["slope"], np.where(x > 0, 4, 2) * x, rtol=1e-12)
    np.testing.assert_allclose(found["curvature"], np.where(x > 0, 4, 2), rtol=1e-12)
    assert about_function(wide, found).outcome == HOLDS
    for wrong in (found.assign(slope=found["slope"] + 0.1), found.assign(curvature=4.0), found.assign(value=x**2)):
        assert about_function(wide, wrong).outcome == FAILS


def test_a_small_run(tmp_path: Path):
    console = Console(file=io.StringIO())
    directory = experiments.run("lower-bound", overrides=SMALL, root=tmp_path, seeds=[0], console=console)
    report = json.loads((directory / "report.json").read_text())
    assert report["figures"] == ["figure-function", "figure-step-sizes", "figure-rates"]
    assert report["verdicts"][-1]["outcome"] == "holds"
    history: Any = pd.read_parquet(directory / "history.parquet")
    start = history[(history["step_size"] == 0) & (history["clients"] == 4) & (history["method"] == "FedAvg")]
    mu = 0.5 * min(16**-0.5, 2 ** (-1 / 3) * 8 ** (-2 / 3))
    np.testing.assert_allclose(start["error"], (1 + mu) / 8, rtol=1e-6)  # F2 + F3 at B/2
    small = history[(history["method"] == "FedAvg") & (history["step_size"] < 1e-5)]
    assert (small["error"] > 0.12).all()
    assert (history["error"] >= 0).all()
    parts = {path.name for path in (directory / "parts").iterdir()}
    names = ("M4-K2-R8-Z0-0", "limit-one-client", "limit-K2", "limit-K4")
    assert parts == {f"{name}.parquet" for name in names}
