"""Atomic writes of files, with errors that name the path and the reason."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AnyPath = str | os.PathLike[str]  # a path, as users give it


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it; an OSError names the path and the reason."""
    with _naming(path), replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def check_writable(path: Path, instead: str) -> None:
    """Raise the OSError that `write_atomically` would raise, before the work begins; `instead` says what would work."""
    with _naming(path, f"; {instead}"), _temporary(path) as temporary:
        temporary.touch()


def lock(file: Any, otherwise: str) -> None:
    """Lock an open file until it is closed; raise ValueError(otherwise) if another process has. On Windows do nothing."""
    if sys.platform == "win32":
        return
    import fcntl  # not on Windows

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ValueError(otherwise) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, which takes its place at the end and is removed if something fails."""
    with _temporary(path) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, in a folder that is made if needed; it is removed afterwards."""
    if path.parent.is_file():  # mkdir would say that it exists
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path, ending: str = "") -> Iterator[None]:
    """Raise an OSError of the body again with its type and errno, and a message that names the path and the reason."""
    try:
        yield
    except OSError as error:
        named = type(error)(f"cannot write {path}: {error.strerror or error}{ending}")
        named.errno = error.errno
        raise named from error
