"""Run: a checked call of an engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.core.schedule import at_round, tabulated
from fedlocal.methods.contract import StepsOfRun, check_method
from fedlocal.metrics import Metric, metric_name
from fedlocal.problems.smooth_part import check_shapes
from fedlocal.samplers import Sampler
from fedlocal.simulation.averages import Average, AverageName, average_named
from fedlocal.simulation.driver import RunSchedule
from fedlocal.simulation.plan import Plan, Sampling
from fedlocal.simulation.recorder import MetricLike, Recorder
from fedlocal.simulation.rounds import RunInputs, RunState, first_state
from fedlocal.simulation.shadow import Shadow
from fedlocal.util import checks
from fedlocal.util.hashing import class_code, fingerprint


class RunArguments(NamedTuple):
    """What a run is asked for besides its problem and its method, under the names of the arguments of `simulate`."""

    sampling: Sampling
    rounds: int
    eval_every: int
    x0: Params | None
    metrics: Sequence[MetricLike]
    average: AverageName | Average | None
    shadow: Shadow | None = None


@dataclass(frozen=True)
class Run:
    """A checked call of `simulate`, `sweep` or `loop`. Nothing in it changes."""

    owner: str  # the function that was called
    problem: AbstractProblem
    method: LocalMethod
    stepped: LocalMethod  # the method with the numbers of all rounds in place of functions of the round
    plan: Plan
    average: Average | None
    x0: Params
    recorder: Recorder
    shadow: Shadow | None
    rounds: int
    eval_every: int
    configuration: Mapping[str, Any]  # the arguments as plain values

    @classmethod
    def make(cls, owner: str, problem: AbstractProblem, method: LocalMethod, asked: RunArguments) -> "Run":
        """Check all arguments of a call of the function `owner`."""
        sampling, rounds, eval_every, x0, metrics, average, shadow = asked
        if not isinstance(problem, AbstractProblem):
            raise TypeError(f"{owner}: problem must be a fedlocal problem, got {type(problem).__name__}")
        problem = problem.current()
        problem.rounding.check(owner, stacklevel=4)
        rounds = checks.whole(owner, "rounds", rounds, at_least=0)
        eval_every = checks.whole(owner, "eval_every", eval_every)
        plan = Plan.make(problem, sampling, owner, rounds)
        rule = average_named(owner, average)
        if rule is not None and not rule.between_rounds and not plan.equal_steps:
            needed = "the same number of local steps on every client; give local_steps=K or average='rounds'"
            raise ValueError(f"{owner}: average needs {needed}")
        x0 = _starting_point(owner, problem, x0, sampling.seed)
        check_method(at_round(method, 0) if isinstance(method, LocalMethod) else method, x0, owner)
        method.check_start(x0)
        stepped = tabulated(owner, method, rounds, optax.tree.dtype(x0, "promote"))
        recorder = Recorder.make(owner, problem, method, plan, metrics, x0)
        configuration = {
            "method": str(method),
            "problem": type(problem).__name__,
            "rounds": rounds,
            "eval_every": eval_every,
            "average": str(average),
            "metrics": [metric_name(metric) for metric in recorder.metrics],
            **{field.name: _plain(getattr(sampling, field.name)) for field in fields(sampling)},
        }
        if sampling.sampler == "uniform":
            del configuration["sampler"]
        frozen = MappingProxyType(configuration)
        return cls(owner, problem, method, stepped, plan, rule, x0, recorder, shadow, rounds, eval_every, frozen)

    @property
    def steps(self) -> StepsOfRun:
        """The method with the range of its clients' local steps."""
        return StepsOfRun(self.method, self.plan.fewest_steps, self.plan.most_steps)

    @property
    def inputs(self) -> RunInputs:
        """What the rounds are computed from."""
        total = float(self.rounds * self.plan.most_steps)
        return RunInputs(self.problem, self.stepped, self.plan, self.average, total)

    @property
    def schedule(self) -> RunSchedule:
        return RunSchedule(self.owner, self.rounds, self.eval_every, None if self.shadow is None else self.shadow.every)

    @property
    def together(self) -> bool:
        """True if an average or a metric needs all clients at every local step."""
        inside = self.average is not None and not self.average.between_rounds
        return inside or self.recorder.wants_discrepancy

    def first_state(self) -> RunState:
        """Return the state before round 0."""
        return first_state(self.problem, self.method, self.x0, self.average, self.recorder.wants_discrepancy)

    def identity(self, engine: str) -> dict[str, Any]:
        """Return what a checkpoint must agree with: all but the number of rounds, unless the average depends on it."""
        identity = {
            **self.configuration,
            "engine": engine,
            "data of the problem": fingerprint(self.problem),
            "numbers of the method": fingerprint(self.method),
            "x0": fingerprint(self.x0),
            "metrics and their data": fingerprint([_known(metric) for metric in self.recorder.metrics]),
        }
        if self.shadow is not None:
            identity["shadow"] = fingerprint(self.shadow)
        if "sampler" in identity:
            identity["data of the sampler"] = fingerprint(self.plan.chosen.sampler)
        return identity if self.average is not None else {k: v for k, v in identity.items() if k != "rounds"}


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
    problem.check_losses(owner, x0)
    try:
        gradient = jax.eval_shape(_gradient_of_client, problem, x0, jnp.zeros((), jnp.int32))
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{owner}: x0 does not fit the problem {type(problem).__name__}: {error}") from None
    for a, g in zip(jax.tree.leaves(x0), jax.tree.leaves(gradient), strict=True):
        if a.shape != g.shape:
            raise ValueError(f"{owner}: the gradient has shape {g.shape} where x0 has shape {a.shape}")
    return x0


def _gradient_of_client(problem: AbstractProblem, x: Params, client: jax.Array) -> Params:
    """A function of this module, which JAX traces once for all problems of the same shapes."""
    return problem.full_gradient(x, client)


def _floating(owner: str, a: Any) -> jax.Array:
    array = np.asarray(a)
    if array.dtype.kind not in "biufV":
        raise TypeError(f"{owner}: x0 must hold numbers, got {a!r}")
    wanted = array.dtype if np.issubdtype(array.dtype, np.floating) else jnp.result_type(float)
    return jnp.asarray(array, jax.dtypes.canonicalize_dtype(wanted))


def _known(metric: Any) -> Any:
    """What tells a metric apart: all of a `Metric`, with the code of its class; of a function only the code, since it may collect
    what it sees."""
    if isinstance(metric, Metric):
        return metric, *class_code(type(metric))
    return getattr(metric, "__code__", class_code(type(metric)))


def _plain(value: Any) -> Any:
    """Return NumPy's numbers and arrays as Python's, and functions and objects as text, for JSON."""
    if callable(value) or isinstance(value, Sampler):
        return getattr(value, "__qualname__", type(value).__name__)
    return value.tolist() if isinstance(value, (np.generic, np.ndarray, jax.Array)) else value
