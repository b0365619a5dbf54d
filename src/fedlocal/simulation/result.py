"""Result: what a run gives back."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params, Server
from fedlocal.simulation.plan import Plan
from fedlocal.solvers.certificates import Certificate, certify
from fedlocal.util import serialization


class DivergenceWarning(UserWarning):
    """A run left the finite numbers."""


@dataclass(frozen=True)
class Divergence:
    """When and where a run left the finite numbers."""

    round: int  # first round after which something was not finite
    where: tuple[str, ...]  # names of the arrays that were not finite, or ("loss",)

    def __str__(self) -> str:
        return f"diverged in round {self.round}: {', '.join(self.where)} not finite; try smaller step sizes"


def not_finite(server: Server) -> tuple[str, ...]:
    """Return the names of the arrays of a server state that are not finite."""
    return tuple(name for name, a in serialization.to_arrays(server).items() if not np.isfinite(a).all())


@dataclass(frozen=True, eq=False)  # arrays and tables have no single answer to ==
class Result:
    """The outcome of a run: parameters, history, and how it came about.

    Args:
        x: the parameters, as NumPy arrays.
        server: the method's last server state.
        history: one row per evaluation.
        diverged: when and where the run left the finite numbers; None if it stayed finite.
        plan: who took part: `plan.cohort(r)` are the clients of round r.
        provenance: versions, machine and the configuration of the call.
        problem: the losses of the clients.
        method: the method.
        shadow: one row per local step, if `Shadow` was asked for.
        shadow_points: (rounds, K + 1, ...) the shadow points, if `Shadow(points=True)` was asked for.
        stopped: in which round `stop_when` ended the run, and why; None if it did not.
    """

    x: Params
    server: Server
    history: pd.DataFrame
    diverged: Divergence | None
    plan: Plan = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)
    problem: AbstractProblem = field(repr=False)
    method: LocalMethod = field(repr=False)
    shadow: pd.DataFrame | None = field(default=None, repr=False)
    shadow_points: Params | None = field(default=None, repr=False)
    stopped: str | None = None

    def certificate(self, federated: bool = False) -> Certificate:
        """Bound how far `x` is from optimal for the run's problem, regulariser and client weights; see `fedlocal.certificate`."""
        return certify(self.problem, self.method.regularizer, self.x, self.plan.client_weights(), federated)

    def __repr__(self) -> str:
        last = self.history.iloc[-1]
        state = "".join(f", {said}" for said in (self.diverged, self.stopped) if said)
        return f"Result(round {int(last['round'])}, objective {last['objective']:.6g}{state})"
