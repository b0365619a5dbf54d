"""A progress bar with the time left, shown once the work has taken two seconds."""

import sys
import threading

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

DELAY = 2.0  # seconds before the bar is shown


class ProgressBar:
    """`with ProgressBar("rounds", total) as bar: bar.advance_to(n, "loss 0.3")`. Shows nothing if disabled or quick."""

    def __init__(self, label: str, total: int, enabled: bool = True):
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        note = TextColumn("{task.fields[note]}")
        console = Console(file=sys.stderr)
        seen = enabled and (console.is_terminal or console.is_jupyter)  # no bars in log files
        self.progress = Progress(*columns, note, console=console, transient=True, disable=not seen)
        self.task = self.progress.add_task(label, total=total, note="compiling")
        self.timer = threading.Timer(DELAY, self.progress.start)
        self.timer.daemon = True

    def __enter__(self) -> "ProgressBar":
        self.timer.start()
        return self

    def advance_to(self, done: int, note: str = "") -> None:
        """Set how much is done, and the note beside the bar."""
        self.progress.update(self.task, completed=done, note=note)

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()
        self.timer.join()
        if self.progress.live.is_started:
            self.progress.stop()
