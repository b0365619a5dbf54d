"""start: run a strategy, wrapped or not, to its last round, and write down what came of it."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedlocal import wire
from fedlocal.core import Params
from fedlocal.data.moments import Scaling
from fedlocal.engines.checkpoint import write_atomically
from fedlocal.engines.flower.events import Event
from fedlocal.engines.flower.grids import Polling
from fedlocal.engines.flower.pace import Pace
from fedlocal.engines.flower.strategy import Strategy
from fedlocal.provenance import provenance


class Examining(Polling):
    """A grid whose replies have been examined by the strategy, so that no wrapper sees one that does not count."""

    def __init__(self, grid: Grid, strategy: Strategy):
        super().__init__(grid)
        self.strategy = strategy

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.strategy.examined(super().send_and_receive(messages, timeout=timeout))


def start(strategy: FlowerStrategy, grid: Grid, *, timeout: float = 3600.0) -> Result:
    """Run the rounds that are left of a `Strategy`, or of Flower's wrapper around one (differential privacy).

    `Result.arrays` is the solution. Rounds that do not count, for lack of answers, are repeated; a run with a checkpoint
    continues where it stopped, and a wrapper's privacy accountant with it.
    """
    inner = inner_strategy(strategy)
    accountant = inner.diary.accountant = getattr(strategy, "accountant", None)
    if strategy is not inner:
        settings = {name: getattr(strategy, name, None) for name in ("noise_multiplier", "clipping_norm")}
        inner.wrapper = {"name": type(strategy).__name__, "accounted": accountant is not None, **settings}
    if accountant is not None and inner.min_clients < inner.schedule.clients_per_round:
        needed = inner.schedule.clients_per_round
        raise ValueError(
            f"start: min_clients must be {needed}, all that a round asks, got {inner.min_clients}: noise is made for their "
            "mean, and the mean of fewer would tell more than the accountant says"
        )
    with only_writer(inner.checkpoint), inner.keeping():
        return _all_rounds(strategy, inner, Polling(grid), timeout)


def _all_rounds(strategy: FlowerStrategy, inner: Strategy, grid: Grid, timeout: float) -> Result:
    inner.prepare(grid, timeout)
    examining = Examining(grid, inner)
    questions = inner.configure_evaluate(0, inner.arrays(), ConfigRecord(), grid)  # if it was killed before it asked
    inner.aggregate_evaluate(0, examining.send_and_receive(questions, timeout=timeout))
    result, rounds = Result(), inner.schedule.rounds
    pace = Pace(inner.done, rounds)

    def tell(server_round: int, arrays: ArrayRecord) -> None:
        pace.tell(inner.history, lambda: f"{len(inner.roll.online(grid))} of {inner.roll.size} sites")

    while inner.done < rounds:
        before = inner.done
        part = FlowerStrategy.start(strategy, examining, inner.arrays(), rounds - inner.done, timeout, evaluate_fn=tell)
        means = [part.train_metrics_clientapp[i] for i in sorted(part.train_metrics_clientapp)]
        result.train_metrics_clientapp.update(enumerate(means, start=before + 1))
    result.arrays = inner.arrays()
    result.evaluate_metrics_clientapp = {
        int(row["round"]): MetricRecord({name: value for name, value in row.items() if name != "round"})
        for row in inner.history
    }
    return result


@contextmanager
def only_writer(path: str | None) -> Iterator[None]:
    """Two runs must not write one checkpoint: the second is refused while the first goes on, or until it is killed."""
    if path is None or sys.platform == "win32":
        yield
        return
    import fcntl  # not on Windows

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{path}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"start: another run is writing {path}; wait for it, or stop it (flwr ls, flwr stop)"
            ) from None
        yield


def inner_strategy(strategy: Any) -> Strategy:
    """The strategy of this library inside Flower's wrappers."""
    while not isinstance(strategy, Strategy):
        if not hasattr(strategy, "strategy"):
            raise TypeError(f"start: strategy must be a fedlocal Strategy or a wrapper of one, got {strategy!r}")
        strategy = strategy.strategy
    return strategy


@dataclass(frozen=True)
class Outcome:
    """What a deployment ends with."""

    x: Params  # the model
    scaling: Scaling | None  # of the features it was fitted to
    columns: list[str] | None  # their names, where sites give them
    history: pd.DataFrame  # loss and objective, one row per evaluation
    events: list[Event]
    privacy: dict[str, Any] | None  # epsilon and delta, where a wrapper accounts for them
    provenance: dict[str, Any]

    @classmethod
    def of(cls, strategy: FlowerStrategy) -> "Outcome":
        """The outcome of a strategy, wrapped or not, as far as it has come."""
        inner = inner_strategy(strategy)
        accountant = getattr(strategy, "accountant", None)
        return cls(
            x=inner.solution(),
            scaling=inner.scaling(),
            columns=None if inner.roll.form is None else inner.roll.form.columns,
            history=pd.DataFrame(inner.history),
            events=list(inner.events),
            privacy=None if accountant is None else dict(vars(accountant.get_privacy_spent())),
            provenance=provenance(**inner.configuration()),
        )

    def coefficients(self) -> pd.DataFrame | None:
        """A linear model's weights by column, as fitted and in the columns' own units; None for what is no such model."""
        weights = self.x.get("weights") if isinstance(self.x, dict) else None
        if weights is None or self.columns is None or weights.shape != (len(self.columns),):
            return None
        intercept = self.x.get("intercept", np.zeros(()))
        units = (weights, intercept) if self.scaling is None else self.scaling.unscale(weights, intercept)
        names = ["(intercept)", *self.columns]
        return pd.DataFrame({"column": names, "fitted": [intercept, *weights], "in_units": [units[1], *units[0]]})

    def save(self, folder: str | Path) -> None:
        """Write model.npz, history.csv, events.csv, report.json and coefficients.csv where there are some, each atomically."""
        folder = Path(folder)
        coefficients = self.coefficients()
        if coefficients is not None:
            write_atomically(folder / "coefficients.csv", coefficients.to_csv(index=False).encode())
        scaling = {} if self.scaling is None else {f"scaling/{n}": a for n, a in self.scaling._asdict().items()}
        write_atomically(folder / "model.npz", wire.to_bytes({"x": self.x, **scaling}))
        write_atomically(folder / "history.csv", self.history.to_csv(index=False).encode())
        events = pd.DataFrame([vars(event) for event in self.events], columns=["round", "site", "what"])
        write_atomically(folder / "events.csv", events.to_csv(index=False).encode())
        report = {"privacy": self.privacy, **self.provenance}
        write_atomically(folder / "report.json", json.dumps(report, indent=2).encode())
