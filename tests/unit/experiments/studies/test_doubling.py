"""The doubling study, small: its distances, its two tunings, and its verdicts on numbers made by hand."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedlocal import experiments
from fedlocal.experiments.runner.claims import TunedMethod
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.studies.doubling.study import verdicts, what_remains

SMALL = [
    "rounds=6",
    "eval_every=3",
    "score.window=3",
    "strength=0.5",
    'methods=["FedDualAvg", "FedMiD", "FedMiD-half"]',
]
SMALL += ["grid.client_step_size=[0.0003, 0.0001]", "grid.server_step_size=[1.0]"]
NAMES = [f"fedmid-{kind}-{i}" for kind in ("lasso", "nuclear") for i in (1, 2, 3, 4)]


@pytest.mark.parametrize("name", ["fedmid-lasso-3", pytest.param("fedmid-nuclear-3", marks=pytest.mark.thorough)])
def test_a_small_run_measures_the_distances_from_both_minimisers(name: str, tmp_path: Path):
    directory = experiments.run(name, overrides=SMALL, root=tmp_path, console=Console(file=io.StringIO()))
    table = pd.read_parquet(directory / "table.parquet").set_index("method")
    distances = table.loc[["optimum", "optimum of F + 2 psi"], ["distance", "distance_doubled"]]
    np.testing.assert_allclose(distances.to_numpy(), [[0, 1], [1, 0]], atol=1e-6)
    gaps: Any = table["suboptimality"]
    assert gaps["optimum"] == 0
    assert gaps["optimum of F + 2 psi"] > 0
    history = pd.read_parquet(directory / "history.parquet")
    last = history[history["round"] == 6]
    assert np.all(last["distance"] + last["distance_doubled"] >= 1 - 1e-9)  # of a triangle
    best = last[last["method"] == "FedMiD"]["suboptimality"].min()
    by_objective = pd.read_csv(directory / "results.csv").set_index("method")
    assert by_objective.loc["FedMiD", "suboptimality"] == pytest.approx(best)
    assert {path.name for path in directory.glob("*.png")} == {"figure.png", "by-objective.png"}
    assert len(json.loads((directory / "report.json").read_text())["verdicts"]) == 4


def tuned(distance: float, doubled: float, gap: float, f1: float) -> TunedMethod:
    late = {"distance": distance, "distance_doubled": doubled, "suboptimality": gap, "f1": f1}
    return TunedMethod(1e-3, 1.0, pd.DataFrame(), late, {}, [])


def test_verdicts_by_hand():
    found = {
        "FedDualAvg": tuned(0.1, 1.0, 1.0, 0.99),
        "FedMiD": tuned(1.2, 0.3, 9.0, 0.98),
        "FedMiD-half": tuned(0.4, 0.8, 3.0, 0.90),
        "FedMiD-OSP": tuned(0.9, 0.8, 4.0, 0.97),
    }
    outcomes = {verdict.claim: verdict for verdict in verdicts(found)}
    assert [verdict.outcome for verdict in outcomes.values()] == ["holds", "holds", "does not hold", "holds"]
    *_, share = outcomes.values()
    assert "9 (FedMiD), 3 (FedMiD-half), 1 (FedDualAvg)" in share.measured
    assert "75% is psi counted twice" in share.measured
    settings = load("fedmid-lasso-1")
    (curse,) = what_remains(settings, found)  # pyright: ignore
    assert curse.outcome == "holds"  # 0.99 against 0.90 and 0.97; FedMiD counts psi twice
    (curse,) = what_remains(settings, found | {"FedMiD-OSP": tuned(0.9, 0.8, 4.0, 0.985)})  # pyright: ignore
    assert curse.outcome == "does not hold"


@pytest.mark.parametrize("name", NAMES)
def test_all_sets_are_there_with_the_data_of_their_own(name: str):
    settings = load(name, "paper")
    other = load(name.removeprefix("fedmid-"), "paper")
    assert settings.data == other.data  # pyright: ignore[reportAttributeAccessIssue]
    for field in ("rounds", "score", "clients_per_round", "batch_size", "local_epochs", "strength", "weights"):
        assert getattr(settings, field) == getattr(other, field)


def test_methods_without_which_there_is_nothing_to_compare():
    with pytest.raises(ValueError, match="methods must hold FedMiD, FedDualAvg and a variant"):
        load("fedmid-lasso-1", overrides=['methods=["FedDualAvg", "FedMiD"]'])
