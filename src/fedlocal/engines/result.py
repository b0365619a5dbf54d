"""Result: what a run gives back."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fedlocal.certificates import Certificate, certify
from fedlocal.core import AbstractProblem, LocalMethod, Params, Server
from fedlocal.engines.plan import Plan


@dataclass(frozen=True)
class Divergence:
    """When and where a run left the finite numbers."""

    round: int  # first round after which something was not finite
    where: tuple[str, ...]  # names of the arrays that were not finite, or ("loss",)

    def __str__(self) -> str:
        return f"diverged in round {self.round}: {', '.join(self.where)} not finite; try smaller step sizes"


@dataclass(frozen=True)
class Result:
    """The outcome of a run: parameters, history, and how it came about."""

    x: Params  # the parameters, as NumPy arrays
    server: Server  # the method's last server state
    history: pd.DataFrame  # one row per evaluation
    diverged: Divergence | None
    plan: Plan = field(repr=False)  # who took part: `plan.cohort(r)` are the clients of round r
    provenance: dict[str, Any] = field(repr=False)
    problem: AbstractProblem = field(repr=False)
    method: LocalMethod = field(repr=False)
    shadow: pd.DataFrame | None = field(
        default=None, repr=False
    )  # one row per local step, where `Shadow` was asked for
    shadow_points: Params | None = field(default=None, repr=False)  # (rounds, K + 1, ...) where its `points` were

    def certificate(self, federated: bool = False) -> Certificate:
        """How far `x` is from optimal for the run's problem, regulariser and client weights; see `fedlocal.certificate`."""
        psi = getattr(self.method, "regularizer", None)
        return certify(self.problem, psi, self.x, self.plan.client_weights(), federated)

    def __repr__(self) -> str:
        last = self.history.iloc[-1]
        state = f", {self.diverged}" if self.diverged else ""
        return f"Result(round {int(last['round'])}, objective {last['objective']:.6g}{state})"
