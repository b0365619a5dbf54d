"""Heat maps show the scores of a sweep, its best cell, and the cells that diverged."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from conformance.federation import federation

GRID = {"client_step_size": [1e-3, 1e-2, 1e60], "server_step_size": [0.25, 0.5, 0.75, 1.0]}


@cache
def sweep_over(names: tuple[str, ...] = tuple(GRID)) -> fl.SweepResult:
    grid = {name: GRID[name] for name in names}
    method = fl.methods.FedAvg(1e-2)
    with pytest.warns(fl.DivergenceWarning):
        return fl.sweep(federation(), method, grid, rounds=3, local_steps=2, progress=False)


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def line(figure: Any, label: str) -> Any:
    (found,) = [each for each in figure.axes[0].lines if str(each.get_label()).startswith(label)]
    return found


def test_colours_are_the_scores():
    sweep: Any = sweep_over()
    figure: Any = sweep.plot("loss")
    mesh = figure.axes[0].collections[0]
    scores: Any = sweep.score("loss", "last").to_numpy().reshape(3, 4).T  # rows are the y axis
    np.testing.assert_array_equal(np.ma.filled(mesh.get_array(), np.nan), scores)
    axis = figure.axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("client step size", "server step size")
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "linear")
    assert figure.axes[1].get_ylabel() == "loss after the last round"
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["0.25", "0.5", "0.75", "1"]


def test_the_best_cell_and_those_that_diverged_are_marked():
    sweep: Any = sweep_over()
    figure: Any = fl.plot.heat_map(sweep, "loss")
    best: Any = sweep.cells.loc[sweep.best("loss", "last")]
    x, y = line(figure, "best").get_data()
    assert (x[0], y[0]) == (best["client_step_size"], best["server_step_size"])
    gone: Any = sweep.cells[sweep.cells["diverged"].notna()]
    assert len(gone) == 4
    marked = {tuple(point) for point in line(figure, "diverged").get_xydata().tolist()}
    assert marked == set(zip(gone["client_step_size"], gone["server_step_size"], strict=True))
    assert legend(figure) == ["diverged", "best: client step size 0.01, server step size 1"]


def test_large_scores_may_be_good():
    sweep: Any = sweep_over()
    figure: Any = fl.plot.heat_map(sweep, "loss", largest=True)
    best: Any = sweep.cells.loc[sweep.best("loss", "last", largest=True)]
    assert line(figure, "best").get_data()[0][0] == best["client_step_size"]


def test_cells_that_are_not_in_the_grid_are_left_out():
    grid = [{"client_step_size": a, "server_step_size": b} for a, b in ((0.1, 1.0), (0.01, 0.5), (0.01, 1.0))]
    sweep: Any = fl.sweep(federation(), fl.methods.FedAvg(1e-2), grid, rounds=1, local_steps=1, progress=False)
    figure: Any = fl.plot.heat_map(sweep, "loss")
    assert np.ma.count(figure.axes[0].collections[0].get_array()) == 3
    assert [text for text in legend(figure) if text == "diverged"] == []


def test_one_axis_is_a_line():
    sweep: Any = sweep_over(("client_step_size",))
    figure: Any = sweep.plot("loss")
    scores: Any = sweep.score("loss", "last")
    np.testing.assert_array_equal(line(figure, "score").get_data(), [[1e-3, 1e-2], scores[:2]])
    assert line(figure, "diverged").get_xdata().tolist() == [1e60]
    assert line(figure, "best").get_xdata() == [1e-2]
    assert figure.axes[0].get_xscale() == "log"


def test_axes_may_be_chosen_and_the_rest_is_at_its_best():
    sweep: Any = sweep_over()
    figure: Any = fl.plot.heat_map(sweep, "loss", axes=["server_step_size"])
    table: Any = sweep.cells.assign(score=sweep.score("loss", "last")).groupby("server_step_size")["score"].min()
    np.testing.assert_array_equal(line(figure, "score").get_ydata(), table)
    assert figure.axes[0].get_title(loc="left") == "the best over client step size"
    turned: Any = fl.plot.heat_map(sweep, "loss", axes=["server_step_size", "client_step_size"])
    assert turned.axes[0].get_xlabel() == "server step size"


def test_seeds_are_averaged_and_one_that_diverged_makes_the_cell_diverged():
    sweep: Any = sweep_over()
    as_seeds = {"client_step_size": "seed"}
    cells, history = (table.rename(columns=as_seeds) for table in (sweep.cells, sweep.history))
    fine = fl.SweepResult(**{**vars(sweep), "cells": cells[:8], "history": history[history["cell"] < 8]})
    figure: Any = fl.plot.heat_map(fine, "loss")
    scores: Any = sweep.score("loss", "last").to_numpy().reshape(3, 4)
    np.testing.assert_allclose(line(figure, "score").get_ydata(), scores[:2].mean(axis=0), rtol=1e-12)
    with pytest.raises(ValueError, match="heat_map: no cell has a finite 'loss' by the rule 'last'; all"):
        fl.plot.heat_map(fl.SweepResult(**{**vars(sweep), "cells": cells, "history": history}), "loss")


@pytest.mark.parametrize("with_server", [False, True])
def test_a_cross_says_how_many_seeds_diverged_and_the_caption_that_scores_are_means(with_server: bool):
    servers = [0.5, 1.0] if with_server else [1.0]
    eta = {(size, seed): 1e60 if size > seed else 1e-3 for size in (0.0, 1.0, 3.0) for seed in (0, 1, 2)}
    grid = [
        {"size": size, "server": server, "seed": seed, "eta": eta[size, seed]}
        for size, seed in eta
        for server in servers
    ]

    def method(size: float, server: float, eta: float) -> fl.LocalMethod:
        return fl.methods.FedAvg(eta, server)

    with pytest.warns(fl.DivergenceWarning):
        sweep: Any = fl.sweep(federation(), method, grid, rounds=3, local_steps=2, progress=False)
    cells, history = (table.drop(columns="eta") for table in (sweep.cells, sweep.history))
    sweep = fl.SweepResult(**{**vars(sweep), "cells": cells, "history": history})
    figure: Any = fl.plot.heat_map(sweep, "loss")
    said = {text.xy[0]: text.get_text() for text in figure.axes[0].texts}
    assert said == {1.0: "1 of 3", 3.0: "3 of 3"}
    assert len(figure.axes[0].texts) == 2 * len(servers)
    assert figure.axes[0].get_title(loc="left") == "mean of 3 seeds"
    figure._repr_png_()


def test_without_seeds_a_cross_stands_alone():
    figure: Any = sweep_over().plot("loss")
    assert {text.get_text() for text in figure.axes[0].texts} <= {""}
    assert figure.axes[0].get_title(loc="left") == ""


def test_a_sweep_over_what_is_not_a_number_is_drawn_as_curves():
    grid = {"regularizer": [fl.regularizers.L1(0.1), fl.regularizers.L1(0.2)]}
    sweep: Any = fl.sweep(federation(), fl.methods.FedMiD(1e-2), grid, rounds=1, local_steps=1, progress=False)
    figure: Any = sweep.plot("loss")
    assert len(figure.axes[0].lines) == 2
    with pytest.raises(ValueError, match=r"one or two axes can be drawn, got 0; .* several values: none"):
        fl.plot.heat_map(sweep)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"axes": ["eta"]}, r"axes must be numbers of the grid, got \['eta'\]; .*: client_step_size, server_step_size"),
        ({"axes": ["client_step_size"] * 2}, "axes must be numbers of the grid"),
        ({"axes": []}, "one or two axes can be drawn, got 0"),
        ({"metric": "f1"}, "metric must be one of"),
        ({"rule": "first"}, "rule must be one of"),
    ],
)
def test_what_cannot_be_drawn_is_told(arguments: Any, words: str):
    with pytest.raises(ValueError, match=words):
        fl.plot.heat_map(sweep_over(), **arguments)
    with pytest.raises(TypeError, match="heat_map: sweep must be a SweepResult"):
        fl.plot.heat_map(pd.DataFrame())  # pyright: ignore[reportArgumentType]
