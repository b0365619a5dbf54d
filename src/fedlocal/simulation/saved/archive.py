"""The file of a saved result: NumPy's npz without pickle, whose array `header` is JSON."""

import errno
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedlocal.util.files import write_atomically
from fedlocal.util.serialization import array_of, open_npz

FORMAT = 1  # of the header; a later one may not be readable here


def write_archive(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Replace the file in one step; `np.load` reads its arrays without fedlocal."""
    buffer = io.BytesIO()
    content: dict[str, Any] = {"header": np.array(json.dumps({"format": FORMAT, **header})), **arrays}
    np.savez(buffer, allow_pickle=False, **content)
    write_atomically(path, buffer.getvalue())


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays of a file that may hold anything; foreign bytes raise errors of many types."""
    with path.open("rb") as opened, _within():
        file = open_npz(opened)
        if any(member.compress_type != zipfile.ZIP_STORED for member in _members(file)):
            raise ValueError("its arrays are compressed")  # so that a small file cannot fill the memory
        header = json.loads(str(array_of(file, "header")))
        arrays = {name: array_of(file, name) for name in file.files if name != "header"}
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    if (got := header.get("format")) != FORMAT or type(got) is not int:
        raise ValueError(f"its header has the format {got!r}; this version of fedlocal reads {FORMAT}")
    return header, arrays


@contextmanager
def _within() -> Iterator[None]:
    """Raise a ValueError if a part is to be read from before the file's beginning, which is no fault of the disk."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ValueError("its parts do not lie where it says") from None


def _members(file: np.lib.npyio.NpzFile) -> list[zipfile.ZipInfo]:
    assert file.zip is not None
    return file.zip.infolist()
