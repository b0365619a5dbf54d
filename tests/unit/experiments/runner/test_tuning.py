"""Methods by name, as studies over all pairs of step sizes make them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedlocal as fl
from fedlocal.experiments.runner import tuning
from fedlocal.experiments.runner.claims import HOLDS, TunedMethod, judge
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.runner.methods import COMPOSITE, composite_method
from fedlocal.experiments.runner.settings import Claim, TunedStudySettings
from fedlocal.report.tables import with_intervals

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


def seeded(f1: dict[int, list[float]], seeds: list[int]) -> tuple[Any, pd.DataFrame]:
    """Settings with two scored rounds, and the history of one pair: F1 after rounds 0, 1, 2 with each seed."""
    settings: Any = load("lasso-3", seeds=seeds, overrides=["rounds=2", "score.window=2", 'columns=["f1"]'])
    pair = {"method": "FedMiD", "client_step_size": 0.1, "server_step_size": 1.0, "diverged": None}
    rows = [{**pair, "seed": s, "round": r, "f1": v} for s, values in f1.items() for r, v in enumerate(values)]
    return settings, pd.DataFrame(rows)


def test_several_seeds_give_t_intervals_of_means():
    settings, history = seeded({0: [0.0, 0.4, 0.6], 1: [0.0, 0.6, 0.8], 2: [0.0, 0.2, 0.4]}, [0, 1, 2])
    tuned = tuning.tune(settings, history)
    low, high = stats.t.interval(
        0.95, 2, loc=0.5, scale=stats.sem([0.5, 0.7, 0.3])
    )  # of the means over the last rounds
    table: Any = tuning.table(
        settings, {"FedMiD": tuned}, {"optimum": tuning.reference_row(pd.DataFrame({"f1": [1, 1]}))}
    )
    assert list(table) == ["method", "step_sizes", "diverged", "f1", "f1_half_width"]
    np.testing.assert_allclose(table.loc[0, ["f1", "f1_half_width"]].tolist(), [0.5, (high - low) / 2])
    assert table.loc[1, ["f1", "f1_half_width"]].tolist() == [1, 0]
    assert with_intervals(table)["f1"].tolist() == [f"0.5 ± {(high - low) / 2:.2g}", "1 ± 0"]
    band = stats.t.interval(0.95, 2, loc=0.6, scale=stats.sem([0.6, 0.8, 0.4]))
    np.testing.assert_allclose(tuned.curve["f1_half_width"], [0, tuned.half_widths["f1"], (band[1] - band[0]) / 2])


def test_figures_have_bands_that_leave_the_axis_to_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    curve = pd.DataFrame({"round": [0, 1], "f1": [0.0, 1.0], "f1_half_width": [0.0, 50.0]})
    settings: Any = load("lasso-3", seeds=[0, 1], overrides=['panels=[{column = "f1", title = "F1"}]'])
    drawn: list[Any] = []
    real = tuning.legend_below
    monkeypatch.setattr(tuning, "legend_below", lambda axes: drawn.extend(axes) or real(axes))
    for own in (curve, curve.drop(columns="f1_half_width")):
        tuning.draw_curves(settings, {"FedMiD": TunedMethod(0.01, 1.0, own, {}, {}, [])}, tmp_path / "a.png")
    assert [len(axis.collections) for axis in drawn] == [1, 0]
    assert drawn[0].collections[0].get_paths()[0].get_extents().ymax == 51
    assert drawn[0].get_ylim() == drawn[1].get_ylim()


def test_one_seed_has_no_interval_and_others_than_those_of_the_study_neither():
    settings, history = seeded({0: [0.0, 0.4, 0.6]}, [0])
    tuned = tuning.tune(settings, history)
    assert list(tuning.table(settings, {"FedMiD": tuned}, {})) == ["method", "step_sizes", "diverged", "f1"]
    assert not [name for name in tuned.curve if "half_width" in name]
    assert tuning.notes_of(settings, history) == []
    settings, history = seeded({0: [0.0, 0.4, 0.6], 5: [0.0, 0.4, 0.6]}, [0, 1])  # clients of the baseline `local`
    assert tuning.tune(settings, history).half_widths == {}


def test_the_results_of_a_seed_are_those_of_a_run_with_it_alone():
    settings, history = seeded({0: [0.0, 0.4, 0.6], 1: [0.0, 0.6, 0.8]}, [0, 1])
    history = pd.concat([history.assign(method=name) for name in settings.methods])
    results = tuning.tuned_results(settings, history)
    assert [results.of_seed[s].methods["FedMiD"].late["f1"] for s in (0, 1)] == [0.5, pytest.approx(0.7)]
    claim = {"text": "t", "check": "ends", "method": "FedMiD", "metric": "f1"}
    text = replace(results, text_rounds=2, of_seed={s: replace(r, text_rounds=2) for s, r in results.of_seed.items()})
    verdict = judge(Claim(**claim, level=0.55), text)  # pyright: ignore[reportArgumentType]
    assert verdict.outcome == HOLDS  # on average 0.6
    assert verdict.measured.endswith("; alone it holds with 1 of 2 seeds")
    assert "seeds" not in judge(Claim(**claim, level=0.4), text).measured  # pyright: ignore[reportArgumentType]
