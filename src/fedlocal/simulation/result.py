"""Result: what a run gives back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params, Server
from fedlocal.simulation.plan import Plan
from fedlocal.solvers.certificates import Certificate, certify
from fedlocal.util import html, serialization
from fedlocal.util.files import AnyPath, write_atomically
from fedlocal.util.optional import optional_import


class DivergenceWarning(UserWarning):
    """A run left the finite numbers."""


@dataclass(frozen=True)
class Divergence:
    """When and where a run left the finite numbers."""

    round: int  # first round after which something was not finite
    where: tuple[str, ...]  # names of the arrays that were not finite, ("loss",) or GRADIENT

    def __str__(self) -> str:
        if self.round == 0 or self.where == GRADIENT:
            what = "F" if self.round == 0 else "the gradient of F"
            return f"diverged in round {self.round}: {what} is not finite at x0; no step size helps, give another x0"
        return f"diverged in round {self.round}: {', '.join(self.where)} not finite; try smaller step sizes"


@dataclass(frozen=True)
class ProblemReference:
    """What a saved result keeps of its problem: `fl.load(path, problem=...)` checks the problem against it."""

    name: str  # of its class
    fingerprint: str  # of its data and its loss


GRADIENT = ("gradient at x0",)  # where a run leaves the finite numbers in its first step, whatever the step size
GROWTH = 1e6  # of the loss, in a run that goes astray though all numbers are finite still


def has_grown(first: Any, last: Any) -> Any:
    """Return True where a loss has grown so much from the first to the last evaluation that the run diverges."""
    return last > GROWTH * np.maximum(np.abs(first), 1.0)


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
        problem: the losses of the clients; a reference to them if the result was loaded without its problem.
        method: the method; None if it was loaded and could not be saved.
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
    problem: AbstractProblem | Any = field(repr=False)  # Any: only a result that was loaded has something else here
    method: LocalMethod | Any = field(repr=False)
    shadow: pd.DataFrame | None = field(default=None, repr=False)
    shadow_points: Params | None = field(default=None, repr=False)
    stopped: str | None = None

    def certificate(self, federated: bool = False) -> Certificate:
        """Bound how far `x` is from optimal for the run's problem, regulariser and client weights; see `fedlocal.certificate`."""
        if isinstance(self.problem, ProblemReference):
            needed = f"its problem, a {self.problem.name}; give it to fl.load(path, problem=...)"
            raise ValueError(f"certificate: the result was loaded without {needed}")
        if self.method is None:
            lost = "the result was loaded without its method, whose regulariser is not known"
            raise ValueError(f"certificate: {lost}; call fl.certificate(problem, regularizer, result.x, weights)")
        self.problem.rounding.check("certificate")
        return certify(self.problem, self.method.regularizer, self.x, self.plan.client_weights(), federated)

    def plot(self, y: str = "objective", x: str = "round") -> Any:
        """Draw a column of the history; see `fl.plot.curves`, which also draws several results.

        Args:
            y: the column to draw, such as "loss".
            x: the column to draw it against: "round", "seconds", "numbers_up" or "numbers_down".
        """
        from fedlocal.plot import curves  # imported here because matplotlib is slow to import

        return curves(self, y, x)

    def save(self, path: AnyPath) -> None:
        """Write all but the problem to one file, in one step and without pickle; `fl.load(path)` reads it.

        Args:
            path: the file, in NumPy's format npz; a folder that does not exist is made.
        """
        from fedlocal.simulation.saved.results import save_result  # imported here because it imports this module

        save_result(self, path)

    def save_parameters(self, path: AnyPath) -> None:
        """Write `x` as safetensors, which other libraries read: `safetensors.numpy.load_file(path)` gives {name: array}.

        A name is the path in the parameters, such as "weights" or "layers/0/bias", and "value" for a single array. It needs
        the package safetensors: `pip install "fedlocal[safetensors]"`.

        Args:
            path: the file, usually with the ending .safetensors; a folder that does not exist is made.
        """
        safetensors = optional_import("save_parameters", "safetensors.numpy", "safetensors")
        arrays = serialization.to_arrays(self.x)
        if len(arrays) < len(jax.tree.leaves(self.x)):
            raise ValueError(f"save_parameters: two parameters have the same path; the paths are {sorted(arrays)}")
        ordered = {
            name: np.asarray(array, order="C") for name, array in arrays.items()
        }  # it writes the memory as it is
        write_atomically(Path(path), safetensors.save(ordered))

    def __repr__(self) -> str:
        last = self.history.iloc[-1]
        state = "".join(f", {said}" for said in (self.diverged, self.stopped) if said)
        return f"Result(round {int(last['round'])}, objective {last['objective']:.6g}{state})"

    def _repr_html_(self) -> str:
        (last,) = self.history.tail(1).to_dict("records")
        picture = html.curve(self.history["round"].to_numpy(), self.history["objective"].to_numpy())
        caption = html.paragraph("objective against rounds") if picture else ""
        return html.section(
            repr(self),
            html.paragraph(self._made_by()),
            picture,
            caption,
            html.facts({str(name): value for name, value in last.items()}),
        )

    def _made_by(self) -> str:
        """The method and the problem in one line."""
        method = self.provenance["configuration"]["method"] if self.method is None else self.method
        line = " ".join(str(method).split()).replace("( ", "(").replace(" )", ")")
        return f"{line} on {self.problem!r}"
