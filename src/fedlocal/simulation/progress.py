"""RunProgress: one run after some rounds, as the driver advances, evaluates and saves it."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from fedlocal.callbacks.base import Callback
from fedlocal.core import AbstractProblem, Params
from fedlocal.metrics import Evaluation
from fedlocal.simulation.engines import Engine
from fedlocal.simulation.recorder import Row, Stopwatch
from fedlocal.simulation.result import GRADIENT, Divergence, DivergenceWarning, Result, has_grown, not_finite
from fedlocal.simulation.rounds import RunState, output
from fedlocal.simulation.run import Run
from fedlocal.simulation.shadow import ShadowRecorder
from fedlocal.stopping import Rule, StoppingPoint, why_stopped
from fedlocal.util.provenance import provenance_record


@dataclass(frozen=True)
class RunProgress:
    """One run after `done` rounds."""

    run: Run
    engine: Engine
    state: RunState
    done: int = 0
    # of the history; shared by all that come from one run, and only appended to
    rows: list[Row] = field(default_factory=list)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    shadow: ShadowRecorder | None = None
    rules: tuple[Rule, ...] = ()  # of stop_when
    callbacks: tuple[Callback, ...] = ()
    overdue: bool = False  # True if a rule wants an evaluation now
    stopped: str | None = None  # why a rule ended it

    @property
    def divergence(self) -> Divergence | None:
        """When and where the run left the finite numbers, as far as it has been evaluated; None while it is finite."""
        if int(self.state.diverged) >= 0:
            return Divergence(int(self.state.diverged), not_finite(self.state.server))
        if not self.rows or np.isfinite(self.rows[-1]["loss"]):
            return None
        return Divergence(int(self.rows[-1]["round"]), ("loss",))

    @property
    def ended(self) -> bool:
        return self.overdue or self.stopped is not None or self.divergence is not None

    def compile(self) -> None:
        """Do nothing: the first round compiles."""

    def advance(self, wanted: int) -> "RunProgress":
        if self.shadow is not None:
            self.shadow.watch(self.done, self.state)
        state, count = self.engine.advance(self.state, self.done, wanted)
        done, overdue = self.done + count if int(state.diverged) < 0 else int(state.diverged), self._is_overdue()
        return replace(self, state=state, done=done, overdue=overdue)

    def evaluated(self) -> "RunProgress":
        x = jax.tree.map(_read_only, output(self.run.method, self.state))
        if not self.rows or self.rows[-1]["round"] != self.done:
            self.rows.extend(self.run.recorder.rows([self._evaluation(x)], self.stopwatch))
            for callback in self.callbacks:
                callback.evaluated(self.done, dict(self.rows[-1]), x)
        if not self.rules:
            return self
        run, psi, seconds = self.run, self.run.method.regularizer, self.stopwatch.seconds()
        point = StoppingPoint(self.rows, x, run.problem, psi, run.recorder.client_weights, seconds)
        return replace(self, stopped=why_stopped(self.rules, point))

    def _is_overdue(self) -> bool:
        return any(rule.overdue(self.stopwatch.seconds()) for rule in self.rules)

    def _evaluation(self, x: Params) -> Evaluation:
        run, recorder = self.run, self.run.recorder
        loss = float(self.engine.losses(jax.tree.map(lambda a: a[None], x), recorder.loss_weights)[0])
        with jax.enable_x64(True):
            objective = loss + float(run.method.regularizer.value(x))
        spread = {name: float(value) for name, value in (self.state.discrepancy or {}).items()}
        server, weights, took_part = self.state.server, recorder.client_weights, run.plan.chosen
        return Evaluation(x, loss, objective, run.problem, run.method, weights, spread, server, self.done, took_part)

    def note(self) -> str:
        return f"objective {self.rows[-1]['objective']:.4g}"

    def states(self) -> RunState:
        return self.state

    def extra(self) -> dict[str, Any]:
        extra = {"rows": self.rows, "seconds": self.stopwatch.seconds()}
        return extra if self.shadow is None else {**extra, "shadow": self.shadow.to_json()}

    def resumed(self, done: int, states: RunState, extra: dict[str, Any]) -> "RunProgress":
        """Return the progress that was saved, with the rows that an uninterrupted run would have by now."""
        rows = [row for row in extra["rows"] if self.run.schedule.due(row["round"])]
        if self.shadow is not None:
            self.shadow.resume(extra.get("shadow") or {})
        now = replace(self, done=done, state=states, rows=rows, stopwatch=Stopwatch(extra["seconds"]))
        return replace(now, overdue=now._is_overdue())

    def result(self) -> Result:
        """Return what the user gets, and warn of a divergence."""
        run, shadow, diverged = self.run, self.shadow, self.divergence
        if diverged is not None and diverged.round == 1 and not _has_gradients(run.problem, run.x0):
            diverged = Divergence(1, GRADIENT)
        if diverged is not None:
            warnings.warn(f"{type(run.method).__name__} {diverged}", DivergenceWarning, stacklevel=3)
        elif has_grown(self.rows[0]["loss"], self.rows[-1]["loss"]):
            grew = f"the loss grew from {self.rows[0]['loss']:.3g} to {self.rows[-1]['loss']:.3g}"
            text = f"{type(run.method).__name__} diverges: {grew}; try smaller step sizes"
            warnings.warn(text, DivergenceWarning, stacklevel=3)
        stopped = {} if self.stopped is None else {"stopped": self.stopped}
        return Result(
            x=jax.device_get(output(run.method, self.state)),
            server=jax.device_get(self.state.server),
            history=pd.DataFrame(self.rows).astype({"round": int, "numbers_up": int, "numbers_down": int}),
            diverged=diverged,
            plan=run.plan,
            provenance=provenance_record(**run.configuration, **self.engine.configuration, **stopped),
            problem=run.problem,
            method=run.method,
            shadow=None if shadow is None else shadow.frame(),
            shadow_points=None if shadow is None else shadow.trajectory(),
            stopped=self.stopped,
        )


@jax.jit
def _has_gradients(problem: AbstractProblem, x: Params) -> jax.Array:
    """Return True if the gradients of all clients are finite."""

    def finite(client: jax.Array) -> jax.Array:
        gradient = problem.full_gradient(x, client)
        return jnp.all(jnp.array([jnp.isfinite(a).all() for a in jax.tree.leaves(gradient)]))

    return jnp.all(jax.lax.map(finite, jnp.arange(problem.num_clients)))


def _read_only(a: Any) -> np.ndarray:
    """A copy in float64 for functions of users, none of which can change what another one sees."""
    copy = np.array(a, np.float64)
    copy.setflags(write=False)
    return copy
