"""Store: the directory of one run of an experiment. Files are written atomically, part by part."""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.runner.configuration import recorded, same_options
from fedlocal.util.files import check_writable, write_atomically
from fedlocal.util.progress import ProgressBar
from fedlocal.util.provenance import provenance_record

FINISHED = "report.json"
INSTEAD = "give --directory a folder that can be written"


@dataclass(frozen=True)
class StudyOutcome:
    """All measurements, the table, a verdict per claim, and functions that draw the figures."""

    history: pd.DataFrame
    table: pd.DataFrame
    verdicts: list[Verdict]
    figures: Mapping[str, Callable[[Path], None]]  # file name without suffix -> function that draws into a file
    notes: list[str] = field(default_factory=list)  # lines above the table
    numbers: Mapping[str, float] = field(default_factory=dict)  # single numbers of the report, such as the optimum
    results: pd.DataFrame | None = None  # one row per run, for results.csv
    extra: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # further tables to keep, by name


class Store:
    """The directory of one run: provenance.json, parts/*.parquet while it runs, and the report once it has finished."""

    def __init__(self, directory: Path):
        self.directory = directory

    @classmethod
    def create(cls, root: Path, configuration: dict[str, Any], label: str) -> "Store":
        """Make a new directory under `root`, named by experiment, label and time."""
        check_writable(root / configuration["name"], INSTEAD)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        stem, number = f"{configuration['name']}-{label}-{stamp}", 0
        while True:
            store = cls(root / (stem if number == 0 else f"{stem}-{number}"))
            try:
                store.directory.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
        store.write_json("provenance.json", provenance_record(**configuration))
        return store

    @classmethod
    def all(cls, root: Path, name: str) -> "list[Store]":
        """Return the runs of an experiment, newest first."""
        found = sorted(root.glob(f"{name}-*/provenance.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        return [cls(path.parent) for path in found]

    @classmethod
    def unfinished(cls, root: Path, configuration: dict[str, Any]) -> "Store | None":
        """Return the newest unfinished run of this configuration, or None; its provenance records a new version."""
        for store in cls.all(root, configuration["name"]):
            if not store.finished and store.configuration() == configuration:
                check_writable(store.directory / FINISHED, INSTEAD)  # so that a run fails before it starts
                origin, now = store.read_json("provenance.json"), provenance_record()
                if origin["commit"] != now["commit"] or origin["fedlocal"] != now["fedlocal"]:
                    origin.setdefault("continued_by", []).append({k: now[k] for k in ("fedlocal", "commit")})
                    store.write_json("provenance.json", origin)
                return store
        return None

    def finished_run_of(self, name: str) -> "Store | None":
        """Return the newest finished run of an experiment beside this one with its scale, grid, seeds and tuning, or None."""
        own = self.configuration()
        if own is None:
            return None
        wanted = recorded(same_options(name, own), own["scale"], own["grid_name"])
        runs = Store.all(self.directory.parent, name)
        return next((run for run in runs if run.finished and run.configuration() == wanted), None)

    def configuration(self) -> dict[str, Any] | None:
        """Return the configuration of the run, or None if this is not the directory of a run."""
        try:
            return self.read_json("provenance.json")["configuration"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def finished(self) -> bool:
        return (self.directory / FINISHED).exists()

    def has(self, name: str) -> bool:
        """Return True if this part of the result is stored."""
        return self._part(name).exists()

    def frame(self, name: str, make: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
        """Return a part of the result: read it if it is stored, else compute and store it.

        Args:
            name: name of the part.
            make: computes the part; its argument is the path for a checkpoint.
        """
        if not self.has(name):
            checkpoint = self.checkpoint(name)
            frame = make(checkpoint)
            self.write_frame(f"parts/{name}.parquet", frame)
            checkpoint.unlink(missing_ok=True)
        return pd.read_parquet(self._part(name))  # also after writing, so that a resumed run sees the same

    def checkpoint(self, name: str) -> Path:
        """Return the path for the checkpoint of a part."""
        return self.directory / "parts" / f"{name}.npz"

    def frames(self, groups: Sequence[Mapping[str, Callable[[], pd.DataFrame]]]) -> list[pd.DataFrame]:
        """Return one frame per group of named parts. Stored parts are read, the others are computed and stored."""
        found, done = [], 0
        with ProgressBar("parts", sum(map(len, groups))) as bar:
            for parts in groups:
                frames = []
                for name, make in parts.items():
                    bar.advance_to(done, name)
                    frames.append(self.frame(name, lambda _, make=make: make()))
                    done += 1
                found.append(pd.concat(frames, ignore_index=True))
        return found

    def _part(self, name: str) -> Path:
        return self.directory / "parts" / f"{name}.parquet"

    def write_frame(self, name: str, frame: pd.DataFrame) -> None:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        write_atomically(self.directory / name, buffer.getvalue())

    def write_csv(self, name: str, frame: pd.DataFrame) -> None:
        write_atomically(self.directory / name, frame.to_csv(index=False).encode())

    def write_json(self, name: str, content: Any) -> None:
        write_atomically(self.directory / name, (json.dumps(content, indent=2) + "\n").encode())

    def read_json(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())
