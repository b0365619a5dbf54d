"""ProgressLog: one line per evaluation, with the time that is left."""

import logging
import time
from collections.abc import Callable
from typing import Any

from fedlocal.flower.coordinator.evaluation import in_words

log = logging.getLogger("fedlocal")


class ProgressLog:
    """Measures the time of rounds from its construction, and logs how long the rest will take.

    >>> clock = iter([0.0, 80.0])
    >>> progress = ProgressLog(done=10, rounds=100, clock=lambda: next(clock))
    >>> progress.line({"round": 30, "objective": 0.25, "sites": 3, "kkt_residual": 0.01})
    'round  30 of 100: objective 0.25, KKT residual 0.01, 3 sites, 4.0 s a round, at most 5 min left'
    """

    def __init__(self, done: int, rounds: int, clock: Callable[[], float] = time.monotonic):
        self.first, self.rounds, self.clock = done, rounds, clock
        self.logged, self.began = done, clock()

    def update(self, history: list[dict[str, Any]]) -> None:
        """Log the last evaluation, once."""
        if history and history[-1]["round"] > self.logged:
            self.logged = int(history[-1]["round"])
            log.info("%s", self.line(history[-1]))

    def line(self, row: dict[str, Any]) -> str:
        """Return an evaluation in words."""
        done = int(row["round"])
        seconds = (self.clock() - self.began) / max(1, done - self.first)
        left = "" if done == self.rounds else f", at most {_duration(seconds * (self.rounds - done))} left"
        number = f"{done:>{len(str(self.rounds))}} of {self.rounds}"
        said = f"objective {row['objective']:.6g}, {in_words(row)}, {row['sites']} sites"
        return f"round {number}: {said}, {seconds:.1f} s a round{left}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
