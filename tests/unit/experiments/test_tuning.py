"""Methods by name, as studies over all pairs of step sizes make them."""

import typing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedlocal as fl
from fedlocal.experiments import tuning
from fedlocal.experiments.claims import Tuned
from fedlocal.experiments.loading import load
from fedlocal.experiments.settings.tuned import TunedStudy

PSI = fl.regularizers.L1(0.3)
EXPECTED = {
    "FedDualAvg": fl.methods.FedDualAvg(0.1, 0.5, PSI),
    "FedDualAvg-OSP": fl.methods.FedDualAvg(0.1, 0.5, PSI, prox_on_clients=False),
    "FedMiD": fl.methods.FedMiD(0.1, 0.5, PSI),
    "FedMiD-OSP": fl.methods.FedMiD(0.1, 0.5, PSI, prox_on_clients=False),
    "SubgradientFedAvg": fl.methods.SubgradientFedAvg(0.1, PSI, 0.5),
}


@pytest.mark.parametrize("name", tuning.METHODS)
def test_a_name_is_its_method(name: str):
    made, expected = tuning.method(name, PSI, 0.1, 0.5), EXPECTED[name]
    assert type(made) is type(expected)
    assert vars(made) == vars(expected)


def test_configurations_may_name_every_method():
    (listed,) = typing.get_args(TunedStudy.model_fields["methods"].annotation)
    assert set(typing.get_args(listed)) == set(tuning.METHODS)


def test_the_table_has_a_row_for_each_method_and_reference():
    settings: Any = load("lasso-3", overrides=['columns=["f1", "density"]'])
    late = {"f1": 0.5, "density": 0.25, "objective": 9.0}
    methods = {"FedMiD": Tuned(0.01, 1.0, pd.DataFrame(), late, {(1.0, 1.0): 3.0}, [])}
    table = tuning.table(settings, methods, {"optimum": {"f1": 1.0}})
    assert table.columns.tolist() == ["method", "step_sizes", "diverged", "f1", "density"]
    assert table.iloc[0].tolist() == ["FedMiD", "0.01, 1", "1", 0.5, 0.25]
    assert table.iloc[1].tolist()[:4] == ["optimum", "", "", 1.0]
    assert pd.isna(table["density"][1])


def test_curves_are_drawn_with_references_that_have_the_column(tmp_path: Path):
    settings: Any = load(
        "lasso-3", overrides=['panels=[{column = "f1", title = "F1"}, {column = "density", title = "D"}]']
    )
    curve = pd.DataFrame({"round": [0, 1], "f1": [0.0, 1.0], "density": [0.0, 0.5]})
    methods = {"FedMiD": Tuned(0.01, 1.0, curve, {}, {}, [])}
    tuning.draw_curves(settings, methods, {"optimum": {"f1": 1.0}}, tmp_path / "a.png", dashed=["FedMiD"])
    tuning.draw_curves(settings, methods, {"optimum": {"f1": 1.0}}, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()
