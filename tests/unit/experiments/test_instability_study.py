"""The instability study, small."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from fedlocal import experiments
from fedlocal.experiments.instability import stability_bound
from fedlocal.methods import FedAc

SMALL = ["kappas=[25.0]", "shown_kappa=25.0", "blocks=3", "further_steps=120", "worst_kappas=[25.0]"]
SMALL += ["worst_local_steps=[1,4,16]", "longest_agd=45"]


def test_a_small_run_judges_statement_and_proof(tmp_path: Path):
    directory = experiments.run("instability", overrides=SMALL, root=tmp_path, console=Console(file=io.StringIO()))
    report = json.loads((directory / "report.json").read_text())
    outcomes = [verdict["outcome"] for verdict in report["verdicts"]]
    assert outcomes == ["holds", "holds", "does not hold", *["holds"] * 5]
    table = pd.read_parquet(directory / "table.parquet").set_index("stiff_step")
    np.testing.assert_allclose(table["factor"], 1.024, rtol=1e-12)
    np.testing.assert_allclose(table.loc[1, ["w_ag", "w"]].astype(float), 1.024**3 * np.array([0.6, 3.0]), rtol=1e-12)
    np.testing.assert_allclose(table.loc[0, ["w_ag", "w"]].astype(float), 1.024**3 * np.array([1.0, 2.5]), rtol=1e-12)
    assert {path.name for path in directory.glob("*.png")} == {f"{name}.png" for name in report["figures"]}


def test_the_bound_of_fed_ac_one_stays_below_a_constant():
    def bound(local_steps: int, kappa: float = 1e4) -> float:
        method = FedAc.one(step_size=1 / kappa, strong_convexity=1.0, local_steps=local_steps)
        return stability_bound(method, kappa, local_steps)

    assert max(bound(k) for k in (1, 8, 64, 512, 4096)) < 5**0.5 * np.e**2  # (1 + 2/K)^K < e^2
    np.testing.assert_allclose(bound(10**5), 5**0.5, rtol=1e-12)  # gamma = eta
