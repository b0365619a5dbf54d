"""One round in JAX: the clients side by side, then the mean of their messages, then the server's step."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from fedlocal.core import AbstractProblem, Client, LocalMethod, Params, Round, Scalar, Server
from fedlocal.core.schedule import at_round
from fedlocal.simulation.averages import Average
from fedlocal.simulation.clients import begin, step
from fedlocal.simulation.discrepancy import message_fields, message_spread
from fedlocal.simulation.mesh import spread_out
from fedlocal.simulation.plan import COHORT_BLOCK, Plan

CACHE_BYTES = 1 << 20  # of client states that are computed side by side
UNROLLED_CLIENTS = 2  # clients of large models that a program holds next to each other, for the cores to share


class Running(NamedTuple):
    """A running average of points."""

    total: Params
    weight: jax.Array

    def add(self, point: Params, keep: Scalar, gain: Scalar) -> "Running":
        """Return keep times this average plus gain times a point."""
        add = lambda old, new: (keep * old + gain * new).astype(old.dtype)  # noqa: E731
        return Running(jax.tree.map(add, self.total, point), add(self.weight, 1))


class RunInputs(NamedTuple):
    """All that stays the same from round to round."""

    problem: AbstractProblem
    method: LocalMethod
    plan: Plan
    average: Average | None
    total_steps: Scalar  # K R, the local steps of all rounds


class RunState(NamedTuple):
    """All that changes from round to round."""

    server: Server
    memory: Any  # (M, ...) what clients keep; () for most methods
    running: Running | None
    discrepancy: dict[str, jax.Array] | None  # of the last round
    diverged: jax.Array  # first round after which the server state was not finite; -1 while it is


def first_state(
    problem: AbstractProblem, method: LocalMethod, x0: Params, average: Average | None, discrepancy: bool
) -> RunState:
    """Return the state before round 0."""
    method = at_round(method, 0)
    server, clients = method.init(x0), problem.num_clients
    memory = jax.tree.map(lambda a: jnp.broadcast_to(a, (clients, *jnp.shape(a))), method.init_memory(x0))
    running = None if average is None else Running(jax.tree.map(jnp.zeros_like, x0), jnp.zeros(()))
    zeros = {name: jnp.zeros(()) for name in message_fields(method, x0)} if discrepancy else None
    return RunState(server, memory, running, zeros, jnp.full((), -1, jnp.int32))


def output(method: LocalMethod, state: RunState) -> Params:
    """Return the point of a run: the average if one is kept, else the method's solution."""
    last = method.solution(state.server)
    if state.running is None:
        return last
    total, weight = state.running
    return jax.tree.map(lambda x, a: jnp.where(weight == 0, x, a / jnp.where(weight == 0, 1, weight)), last, total)


def cohort_of(plan: Plan, cohorts: Any, r: jax.Array) -> jax.Array:
    """Return the clients of round r; `cohorts` are those of its COHORT_BLOCK rounds, or None if all clients take part."""
    return jnp.arange(plan.num_clients) if cohorts is None else cohorts[r % COHORT_BLOCK]


def run_round(
    inputs: RunInputs, state: RunState, cohort: jax.Array, r: jax.Array, mesh: Mesh | None = None
) -> RunState:
    """Run round r with the clients in `cohort`, on the devices of a mesh if one is given; -1 stands for nobody."""
    inputs = inputs._replace(method=at_round(inputs.method, r))
    method, plan, average = inputs.method, inputs.plan, inputs.average
    weights = plan.normalized_weights(cohort)
    shared = (inputs, state, method.broadcast(state.server), r)
    present, places, took_part = cohort >= 0, cohort, len(cohort) / plan.num_clients
    if plan.may_miss:
        cohort, places = jnp.where(present, cohort, 0), jnp.where(present, cohort, plan.num_clients)
        took_part = jnp.sum(present) / plan.num_clients
    if mesh is None:
        clients = run_cohort(shared, cohort, places, weights)
    else:
        clients = spread_out(mesh, run_cohort, shared, cohort, places, weights, plan.num_clients)
    server, running = method.update(state.server, clients.mean_message, Round(r, took_part)), clients.running
    if plan.may_miss:  # a round of nobody changes nothing
        old, new = (state.server, state.running), (server, running)
        server, running = jax.tree.map(lambda old, new: jnp.where(jnp.any(present), new, old), old, new)
    if average is not None and running is not None and average.between_rounds:
        keep, gain = average.keep_and_gain(r, inputs.total_steps, jax.random.key(plan.seed))
        running = running.add(method.solution(server), keep, gain)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(server)]))
    diverged = jnp.where((state.diverged < 0) & ~finite, r + 1, state.diverged)
    return RunState(server, clients.memory, running, clients.discrepancy, diverged)


class CohortResult(NamedTuple):
    """What the clients of a round result in."""

    mean_message: Any
    memory: Any  # of all clients
    running: Running | None
    discrepancy: dict[str, jax.Array] | None  # of their messages


Shared = tuple[RunInputs, RunState, Any, jax.Array]  # inputs, state, what the server sent, number of the round


def run_cohort(
    shared: Shared, cohort: jax.Array, places: jax.Array, weights: jax.Array, axis: str | None = None
) -> CohortResult:
    """Run the clients of a round, or this device's part of them on an axis of a mesh; sums are taken over all devices.

    The clients are cut into chunks whose states fit into the cache. The clients of a chunk go side by side, the chunks one
    after the other, and the mean message is summed up over them. The discrepancy and averages over local steps need all
    clients at once, so that there is one chunk. The memory of a client is written to its place; padding has a place
    outside of the array and keeps nothing.
    """
    (_, method, plan, average, _), state, sent, _ = shared
    together = (average is not None and not average.between_rounds) or state.discrepancy is not None
    chunk = len(cohort) if together else chunk_size(sent, len(cohort))
    discrepancy = state.discrepancy
    if chunk == len(cohort):
        memories = _rows(state.memory, cohort)
        messages, kept, running = run_side_by_side(shared, axis, cohort, weights, memories, state.running)
        mean_message = _over_devices(mean(messages, weights), axis)
        memory = _written(state.memory, places, kept)
        if discrepancy is not None:
            fields = message_fields(method, method.solution(state.server))
            discrepancy = _over_devices(message_spread(fields, messages, mean_message, weights), axis)
    else:
        running, missing = state.running, -len(cohort) % chunk
        clients = jnp.pad(cohort, (0, missing), mode="edge").reshape(-1, chunk)
        spots = jnp.pad(places, (0, missing), constant_values=plan.num_clients).reshape(-1, chunk)
        shares = jnp.pad(weights, (0, missing)).reshape(-1, chunk)

        def add_chunk(carry: tuple[Any, Any], part: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, None]:
            total, memory = carry
            clients, spots, shares = part
            messages, kept, _ = run_side_by_side(shared, axis, clients, shares, _rows(memory, clients), None)
            return (jax.tree.map(jnp.add, total, mean(messages, shares)), _written(memory, spots, kept)), None

        run = partial(run_side_by_side, shared, axis)
        like = jax.eval_shape(run, clients[0], shares[0], _rows(state.memory, clients[0]), None)[0]
        zeros = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), like)
        unroll = UNROLLED_CLIENTS if chunk == 1 else 1
        carry, _ = jax.lax.scan(add_chunk, (zeros, state.memory), (clients, spots, shares), unroll=unroll)
        mean_message, memory = _over_devices(carry[0], axis), carry[1]
    if axis is not None and jax.tree.leaves(memory):
        kept, places = jax.lax.all_gather((_rows(memory, cohort), places), axis, tiled=True)
        memory = _written(state.memory, places, kept)
    return CohortResult(mean_message, memory, running, discrepancy)


def run_side_by_side(
    shared: Shared, axis: str | None, cohort: jax.Array, weights: jax.Array, memories: Any, running: Running | None
) -> tuple[Any, Any, Running | None]:
    """Run these clients as one vectorised program. Return their messages, what they keep, and the running average."""
    (problem, method, plan, average, total_steps), _, sent, r = shared
    vmap = jax.vmap if len(cohort) > 1 else _alone
    states, draws = vmap(lambda m, kept: begin(method, plan, sent, kept, m, r))(cohort, memories)

    def one_step(k: jax.Array, m: jax.Array, drawn: Any, client: Client) -> Client:
        moved = step(problem, method, plan, m, drawn, k, client)
        if plan.equal_steps or len(cohort) == 1:
            return moved
        return jax.tree.map(lambda new, old: jnp.where(k < plan.steps[m], new, old), moved, client)

    def all_step(k: jax.Array, carry: tuple[Any, Running | None]) -> tuple[Any, Running | None]:
        states, running = carry
        moved = vmap(partial(one_step, k))(cohort, draws, states)
        if average is not None and running is not None and not average.between_rounds:
            point = method.primal(_over_devices(mean(moved if average.after_step else states, weights), axis))
            factors = average.keep_and_gain(r * plan.most_steps + k, total_steps, jax.random.key(plan.seed))
            running = running.add(point, *factors)
        return moved, running

    last = plan.most_steps if plan.equal_steps else jnp.max(plan.steps[cohort])
    states, running = jax.lax.fori_loop(0, last, all_step, (states, running))
    messages, kept = vmap(lambda client: method.finish(sent, client))(states)
    return messages, kept, running


def chunk_size(sent: Server, clients: int) -> int:
    """Return how many clients go side by side: as many as have states of CACHE_BYTES together, in chunks of equal size."""
    state_bytes = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(sent))
    chunks = -(-clients * state_bytes // CACHE_BYTES)
    return -(-clients // min(chunks, clients))


def mean(tree: Any, weights: jax.Array) -> Any:
    """Return the weighted mean over the first axis of every array."""
    return jax.tree.map(lambda a: jnp.tensordot(weights.astype(a.dtype), a, 1, precision="highest"), tree)


def _alone(fn: Callable[..., Any]) -> Callable[..., Any]:
    """vmap over one client without the axis: plain matrix products are faster than batches of one."""

    def call(*arguments: Any) -> Any:
        result = fn(*jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: jnp.asarray(a)[None], result)

    return call


def _rows(memory: Any, clients: jax.Array) -> Any:
    return jax.tree.map(lambda a: a[clients], memory)


def _written(memory: Any, places: jax.Array, kept: Any) -> Any:
    """Return the memory of all clients with what those at `places` keep now; places outside are left out."""
    return jax.tree.map(lambda all_, new: all_.at[places].set(new, mode="drop"), memory, kept)


def _over_devices(tree: Any, axis: str | None) -> Any:
    """Return the sum over the devices of a mesh axis, or the tree itself if there is no axis."""
    return tree if axis is None else jax.lax.psum(tree, axis)
