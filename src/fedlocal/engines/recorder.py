"""Recorder: evaluates a run as it goes and keeps its history."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedlocal import metrics as metrics_module
from fedlocal.core import AbstractProblem, LocalMethod, Params, Server
from fedlocal.engines.plan import Plan
from fedlocal.metrics import ClientDiscrepancy, Evaluation, Metric


class Recorder:
    """Rows of a history: round, loss, objective, metrics, numbers sent, seconds."""

    def __init__(
        self,
        owner: str,
        problem: AbstractProblem,
        method: LocalMethod,
        plan: Plan,
        metrics: Sequence[Metric | Callable[[Params], Any]],
        x0: Params,
    ):
        if not isinstance(metrics, Sequence):
            raise TypeError(f"{owner}: metrics must be a list, got {type(metrics).__name__}")
        for metric in metrics:
            if isinstance(metric, type):
                raise TypeError(f"{owner}: metrics holds the class {metric.__name__}; give {metric.__name__}(...)")
            if not isinstance(metric, Metric) and not callable(metric):
                raise TypeError(f"{owner}: metrics must be metrics or functions of the parameters, got {metric!r}")
        self.owner, self.problem, self.method, self.metrics = owner, problem, method, tuple(metrics)
        self.client_weights = plan.client_weights()
        self.loss_weights = problem.loss_weights(self.client_weights)
        self.losses: Callable[[Params, np.ndarray], np.ndarray] = partial(metrics_module.losses_in_float64, problem)
        self.clients_per_round = plan.clients_per_round
        self.up, self.down = _numbers_sent(method, x0)
        self.rows: list[dict[str, float]] = []
        self.seconds_before, self.started = 0.0, time.monotonic()

    @property
    def wants_discrepancy(self) -> bool:
        return any(isinstance(metric, ClientDiscrepancy) for metric in self.metrics)

    def evaluate(self, r: int, x: Params, server: Server, discrepancy: dict[str, Any] | None) -> None:
        """Measure the point after r rounds and add a row."""
        x = jax.tree.map(lambda a: np.asarray(a, np.float64), x)
        loss = float(self.losses(jax.tree.map(lambda a: a[None], x), self.loss_weights)[0])
        psi = getattr(self.method, "regularizer", None)
        objective = loss
        if psi is not None:
            with jax.enable_x64(True):
                objective = loss + float(psi.value(x))
        self.rows += self.measure([r], [self.view(self.method, x, loss, objective, server, discrepancy)])

    def view(
        self,
        method: LocalMethod,
        x: Params,
        loss: float,
        objective: float,
        server: Server,
        discrepancy: dict[str, Any] | None,
    ) -> Evaluation:
        """What metrics see of a point."""
        spread = {name: float(value) for name, value in (discrepancy or {}).items()}
        return Evaluation(x, loss, objective, self.problem, method, self.client_weights, spread, server)

    def measure(self, rounds: Sequence[int], views: Sequence[Evaluation]) -> list[dict[str, float]]:
        """A row for each of these points, after so many rounds each."""
        rows: list[dict[str, float]] = [
            {"round": r, "loss": v.loss, "objective": v.objective} for r, v in zip(rounds, views, strict=True)
        ]
        for metric in self.metrics:
            with np.errstate(all="ignore"):  # divergence is reported, not warned about
                columns = metrics_module.measure(metric, views)
            for row, measured in zip(rows, columns, strict=True):
                twice = sorted(set(measured) & set(row))
                if twice:
                    raise ValueError(
                        f"{self.owner}: two metrics give the column {twice[0]!r}; give one of them another name"
                    )
                row |= measured
        for r, row in zip(rounds, rows, strict=True):
            row["numbers_up"] = r * self.clients_per_round * self.up
            row["numbers_down"] = r * self.clients_per_round * self.down
            row["seconds"] = self.seconds()
        return rows

    def seconds(self) -> float:
        """Time spent on this run, in earlier processes too."""
        return self.seconds_before + time.monotonic() - self.started

    def resume(self, rows: list[dict[str, float]], seconds: float) -> None:
        """Continue a history that was kept in a checkpoint."""
        self.rows, self.seconds_before, self.started = rows, seconds, time.monotonic()

    def history(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows).astype({"round": int, "numbers_up": int, "numbers_down": int})


def _numbers_sent(method: LocalMethod, x0: Params) -> tuple[int, int]:
    """How many numbers one client sends and receives in a round."""

    def exchange(x0: Params) -> tuple[Any, Any]:
        down = method.broadcast(method.init(x0))
        up, _ = method.finish(down, method.start(down, method.init_memory(x0)))
        return up, down

    up, down = jax.eval_shape(exchange, x0)
    return tuple(sum(int(np.prod(a.shape)) for a in jax.tree.leaves(tree)) for tree in (up, down))  # pyright: ignore
