"""Patience: how long a run waits for sites before it gives up."""

import time

POLL_SECONDS = 0.5


class TooFewSites(RuntimeError):
    """Fewer sites answered than a run needs, for longer than it was to wait."""


class Patience:
    """Counts the time since things began to fail; `calm` when they work again."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.since: float | None = None

    def lost(self) -> bool:
        """Whether it has been failing for too long. The first time, the clock starts."""
        self.since = time.monotonic() if self.since is None else self.since
        return time.monotonic() - self.since > self.seconds

    def waited(self) -> float:
        """Seconds since things began to fail."""
        return 0.0 if self.since is None else time.monotonic() - self.since

    def calm(self) -> None:
        self.since = None

    def wait(self) -> None:
        """A moment, before the next try."""
        time.sleep(POLL_SECONDS)
