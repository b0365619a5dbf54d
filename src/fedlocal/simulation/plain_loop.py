"""loop: the same contract in plain Python, one client after the other, every message passed through bytes.

It compiles gradients, each once, and nothing else, and is slow. It is the twin that `simulate` is tested against, the place to
put a breakpoint, and the proof that a method can be deployed: a client sees only what the server sent, its own data and its own
memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.callbacks.base import Callback, CallbackFunction, check_callbacks, following
from fedlocal.core import AbstractProblem, Client, LocalMethod, Params, Round
from fedlocal.core.schedule import at_round
from fedlocal.core.types import Weights
from fedlocal.methods.contract import check_local_steps
from fedlocal.metrics import losses_in_float64
from fedlocal.samplers import AnySampler
from fedlocal.simulation.averages import Average, AverageName
from fedlocal.simulation.clients import ClientRound, Step, client_round
from fedlocal.simulation.discrepancy import message_fields, message_spread
from fedlocal.simulation.driver import Saver, drive
from fedlocal.simulation.plan import Sampling
from fedlocal.simulation.progress import RunProgress
from fedlocal.simulation.recorder import MetricLike
from fedlocal.simulation.result import Result
from fedlocal.simulation.rounds import Running, RunState
from fedlocal.simulation.run import Run, RunArguments
from fedlocal.simulation.shadow import Shadow, ShadowRecorder
from fedlocal.stopping import StopWhen, check_rules
from fedlocal.util import serialization
from fedlocal.util.progress import ProgressBar


def loop(
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
    average: AverageName | Average | None = None,
    shadow: Shadow | None = None,
    stop_when: StopWhen | None = None,
    callbacks: Sequence[Callback | CallbackFunction] = (),
) -> Result:
    """Run a federated method as `simulate` does, step by step in plain Python.

    Args:
        problem, method: as in `simulate`.
        rounds, local_steps, local_epochs, batch_size, clients_per_round, weights, seed, sampler, x0: as in `simulate`.
        eval_every, metrics, progress, average, shadow, stop_when, callbacks: as in `simulate`.

    >>> import fedlocal as fl
    >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
    >>> result = fl.loop(problem, fl.methods.FedAvg(client_step_size=0.2), rounds=40, local_steps=1)
    >>> round(float(result.x[0]), 4)
    0.75
    """
    sampling = Sampling(local_steps, local_epochs, batch_size, clients_per_round, weights, seed, sampler)
    asked = RunArguments(sampling, rounds, eval_every, x0, metrics, average, shadow)
    run = Run.make("loop", problem, method, asked)
    check_local_steps("loop", [run.steps])
    shadows = None if shadow is None else ShadowRecorder.make("loop", run.problem, run.stepped, run.plan, shadow)
    engine = PlainEngine(run, shadows)
    rules, called = check_rules("loop", stop_when), check_callbacks("loop", callbacks)
    first = RunProgress(run, engine, run.first_state(), rules=rules, callbacks=called)
    bar = ProgressBar(type(method).__name__, run.rounds, progress)
    with following(called, {**run.configuration, **engine.configuration}, ()):
        last = drive(first, run.schedule, Saver(None), bar)
    if shadows is not None:
        shadows.watch_end(last.done, last.state)
    return replace(last, shadow=shadows).result()


@dataclass
class PlainEngine:
    """Rounds in plain Python."""

    run: Run
    shadows: ShadowRecorder | None
    configuration: dict[str, Any] = field(default_factory=lambda: {"engine": "loop"})

    def losses(self, points: Params, loss_weights: np.ndarray) -> np.ndarray:
        return losses_in_float64(self.run.problem, points, loss_weights)

    def advance(self, state: RunState, done: int, wanted: int) -> tuple[RunState, int]:
        """Run one round."""
        run, plan, r = self.run, self.run.plan, done
        method, cohort = at_round(run.method, r), plan.cohort(r)
        if not len(cohort):
            return state, 1
        p = np.asarray(plan.normalized_weights(jnp.asarray(cohort)))
        clients = self._clients(state, r)
        states, kept = [client.states for client in clients], [client.memory for client in clients]
        if self.shadows is not None and self.shadows.due(r):
            rows = [jax.tree.map(lambda *a: np.stack(a), *each) for each in states]
            self.shadows.record(r, jax.tree.map(lambda *a: np.stack(a, axis=1), *rows), p)  # (steps, clients, ...)
        messages = [serialization.from_bytes(serialization.to_bytes(c.message), c.message) for c in clients]
        mean_message = _mean(messages, p)
        server = method.update(state.server, mean_message, Round(r, len(cohort) / plan.num_clients))
        running = state.running
        if run.average is not None and running is not None:
            running = self._average(run.average, running, states, server, p, r)
        spread = state.discrepancy
        if spread is not None:
            stacked = jax.tree.map(lambda *a: jnp.stack(a), *messages)
            spread = message_spread(message_fields(method, run.x0), stacked, mean_message, jnp.asarray(p))
        finite = all(np.isfinite(a).all() for a in jax.tree.leaves(server))
        memory = jax.tree.map(lambda all_, *new: all_.at[cohort].set(jnp.stack(new)), state.memory, *kept)
        return RunState(server, memory, running, spread, jnp.asarray(-1 if finite else r + 1)), 1

    def _clients(self, state: RunState, r: int) -> list[ClientRound]:
        """Run the clients of round r, each from the bytes that the server sent."""
        run, shown = self.run, self.run.method.broadcast(state.server)
        sent = serialization.to_bytes(shown)

        def one(m: int) -> ClientRound:
            received, memory = serialization.from_bytes(sent, shown), jax.tree.map(lambda a: a[m], state.memory)
            client = jnp.asarray(m, jnp.int32)
            return client_round(run.problem, run.method, run.plan, received, memory, client, r, _states_one_by_one)

        return [one(m) for m in run.plan.cohort(r).tolist()]

    def _average(
        self, average: Average, running: Running, states: list[list[Any]], server: Any, p: np.ndarray, r: int
    ) -> Running:
        """Return the running average after round r, from the states of the clients and the new one of the server."""
        method, plan, rounds = self.run.method, self.run.plan, self.run.rounds
        steps, key = plan.most_steps, jax.random.key(plan.seed)
        if average.between_rounds:
            return running.add(method.solution(server), *average.keep_and_gain(jnp.asarray(r), rounds * steps, key))
        for k in range(steps):
            now = [each[k + 1 if average.after_step else k] for each in states]
            keep, gain = average.keep_and_gain(jnp.asarray(r * steps + k), rounds * steps, key)
            running = running.add(method.primal(_mean(now, p)), keep, gain)
        return running


def _states_one_by_one(step: Step, state: Client, steps: Any) -> tuple[Client, list[Client]]:
    """Take the steps without compiling; return the last state and a list of all."""
    states = [state]
    for k in range(int(steps)):
        states.append(step(k, states[-1]))
    return states[-1], states


def _mean(trees: list[Any], p: np.ndarray) -> Any:
    with np.errstate(all="ignore"):  # divergence is reported, not warned about
        return jax.tree.map(lambda *arrays: sum(w * np.asarray(a) for w, a in zip(p, arrays, strict=True)), *trees)
