"""TensorBoard: the history of a run as event files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlocal.callbacks.base import Callback, Row
from fedlocal.core import Params
from fedlocal.util.files import AnyPath, check_writable
from fedlocal.util.optional import optional_import


class TensorBoard(Callback):
    """Writes the history of a run for TensorBoard: a scalar for every column, and the configuration as text.

    It needs tensorboardX: `pip install "fedlocal[tensorboard]"`. `tensorboard --logdir folder` shows it. Every run writes a
    file of its own that hides what the folder has from earlier runs; a resumed run writes the rows of its checkpoint again.

    Args:
        folder: of the event files; one folder per run.
    """

    def __init__(self, folder: AnyPath):
        try:
            self.folder = Path(folder)
        except TypeError:
            raise TypeError(f"TensorBoard: folder must be the path of a folder, got {folder!r}") from None
        self.package = optional_import("TensorBoard", "tensorboardX", "tensorboard")
        self.writer: Any = None

    def start(self, configuration: Mapping[str, Any], rows: Sequence[Row]) -> None:
        check_writable(self.folder / "events", "give TensorBoard a folder that can be written")
        self.writer = self.package.SummaryWriter(logdir=str(self.folder), purge_step=0)
        lines = [f"    {name} = {value}" for name, value in configuration.items()]  # Markdown shows them as they are
        self.writer.add_text("configuration", "\n".join(lines), 0)
        for row in rows:
            self._add(row)
        self.writer.flush()

    def evaluated(self, round: int, row: Row, x: Params) -> None:
        self._add(row)
        self.writer.flush()

    def end(self, error: BaseException | None) -> None:
        self.writer.close()

    def _add(self, row: Row) -> None:
        for name, value in row.items():
            if name != "round":
                self.writer.add_scalar(name, value, int(row["round"]))
