"""tidy_table: results of any kind as one table, with a row for each line, seed and evaluation."""

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from fedlocal.methods.table import fields_of
from fedlocal.plot.chart import axis_label
from fedlocal.simulation.result import Result
from fedlocal.simulation.sweeps.result import SweepResult, psi_differs

SAMPLING = ("local_steps", "local_epochs", "batch_size", "clients_per_round", "weights", "average", "problem")
Curves = Result | SweepResult | pd.DataFrame | Sequence[Result] | Mapping[str, Result | Sequence[Result]]


def tidy_table(results: Any, x: str, y: str) -> pd.DataFrame:
    """Return the columns label, seed, moment, x, y and finite, which is False where a run has diverged.

    The values of y of one label at one moment, which is a round, make a band.
    """
    labels, table = "method", cast(Any, results)
    if isinstance(results, SweepResult):
        table, labels = _of_sweep(results), "label"
    elif not isinstance(results, pd.DataFrame):
        table, labels = _of_results(_listed(results)), "label"
    columns = ", ".join(map(str, table.columns.drop(["label"], errors="ignore")))
    for argument, name in (("y", y), ("x", x)):
        if name not in table:
            raise ValueError(f"curves: {argument} must be a column of the results, got {name!r}; there are: {columns}")
        if not pd.api.types.is_numeric_dtype(table[name]):
            raise ValueError(f"curves: {argument} must be a column of numbers, got {name!r}")
    tidy = pd.DataFrame(
        {
            "label": table[labels].astype(str) if labels in table else "",
            "seed": table.get("seed", 0),
            "moment": table["round" if "round" in table else x],
            "x": np.asarray(table[x], float),
            "y": np.asarray(table[y], float),
            "finite": np.isfinite(np.asarray(table["loss" if "loss" in table else y], float)),
        }
    )
    twice = tidy.duplicated(["label", "seed", "moment"])
    if twice.any():
        label, seed = tidy.loc[twice.idxmax(), ["label", "seed"]]
        advice = "give a dict {label: result}, or a table with a column method (and seed)"
        raise ValueError(f"curves: two lines have the label {label!r} and the seed {seed}; {advice}")
    return tidy


def grid_names(result: SweepResult) -> list[str]:
    """Return the names of the grid of a sweep that have more than one value, without the seed."""
    cells: Any = result.cells
    return [name for name in cells if name not in ("diverged", "seed") and cells[name].nunique() > 1]


def psi_caption(metric: str, methods: Iterable[Any]) -> list[str]:
    """Return the line of a caption that says that psi differs between these methods and is part of the metric; none if not."""
    return [f"{axis_label(metric)}: F + each method's own psi; they differ"] if psi_differs(metric, methods) else []


def methods_of(results: Any) -> list[Any]:
    """Return the methods of what can be drawn as curves; none of a table."""
    if isinstance(results, SweepResult):
        return results.methods
    return [] if isinstance(results, pd.DataFrame) else [result.method for _, result in _listed(results)]


def method_name(result: Result) -> str:
    """Return the name of the method's class, also where the method itself was not loaded."""
    if result.method is not None:
        return type(result.method).__name__
    return str(result.provenance["configuration"]["method"]).partition("(")[0]


def shown(value: Any) -> str:
    """Return a value as it stands in a label."""
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else reprlib.repr(value).strip("'")


def _of_sweep(result: SweepResult) -> pd.DataFrame:
    cells: Any = result.cells[grid_names(result)]
    labels = [
        ", ".join([*([str(row.pop("method"))] if "method" in row else []), *([_joined(row)] if row else [])])
        for row in cells.to_dict("records")
    ]
    return result.history.assign(label=[labels[cell] for cell in result.history["cell"]])


def _of_results(results: list[tuple[str | None, Result]]) -> pd.DataFrame:
    tables = []
    for label, (_, result) in zip(_labels(results), results, strict=True):
        seed = result.provenance["configuration"].get("seed", 0)
        tables.append(result.history.assign(label=label, seed=seed))
    return pd.concat(tables, ignore_index=True)


def _listed(results: Any) -> list[tuple[str | None, Result]]:
    """Return each result with its label, None where the user gave none."""
    groups: Any = results.items() if isinstance(results, Mapping) else [(None, results)]
    listed = [(None if label is None else str(label), each) for label, group in groups for each in _several(group)]
    wrong = next((each for _, each in listed if not isinstance(each, Result)), None)
    if wrong is not None or not listed:
        wanted = "a Result, a SweepResult, a list of results, a dict {label: result} or a table"
        raise TypeError(f"curves: results must be {wanted}, got {reprlib.repr(results if wrong is None else wrong)}")
    return listed


def _several(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _labels(results: list[tuple[str | None, Result]]) -> list[str]:
    """Return a label for each result: the name of its method, with what differs between those of the same name."""
    names = [method_name(result) if label is None else label for label, result in results]
    known = [_settings(result) for _, result in results]
    labels = []
    for (label, _), name, own in zip(results, names, known, strict=True):
        others = [each for each, other in zip(known, names, strict=True) if other == name]
        differ = [key for key in own if label is None and len({repr(other.get(key)) for other in others}) > 1]
        labels.append(f"{name}, {_joined({key: own[key] for key in differ})}" if differ else name)
    return labels


def _settings(result: Result) -> dict[str, Any]:
    """The fields of a method and the sampling of a run, by name."""
    method, configuration = result.method, result.provenance["configuration"]
    own = {} if method is None else fields_of(method)
    return {**own, **{name: configuration.get(name) for name in SAMPLING}}


def _joined(values: Mapping[Any, Any]) -> str:
    return ", ".join(f"{axis_label(str(name))} {shown(value)}" for name, value in values.items())
