"""The instability study, small."""

import io
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedlocal import experiments
from fedlocal.experiments.runner import store
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.studies.instability.study import stability_bound
from fedlocal.methods import FedAc
from fedlocal.util.progress import ProgressBar

SMALL = ["kappas=[25.0]", "shown_kappa=25.0", "blocks=3", "further_steps=120", "worst_kappas=[25.0]"]
SMALL += ["worst_local_steps=[1,4,16]", "longest_agd=45"]


class Bar(ProgressBar):
    """Remembers how far it was moved."""

    seen: ClassVar[list[tuple[int, float | None]]] = []

    def advance_to(self, done: int, note: str = "") -> None:
        self.seen.append((done, self.progress.tasks[0].total))


def test_a_small_run_judges_statement_and_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "ProgressBar", Bar)
    directory = experiments.run("instability", overrides=SMALL, root=tmp_path, console=Console(file=io.StringIO()))
    report = json.loads((directory / "report.json").read_text())
    outcomes = [verdict["outcome"] for verdict in report["verdicts"]]
    assert outcomes == ["holds", "holds", "does not hold", *["holds"] * 5]
    table = pd.read_parquet(directory / "table.parquet").set_index("stiff_step")
    np.testing.assert_allclose(table["factor"], 1.024, rtol=1e-12)
    np.testing.assert_allclose(table.loc[1, ["w_ag", "w"]].astype(float), 1.024**3 * np.array([0.6, 3.0]), rtol=1e-12)
    np.testing.assert_allclose(table.loc[0, ["w_ag", "w"]].astype(float), 1.024**3 * np.array([1.0, 2.5]), rtol=1e-12)
    assert {path.stem for path in (directory / "parts").iterdir()} == {"runs-25-0", "runs-25-1", "points", "worst-25"}
    assert Bar.seen == [(i, 4) for i in range(4)]
    bounded = next(verdict for verdict in report["verdicts"] if verdict["claim"].startswith("FedAc-I"))
    assert "|x_ag - y_ag|" in bounded["claim"]
    assert "comes to 4 eps" in bounded["measured"]  # x at K = 1: sqrt(kappa) - 1, as gamma mu = 1/sqrt(kappa)
    assert {path.name for path in directory.glob("*.png")} == {f"{name}.png" for name in report["figures"]}


@pytest.mark.parametrize(
    ("change", "said"), [("blocks=1", "blocks"), ("longest_agd=5", "longest_agd"), ("kappas=[4.0, 24.0]", "25")]
)
def test_settings_that_no_verdict_could_be_read_from(change: str, said: str):
    load("instability", overrides=[*SMALL, "blocks=2", "longest_agd=6", "kappas=[4.0, 25.0]"])
    with pytest.raises(ValueError, match=said):
        load("instability", overrides=[*SMALL, change])


def test_the_bound_of_fed_ac_one_stays_below_a_constant():
    def bound(local_steps: int, kappa: float = 1e4) -> float:
        method = FedAc.one(step_size=1 / kappa, strong_convexity=1.0, local_steps=local_steps)
        return stability_bound(method, kappa, local_steps)

    assert max(bound(k) for k in (1, 8, 64, 512, 4096)) < 5**0.5 * np.e**2  # (1 + 2/K)^K < e^2
    np.testing.assert_allclose(bound(10**5), 5**0.5, rtol=1e-12)  # gamma = eta
