"""A rehearsal: the whole app in this process, one site after the other, before any site connects."""

import io
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from flwr.app import Context, RecordDict

from fedlocal.data.files import TABLES
from fedlocal.deploy.folder import component, run_config
from fedlocal.deploy.site import policy_beside
from fedlocal.flower import InProcess
from fedlocal.flower.coordinator.evaluation import in_words

ROUNDING = 1e-9  # a relative change this small is none


class Rehearsal(NamedTuple):
    """The result of a rehearsal."""

    history: pd.DataFrame
    events: pd.DataFrame
    convergence: dict[str, Any]

    def troubles(self) -> list[str]:
        """Return what did not go well."""
        events = zip(self.events["site"], self.events["what"], strict=True)
        found = [f"{site} {what}".strip() for site, what in events if what != "connected"]
        objective = self.history["objective"].to_numpy(np.float64)
        if not len(objective) or not np.isfinite(objective).all():
            found.append("the objective is not finite; try smaller step sizes")
        elif len(objective) > 1 and objective[-1] > objective[0] + ROUNDING * abs(objective[0]):
            found.append(f"the objective grew from {objective[0]:.6g} to {objective[-1]:.6g}; try smaller step sizes")
        return list(dict.fromkeys(found))

    def distance(self) -> str:
        """Return how far from the optimum it ended, in words."""
        last, tol = self.history.iloc[-1].to_dict() if len(self.history) else {}, self.convergence.get("tol")
        said = f"converged after {self.convergence.get('rounds', 0)} rounds: {in_words(last)}"
        if self.convergence.get("converged"):
            return said
        return f"not {said}" + ("" if tol is None else f"; tol is {tol:g}")


def rehearse(
    folder: Path, files: Sequence[Path] = (), rounds: int | None = None, results: Path | None = None
) -> Rehearsal:
    """Run the app's ServerApp against its ClientApp: everything but the network. Its files are kept in `results`, if given.

    `files` are those of the sites, in their order, or one that plays all of them; none for an experiment's app.
    """
    config = run_config(folder, **({} if rounds is None else {"rounds": rounds}))
    sites = _nodes(config["sites"], [Path(file).resolve() for file in files])
    _check_columns(files)
    if {"eval-every", "rounds"} <= config.keys():
        # twice, to see the objective fall
        config["eval-every"] = max(1, min(config["eval-every"], config["rounds"] // 2))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) if results is None else results
        config |= {"results": str(place), "patience": 0.0}
        grid = InProcess(component(folder, "clientapp"), sites, config)
        out = nullcontext() if results is not None else redirect_stdout(_WithoutPlace(sys.stdout, str(place)))
        with out:
            component(folder, "serverapp")(grid, Context(0, 0, {}, RecordDict(), config))
        events = pd.read_csv(place / "events.csv", keep_default_na=False)
        report = json.loads((place / "report.json").read_text())
        return Rehearsal(_history(place / "history.csv"), events, report["convergence"])


class _WithoutPlace(io.TextIOBase):
    """A screen that leaves out lines about a folder which is gone afterwards."""

    def __init__(self, screen: Any, place: str):
        self.screen, self.place = screen, place

    def write(self, text: str) -> int:
        self._muted = self.place in text or (text == "\n" and getattr(self, "_muted", False))
        return len(text) if self._muted else self.screen.write(text)

    def flush(self) -> None:
        self.screen.flush()


def _history(file: Path) -> pd.DataFrame:
    """Where no loss was finite the file has not even columns."""
    try:
        return pd.read_csv(file)
    except pd.errors.EmptyDataError:
        return pd.DataFrame(columns=pd.Index(["round", "objective"]))


def _nodes(sites: str | int, files: list[Path]) -> dict[str, dict[str, Any]]:
    """The node configuration of every site: as at a real one, with the policy beside its file, and without a record."""
    if isinstance(sites, int):
        if files:
            raise ValueError("rehearse: the sites of this app make their data themselves; leave out --data")
        return {str(number): {"partition-id": number} for number in range(sites)}
    names = sites.split(",")
    if len(files) not in (1, len(names)):
        wanted = f"one --data for each of the sites {', '.join(names)}, in this order, or one that plays all of them"
        raise ValueError(f"rehearse: give {wanted}; got {len(files)}")
    files = files * len(names) if len(files) == 1 else files
    values = {name: {"data": file, "policy": policy_beside(file)} for name, file in zip(names, files, strict=True)}
    return {name: {n: str(path) for n, path in node.items() if path is not None} for name, node in values.items()}


def _check_columns(files: Sequence[Path]) -> None:
    """Files of different sites must have the same columns; their order does not matter."""
    headers = {file: _columns(file) for file in files if file.name.lower().endswith(TABLES)}
    first = next(iter(headers), None)
    for file, columns in headers.items():
        if first is not None and sorted(columns) != sorted(headers[first]):
            missing, more = sorted(set(headers[first]) - set(columns)), sorted(set(columns) - set(headers[first]))
            said = [f"{file} lacks {missing[0]!r}"] if missing else []
            said += [f"{file} has {more[0]!r}, which {first} has not"] if more else []
            raise ValueError(f"rehearse: all files must have the same columns; {' and '.join(said)}")


def _columns(file: Path) -> list[str]:
    if not file.is_file():
        raise ValueError(f"rehearse: there is no file {file}")
    table = pd.read_parquet(file) if file.name.lower().endswith(".parquet") else pd.read_csv(file, nrows=1)
    return [str(column) for column in table.columns]
