"""simulate: rounds as one compiled loop, clients side by side, on this machine's cores or an accelerator."""

import os
from collections.abc import Sequence

from jax.sharding import Mesh

from fedlocal.callbacks.base import Callback, CallbackFunction, check_callbacks, following
from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.core.types import Weights
from fedlocal.methods.contract import check_local_steps
from fedlocal.samplers import AnySampler
from fedlocal.simulation.averages import Average, AverageName
from fedlocal.simulation.checkpoint import Checkpoint
from fedlocal.simulation.driver import Saver, drive, resume
from fedlocal.simulation.engines import EngineName, engine_before, engine_for
from fedlocal.simulation.mesh import check_same_call, leads, mesh_of, processes
from fedlocal.simulation.plan import Sampling
from fedlocal.simulation.progress import RunProgress
from fedlocal.simulation.recorder import MetricLike
from fedlocal.simulation.result import Result
from fedlocal.simulation.run import Run, RunArguments
from fedlocal.simulation.shadow import Shadow, ShadowRecorder
from fedlocal.stopping import StopWhen, check_rules
from fedlocal.util.progress import ProgressBar


def simulate(
    problem: AbstractProblem,
    method: LocalMethod,
    *,
    rounds: int,
    local_steps: int | Sequence[int] | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: Weights = "uniform",
    seed: int = 0,
    sampler: AnySampler = "uniform",
    x0: Params | None = None,
    eval_every: int = 1,
    metrics: Sequence[MetricLike] = (),
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    average: AverageName | Average | None = None,
    engine: EngineName = "auto",
    shadow: Shadow | None = None,
    mesh: Mesh | int | None = None,
    stop_when: StopWhen | None = None,
    callbacks: Sequence[Callback | CallbackFunction] = (),
) -> Result:
    r"""Run a federated method on a problem.

    Args:
        problem: the losses of the clients, e.g. `fl.problems.LeastSquares(data)`.
        method: the algorithm, e.g. `fl.methods.FedDualAvg(...)`.
        rounds: communication rounds.
        local_steps: steps of a client in a round, each on a minibatch drawn with replacement; one number, or one per client.
        local_epochs: instead of `local_steps`: passes over the client's shuffled examples, the last minibatch may be short.
        batch_size: examples per step; None takes the full local gradient, which is deterministic.
        clients_per_round: how many clients take part; None means all.
        weights: "uniform", "examples" (by number of examples), or a number for each client: weights of the server's mean and of
            the loss.
        seed: everything random is a function of this integer.
        sampler: how the clients of a round are chosen: "uniform" draws without replacement; "by_weight", "round_robin", an
            object of `fl.samplers` such as `Availability(trace)`, or a function of the round that returns their numbers.
        x0: starting point, a pytree; the problem's own when None.
        eval_every: evaluate after every so many rounds, before the first and after the last.
        metrics: what else to measure, see `fl.metrics`.
        progress: show a bar with the time left when the run takes more than two seconds.
        checkpoint: a file to save the state to, atomically; a run that finds it continues from it, to the same bits.
        average: None returns the last iterate; "third_order", "uniform", "rounds", "random" or an `Average` one of the theorems'
            averages.
        engine: "auto" takes the fused kernels of "linear" for long runs of linear models, and those of "network" for long runs
            of `MLP` and `Softmax` in float32, where compiling them pays, else "jax", and for a checkpoint the engine that wrote
            it; the result's provenance says which.
        shadow: look at every local step: mean trajectory, discrepancies and potentials, see `fl.Shadow`. With engine "jax".
        mesh: devices that share the clients of every round: a `jax.sharding.Mesh` of one axis, or how many devices of this
            process; None is one device. With engine "jax". Results are those of one device up to the order of summation.
        stop_when: a rule of `fl.stopping`, or a function that is called after each evaluation with its row of the history, a
            dict, and the point, a pytree of float64 arrays, and ends the run by returning True or a text that is the reason;
            or a list of them, the first of which that says so ends the run. The result is kept, and `result.stopped`
            says in which round it ended and why. Processes of a mesh must agree in what it returns.
        callbacks: functions that are called after each evaluation with (round, row, x), and objects of `fl.callbacks`, e.g.
            `fl.callbacks.CSV("history.csv")`. Of the processes of a mesh the first one calls them.

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
    sampling = Sampling(local_steps, local_epochs, batch_size, clients_per_round, weights, seed, sampler)
    asked = RunArguments(sampling, rounds, eval_every, x0, metrics, average, shadow)
    run = Run.make("simulate", problem, method, asked)
    check_local_steps("simulate", [run.steps])
    shadows = None if shadow is None else ShadowRecorder.make("simulate", run.problem, run.stepped, run.plan, shadow)
    if shadow is not None and shadow.points and checkpoint is not None:
        raise ValueError("simulate: a checkpoint keeps no shadow points; give Shadow(points=False) or checkpoint=None")
    devices = mesh_of("simulate", mesh)
    rules = check_rules("simulate", stop_when, len(processes(devices)))
    called = check_callbacks("simulate", callbacks) if leads(devices) else ()
    chosen = engine_for("simulate", engine_before(engine, checkpoint), run, devices)
    first = RunProgress(run, chosen, run.first_state(), shadow=shadows, rules=rules, callbacks=called)
    saved = None if checkpoint is None else Checkpoint(checkpoint, run.identity(chosen.configuration["engine"]))
    now = resume(first, run.schedule, saved)
    saver = Saver(saved, writes=leads(devices))
    if devices is not None and len(processes(devices)) > 1:
        call = {"shadow": None, **run.identity("jax"), "rounds": run.rounds, "the round in the checkpoint": now.done}
        check_same_call("simulate", devices, call)
    bar = ProgressBar(type(method).__name__, run.rounds, progress and leads(devices))
    with following(called, {**run.configuration, **chosen.configuration}, now.rows):
        last = drive(now, run.schedule, saver, bar)
    if shadows is not None:
        shadows.watch_end(last.done, last.state)
    return last.result()
