"""loop: the same contract in plain Python, one client after the other, everything sent passed through bytes.

It compiles nothing and is slow. It is the twin that `simulate` is tested against, the place to put a breakpoint, and the
proof that a method can be deployed: a client sees only what came over the wire, its own data and its own memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal import wire
from fedlocal.core import AbstractProblem, LocalMethod, Memory, Params
from fedlocal.engines.averages import Average
from fedlocal.engines.plan import Plan
from fedlocal.engines.result import Result
from fedlocal.engines.rounds import Running, RunState, message_fields, message_spread
from fedlocal.engines.run import Run
from fedlocal.engines.shadow import Shadow, Watcher
from fedlocal.metrics import Metric
from fedlocal.progress import ProgressBar


def loop(
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
    average: str | Average | None = None,
    shadow: Shadow | None = None,
) -> Result:
    """Run a federated method as `simulate` does, step by step in plain Python. Arguments as there.

    >>> import fedlocal as fl
    >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
    >>> result = fl.loop(problem, fl.methods.FedAvg(client_step_size=0.2), rounds=40, local_steps=1)
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
        owner="loop",
        average=average,
        shadow=shadow,
    )
    rounds, eval_every = run.configuration["rounds"], run.configuration["eval_every"]
    state = run.first_state()
    memories: dict[int, Memory] = {}
    run.evaluate(0, state)
    diverged, done = run.divergence(state), 0
    with ProgressBar(type(method).__name__, rounds, progress) as bar:
        for r in range(rounds):
            if diverged is not None:
                break
            state, done = _round(run, rounds, state, memories, r), r + 1
            if (r + 1) % eval_every == 0 or r + 1 == rounds or state.diverged >= 0:
                run.evaluate(r + 1, state)
                diverged = run.divergence(state)
            bar.advance_to(r + 1)
    if run.watcher is not None:
        _watch_end(run, run.watcher, state, memories, done)
    return run.result(state, diverged)


def _round(run: Run, rounds: int, state: RunState, memories: dict[int, Memory], r: int) -> RunState:
    method, plan = run.method, run.plan
    cohort = plan.cohort(r)
    p = np.asarray(plan.normalized_weights(jnp.asarray(cohort)))
    shown = method.broadcast(state.server)
    letter = wire.to_bytes(shown)
    replies, trails = [], []
    for m in cohort.tolist():
        server = wire.from_bytes(letter, shown)
        memory = memories.get(m, method.init_memory(run.x0))
        message, memories[m], trail = _client(run.problem, method, plan, server, memory, m, r)
        replies.append((wire.to_bytes(message), message))
        trails.append(trail)
    if run.watcher is not None and run.watcher.due(r):
        run.watcher.record(r, _stacked(trails), p)
    messages = [wire.from_bytes(content, like) for content, like in replies]
    mean_message = _mean(messages, p)
    server = method.update(state.server, mean_message)
    running = state.running
    if run.average is not None and running is not None:
        running = _average(run, run.average, rounds, running, trails, server, p, r)
    spread = state.discrepancy
    if spread is not None:
        stacked = jax.tree.map(lambda *a: jnp.stack(a), *messages)
        spread = message_spread(message_fields(method, run.x0), stacked, mean_message, jnp.asarray(p))
    finite = all(np.isfinite(a).all() for a in jax.tree.leaves(server))
    return RunState(server, (), running, spread, jnp.asarray(-1 if finite else r + 1))


def _client(
    problem: AbstractProblem, method: LocalMethod, plan: Plan, server: Any, memory: Memory, m: int, r: int
) -> tuple[Any, Memory, list[Any]]:
    """What client m does in round r: its message, its memory, and all states it went through."""
    index = jnp.asarray(m, jnp.int32)
    draws = plan.draws(plan.round_key(r), index)
    client = method.start(server, memory)
    trail = [client]
    for k in range(int(plan.steps[m])):
        if plan.batch_size is None:
            client = method.step(client, lambda x: problem.full_gradient(x, index))
        else:
            batch = plan.batch(draws, index, k)
            client = method.step(client, lambda x, batch=batch: problem.gradient(x, batch))
        trail.append(client)
    message, memory = method.finish(server, client)
    return message, memory, trail


def _watch_end(run: Run, watcher: Watcher, state: RunState, memories: dict[int, Memory], r: int) -> None:
    """Show the watcher what clients would start from after r rounds."""
    cohort, sent = run.plan.cohort(r), run.method.broadcast(state.server)
    p = run.plan.normalized_weights(jnp.asarray(cohort))
    starts = [run.method.start(sent, memories.get(m, run.method.init_memory(run.x0))) for m in cohort.tolist()]
    watcher.record(r, _stacked([[start] for start in starts]), p)


def _stacked(trails: list[list[Any]]) -> Any:
    """Of each client a list of states: all of them as arrays (steps, clients, ...)."""
    rows = [jax.tree.map(lambda *a: np.stack(a), *trail) for trail in trails]
    return jax.tree.map(lambda *a: np.stack(a, axis=1), *rows)


def _mean(trees: list[Any], p: np.ndarray) -> Any:
    with np.errstate(all="ignore"):  # divergence is reported, not warned about
        return jax.tree.map(lambda *arrays: sum(w * np.asarray(a) for w, a in zip(p, arrays, strict=True)), *trees)


def _average(
    run: Run,
    average: Average,
    rounds: int,
    running: Running,
    trails: list[list[Any]],
    server: Any,
    p: np.ndarray,
    r: int,
) -> Running:
    """The running average after round r, from what clients went through and what the server has now."""
    steps, key = run.plan.most_steps, jax.random.key(run.plan.seed)
    if average.between_rounds:
        return running.add(run.method.solution(server), *average.keep_and_gain(jnp.asarray(r), rounds * steps, key))
    for k in range(steps):
        states = [trail[k + 1 if average.after_step else k] for trail in trails]
        keep, gain = average.keep_and_gain(jnp.asarray(r * steps + k), rounds * steps, key)
        running = running.add(run.method.primal(_mean(states, p)), keep, gain)
    return running
