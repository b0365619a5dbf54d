"""Choosing among the cells of a sweep: what is compared, and which setting is best."""

from functools import cache
from typing import Any

import pytest

import fedlocal as fl
from conformance.federation import federation

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
