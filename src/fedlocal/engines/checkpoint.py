"""Checkpoints: a run's state in one file, written atomically, free of pickle."""

import hashlib
import io
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedlocal import wire


class Checkpoint:
    """A file that a run writes now and then and continues from when it exists.

    `identity` says which run it is (method, problem, plan): another run refuses to continue from it.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any]):
        self.path, self.identity = Path(path), json.loads(json.dumps(identity))

    def load(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """(rounds done, state, extra) from the file, or None when there is no file yet."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                arrays = {name.removeprefix("state/"): file[name] for name in file.files if name != "header"}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(f"checkpoint: {self.path} is not a checkpoint of fedlocal ({error})") from None
        for key, value in self.identity.items():
            if header["identity"].get(key) != value:
                was = header["identity"].get(key)
                raise ValueError(
                    f"checkpoint: {self.path} belongs to another run: {key} was {was}, now {value}; use another file"
                )
        return header["rounds"], wire.from_arrays(arrays, like), header["extra"]

    def save(self, rounds: int, state: Any, extra: dict[str, Any]) -> None:
        """Replace the file in one step, so that a kill at any moment leaves the old or the new one."""
        header = json.dumps({"identity": self.identity, "rounds": rounds, "extra": extra})
        arrays = {f"state/{name}": array for name, array in wire.to_arrays(state).items()}
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, header=np.array(header), **arrays)
        write_atomically(self.path, buffer.getvalue())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def fingerprint(tree: Any) -> str:
    """A short hash of a pytree: its structure and every number in it."""
    digest = hashlib.blake2b(digest_size=16)
    leaves, treedef = jax.tree.flatten(tree)
    digest.update(_stable_name(treedef).encode())
    for leaf in leaves:
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _stable_name(treedef: Any) -> str:
    """The structure as text without memory addresses, which differ from process to process."""
    return " ".join(word for word in str(treedef).split() if not word.startswith("0x"))
