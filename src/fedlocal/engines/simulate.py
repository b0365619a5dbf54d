"""simulate: rounds as one compiled loop, clients side by side, on this machine's cores or an accelerator."""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedlocal import checks
from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.engines.averages import Average
from fedlocal.engines.checkpoint import Checkpoint
from fedlocal.engines.linear import LinearEngine
from fedlocal.engines.mesh import OnMesh, check_same_call, everywhere, leads, mesh_of, processes, replicate
from fedlocal.engines.plan import COHORT_BLOCK, Plan
from fedlocal.engines.result import Result
from fedlocal.engines.rounds import RunState, run_round
from fedlocal.engines.run import Run
from fedlocal.engines.shadow import Shadow
from fedlocal.metrics import Metric
from fedlocal.progress import ProgressBar

ENGINES = ("auto", "jax", "linear")
Advance = Callable[
    [RunState, int, int], tuple[RunState, int]
]  # (state, rounds done, rounds wanted) -> (state, rounds run)
CALL_SECONDS = 0.5  # calls are kept about this short, so that progress, Ctrl-C and checkpoints are prompt
SAVE_SECONDS = 2.0  # least time between two checkpoints


def simulate(
    problem: AbstractProblem,
    method: LocalMethod,
    *,
    rounds: int,
    local_steps: int | Sequence[int] | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: str = "uniform",
    seed: int = 0,
    x0: Params | None = None,
    eval_every: int = 1,
    metrics: Sequence[Metric | Callable[[Params], Any]] = (),
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    average: str | Average | None = None,
    engine: str = "auto",
    shadow: Shadow | None = None,
    mesh: Mesh | int | None = None,
) -> Result:
    r"""Run a federated method on a problem.

    Args:
        problem: the losses of the clients, e.g. `fl.problems.LeastSquares(data)`.
        method: the algorithm, e.g. `fl.methods.FedDualAvg(...)`.
        rounds: communication rounds.
        local_steps: steps of a client in a round, each on a minibatch drawn with replacement; one number, or one per client.
        local_epochs: instead of `local_steps`: passes over the client's shuffled examples, the last minibatch may be short.
        batch_size: examples per step; None takes the full local gradient, which is deterministic.
        clients_per_round: how many clients take part, drawn uniformly without replacement; None means all.
        weights: "uniform" or "examples" (by number of examples): weights of the server's mean and of the loss.
        seed: everything random is a function of this integer.
        x0: starting point, a pytree; the problem's own when None.
        eval_every: evaluate after every so many rounds, before the first and after the last.
        metrics: what else to measure, see `fl.metrics`.
        progress: show a bar with the time left when the run takes more than two seconds.
        checkpoint: a file to save the state to, atomically; a run that finds it continues from it, to the same bits.
        average: None returns the last iterate; "third_order", "uniform", "rounds", "random" or an `Average` one of the theorems'
            averages.
        engine: "auto" takes the fused kernels of "linear" for linear models where they apply, else "jax"; the result's
            provenance says which.
        shadow: look at every local step: mean trajectory, discrepancies and potentials, see `fl.Shadow`. With engine "jax".
        mesh: devices that share the clients of every round: a `jax.sharding.Mesh` of one axis, or how many devices of this
            process; None is one device. With engine "jax". Results are those of one device up to the order of summation.

    A mesh may have devices of several processes (`jax.distributed`): all of them make the same call and get the same result,
    but for the seconds. Each must hold all data and see the same checkpoint, which the first of them writes; any mesh may
    continue from it. Ctrl-C stops the process that gets it, and no round ends without it: the first process saves before it
    stops; the others have nothing to save, and after them a run continues from the last checkpoint. Stop all, start all again.

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
        >>> result = fl.simulate(problem, fl.methods.FedAvg(client_step_size=0.1), rounds=200, local_steps=1)
        >>> round(float(result.x[0]), 4)
        0.75
    """
    run = Run.make(
        problem,
        method,
        rounds=rounds,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,
        weights=weights,
        seed=seed,
        x0=x0,
        eval_every=eval_every,
        metrics=metrics,
        average=average,
        shadow=shadow,
    )
    if shadow is not None and shadow.points and checkpoint is not None:
        raise ValueError("simulate: a checkpoint keeps no shadow points; give Shadow(points=False) or checkpoint=None")
    recorder, rounds, eval_every = run.recorder, run.configuration["rounds"], run.configuration["eval_every"]
    devices = mesh_of("simulate", mesh)
    state = run.first_state()
    advance = _engine(run, engine, rounds, devices)
    saved = None if checkpoint is None else Checkpoint(checkpoint, run.identity())
    now = Moment(0, state)
    previous = saved.load(state) if saved else None
    if saved is not None and previous is not None:
        now = Moment(*previous[:2])
        with saved.resuming():
            run.resume(now.done, **previous[2])
    if saved is not None and leads(devices):
        saved.check_writable()
    if devices is not None:
        if len(processes(devices)) > 1:
            call = {"shadow": None, **run.identity(), "rounds": rounds, "the round in the checkpoint": now.done}
            check_same_call("simulate", devices, call)
        run.configuration["devices"] = devices.size  # after the identity: any mesh may continue from a checkpoint

    def save() -> float:
        began = time.monotonic()
        if saved is not None and leads(devices):
            saved.save(now.done, now.state, run.kept())
        return time.monotonic() - began

    def evaluate_if_due() -> None:
        due = now.done % eval_every == 0 or now.done == rounds or now.state.diverged >= 0
        if due and (not recorder.rows or recorder.rows[-1]["round"] != now.done):
            run.evaluate(now.done, now.state)

    rate, last_save, save_took = 0.0, -np.inf, 0.0
    try:
        with ProgressBar(type(method).__name__, rounds, progress and leads(devices)) as bar:
            evaluate_if_due()
            while now.done < rounds and run.divergence(now.state) is None:
                if run.watcher is not None:
                    run.watcher.watch(now.done, now.state)
                stop = min(rounds, *((now.done // every + 1) * every for every in run.intervals))
                wanted = min(stop - now.done, max(1, int(CALL_SECONDS * rate)))
                began = time.monotonic()
                state, count = advance(now.state, now.done, wanted)
                rate = count / max(time.monotonic() - began, 1e-9)
                done = now.done + count if state.diverged < 0 else int(state.diverged)
                now = Moment(done, state)  # at once, for an interruption must not find them apart
                evaluate_if_due()
                if time.monotonic() - last_save > max(SAVE_SECONDS, 20 * save_took):
                    save_took, last_save = save(), time.monotonic()
                bar.advance_to(now.done, f"objective {recorder.rows[-1]['objective']:.4g}")
        save()
    except KeyboardInterrupt:
        save()
        if saved is None:
            raise
        raise KeyboardInterrupt(f"stopped after round {now.done}; the same call continues from {saved.path}") from None
    if run.watcher is not None:
        run.watcher.watch_end(now.done, now.state)
    return run.result(now.state, run.divergence(now.state))


class Moment(NamedTuple):
    """How far a run is."""

    done: int  # rounds
    state: RunState


def _engine(run: Run, engine: str, rounds: int, mesh: Mesh | None) -> Advance:
    """What runs some rounds: the fused kernels where they apply, the compiled JAX program otherwise."""
    problem, method, plan = run.problem, run.method, run.plan
    if takes_linear("simulate", engine, run, [method], mesh):
        linear = LinearEngine(cast(Any, problem), [method], plan, run.x0)
        run.recorder.losses = linear.losses

        def walk(state: RunState, done: int, wanted: int) -> tuple[RunState, int]:
            states, count = linear.advance(jax.tree.map(lambda a: np.asarray(a)[None], state), done, wanted)
            return jax.tree.map(lambda a: a[0], states), count

        return walk

    fixed = (problem, method, plan, run.average)
    if mesh is not None:
        fixed = replicate(mesh, fixed)

    def advance(state: RunState, done: int, wanted: int) -> tuple[RunState, int]:
        cohorts, count = None, wanted
        if not plan.full_participation:
            cohorts, count = plan.cohorts(done // COHORT_BLOCK), min(wanted, COHORT_BLOCK - done % COHORT_BLOCK)
        state = _advance(*fixed, float(rounds * plan.most_steps), state, cohorts, done, count, mesh)
        return jax.block_until_ready(state), count

    return advance if mesh is None else OnMesh(mesh, advance)


def takes_linear(owner: str, engine: str, run: Run, methods: Sequence[LocalMethod], mesh: Mesh | None = None) -> bool:
    """Whether the fused kernels are to run these methods, which share a run; its configuration says so."""
    checks.choice(owner, "engine", engine, ENGINES)
    against = "jax was asked for" if engine == "jax" else None
    if mesh is not None:
        against = "its kernels run on the cores of one machine, not on a mesh"
    elif run.watcher is not None:
        against = "a shadow looks at every local step, and its kernels show only what is between rounds"
    elif run.average is not None and run.average.between_rounds:
        against = "its kernels keep no average"
    if against is None:
        against = LinearEngine.reason_against(
            run.problem, methods, run.plan, run.x0, run.together, asked=engine == "linear"
        )
    if engine == "linear" and against is not None:
        raise ValueError(f"{owner}: engine='linear' does not apply: {against}; use engine='auto' or 'jax'")
    run.configuration["engine"] = "linear" if against is None else "jax"
    return against is None


@partial(jax.jit, static_argnames="mesh")
def _advance(
    problem: AbstractProblem,
    method: LocalMethod,
    plan: Plan,
    average: Average | None,
    total_steps: float,
    state: RunState,
    cohorts: jax.Array | np.ndarray | None,
    first: int,
    count: int,
    mesh: Mesh | None = None,
) -> RunState:
    """`count` rounds from round `first`. How many is an argument, so however a run is cut, it is the same program."""

    def more(carry: tuple[jax.Array, RunState]) -> jax.Array:
        return (carry[0] < count) & (carry[1].diverged < 0)

    def one(carry: tuple[jax.Array, RunState]) -> tuple[jax.Array, RunState]:
        i, state = carry
        r = first + i
        cohort = jnp.arange(plan.num_clients) if cohorts is None else cohorts[r % COHORT_BLOCK]
        return i + 1, run_round(problem, method, plan, average, total_steps, state, cohort, r, mesh)

    _, last = jax.lax.while_loop(more, one, (jnp.zeros((), jnp.int32), state))
    return last if mesh is None else everywhere(mesh, last)
