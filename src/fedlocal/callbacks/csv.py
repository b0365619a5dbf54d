"""CSV: the history of a run as a file that grows with it."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlocal.callbacks.base import Callback, Row
from fedlocal.core import Params
from fedlocal.util.files import AnyPath, check_writable, write_atomically


class CSV(Callback):
    """Writes the history of a run to a file, a line after every evaluation.

    At any time the file holds whole lines, so it can be followed with `tail -f`. A resumed run begins with the rows of its
    checkpoint, so its file has the lines of a whole run; other content of the file is replaced.

    Args:
        path: the file; its folder is made if needed.
    """

    def __init__(self, path: AnyPath):
        try:
            self.path = Path(path)
        except TypeError:
            raise TypeError(f"CSV: path must be the path of a file, got {path!r}") from None
        self.rows: list[Row] = []
        self.columns: list[str] = []
        self.file: io.FileIO | None = None

    def start(self, configuration: Mapping[str, Any], rows: Sequence[Row]) -> None:
        check_writable(self.path, "give CSV a file in a folder that can be written")
        self.rows, self.columns = list(rows), []
        self._write_all()

    def evaluated(self, round: int, row: Row, x: Params) -> None:
        self.rows.append(row)
        if self.columns and not set(row) <= set(self.columns):
            self._write_all()
            return
        assert self.file is not None
        first = not self.columns
        self.columns = self.columns or list(row)
        self.file.write(self._lines([row], header=first))  # one call, so that no reader sees a part of a line

    def end(self, error: BaseException | None) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def _write_all(self) -> None:
        """Replace the file by all rows, and open it for more."""
        self.end(None)
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row))
        write_atomically(self.path, self._lines(self.rows, header=True) if self.rows else b"")
        self.file = io.FileIO(self.path, "ab")

    def _lines(self, rows: Sequence[Row], header: bool) -> bytes:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
