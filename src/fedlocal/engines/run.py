"""Run: what every engine does around its rounds. Checks the call, starts, evaluates, notices divergence, reports."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal import checks, wire
from fedlocal.core import AbstractProblem, LocalMethod, MirrorMap, Params
from fedlocal.engines.averages import Average, average_named
from fedlocal.engines.checkpoint import fingerprint
from fedlocal.engines.plan import Plan
from fedlocal.engines.recorder import Recorder
from fedlocal.engines.result import Divergence, Result
from fedlocal.engines.rounds import RunState, first_state, output
from fedlocal.engines.shadow import Shadow, Watcher
from fedlocal.means import check_shapes
from fedlocal.metrics import Metric, metric_name
from fedlocal.provenance import provenance


class DivergenceWarning(UserWarning):
    """A run left the finite numbers."""


@dataclass(frozen=True)
class Run:
    """A checked call of an engine."""

    problem: AbstractProblem
    method: LocalMethod
    plan: Plan
    average: Average | None
    x0: Params
    recorder: Recorder
    configuration: dict[str, Any]
    watcher: Watcher | None = None  # looks into rounds

    @classmethod
    def make(
        cls,
        problem: AbstractProblem,
        method: LocalMethod,
        *,
        rounds: int,
        eval_every: int,
        seed: int,
        x0: Params | None,
        owner: str = "simulate",
        metrics: Sequence[Metric | Callable[[Params], Any]],
        average: str | Average | None,
        weights: str,
        shadow: Shadow | None = None,
        **sampling: Any,
    ) -> "Run":
        if not isinstance(problem, AbstractProblem):
            raise TypeError(f"{owner}: problem must be a fedlocal problem, got {type(problem).__name__}")
        if not isinstance(method, LocalMethod):
            raise TypeError(f"{owner}: method must be a LocalMethod, got {_name(method)}")
        rounds = checks.whole(owner, "rounds", rounds, at_least=0)
        eval_every = checks.whole(owner, "eval_every", eval_every)
        plan = Plan.make(problem, owner=owner, seed=seed, weights=weights, **sampling)
        rule = average_named(owner, average)
        if rule is not None and not rule.between_rounds and not plan.equal_steps:
            raise ValueError(
                f"{owner}: average needs the same number of local steps on every client; give local_steps=K "
                "or average='rounds'"
            )
        x0 = _starting_point(owner, problem, x0, seed)
        if isinstance(getattr(method, "mirror_map", None), MirrorMap):
            method.mirror_map.check(x0)  # pyright: ignore[reportAttributeAccessIssue]
        recorder = Recorder(owner, problem, method, plan, metrics, x0)
        watcher = None if shadow is None else Watcher(owner, shadow, problem, method, plan)
        configuration = {
            "method": str(method),
            "problem": type(problem).__name__,
            "rounds": rounds,
            "eval_every": eval_every,
            "seed": seed,
            "weights": weights,
            "average": str(average),
            "metrics": [metric_name(metric) for metric in recorder.metrics],
            **sampling,
        }
        configuration = {name: _plain(value) for name, value in configuration.items()}
        return cls(problem, method, plan, rule, x0, recorder, configuration, watcher)

    def first_state(self) -> RunState:
        return first_state(self.problem, self.method, self.x0, self.average, self.recorder.wants_discrepancy)

    @property
    def together(self) -> bool:
        """Whether something looks at all clients in every local step."""
        inside = self.average is not None and not self.average.between_rounds
        return inside or self.recorder.wants_discrepancy

    @property
    def intervals(self) -> tuple[int, ...]:
        """A run stops at every multiple of these rounds, to be looked at."""
        evaluated = self.configuration["eval_every"]
        return (evaluated,) if self.watcher is None else (evaluated, self.watcher.shadow.every)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with: all but the number of rounds, unless the average depends on it."""
        identity = {
            **self.configuration,
            "data of the problem": fingerprint(self.problem),
            "numbers of the method": fingerprint(self.method),
            "x0": fingerprint(self.x0),
            "data of the metrics": fingerprint([m for m in self.recorder.metrics if isinstance(m, Metric)]),
        }
        if self.watcher is not None:
            identity["shadow"] = fingerprint(self.watcher.shadow)
        return identity if self.average is not None else {k: v for k, v in identity.items() if k != "rounds"}

    def resume(
        self, done: int, rows: list[dict[str, float]], seconds: float, shadow: dict[str, Any] | None = None
    ) -> None:
        """Continue from a checkpoint, with the history that an uninterrupted run would have by now."""
        rounds, every = self.configuration["rounds"], self.configuration["eval_every"]
        if done > rounds:
            raise ValueError(
                f"simulate: the checkpoint is at round {done} already; rounds must be >= {done}, got {rounds}"
            )
        kept = [row for row in rows if row["round"] % every == 0 or row["round"] == rounds]
        self.recorder.resume(kept, seconds)
        if self.watcher is not None:
            self.watcher.resume(shadow or {})

    def kept(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the state; `resume` takes it."""
        kept = {"rows": self.recorder.rows, "seconds": self.recorder.seconds()}
        return kept if self.watcher is None else {**kept, "shadow": self.watcher.to_json()}

    def evaluate(self, r: int, state: RunState) -> None:
        """Add a row to the history."""
        self.recorder.evaluate(r, output(self.method, state), state.server, state.discrepancy)

    def divergence(self, state: RunState) -> Divergence | None:
        """When and where the run left the finite numbers, as far as it has been evaluated."""
        last = self.recorder.rows[-1] if self.recorder.rows else {"loss": 0.0}
        if state.diverged >= 0:
            arrays = wire.to_arrays(state.server)
            return Divergence(int(state.diverged), tuple(n for n, a in arrays.items() if not np.isfinite(a).all()))
        return None if np.isfinite(last["loss"]) else Divergence(int(last["round"]), ("loss",))

    def result(self, state: RunState, diverged: Divergence | None) -> Result:
        """What the user gets."""
        if diverged is not None:
            warnings.warn(f"{type(self.method).__name__} {diverged}", DivergenceWarning, stacklevel=3)
        return Result(
            x=jax.device_get(output(self.method, state)),
            server=jax.device_get(state.server),
            history=self.recorder.history(),
            diverged=diverged,
            plan=self.plan,
            provenance=provenance(**self.configuration),
            problem=self.problem,
            method=self.method,
            shadow=None if self.watcher is None else self.watcher.frame(),
            shadow_points=None if self.watcher is None else self.watcher.trajectory(),
        )


def _starting_point(owner: str, problem: AbstractProblem, x0: Params | None, seed: int) -> Params:
    x0 = problem.init(jax.random.key(seed)) if x0 is None else x0
    if not jax.tree.leaves(x0):
        raise ValueError(f"{owner}: x0 must hold at least one array, got {x0!r}")
    x0 = jax.tree.map(lambda a: _floating(owner, a), x0)
    dtype = optax.tree.dtype(x0, "promote")  # pyright: ignore[reportArgumentType]
    x0 = jax.tree.map(lambda a: a.astype(dtype), x0)  # one precision for all parts
    if not all(np.isfinite(a).all() for a in jax.tree.leaves(x0)):
        raise ValueError(f"{owner}: x0 holds nan or inf")
    check_shapes(owner, "x0", problem, x0)
    client = jnp.zeros((), jnp.int32)
    try:
        gradient = jax.eval_shape(problem.full_gradient, x0, client)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{owner}: x0 does not fit the problem {type(problem).__name__}: {error}") from None
    wrong = [
        (a.shape, g.shape)
        for a, g in zip(jax.tree.leaves(x0), jax.tree.leaves(gradient), strict=True)
        if a.shape != g.shape
    ]
    if wrong:
        raise ValueError(f"{owner}: the gradient has shape {wrong[0][1]} where x0 has shape {wrong[0][0]}")
    return x0


def _name(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _floating(owner: str, a: Any) -> jax.Array:
    array = np.asarray(a)
    if array.dtype.kind not in "biufV":
        raise TypeError(f"{owner}: x0 must hold numbers, got {a!r}")
    wanted = array.dtype if np.issubdtype(array.dtype, np.floating) else jnp.result_type(float)
    return jnp.asarray(array, jax.dtypes.canonicalize_dtype(wanted))


def _plain(value: Any) -> Any:
    """Ready for JSON: NumPy's numbers and arrays as Python's."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray, jax.Array)) else value
