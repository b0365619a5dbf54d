"""Choosing among the cells of a sweep: what is compared, and which setting is best."""

import inspect
import re
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from conformance.federation import federation
from fedlocal.simulation.sweeps.result import RULES
from paths import ROOT

WORK: dict[str, Any] = {"rounds": 2, "local_steps": 1, "progress": False}
CHOICES = ("best", "score", "summary")


@cache
def strengths(*values: float) -> fl.SweepResult:
    """Two seeds of two methods, each with these strengths of its l1 norm."""
    psi = fl.regularizers.L1(0.1)
    methods = {"FedMiD": fl.methods.FedMiD(0.01, regularizer=psi), "FedDualAvg": fl.methods.FedDualAvg(0.01, 1.0, psi)}
    return fl.sweep(federation(), methods, {"regularizer.strength": list(values), "seed": [0, 1]}, **WORK)


@cache
def unlike_methods() -> fl.SweepResult:
    """A method with psi and one without."""
    regularized = fl.methods.FedDualAvg(0.01, regularizer=fl.regularizers.L1(0.1))
    return fl.compare(federation(), [fl.methods.FedAvg(0.01), regularized], seeds=[0], **WORK)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("make", [lambda: strengths(0.1, 0.2), unlike_methods])
def test_objectives_of_different_psi_are_compared_with_a_warning(make: Any, choice: str):
    with pytest.warns(UserWarning, match=f"^{choice}: 'objective' has each cell's own psi .* fl.metrics.Loss") as told:
        getattr(make(), choice)("objective")
    assert len(told) == 1
    assert told[0].filename == __file__
    getattr(make(), choice)("loss")  # no warning, which would be an error


@pytest.mark.parametrize("choice", CHOICES)
def test_objectives_of_one_psi_are_compared_without_a_warning(choice: str):
    getattr(strengths(0.1), choice)("objective")


def test_psi_of_a_loaded_sweep_is_compared_too(tmp_path: Any):
    strengths(0.1, 0.2).save(tmp_path / "sweep.npz")
    with pytest.warns(UserWarning, match="psi differs between cells"):
        fl.load(tmp_path / "sweep.npz").best("objective")


def test_figures_say_that_psi_differs():
    several: Any = strengths(0.1, 0.2)
    heat: Any = fl.plot.heat_map(several, axes=["regularizer.strength"])
    assert "own psi" in heat.axes[0].get_title(loc="left")
    lines: Any = several.plot()
    assert "own psi" in lines.legends[0].get_title().get_text()
    results: Any = fl.plot.curves([several.cell(0), several.cell(2)])
    assert "own psi" in results.legends[0].get_title().get_text()
    assert "own psi" not in lines_title(several, "loss") + lines_title(strengths(0.1), "objective")


def lines_title(sweep: fl.SweepResult, metric: str) -> str:
    figure: Any = sweep.plot(metric)
    return figure.legends[0].get_title().get_text()


def test_a_notebook_ranks_cells_of_different_psi_by_their_loss():
    assert "smallest loss after" in strengths(0.1, 0.2)._repr_html_()
    assert "smallest objective after" in strengths(0.1)._repr_html_()


def test_the_last_round_counts_unless_another_rule_is_given():
    one = strengths(0.1)
    assert one.score("loss").equals(one.score("loss", "last"))
    assert not one.score("loss").equals(one.score("loss", "mean"))
    assert one.best("loss") == one.best("loss", "last")


def made(losses: dict[float, list[float]], rounds: int = 100) -> fl.SweepResult:
    """A sweep with these losses after the last round, by step size and seed; inf is a run that diverged."""
    rows = [(size, seed, loss) for size, of_seeds in losses.items() for seed, loss in enumerate(of_seeds)]
    cells: Any = pd.DataFrame(rows, columns=["step_size", "seed", "loss"])
    gone = pd.array([None if np.isfinite(loss) else rounds for loss in cells["loss"]], "Int64")
    ends = cells.reset_index(names="cell").assign(round=rounds)
    history = pd.concat([ends.assign(round=0, loss=10.0), ends])
    nothing: dict[str, Any] = dict.fromkeys(["methods", "points", "servers", "problem", "plans"])
    cells = cells.drop(columns="loss").assign(diverged=gone)
    return fl.SweepResult(cells, history, provenance={"configuration": {"rounds": rounds}}, **nothing)


UNEQUAL = {0.1: [2.0, 9.0, 9.0], 0.2: [3.0, 4.0, 3.0], 0.4: [1.0, np.inf, 1.0]}


def test_table_best_cell_and_figure_agree_that_neither_luck_nor_a_setting_that_diverges_is_best():
    sweep = made(UNEQUAL)
    table: Any = sweep.summary("loss")
    for column in ("mean", "min", "max"):
        assert np.isnan(table[column][2])
    assert table["diverged"].tolist() == [0, 0, 1]
    assert table.sort_values("mean")["step_size"].tolist() == [0.2, 0.1, 0.4]
    np.testing.assert_allclose(table["mean"][:2], [20 / 3, 10 / 3], rtol=1e-15)
    assert sweep.best("loss") == 3  # the first seed of 0.2
    assert sweep.best("loss", largest=True) == 0
    figure: Any = sweep.plot("loss")
    (star,) = [line for line in figure.axes[0].lines if str(line.get_label()).startswith("best")]
    assert star.get_xdata() == [0.2]


def test_runs_that_diverged_are_counted_by_every_rule():
    assert made(UNEQUAL).summary("loss", "best")["diverged"].tolist() == [0, 0, 1]


def test_no_setting_is_best_if_each_has_a_run_that_diverged():
    with pytest.raises(
        ValueError, match="best: no setting has a finite 'loss' by the rule 'last'; each of them has a run"
    ):
        made({0.1: [1.0, np.inf], 0.2: [np.inf, 1.0]}).best("loss")


def test_the_page_names_the_arguments_of_simulate_that_sweeps_do_not_take():
    text = " ".join((ROOT / "docs/simulate.md").read_text().split())
    names = [set(inspect.signature(function).parameters) for function in (fl.simulate, fl.sweep, fl.compare)]
    said = text.split("`fl.sweep` and `fl.compare` take ")[1].split(": all of their runs")[0]
    taken, refused = (set(re.findall(r"`(\w+)`", part)) - {"simulate"} for part in said.split(", but not "))
    assert taken <= names[0] & names[1] & names[2]
    assert refused == names[0] - names[1] == names[0] - names[2] - {"method", "seed"}


def test_the_page_names_the_arguments_of_a_choice():
    text = (ROOT / "docs/simulate.md").read_text()
    section = text.split("## Choosing among many runs")[1].split("## Metrics")[0]
    for function in (fl.SweepResult.score, fl.SweepResult.summary, fl.SweepResult.best, fl.plot.heat_map):
        parameters = inspect.signature(function).parameters
        assert {"rule", "window", "largest"} < set(parameters)
        assert f'`rule="{parameters["rule"].default}"` (the default)' in section
        assert f"`window={parameters['window'].default}`" in section
    assert set(re.findall(r'^\| `rule="(\w+)"', section, re.MULTILINE)) == set(RULES)


def test_of_accuracies_the_larger_are_better_without_being_told():
    data = fl.FederatedData.from_clients(
        [(np.array([[1.0], [2.0]]), np.array([1, -1])), (np.array([[1.0]]), np.array([1]))]
    )
    metric = fl.metrics.Accuracy()
    swept = fl.sweep(
        fl.problems.Logistic(data, intercept=True),
        fl.methods.FedAvg(0.1),
        {"client_step_size": [1e-9, 1.0]},
        rounds=20,
        local_steps=3,
        metrics=[metric],
    )
    worse, better = swept.score("accuracy").tolist()
    assert better > worse
    assert swept.best("accuracy") == 1
    assert swept.best("accuracy", largest=False) == 0
