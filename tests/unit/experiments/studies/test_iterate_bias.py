"""The study of the iterate bias, small; and that its paper scale is the caption's."""

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
from fedlocal.experiments.studies.iterate_bias import claims
from fedlocal.experiments.studies.iterate_bias.settings import IterateBiasSettings

SMALL = ["steps=[32, 64]", "repeats=3000", "scaling.steps=[2, 16, 32]", "scaling.step_sizes=[0.0005, 0.001]"]
SMALL += ["scaling.at_steps=16", "constant.times=[0.004, 0.5]", "constant.pairs=64", "constant.steps=64"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    return experiments.run("iterate-bias", overrides=SMALL, root=root, console=Console(file=io.StringIO()))


@pytest.mark.thorough
def test_the_paper_scale_is_the_captions():
    settings = load("iterate-bias", "paper")
    assert isinstance(settings, IterateBiasSettings)
    assert (settings.right, settings.left, settings.noise, settings.step_size) == (1.0, 0.1, 0.1, 0.01)
    assert (settings.steps, settings.repeats) == ([128, 256, 512, 1024], 65536)


@pytest.mark.thorough
def test_the_instance_of_the_scaling_is_one_that_the_theorem_allows():
    """Q <= L^2 / (12 K sigma) for k < K and eta <= 1 / (2 L)."""
    for scale in ("quick", "paper"):
        s: Any = load("iterate-bias", scale).scaling  # pyright: ignore
        assert s.third_order <= s.smoothness**2 / (12 * (max(*s.steps, s.at_steps) + 1) * s.noise)
        assert max(s.step_size, *s.step_sizes) <= 1 / (2 * s.smoothness)


@pytest.mark.thorough
def test_verdicts(finished: Path):
    verdicts = json.loads((finished / "report.json").read_text())["verdicts"]
    said = {entry["claim"]: entry["outcome"] for entry in verdicts}
    wrong = {claim for claim, outcome in said.items() if outcome == FAILS}
    assert {claim.split(" eta")[0] for claim in wrong} == {
        "the bias is about -(1/2)",
        "the lower bound with 0.002 holds for any k <= K (formal theorem), so for k = 1",
    }
    assert said["the bias is about -(1/4) eta^3 k^2 sigma^2 F'''"] == HOLDS
    assert said["the average gradually moves to the left"] == HOLDS
    assert sum(outcome == HOLDS for outcome in said.values()) == len(said) - 2


@pytest.mark.thorough
def test_the_table_is_that_of_the_samples(finished: Path):
    table: Any
    table, samples = pd.read_parquet(finished / "table.parquet"), pd.read_parquet(finished / "samples.parquet")
    assert len(samples) == 3000
    for _, row in table.iterrows():
        x = samples[str(int(row["steps"]))]
        assert row["mean"] == pytest.approx(x.mean(), rel=1e-12)
        assert row["standard_error"] == pytest.approx(x.std() / np.sqrt(3000), rel=1e-12)
        assert abs(row["mean"] - row["exact_mean"]) < 4 * row["standard_error"]


@pytest.mark.thorough
def test_parts_are_small(finished: Path):
    parts = {path.stem for path in (finished / "parts").iterdir()}
    grown = {f"scaling-{name}-{axis}" for name in ("piecewise", "log_cosh") for axis in ("steps", "step_size")}
    assert parts == {"samples-0", "constant-0", "constant-1"} | grown


@pytest.mark.thorough
@pytest.mark.parametrize(("share", "tight"), [(0.98, True), (0.5, False)])
def test_a_constant_that_is_not_reached_is_not_called_the_best(finished: Path, share: float, tight: bool):
    table, scales = pd.read_parquet(finished / "table.parquet"), pd.read_parquet(finished / "scaling.parquet")
    moved = scales.assign(upper_bound=np.abs(scales["bias"]) / share)
    said = next(v for v in claims.about_bounds(table, moved) if v.claim.startswith("upper bound (1/4)"))
    assert f"comes to {share:.3f} of it" in said.measured
    assert ("cannot be improved" in said.measured) == tight


@pytest.mark.thorough
def test_figures_are_there(finished: Path):
    for name in ("figure", "figure-growth", "figure-constant"):
        assert (finished / f"{name}.png").read_bytes().startswith(b"\x89PNG")
