"""Compare the runs of a speed-up study with another table of runs, cell by cell, relative to the noise.

A cell is a method, a step size, a number of clients and a number of local steps. The noise is the standard deviation s
of the best loss over our n seeds; the difference to a mean over n' runs of the same experiment has the deviation
s sqrt(1/n' + 1/n). Cells agree if they differ by at most three of these, or by 5 % of the suboptimality where that is
more. With few seeds s is uncertain: by Student's law 96.0 % of the cells agree with 5 seeds, 90.5 % with 3 at most.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from scipy import stats

from fedlocal.experiments.runner.methods import PUBLISHED_NAMES, PUBLISHED_NUMBERS, PUBLISHED_TABLE
from fedlocal.experiments.runner.store import Store
from fedlocal.report.tables import table as written

CELL = ["method", "step_size", "clients", "local_steps"]
COLUMNS = {"eta": "step_size", "M": "clients", "K": "local_steps"}
DEVIATIONS = 3.0  # that agreeing cells may differ by
RELATIVE = 0.05  # difference in suboptimality that is always allowed
GOOD = 0.1  # only suboptimalities below this are compared
SAME = 1e-6  # relative difference of losses that are the same but for their precision
WORST = 12  # cells shown


@dataclass(frozen=True)
class Comparison:
    """The cells that two tables have in common, and how well they agree."""

    cells: Any  # a table with one row per cell that is in both
    summary: pd.DataFrame  # one row per method
    notes: list[str]

    @property
    def worst(self) -> pd.DataFrame:
        """The cells that differ most, relative to what is allowed."""
        compared = self.cells[self.cells["compared"]]
        excess = _ratio((compared["ours"] - compared["theirs"]).abs(), compared["allowed"])
        rows = compared.loc[excess.sort_values(ascending=False, kind="stable").index[:WORST]]
        shown = rows[[*CELL, "theirs", "ours", "sd", "difference"]]
        return shown.rename(columns={"difference": "sd_apart"}).reset_index(drop=True)


def compare(directory: Path, table: Path) -> Comparison:
    """Compare the runs in a directory with a table.

    Args:
        directory: a directory that `fedlocal run` made.
        table: a CSV file with the columns method, eta, M, K, best_loss, final_loss (or alg, as the author's tables have it,
            instead of method), or the results.csv of another run.

    The author's table for a9a with lambda = 1e-3 is at https://github.com/hongliny/FedAc-NeurIPS20, out/a9a_1e-03/summary.csv.
    """
    ours, numbers = _ours(directory)
    theirs = _theirs(table)
    optimum, start = numbers["optimum"], numbers["start_loss"]
    lowest = float(theirs["best_loss"].min())
    if lowest < optimum * (1 - SAME):
        differ = f"but the optimum of {directory} is {optimum:.6g}; they are about different problems"
        raise ValueError(f"compare: {table} has a loss of {lowest:.6g}, {differ}")
    cells = _average(ours, start).add_suffix("_ours").join(_average(theirs, start).add_suffix("_theirs"), how="inner")
    if cells.empty:
        columns = "method, step size, clients and local steps"
        raise ValueError(f"compare: {table} and {directory} have no {columns} in common")
    judged = _judged(cells.reset_index(), optimum)
    return Comparison(judged, _summary(judged), _notes(judged, start))


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print how many cells agree, and those that differ most."""
    console.print(written(comparison.summary, "Cells that agree"))
    for note in comparison.notes:
        console.print(f"  {escape(note)}", highlight=False)
    console.print()
    formats = {"step_size": "{:g}", "sd_apart": "{:+.1f}"} | dict.fromkeys(("theirs", "ours", "sd"), "{:.2e}")
    console.print(written(comparison.worst, "Suboptimalities that are farthest apart", formats))


def _ours(directory: Path) -> tuple[pd.DataFrame, Mapping[str, float]]:
    store, path = Store(directory), directory / "results.csv"
    if store.configuration() is None:
        raise ValueError(f"compare: {directory} is not the directory of a run; `fedlocal run a9a-1e-3` makes one")
    if not store.finished:
        raise ValueError(f"compare: {directory} is not finished; `fedlocal run ... --resume` continues it")
    if not path.exists():
        only = "only studies of speed-up, such as a9a-1e-3, have one"
        raise ValueError(f"compare: {directory} has no results.csv; {only}")
    return pd.read_csv(path), store.read_json("report.json")["numbers"]


def _theirs(path: Path) -> Any:
    try:
        frame = pd.read_csv(path).rename(columns=COLUMNS)
    except FileNotFoundError:
        needed = "the author's table for a9a-1e-3 is at"
        raise ValueError(f"compare: there is no file {path}; {needed} {PUBLISHED_TABLE}") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError):
        raise ValueError(f"compare: {path} is not a CSV file") from None
    if "method" not in frame and "alg" in frame:
        frame = frame.assign(method=frame["alg"].map(lambda alg: PUBLISHED_NUMBERS.get(alg))).dropna(subset="method")
    missing = [name for name in [*CELL, "best_loss", "final_loss"] if name not in frame]
    if missing:
        original = {new: old for old, new in COLUMNS.items()}.get(missing[0])
        alias = f" (or {original!r})" if original else ""
        raise ValueError(f"compare: {path} has no column {missing[0]!r}{alias}; it has: {', '.join(map(str, frame))}")
    for name in ["best_loss", "final_loss", *CELL[1:]]:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            raise ValueError(f"compare: the column {name!r} of {path} must hold numbers")
    return frame.assign(method=frame["method"].replace(PUBLISHED_NAMES))


def _average(runs: Any, start_loss: float) -> pd.DataFrame:
    """Return for each cell the mean best loss, its deviation, the number of runs, and True if half of them diverged.

    A run diverged when its last loss is not finite, or (the author's table has no inf) none was better than the start.
    """
    best = runs["best_loss"].fillna(np.inf)
    lost = ~np.isfinite(runs["final_loss"]) | (best >= start_loss * (1 - SAME))
    cells: Any = runs.assign(best=best, lost=lost, step_size=runs["step_size"].round(12)).groupby(CELL, sort=False)
    found = cells.agg(loss=("best", "mean"), sd=("best", "std"), runs=("best", "size"), lost=("lost", "mean"))
    return found.assign(diverged=found["lost"] >= 0.5).drop(columns="lost")


def _judged(cells: Any, optimum: float) -> pd.DataFrame:
    """Return the suboptimalities of both sides, the allowed difference, and True if they agree."""
    ours, theirs, sd = cells["loss_ours"] - optimum, cells["loss_theirs"] - optimum, cells["sd_ours"]
    noise = sd * np.sqrt(1 / cells["runs_ours"] + 1 / cells["runs_theirs"])
    allowed = np.fmax(DEVIATIONS * noise, RELATIVE * theirs.abs())  # fmax: with one seed there is no sd
    found: Any = cells[CELL].assign(theirs=theirs, ours=ours, sd=sd, seeds=cells["runs_ours"])
    found = found.assign(difference=_ratio(ours - theirs, noise), allowed=allowed)  # difference: in standard deviations
    found = found.assign(compared=theirs < GOOD, agrees=(ours - theirs).abs() <= allowed)
    return found.join(cells[["diverged_theirs", "diverged_ours"]])


def _summary(cells: pd.DataFrame) -> pd.DataFrame:
    groups = [*cells.groupby("method", sort=False), ("all", cells)]
    return pd.DataFrame(
        {
            "method": name,
            "cells": len(own),
            f"below_{GOOD:g}": int(own["compared"].sum()),
            "agree": int((own["compared"] & own["agrees"]).sum()),
            "diverged_there": int(own["diverged_theirs"].sum()),
            "there_and_here": int((own["diverged_theirs"] & own["diverged_ours"]).sum()),
            "only_here": int((~own["diverged_theirs"] & own["diverged_ours"]).sum()),
        }
        for name, own in groups
    )


def _notes(cells: Any, start_loss: float) -> list[str]:
    compared = cells[cells["compared"]]
    seeds = int(cells["seeds"].min())
    share = f"{compared['agrees'].mean():.1%} of {len(compared)} cells" if len(compared) else "no cell"
    agreement = f"the noise was not measured, for there is one seed; agreement: within {RELATIVE:.0%}"
    if seeds > 1:
        expected = 1 - 2 * stats.t.sf(DEVIATIONS, seeds - 1)
        agreement = (
            f"agreement: within {DEVIATIONS:g} standard deviations of the noise of {seeds} seeds, in which {expected:.1%} of "
            f"the same experiment's runs would be, or within {RELATIVE:.0%}"
        )
    return [
        f"compared are cells whose suboptimality in the table is below {GOOD:g}; {share} agree",
        agreement,
        f"diverged: the last loss is not finite, or no evaluation is below the start ({start_loss:.6g})",
    ]


def _ratio(above: Any, below: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return above / below
