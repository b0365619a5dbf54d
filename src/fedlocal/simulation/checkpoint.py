"""Checkpoints: a run's state in one file, written atomically, free of pickle."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedlocal.util import serialization
from fedlocal.util.files import check_writable, write_atomically

HEADER = {"identity": dict, "rounds": int, "extra": dict}  # what the header of a checkpoint has, by type


class Checkpoint:
    """A file that a run writes from time to time, and continues from if it exists; `identity` tells runs apart."""

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any]):
        self.path, self.identity = Path(path), json.loads(json.dumps(identity))

    def load(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Return (rounds done, state, extra) from the file, or None if there is no file yet."""
        if (read := self.read()) is None:
            return None
        header, arrays = read
        with self._reading(ValueError):
            return header["rounds"], serialization.from_arrays(arrays, like), header["extra"]

    def read(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Return header and arrays of the file, or None if there is no file; raise a ValueError if it belongs to another run."""
        if not self.path.exists():
            return None
        with self._reading(Exception):  # foreign bytes fail in many ways inside zipfile, numpy and json
            header, arrays = _read(self.path)
        for key, value in self.identity.items():
            if (was := header["identity"].get(key)) != value:
                text = f"{self.path} belongs to another run: {key} was {was}, now {value}; use another file"
                raise ValueError(f"checkpoint: {text}")
        return header, arrays

    def resuming(self) -> AbstractContextManager[None]:
        """Raise that the file is not a checkpoint if the body does not find what it needs in `extra`."""
        return self._reading(KeyError, TypeError, AttributeError, IndexError)

    @contextmanager
    def _reading(self, *errors: type[Exception]) -> Iterator[None]:
        try:
            yield
        except errors as error:
            raise ValueError(f"checkpoint: {self.path} is not a checkpoint of fedlocal ({error})") from None

    def check_writable(self) -> None:
        """Raise an OSError if the file cannot be written: before the run and not after it."""
        check_writable(self.path, "give checkpoint= a file in a folder that can be written")

    def save(self, rounds: int, state: Any, extra: dict[str, Any]) -> None:
        """Replace the file in one step, so that a process that is killed leaves the old or the new one."""
        header = json.dumps({"identity": self.identity, "rounds": rounds, "extra": extra})
        arrays = {f"state/{name}": array for name, array in serialization.to_arrays(state).items()}
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, header=np.array(header), **arrays)
        write_atomically(self.path, buffer.getvalue())


def engine_of_file(path: Path) -> str | None:
    """Return the engine that a checkpoint says it was written with; None if there is no such file, or it is not one."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as opened:
            return _header(serialization.open_npz(opened))["identity"].get("engine")
    except Exception:  # foreign bytes fail in many ways; reading the whole checkpoint says so
        return None


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays of a file that may hold anything."""
    with path.open("rb") as opened:
        file = serialization.open_npz(opened)
        header, names = _header(file), [name for name in file.files if name != "header"]
        return header, {name.removeprefix("state/"): serialization.array_of(file, name) for name in names}


def _header(file: np.lib.npyio.NpzFile) -> dict[str, Any]:
    """Return the header of a checkpoint."""
    header = json.loads(str(serialization.array_of(file, "header")))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    for name, kind in HEADER.items():
        if type(header.get(name)) is not kind:
            raise ValueError(f"its header has no {name} of type {kind.__name__}")
    if header["rounds"] < 0:
        raise ValueError(f"its header says {header['rounds']} rounds")
    return header
