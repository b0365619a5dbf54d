"""Cells that are dropped between two calls of a sweep."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedlocal as fl
from fedlocal.simulation.result import DivergenceWarning
from fedlocal.simulation.sweeps.dropping import drop_cells
from fedlocal.simulation.sweeps.grid_run import sweep

PROBLEM = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
GRID = {"client_step_size": [0.01, 0.02, 0.05, 0.1, 1e30]}


def run(rounds: int, checkpoint: Path | None) -> fl.SweepResult:
    with pytest.warns(DivergenceWarning):
        return sweep(PROBLEM, fl.methods.FedAvg(1.0), GRID, rounds=rounds, local_steps=3, checkpoint=checkpoint)


def test_the_others_go_on_to_the_same_bits_and_the_dropped_keep_their_rows(tmp_path: Path):
    run(5, tmp_path / "sweep.npz")
    for _ in range(2):  # the second time changes nothing
        drop_cells(tmp_path / "sweep.npz", [1, 2, 4])
    after: Any = run(12, tmp_path / "sweep.npz")
    assert after.cells["diverged"].fillna(-1).tolist()[:4] == [-1, 5, 5, -1]
    assert after.cells["diverged"][4] < 5  # it had diverged before
    whole: Any = run(12, None).history.drop(columns="seconds")
    kept = whole[(whole["round"] <= 5) | whole["cell"].isin([0, 3])].reset_index(drop=True)
    pd.testing.assert_frame_equal(after.history.drop(columns="seconds"), kept)


def test_without_a_file_nothing_happens(tmp_path: Path):
    drop_cells(tmp_path / "none.npz", [0])
    assert not list(tmp_path.iterdir())
