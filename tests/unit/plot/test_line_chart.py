"""Lines, bands and legends show the numbers of the results."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from conformance.federation import federation

ONE, TWO = fl.methods.FedAvg(0.01), fl.methods.FedAvg(0.05)


@cache
def run(method: fl.LocalMethod = ONE, seed: int = 0, local_steps: int = 2) -> fl.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.DivergenceWarning)
        return fl.simulate(
            federation(), method, rounds=4, local_steps=local_steps, batch_size=1, seed=seed, progress=False
        )


def legend(figure: Any) -> list[str]:
    return [text.get_text() for each in figure.legends for text in each.get_texts()]


def lines(figure: Any) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in figure.axes[0].lines]


def history(result: fl.Result) -> Any:
    return result.history


def seeds(method: fl.LocalMethod = ONE) -> list[fl.Result]:
    return [run(method, seed) for seed in range(3)]


def table(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_one_result_is_one_line_with_a_title():
    result = run()
    figure: Any = result.plot(y="loss", x="numbers_up")
    (line,) = lines(figure)
    np.testing.assert_array_equal(line, result.history[["numbers_up", "loss"]])
    axis = figure.axes[0]
    assert axis.get_title(loc="left") == "FedAvg on MatrixSensing"
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("numbers sent by all clients", "loss")
    assert legend(figure) == []


def test_a_band_reaches_from_the_smallest_to_the_largest_seed():
    figure: Any = fl.plot.curves(seeds(), y="loss")
    values = np.stack([history(result)["loss"] for result in seeds()])
    (line,) = lines(figure)
    np.testing.assert_allclose(line[:, 1], values.mean(axis=0), rtol=1e-12)
    corners: Any = figure.axes[0].collections[0].get_paths()[0].vertices
    for r in range(5):
        at = corners[corners[:, 0] == r, 1]
        assert (at.min(), at.max()) == (values[:, r].min(), values[:, r].max())
    assert figure.legends[0].get_title().get_text() == "mean of 3 seeds; the band is from the smallest to the largest"


@pytest.mark.parametrize(
    ("results", "labels"),
    [
        (lambda: [run(ONE), run(TWO)], ["FedAvg, client step size 0.01", "FedAvg, client step size 0.05"]),
        (lambda: [run(), run(local_steps=3)], ["FedAvg, local steps 2", "FedAvg, local steps 3"]),
        (lambda: [run(), run(fl.methods.Scaffold(0.01))], ["FedAvg", "Scaffold"]),
        (lambda: [*seeds(ONE), *seeds(TWO)], ["FedAvg, client step size 0.01", "FedAvg, client step size 0.05"]),
        (lambda: {"a": run(), "b": seeds(TWO)}, ["a", "b"]),
    ],
    ids=["fields", "sampling", "classes", "seeds", "dict"],
)
def test_labels_say_what_differs(results: Any, labels: list[str]):
    assert legend(fl.plot.curves(results())) == labels


def test_a_table_has_a_line_for_each_method():
    frame = table(method=["a", "b"] * 4, seed=[0, 0, 0, 0, 1, 1, 1, 1], round=[0, 0, 1, 1] * 2, error=np.arange(8.0))
    figure: Any = fl.plot.curves(frame, y="error")
    assert legend(figure) == ["a", "b"]
    np.testing.assert_array_equal(lines(figure)[0], [[0, 2], [1, 4]])
    np.testing.assert_array_equal(lines(figure)[1], [[0, 3], [1, 5]])


def test_against_time_a_band_is_over_the_same_rounds():
    frame = table(method="a", seed=[0, 0, 1, 1], round=[0, 1, 0, 1], seconds=[0.0, 1.0, 0.5, 3.0], loss=[4.0, 2, 6, 3])
    (line,) = lines(fl.plot.curves(frame, y="loss", x="seconds"))
    np.testing.assert_array_equal(line, [[0.25, 5.0], [2.0, 2.5]])


def test_a_sweep_has_a_line_for_each_cell():
    sweep = fl.sweep(federation(), ONE, {"client_step_size": [0.01, 0.02]}, rounds=2, local_steps=1, progress=False)
    figure: Any = fl.plot.curves(sweep, y="loss")
    assert legend(figure) == ["client step size 0.01", "client step size 0.02"]
    np.testing.assert_array_equal(lines(figure)[1][:, 1], sweep.cell(1).history["loss"])


def test_seeds_of_a_sweep_are_a_band():
    sweep = fl.sweep(federation(), ONE, {"client_step_size": [0.01, 0.02]}, rounds=2, local_steps=1, progress=False)
    cells = sweep.cells.rename(columns={"client_step_size": "seed"})
    history = sweep.history.rename(columns={"client_step_size": "seed"})
    figure: Any = fl.plot.curves(fl.SweepResult(**{**vars(sweep), "cells": cells, "history": history}), y="loss")
    values = sweep.history.pivot(index="round", columns="cell", values="loss")
    np.testing.assert_allclose(lines(figure)[0][:, 1], values.mean(axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("values", "scale"),
    [([100.0, 1.0], "log"), ([5.0, 1.0], "linear"), ([100.0, 0.0], "linear"), ([1.0, -9], "linear")],
)
def test_the_scale_is_logarithmic_where_values_span_more_than_a_decade(values: list[float], scale: str):
    assert fl.plot.curves(table(round=[0, 1], loss=values), y="loss").axes[0].get_yscale() == scale


def test_a_run_that_diverges_is_named_and_does_not_set_the_scale():
    wild = run(fl.methods.FedAvg(1e60))
    assert wild.diverged is not None
    figure: Any = fl.plot.curves({"calm": run(), "wild": wild}, y="loss")
    assert legend(figure) == ["calm", "wild (diverged)"]
    low, high = figure.axes[0].get_ylim()
    assert low < history(run())["loss"].min()
    assert high < 10 * history(run())["loss"].max()


def test_a_run_that_diverges_at_once_has_a_scale():
    figure: Any = fl.plot.curves(table(round=[0, 1, 2], loss=[2.0, 1e30, np.inf]), y="loss")
    low, high = figure.axes[0].get_ylim()
    assert low < 2 < high < 1e3


def test_a_band_ends_where_a_seed_diverges():
    frame = table(method="a", seed=[0, 0, 0, 1, 1, 1], round=[0, 1, 2] * 2, loss=[1, 2, np.nan, 3, 4, 5.0])
    figure: Any = fl.plot.curves(frame, y="loss")
    np.testing.assert_array_equal(lines(figure)[0], [[0, 2], [1, 3]])
    np.testing.assert_array_equal(lines(figure)[1], [[1, 3]])  # the cross
    assert legend(figure) == ["a (1 of 2 seeds diverged)"]


def test_the_legend_says_that_seeds_which_ended_early_shorten_the_line():
    early, late = run(ONE, 0), history(run(ONE, 1))
    frame = pd.concat([history(early).head(2).assign(seed=0, method="a"), late.assign(seed=1, method="a")])
    figure: Any = fl.plot.curves(frame, y="loss")
    assert len(lines(figure)[0]) == 2
    assert legend(figure) == ["a (the 2 of 5 evaluations that all seeds have)"]
    apart = table(method="a", seed=[0, 0, 1, 1], round=[0, 2, 1, 3], loss=1.0)
    assert legend(fl.plot.curves(apart, y="loss")) == ["a (the 0 of 4 evaluations that all seeds have)"]


def test_a_value_that_is_missing_in_some_rounds_is_not_a_divergence():
    frame = table(method=["a", "a", "b", "b"], round=[0, 1] * 2, loss=1.0, rare=[1, np.nan, 3, 4])
    assert legend(fl.plot.curves(frame, y="rare")) == ["a", "b"]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (lambda: 3, r"curves: results must be a Result, .* or a table, got 3"),
        (list, r"curves: results must be .*, got \[\]"),
        (lambda: {"a": [run(), "b"]}, "got 'b'"),
        (lambda: [run(), run()], r"two lines have the label 'FedAvg' and the seed 0; give a dict"),
        (lambda: table(round=[0, 0], loss=[1.0, 2.0]), "two lines have the label '' and the seed 0"),
        (
            lambda: table(round=[0], error=[1.0]),
            "y must be a column of the results, got 'loss'; there are: round, error",
        ),
        (lambda: table(step=[0], loss=[1.0]), "x must be a column of the results, got 'round'; there are: step, loss"),
        (lambda: table(round=[0], loss=["a"]), "y must be a column of numbers, got 'loss'"),
        (lambda: table(round=0, method=range(31), loss=1.0), r"at most 30 lines .* got 31; .* fl[.]plot[.]heat_map"),
    ],
)
def test_what_cannot_be_drawn_is_told(results: Any, words: str):
    with pytest.raises((TypeError, ValueError), match=words):
        fl.plot.curves(results(), y="loss")


def test_a_result_that_was_loaded_can_be_drawn(tmp_path: Path):
    run().save(tmp_path / "run.npz")
    figure: Any = fl.load(tmp_path / "run.npz").plot()
    assert figure.axes[0].get_title(loc="left") == "FedAvg on MatrixSensing"


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_the_same_figure_is_the_same_file(kind: str, tmp_path: Path):
    starts = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    for name in ("a", "b"):
        fl.plot.save(fl.plot.curves([run(ONE), run(TWO)]), tmp_path / "new" / f"{name}.{kind}")
    contents = [(tmp_path / "new" / f"{name}.{kind}").read_bytes() for name in ("a", "b")]
    assert contents[0] == contents[1]
    assert contents[0].startswith(starts[kind])
    assert b"Date" not in contents[0]


def test_another_ending_is_told(tmp_path: Path):
    with pytest.raises(ValueError, match=r"save: the path must end in \.png, \.pdf, \.svg, got '.*a\.jpg'"):
        fl.plot.save(run().plot(), tmp_path / "a.jpg")


def test_a_notebook_shows_the_figure():
    assert run().plot()._repr_png_().startswith(b"\x89PNG")
