"""Engines: what runs the rounds of one run. The compiled JAX program, or the fused kernels for linear models or for networks."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedlocal.core import LocalMethod, Params
from fedlocal.metrics import losses_in_float64
from fedlocal.simulation.checkpoint import engine_of_file
from fedlocal.simulation.kernels.engine import LinearEngine
from fedlocal.simulation.kernels.networks.engine import NetworkEngine
from fedlocal.simulation.mesh import OnMesh, everywhere, replicate
from fedlocal.simulation.plan import COHORT_BLOCK
from fedlocal.simulation.rounds import RunInputs, RunState, cohort_of, run_round
from fedlocal.simulation.run import Run
from fedlocal.util import checks
from fedlocal.util.files import AnyPath

EngineName = Literal["auto", "jax", "linear", "network"]
ChosenEngine = Literal["jax", "linear", "network"]
ENGINES: tuple[str, ...] = get_args(EngineName)
Kernels = LinearEngine | NetworkEngine  # the fused kernels, of several runs with stacked states
KERNELS: dict[str, type[Kernels]] = {kind.name: kind for kind in (LinearEngine, NetworkEngine)}


class Engine(Protocol):
    """Runs rounds and evaluates losses."""

    configuration: dict[str, Any]  # what the provenance of a result says of the engine; "engine" is its name

    def advance(self, state: RunState, done: int, wanted: int, /) -> tuple[RunState, int]:
        """Run at most `wanted` rounds from round `done`; return the state and how many rounds there were."""
        ...

    def losses(self, points: Params, loss_weights: np.ndarray) -> np.ndarray:
        """Return F in float64 at points that are stacked along the first axis of every array."""
        ...


class JaxEngine:
    """Rounds as one compiled loop, on one device or on those of a mesh."""

    def __init__(self, inputs: RunInputs, mesh: Mesh | None = None):
        self.inputs, self.mesh, self.plan = inputs, mesh, inputs.plan
        self.advance: Callable[[RunState, int, int], tuple[RunState, int]] = self._run_rounds
        self.configuration: dict[str, Any] = {"engine": "jax"}
        if mesh is not None:
            total, fixed = inputs.total_steps, replicate(mesh, inputs._replace(total_steps=None))
            self.inputs, self.advance = fixed._replace(total_steps=total), OnMesh(mesh, self._run_rounds)
            self.configuration["devices"] = mesh.size

    def losses(self, points: Params, loss_weights: np.ndarray) -> np.ndarray:
        return losses_in_float64(self.inputs.problem, points, loss_weights)

    def _run_rounds(self, state: RunState, done: int, wanted: int) -> tuple[RunState, int]:
        cohorts, count = None, wanted
        if not self.plan.full_participation:
            cohorts, count = self.plan.cohorts(done // COHORT_BLOCK), min(wanted, COHORT_BLOCK - done % COHORT_BLOCK)
        return jax.block_until_ready(_advance(self.inputs, state, cohorts, done, count, self.mesh)), count


class KernelEngine:
    """Fused kernels for one run, whose state is not stacked."""

    def __init__(self, name: str, run: Run):
        self.kernels = KERNELS[name](cast(Any, run.problem), [run.method], run.plan, run.x0)
        self.configuration: dict[str, Any] = {"engine": name}

    def advance(self, state: RunState, done: int, wanted: int) -> tuple[RunState, int]:
        moved, count = self.kernels.advance(jax.tree.map(lambda a: np.asarray(a)[None], state), done, wanted)
        return jax.tree.map(lambda a: a[0], moved), count

    def losses(self, points: Params, loss_weights: np.ndarray) -> np.ndarray:
        return self.kernels.losses(points, loss_weights)


def engine_for(owner: str, engine: EngineName, run: Run, mesh: Mesh | None) -> Engine:
    """Return the engine of one run."""
    name = engine_name(owner, engine, run, [run.method], mesh)
    return JaxEngine(run.inputs, mesh) if name == "jax" else KernelEngine(name, run)


def engine_name(
    owner: str, engine: EngineName, run: Run, methods: Sequence[LocalMethod], mesh: Mesh | None = None
) -> ChosenEngine:
    """Return which engine runs these methods, which share a run: the fused kernels that apply, by name, else "jax"."""
    checks.choice(owner, "engine", engine, ENGINES)
    if engine == "jax":
        return "jax"
    against = _reason_against_kernels(run, mesh)
    rounds = run.rounds if engine == "auto" else None
    for kernels in KERNELS.values() if engine == "auto" else [KERNELS[engine]]:
        reason = against or kernels.reason_against(run.problem, methods, run.plan, run.x0, run.together, rounds)
        if reason is None:
            return kernels.name
        if engine != "auto":
            raise ValueError(f"{owner}: engine={engine!r} does not apply: {reason}; use engine='auto' or 'jax'")
    return "jax"


def _reason_against_kernels(run: Run, mesh: Mesh | None) -> str | None:
    """Why no fused kernels apply to a run, or None."""
    if mesh is not None:
        return "its kernels run on the cores of one machine, not on a mesh"
    if run.shadow is not None:
        return "a shadow looks at every local step, and its kernels show only what is between rounds"
    if run.average is not None and run.average.between_rounds:
        return "its kernels keep no average"
    return None


def engine_before(engine: EngineName, checkpoint: AnyPath | None) -> EngineName:
    """Return the engine that wrote the checkpoint, if "auto" may choose: it chooses by the rounds, which may be more now."""
    before = None if checkpoint is None or engine != "auto" else engine_of_file(Path(checkpoint))
    return cast(EngineName, before) if before in ENGINES else engine


@partial(jax.jit, static_argnames="mesh")
def _advance(
    inputs: RunInputs, state: RunState, cohorts: Any | None, first: int, count: int, mesh: Mesh | None = None
) -> RunState:
    """Run `count` rounds from round `first`. The count is an argument, so that one program serves every cut of a run."""

    def more(carry: tuple[jax.Array, RunState]) -> jax.Array:
        return (carry[0] < count) & (carry[1].diverged < 0)

    def one(carry: tuple[jax.Array, RunState]) -> tuple[jax.Array, RunState]:
        i, state = carry
        r = first + i
        return i + 1, run_round(inputs, state, cohort_of(inputs.plan, cohorts, r), r, mesh)

    _, last = jax.lax.while_loop(more, one, (jnp.zeros((), jnp.int32), state))
    return last if mesh is None else everywhere(mesh, last)
