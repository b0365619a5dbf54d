"""Methods by name, as studies over all pairs of step sizes make them."""

from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

import fedlocal as fl
from fedlocal.experiments.runner import tuning
from fedlocal.experiments.runner.claims import TunedMethod
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.runner.methods import COMPOSITE, composite_method
from fedlocal.experiments.runner.settings import TunedStudySettings

PSI = fl.regularizers.L1(0.3)
EXPECTED = {
    "FedDualAvg": fl.methods.FedDualAvg(0.1, 0.5, PSI),
    "FedDualAvg-OSP": fl.methods.FedDualAvg(0.1, 0.5, PSI, prox_on_clients=False),
    "FedMiD": fl.methods.FedMiD(0.1, 0.5, PSI),
    "FedMiD-OSP": fl.methods.FedMiD(0.1, 0.5, PSI, prox_on_clients=False),
    "FedMiD-half": fl.methods.FedMiD(0.1, 0.5, PSI, client_share=0.5),
    "FedMiD-OCP": fl.methods.FedMiD(0.1, 0.5, PSI, client_share=1.0),
    "SubgradientFedAvg": fl.methods.SubgradientFedAvg(0.1, PSI, 0.5),
    "AcceleratedProximalGradient": fl.methods.AcceleratedProximalGradient(0.1, PSI),
}


@pytest.mark.parametrize("name", COMPOSITE)
def test_a_name_is_its_method(name: str):
    made, expected = composite_method(name, PSI, 0.1, 0.5), EXPECTED[name]
    assert type(made) is type(expected)
    assert vars(made) == vars(expected)


def test_configurations_may_name_every_method_and_no_other():
    names = list(COMPOSITE)
    assert cast(TunedStudySettings, load("lasso-3", overrides=[f"methods={names}"])).methods == names
    with pytest.raises(ValueError, match=r"methods must be among FedDualAvg, .*, got 'FedAvg'"):
        load("lasso-3", overrides=['methods=["FedAvg"]'])


def test_the_table_has_a_row_for_each_method_and_reference():
    settings: Any = load("lasso-3", overrides=['columns=["f1", "density"]'])
    late = {"f1": 0.5, "density": 0.25, "objective": 9.0}
    methods = {"FedMiD": TunedMethod(0.01, 1.0, pd.DataFrame(), late, {(1.0, 1.0): 3.0}, [])}
    table: Any = tuning.table(settings, methods, {"optimum": {"f1": 1.0}})
    assert table.columns.tolist() == ["method", "step_sizes", "diverged", "f1", "density"]
    assert table.iloc[0].tolist() == ["FedMiD", "0.01, 1", "1", 0.5, 0.25]
    assert table.iloc[1].tolist()[:4] == ["optimum", "", "", 1.0]
    assert pd.isna(table["density"][1])


def test_curves_are_drawn_with_references_that_have_the_column(tmp_path: Path):
    settings: Any = load(
        "lasso-3", overrides=['panels=[{column = "f1", title = "F1"}, {column = "density", title = "D"}]']
    )
    curve = pd.DataFrame({"round": [0, 1], "f1": [0.0, 1.0], "density": [0.0, 0.5]})
    methods = {"FedMiD": TunedMethod(0.01, 1.0, curve, {}, {}, [])}
    optimum = {"optimum": {"f1": 1.0}}
    tuning.draw_curves(settings, methods, tmp_path / "a.png", references=optimum, dashed=["FedMiD"])
    tuning.draw_curves(settings, methods, tmp_path / "b.png", references=optimum)
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()
