"""start: run a strategy, wrapped or not, to its last round."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedlocal.flower.coordinator.evaluation import in_words
from fedlocal.flower.coordinator.strategy import Strategy
from fedlocal.flower.messages.grids import PollingGrid
from fedlocal.util.files import lock

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
    minutes = f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"{seconds:.0f} s" if seconds < 90 else minutes


class ExaminingGrid(PollingGrid):
    """A grid whose replies have been examined by the strategy, so that no wrapper sees one that does not count."""

    def __init__(self, grid: Grid, strategy: Strategy):
        super().__init__(grid)
        self.strategy = strategy

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.strategy.examined(self.receive(messages, timeout, self.strategy.min_clients))


def start(strategy: FlowerStrategy, grid: Grid, *, timeout: float = 3600.0) -> Result:
    """Run the rounds that are left of a `Strategy`, or of Flower's wrapper around one (differential privacy).

    `Result.arrays` is the solution. Rounds that do not count, for lack of answers, are repeated; a run with a checkpoint
    continues where it stopped, and a wrapper's privacy accountant with it.

    Args:
        strategy: the `Strategy`, or the wrapper.
        grid: Flower's, which the server app gets, or `InProcess`.
        timeout: the most seconds to wait for answers, in a round and before the first.
    """
    inner = inner_strategy(strategy)
    accountant = inner.run_log.accountant = getattr(strategy, "accountant", None)
    if strategy is not inner:
        settings = {name: getattr(strategy, name, None) for name in ("noise_multiplier", "clipping_norm")}
        if inner.aggregate != "mean":
            raise ValueError(f"start: aggregate must be 'mean' inside Flower's wrappers, got {inner.aggregate!r}")
        inner.wrapper = {"name": type(strategy).__name__, "accounted": accountant is not None, **settings}
    needed = inner.schedule.clients_per_round
    if accountant is not None and not inner.min_clients_given:
        inner.min_clients = inner.quorum.least = inner.preparation.least = needed
    if accountant is not None and inner.min_clients < needed:
        why = "noise is made for their mean, and the mean of fewer would tell more than the accountant says"
        wanted = f"{needed}, all that a round asks"
        raise ValueError(f"start: min_clients must be {wanted}, got {inner.min_clients}: {why}")
    with only_writer(inner.checkpoint), inner.keeping():
        return _all_rounds(strategy, inner, PollingGrid(grid), timeout)


class _Finished(Exception):
    """Nothing is left to do, though Flower has rounds left."""


def _all_rounds(strategy: FlowerStrategy, inner: Strategy, grid: PollingGrid, timeout: float) -> Result:
    inner.prepare(grid, timeout)
    rounds = inner.schedule.rounds
    if inner.done == 0:
        inner.preparation.show(inner.done, rounds + -(-rounds // inner.eval_every))
    examining = ExaminingGrid(grid, inner)
    questions = inner.configure_evaluate(0, inner.arrays(), ConfigRecord(), grid)  # if it was killed before it asked
    inner.aggregate_evaluate(0, examining.send_and_receive(questions, timeout=timeout))
    progress = ProgressLog(inner.done, rounds)

    def report(server_round: int, arrays: ArrayRecord) -> None:
        progress.update(inner.history)
        if inner.finished:
            raise _Finished

    while not inner.finished:
        with suppress(_Finished):
            FlowerStrategy.start(strategy, examining, inner.arrays(), rounds - inner.done, timeout, evaluate_fn=report)
    inner.convergence.log(inner.done)
    result = Result()
    result.arrays = inner.arrays()
    result.train_metrics_clientapp = dict(inner.train_metrics)
    result.evaluate_metrics_clientapp = {
        int(row["round"]): MetricRecord({name: value for name, value in row.items() if name != "round"})
        for row in inner.history
    }
    return result


@contextmanager
def only_writer(path: str | None) -> Iterator[None]:
    """Two runs must not write one checkpoint: the second is refused while the first goes on, or until it is killed."""
    if path is None:
        yield
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{path}.lock").open("w") as file:
        lock(file, f"start: another run is writing {path}; wait for it, or stop it (flwr ls, flwr stop)")
        yield


def inner_strategy(strategy: Any) -> Strategy:
    """The strategy of this library inside Flower's wrappers."""
    while not isinstance(strategy, Strategy):
        if not hasattr(strategy, "strategy"):
            raise TypeError(f"start: strategy must be a fedlocal Strategy or a wrapper of one, got {strategy!r}")
        strategy = strategy.strategy
    return strategy
