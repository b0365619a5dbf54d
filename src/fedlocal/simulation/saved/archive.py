"""The file of a saved result: NumPy's npz without pickle, whose array `header` is JSON."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedlocal.util.files import write_atomically

FORMAT = 1  # of the header; a later one may not be readable here


def write_archive(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Replace the file in one step; `np.load` reads its arrays without fedlocal."""
    buffer = io.BytesIO()
    content: dict[str, Any] = {"header": np.array(json.dumps({"format": FORMAT, **header})), **arrays}
    np.savez(buffer, allow_pickle=False, **content)
    write_atomically(path, buffer.getvalue())


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays of a file that may hold anything; foreign bytes raise errors of many types."""
    with path.open("rb") as opened:
        file = np.load(opened, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array")
        if any(member.compress_type != zipfile.ZIP_STORED for member in _members(file)):
            raise ValueError("its arrays are compressed")  # so that a small file cannot fill the memory
        if "header" not in file.files:
            raise ValueError("it has no header")
        header = json.loads(str(file["header"]))
        arrays = {name: file[name] for name in file.files if name != "header"}
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    if (got := header.get("format")) != FORMAT or type(got) is not int:
        raise ValueError(f"its header has the format {got!r}; this version of fedlocal reads {FORMAT}")
    return header, arrays


def _members(file: np.lib.npyio.NpzFile) -> list[zipfile.ZipInfo]:
    assert file.zip is not None
    return file.zip.infolist()
