"""Run an experiment, keep what it found, show it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape

from fedlocal.experiments import (
    curse,
    discrepancy,
    femnist,
    fmri,
    instability,
    iterate_bias,
    lower_bound,
    rates,
    recovery,
    speedup,
    tuning,
)
from fedlocal.experiments.claims import Findings, Verdict
from fedlocal.experiments.loading import load
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.shared import Common
from fedlocal.experiments.store import FINISHED, Store
from fedlocal.report.tables import table

STUDIES: dict[str, Callable[..., Outcome]] = {
    "recovery": recovery.study,
    "femnist": femnist.study,
    "curse": curse.study,
    "instability": instability.study,
    "rates": rates.study,
    "lower_bound": lower_bound.study,
    "iterate_bias": iterate_bias.study,
    "discrepancy": discrepancy.study,
    "speedup": speedup.study,
    "fmri": fmri.study,
}


def run(
    name: str,
    *,
    scale: str = "quick",
    grid: str = "text",
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    root: Path = Path("runs"),
    resume: bool = False,
    console: Console | None = None,
) -> Path:
    """Run an experiment and leave its results in a new directory under `root`, which is returned.

    With `resume` the newest unfinished run of the same configuration is continued, if there is one.

    Example:
        >>> from fedlocal import experiments
        >>> [name for name in experiments.names() if name.startswith("lasso")]
        ['lasso-1', 'lasso-2', 'lasso-3', 'lasso-4']
    """
    console = console or Console()
    settings = load(name, scale, grid, overrides, seeds)
    configuration = _configuration(settings, scale, grid)
    label = scale if grid == "text" else f"{scale}-{grid}"
    store = Store.unfinished(root, configuration) if resume else None
    if resume and store is None:
        where = escape(str(root))
        console.print(f"no unfinished run of {name} with this configuration in {where}; starting a new one")
    if store is not None:
        store.check_writable()
    store = store or Store.create(root, configuration, label)
    where = escape(str(store.directory))
    console.print(f"[bold]{escape(settings.title)}[/]\nresults go to {where}", highlight=False)
    outcome = STUDIES[settings.kind](
        settings, store, lambda other: _elsewhere(root, other, scale, grid, settings.seeds)
    )
    store.write_frame("history.parquet", outcome.history)
    store.write_frame("table.parquet", outcome.table)
    for extra, frame in outcome.extra.items():
        store.write_frame(f"{extra}.parquet", frame)
    if outcome.results is not None:
        store.write_csv("results.csv", outcome.results)
    for figure, draw in outcome.figures.items():
        draw(store.directory / f"{figure}.png")
    report = {
        "notes": outcome.notes,
        "numbers": dict(outcome.numbers),
        "figures": list(outcome.figures),
        "verdicts": [verdict.to_json() for verdict in outcome.verdicts],
    }
    store.write_json(FINISHED, report)  # last: it says that the run is complete
    show(store.directory, console)
    return store.directory


def show(directory: Path, console: Console | None = None) -> None:
    """Print the table and the verdicts of a finished run."""
    console, store = console or Console(), Store(directory)
    configuration = store.configuration()
    if configuration is None:
        raise ValueError(f"show: {directory} is not the directory of a run; `fedlocal run NAME` makes one")
    if not store.finished:
        again = f"fedlocal run {configuration['name']} --resume"
        raise ValueError(f"show: {directory} is not finished; `{again}` with the same options continues it")
    report = store.read_json(FINISHED)
    console.print(table(pd.read_parquet(directory / "table.parquet"), configuration["title"]))
    for note in report["notes"]:
        console.print(f"  {escape(note)}", highlight=False)
    for entry in report["verdicts"]:
        console.print(f"  {Verdict(**entry).styled()}", highlight=False)
    for figure in report.get("figures", ["figure"]):
        console.print(f"  figure: {escape(str(directory / f'{figure}.png'))}", highlight=False)
    console.print()


def _elsewhere(root: Path, name: str, scale: str, grid: str, seeds: Sequence[int]) -> Findings | None:
    """What the newest finished run of another experiment found, with no other options than these."""
    settings: Any = load(name, scale, grid, seeds=seeds)
    wanted = _configuration(settings, scale, grid)
    for store in Store.all(root, name):
        if store.finished and store.configuration() == wanted:
            return tuning.findings(settings, pd.read_parquet(store.directory / "history.parquet"))
    return None


def _configuration(settings: Common, scale: str, grid: str) -> dict[str, Any]:
    return {**settings.model_dump(mode="json"), "scale": scale, "grid_name": grid}
