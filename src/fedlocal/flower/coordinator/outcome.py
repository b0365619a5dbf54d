"""Outcome: what a deployment ends with, also one that stopped early."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedlocal.core import Params
from fedlocal.data.moments import Scaling
from fedlocal.flower.coordinator.run_log import Event
from fedlocal.flower.coordinator.server import inner_strategy
from fedlocal.flower.coordinator.strategy import Strategy
from fedlocal.util import serialization
from fedlocal.util.files import write_atomically
from fedlocal.util.provenance import provenance_record


@dataclass(frozen=True)
class Outcome:
    """What a deployment ends with."""

    x: Params | None  # the model; None where no site was met
    scaling: Scaling | None  # of the features it was fitted to
    columns: list[str] | None  # their names, where sites give them
    history: pd.DataFrame  # loss, objective and certificate, one row per evaluation
    events: list[Event]
    sites: pd.DataFrame | None  # means and missing values of the columns, by site, where sites gave them
    convergence: dict[str, Any]  # how far the model is from the optimum, and what was asked for
    privacy: dict[str, Any] | None  # epsilon and delta, where a wrapper accounts for them
    provenance: dict[str, Any]

    @classmethod
    def of(cls, strategy: FlowerStrategy) -> "Outcome":
        """Return the outcome of a strategy, wrapped or not, as far as it has come."""
        inner = inner_strategy(strategy)
        accountant = getattr(strategy, "accountant", None)
        return cls(
            x=inner.solution() if inner.met else None,
            scaling=inner.scaling(),
            columns=inner.columns(),
            history=pd.DataFrame(inner.history),
            events=list(inner.events),
            sites=inner.sites.table(),
            convergence=inner.convergence.to_json(inner.done),
            privacy=None if accountant is None else _privacy(accountant, inner),
            provenance=provenance_record(**inner.configuration()),
        )

    def coefficients(self) -> pd.DataFrame | None:
        """Return a linear model's weights by column, as fitted and in the columns' own units; None for other models."""
        weights = self.x.get("weights") if isinstance(self.x, dict) else None
        if self.x is None or weights is None or self.columns is None or weights.shape != (len(self.columns),):
            return None
        intercept = self.x.get("intercept", np.zeros(()))
        units = (weights, intercept) if self.scaling is None else self.scaling.unscale(weights, intercept)
        names = ["(intercept)", *self.columns]
        return pd.DataFrame({"column": names, "fitted": [intercept, *weights], "in_units": [units[1], *units[0]]})

    def save(self, folder: str | Path) -> None:
        """Write model.npz, history.csv, events.csv, report.json and coefficients.csv where there are some, each atomically."""
        folder = Path(folder)
        events = pd.DataFrame([vars(event) for event in self.events], columns=["round", "site", "what"])
        tables = {"coefficients": self.coefficients(), "sites": self.sites, "history": self.history, "events": events}
        for name, table in tables.items():
            if table is not None:
                write_atomically(folder / f"{name}.csv", table.to_csv(index=False).encode())
        scaling = {} if self.scaling is None else {f"scaling/{n}": a for n, a in self.scaling._asdict().items()}
        if self.x is not None:
            write_atomically(folder / "model.npz", serialization.to_bytes({"x": self.x, **scaling}))
        report = {"convergence": self.convergence, "privacy": self.privacy, **self.provenance}
        write_atomically(folder / "report.json", json.dumps(report, indent=2).encode())


def _privacy(accountant: Any, strategy: Strategy) -> dict[str, Any]:
    """Return what the accountant says, and what it does not cover: only the models of rounds get noise."""
    beside = ["number of rows of each site", "losses and gradients of evaluations"]
    beside += ["moments of the columns"] if strategy.standardize else []
    beside += ["curvature of each site's loss"] if strategy.choose_step_size else []
    return {**vars(accountant.get_privacy_spent()), "not_covered": beside}
