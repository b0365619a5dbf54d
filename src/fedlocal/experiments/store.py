"""Store: a directory with all that a run of an experiment produced, written atomically, part by part."""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedlocal.engines.checkpoint import check_writable, write_atomically
from fedlocal.progress import ProgressBar
from fedlocal.provenance import provenance

FINISHED = "report.json"
INSTEAD = "give --directory a folder that can be written"


class Store:
    """One run's directory: provenance.json, parts/*.parquet while it goes on, and the report at its end."""

    def __init__(self, directory: Path):
        self.directory = directory

    @classmethod
    def create(cls, root: Path, configuration: dict[str, Any], label: str) -> "Store":
        """A new directory under `root`, named by experiment, label and time."""
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
        store.write_json("provenance.json", provenance(**configuration))
        return store

    @classmethod
    def all(cls, root: Path, name: str) -> "list[Store]":
        """The runs of an experiment, newest first."""
        found = sorted(root.glob(f"{name}-*/provenance.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        return [cls(path.parent) for path in found]

    @classmethod
    def unfinished(cls, root: Path, configuration: dict[str, Any]) -> "Store | None":
        """The newest unfinished run of the same configuration, or None. Another version that continues it is noted."""
        for store in cls.all(root, configuration["name"]):
            if not store.finished and store.configuration() == configuration:
                origin, now = store.read_json("provenance.json"), provenance()
                if origin["commit"] != now["commit"] or origin["fedlocal"] != now["fedlocal"]:
                    origin.setdefault("continued_by", []).append({k: now[k] for k in ("fedlocal", "commit")})
                    store.write_json("provenance.json", origin)
                return store
        return None

    def configuration(self) -> dict[str, Any] | None:
        """What was run; None where this is not the directory of a run."""
        try:
            return self.read_json("provenance.json")["configuration"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def finished(self) -> bool:
        return (self.directory / FINISHED).exists()

    def check_writable(self) -> None:
        """Raise an OSError if nothing can be written here: before the run and not after it."""
        check_writable(self.directory / FINISHED, INSTEAD)

    def has(self, name: str) -> bool:
        """Whether a part of the result is there already."""
        return self._part(name).exists()

    def frame(self, name: str, make: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
        """A part of the result: read where it is there already, else made (with a place for its checkpoint) and kept."""
        if not self.has(name):
            checkpoint = self._part(name).with_suffix(".npz")
            frame = make(checkpoint)
            self.write_frame(f"parts/{name}.parquet", frame)
            checkpoint.unlink(missing_ok=True)
        return pd.read_parquet(self._part(name))  # so that a run and its continuation see the same

    def frames(self, groups: Sequence[Mapping[str, Callable[[], pd.DataFrame]]]) -> list[pd.DataFrame]:
        """One frame per group, of several named parts each; those that are in the store are read."""
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
