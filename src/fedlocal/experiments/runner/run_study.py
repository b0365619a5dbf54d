"""Run an experiment, store its outcome, show it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.runner.configuration import GridName, Scale, load, names, recorded
from fedlocal.experiments.runner.settings import TuningName
from fedlocal.experiments.runner.store import FINISHED, Store
from fedlocal.experiments.studies import study_of
from fedlocal.report.tables import table, with_intervals


def run(
    name: str,
    *,
    scale: Scale = "quick",
    grid: GridName = "text",
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    root: Path = Path("runs"),
    resume: bool = False,
    console: Console | None = None,
    tuning: TuningName = "all",
) -> Path:
    """Run an experiment, store its results in a new directory under `root`, and return this directory.

    Args:
        name: one of `experiments.names()`.
        scale: "quick" is a small version and takes seconds to two minutes; "paper" is as in the text.
        grid: "text" has the text's step sizes; "wide" has smaller client step sizes too.
        seeds: seeds of data and sampling; None takes those of the configuration.
        overrides: values that replace those of the configuration, such as "rounds=100".
        root: the directory that holds all runs.
        resume: continue the newest unfinished run of the same configuration, if there is one.
        console: where progress, table and verdicts are printed.
        tuning: "all" runs all pairs of step sizes to the end; "halving" drops the worse ones on the way.

    Example:
        >>> from fedlocal import experiments
        >>> [name for name in experiments.names() if name.startswith("lasso")]
        ['lasso-1', 'lasso-2', 'lasso-3', 'lasso-4']
    """
    console = console or Console()
    settings = load(name, scale, grid, overrides, seeds, tuning)
    configuration = recorded(settings, scale, grid)
    label = "-".join([scale, *([grid] if grid != "text" else []), *([tuning] if tuning != "all" else [])])
    store = Store.unfinished(root, configuration) if resume else None
    if resume and store is None:
        console.print(f"no unfinished run of {name} with this configuration in {escape(str(root))}; starting a new one")
    store = store or Store.create(root, configuration, label)
    announced = f"[bold]{escape(settings.title)}[/]\nresults go to {escape(str(store.directory))}"
    console.print(announced, highlight=False)
    outcome = study_of(settings.kind)(settings, store)
    store.write_frame("history.parquet", outcome.history)
    store.write_frame("table.parquet", outcome.table)
    for extra, frame in outcome.extra.items():
        store.write_frame(f"{extra}.parquet", frame)
    if outcome.results is not None:
        store.write_csv("results.csv", outcome.results)
    for figure, draw in outcome.figures.items():
        draw(store.directory / figure)  # as PNG and as PDF
    counted = scale if settings.claims_need_scale else "paper"  # the scale that verdicts are given at
    report = {
        "notes": outcome.notes,
        "numbers": dict(outcome.numbers),
        "figures": list(outcome.figures),
        "verdicts": [asdict(verdict.at_scale(counted)) for verdict in outcome.verdicts],
    }
    store.write_json(FINISHED, report)  # last: its presence marks the run as finished
    show(store.directory, console)
    return store.directory


def show(directory: Path, console: Console | None = None) -> None:
    """Print the table and the verdicts of a finished run; of the name of an experiment, its settings."""
    console, store = console or Console(), Store(directory)
    if str(directory) in names() and not directory.exists():
        console.print(_settings(str(directory)))
        return
    configuration = store.configuration()
    if configuration is None:
        known = (
            "`fedlocal run NAME` makes one, and `fedlocal list experiments` shows the names whose settings can be shown"
        )
        raise ValueError(f"show: {directory} is not the directory of a run; {known}")
    if not store.finished:
        again = f"fedlocal run {configuration['name']} --resume"
        raise ValueError(f"show: {directory} is not finished; `{again}` with the same options continues it")
    report = store.read_json(FINISHED)
    console.print(table(with_intervals(pd.read_parquet(directory / "table.parquet")), configuration["title"]))
    lines = [*map(escape, report["notes"]), *(Verdict(**entry).styled() for entry in report["verdicts"])]
    figures = [escape(str(directory / f"{figure}.png")) for figure in report.get("figures", ["figure"])]
    for line in [*lines, *(f"figure: {path}" for path in figures)]:
        console.print(f"  {line}", highlight=False)
    console.print()


def _settings(name: str) -> Table:
    """The settings of an experiment at both scales, under the names that `--set` takes."""
    scales = {scale: _flat(load(name, scale).model_dump(mode="json")) for scale in get_args(Scale)}
    out = Table("setting", title=escape(load(name).title), title_justify="left", box=None)
    for scale in scales:
        out.add_column(scale, overflow="fold")  # a long name takes two lines; nothing is cut
    for key in dict.fromkeys(key for settings in scales.values() for key in settings):
        if key not in ("name", "kind", "title"):
            out.add_row(escape(key), *(escape(str(settings.get(key, ""))) for settings in scales.values()))
    return out


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Tables within tables as one, with dots in the names."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return flat
