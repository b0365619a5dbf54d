"""The driver: runs rounds until a run or a sweep ends, with progress, evaluations, checkpoints and Ctrl-C."""

import time
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from fedlocal.simulation.checkpoint import Checkpoint
from fedlocal.util.progress import ProgressBar

CALL_SECONDS = 0.5  # calls are kept about this short, so that progress, Ctrl-C and checkpoints are prompt
SAVE_SECONDS = 2.0  # least time between two checkpoints


class Work(Protocol):
    """A run or a sweep after some rounds. Its functions return a new one, so that an interruption finds the old or the new."""

    @property
    def done(self) -> int: ...  # rounds so far
    @property
    def ended(self) -> bool: ...  # True if no further round is to be run, e.g. after a divergence

    def compile(self) -> None: ...  # what the rounds need, if that is not to be done by the first of them
    def advance(self, wanted: int) -> Self: ...  # at most `wanted` rounds, and at least one
    def evaluated(self) -> Self: ...  # with an evaluation more in the history, unless there is one of this round
    def note(self) -> str: ...  # a short text beside the progress bar
    def states(self) -> Any: ...  # what a checkpoint keeps, as a pytree of arrays
    def extra(self) -> dict[str, Any]: ...  # what a checkpoint keeps besides, as values of JSON
    def resumed(self, done: int, states: Any, extra: dict[str, Any]) -> Self: ...  # what a checkpoint was made of


W = TypeVar("W", bound=Work)


@dataclass(frozen=True)
class RunSchedule:
    """When a run is evaluated and when it ends."""

    owner: str
    rounds: int
    eval_every: int
    shadow_every: int | None = None

    def due(self, done: int) -> bool:
        """Return True if there is an evaluation after this many rounds."""
        return done % self.eval_every == 0 or done == self.rounds

    def next_stop(self, done: int) -> int:
        """Return the round after which the run stops next, to be evaluated or shadowed."""
        intervals = [every for every in (self.eval_every, self.shadow_every) if every is not None]
        return min(self.rounds, *((done // every + 1) * every for every in intervals))


class Saver:
    """Writes checkpoints, at most a twentieth of the time; none if `writes` is False, since another process does."""

    def __init__(self, checkpoint: Checkpoint | None, writes: bool = True):
        self.checkpoint, self.writes = checkpoint, writes
        self.last, self.took = -np.inf, 0.0
        if checkpoint is not None and writes:
            checkpoint.check_writable()

    def save(self, work: Work) -> None:
        """Write a checkpoint."""
        if self.checkpoint is not None and self.writes:
            self.checkpoint.save(work.done, work.states(), work.extra())

    def save_if_due(self, work: Work) -> None:
        """Write a checkpoint if the last one is long enough ago."""
        began = time.monotonic()
        if began - self.last > max(SAVE_SECONDS, 20 * self.took):
            self.save(work)
            self.last = time.monotonic()
            self.took = self.last - began


def resume(work: W, schedule: RunSchedule, checkpoint: Checkpoint | None) -> W:
    """Return the work that the checkpoint's file holds, or `work` itself if there is no file."""
    previous = None if checkpoint is None else checkpoint.load(work.states())
    if checkpoint is None or previous is None:
        return work
    done, rounds = previous[0], schedule.rounds
    if done > rounds:
        text = f"the checkpoint is at round {done} already; rounds must be >= {done}, got {rounds}"
        raise ValueError(f"{schedule.owner}: {text}")
    with checkpoint.resuming():
        return work.resumed(*previous)


def drive(work: W, schedule: RunSchedule, saver: Saver, bar: ProgressBar) -> W:
    """Run rounds until the last one, or until the work ends before it. Ctrl-C saves first."""
    rate = 0.0  # rounds per second
    try:
        with bar:
            work.compile()
            if schedule.due(work.done) or work.ended:
                work = work.evaluated()
            while work.done < schedule.rounds and not work.ended:
                wanted = min(schedule.next_stop(work.done) - work.done, max(1, int(CALL_SECONDS * rate)))
                before, began = work.done, time.monotonic()
                work = work.advance(wanted)
                rate = (work.done - before) / max(time.monotonic() - began, 1e-9)
                if schedule.due(work.done) or work.ended:
                    work = work.evaluated()
                saver.save_if_due(work)
                bar.advance_to(schedule.rounds if work.ended else work.done, work.note())
        saver.save(work)
    except KeyboardInterrupt:
        saver.save(work)
        if saver.checkpoint is None:
            raise
        text = f"stopped after round {work.done}; the same call continues from {saver.checkpoint.path}"
        raise KeyboardInterrupt(text) from None
    return work
