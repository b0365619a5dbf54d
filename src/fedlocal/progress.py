"""A progress bar with the time left, for work that turns out to take longer than two seconds."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 2.0  # seconds before anything is shown


class ProgressBar:
    """`with ProgressBar("rounds", total) as bar: bar.advance_to(n, "loss 0.3")`. Says nothing when disabled or quick."""

    def __init__(self, label: str, total: int, enabled: bool = True):
        self.label, self.total, self.enabled = label, total, enabled
        self.started = time.monotonic()
        self.progress: Progress | None = None

    def __enter__(self) -> "ProgressBar":
        return self

    def advance_to(self, done: int, note: str = "") -> None:
        """Say how much is done, and anything worth saying beside the bar."""
        if self.enabled and self.progress is None and time.monotonic() - self.started > PATIENCE:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            note_column = TextColumn("{task.fields[note]}")
            progress = Progress(*columns, note_column, console=Console(file=sys.stderr), transient=True)
            progress.start()
            self.task = progress.add_task(self.label, total=self.total, note="")
            self.progress = progress
        if self.progress is not None:
            self.progress.update(self.task, completed=done, note=note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.progress is not None:
            self.progress.stop()
