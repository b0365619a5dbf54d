"""One round in JAX: clients side by side, then the mean, then the server's step."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from fedlocal.core import AbstractProblem, Client, LocalMethod, Params, Scalar, Server
from fedlocal.engines.averages import Average
from fedlocal.engines.mesh import spread_out
from fedlocal.engines.plan import Plan

CACHE_BYTES = 1 << 20  # of client states walked through side by side
CLIENTS_AT_ONCE = 2  # clients of large models that a program holds next to each other, for the cores to share


class Running(NamedTuple):
    """A running average of points."""

    total: Params
    weight: jax.Array

    def add(self, point: Params, keep: Scalar, gain: Scalar) -> "Running":
        """keep times what there is and gain times a point."""
        add = lambda old, new: (keep * old + gain * new).astype(old.dtype)  # noqa: E731
        return Running(jax.tree.map(add, self.total, point), add(self.weight, 1))


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
    """The state before round 0."""
    server = method.init(x0)
    clients = problem.num_clients
    memory = jax.tree.map(lambda a: jnp.broadcast_to(a, (clients, *jnp.shape(a))), method.init_memory(x0))
    running = None if average is None else Running(jax.tree.map(jnp.zeros_like, x0), jnp.zeros(()))
    zeros = {name: jnp.zeros(()) for name in message_fields(method, x0)} if discrepancy else None
    return RunState(server, memory, running, zeros, jnp.full((), -1, jnp.int32))


def output(method: LocalMethod, state: RunState) -> Params:
    """The point that a run shows: the average where one is kept, else the method's solution."""
    last = method.solution(state.server)
    if state.running is None:
        return last
    weight = state.running.weight
    return jax.tree.map(
        lambda x, total: jnp.where(weight == 0, x, total / jnp.where(weight == 0, 1, weight)), last, state.running.total
    )


def run_round(
    problem: AbstractProblem,
    method: LocalMethod,
    plan: Plan,
    average: Average | None,
    total_steps: float,
    state: RunState,
    cohort: jax.Array,
    r: jax.Array,
    mesh: Mesh | None = None,
) -> RunState:
    """Round r with the clients in `cohort`, on the devices of a mesh where there is one."""
    sent = method.broadcast(state.server)
    weights = plan.normalized_weights(cohort)
    shared = (problem, method, plan, average, total_steps, state, sent, r)
    if mesh is None:
        walked = walk(shared, cohort, cohort, weights)
    else:
        walked = spread_out(mesh, walk, shared, cohort, weights, plan.num_clients)
    server, running = method.update(state.server, walked.mean_message), walked.running
    if average is not None and running is not None and average.between_rounds:
        keep, gain = average.keep_and_gain(r, total_steps, jax.random.key(plan.seed))
        running = running.add(method.solution(server), keep, gain)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(server)]))
    diverged = jnp.where((state.diverged < 0) & ~finite, r + 1, state.diverged)
    return RunState(server, walked.memory, running, walked.spread, diverged)


class Walked(NamedTuple):
    """What the clients of a round leave behind."""

    mean_message: Any
    memory: Any  # of all clients
    running: Running | None
    spread: dict[str, jax.Array] | None  # of their messages


def walk(
    shared: tuple[Any, ...], cohort: jax.Array, places: jax.Array, weights: jax.Array, axis: str | None = None
) -> Walked:
    """The clients of a round, or the part of them that is this device's on an axis of a mesh; sums go over all devices.

    Clients go side by side in blocks whose states fit into the cache, block after block; the mean is summed up on the way.
    The discrepancy and averages over local steps look at all clients at once, so they make one block of all. A client keeps
    its memory at its place; padding has a place outside and keeps nothing.
    """
    problem, method, plan, average, total_steps, state, sent, r = shared
    local = partial(local_steps, problem, method, plan, average, total_steps, sent, plan.round_key(r), r, axis)
    together = (average is not None and not average.between_rounds) or state.discrepancy is not None
    block = len(cohort) if together else block_size(sent, len(cohort))
    spread = state.discrepancy
    if block == len(cohort):
        messages, kept, running = local(state.running, cohort, weights, _rows(state.memory, cohort))
        mean_message = _over_devices(mean(messages, weights), axis)
        memory = jax.tree.map(lambda all_, new: all_.at[places].set(new, mode="drop"), state.memory, kept)
        if spread is not None:
            fields = message_fields(method, method.solution(state.server))
            spread = _over_devices(message_spread(fields, messages, mean_message, weights), axis)
    else:
        running, missing = state.running, -len(cohort) % block
        clients = jnp.pad(cohort, (0, missing), mode="edge").reshape(-1, block)
        spots = jnp.pad(places, (0, missing), constant_values=plan.num_clients).reshape(-1, block)
        shares = jnp.pad(weights, (0, missing)).reshape(-1, block)

        def add_block(carry: tuple[Any, Any], part: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, None]:
            total, memory = carry
            clients, spots, shares = part
            messages, kept, _ = local(None, clients, shares, _rows(memory, clients))
            memory = jax.tree.map(lambda all_, new: all_.at[spots].set(new, mode="drop"), memory, kept)
            return (jax.tree.map(jnp.add, total, mean(messages, shares)), memory), None

        like = jax.eval_shape(local, None, clients[0], shares[0], _rows(state.memory, clients[0]))[0]
        zeros = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), like)
        unroll = CLIENTS_AT_ONCE if block == 1 else 1
        carry, _ = jax.lax.scan(add_block, (zeros, state.memory), (clients, spots, shares), unroll=unroll)
        mean_message, memory = _over_devices(carry[0], axis), carry[1]
    if axis is not None and jax.tree.leaves(memory):
        kept, places = jax.lax.all_gather((_rows(memory, cohort), places), axis, tiled=True)
        memory = jax.tree.map(lambda all_, new: all_.at[places].set(new, mode="drop"), state.memory, kept)
    return Walked(mean_message, memory, running, spread)


def local_steps(
    problem: AbstractProblem,
    method: LocalMethod,
    plan: Plan,
    average: Average | None,
    total_steps: float,
    sent: Server,
    key: jax.Array,
    r: jax.Array,
    axis: str | None,
    running: Running | None,
    cohort: jax.Array,
    weights: jax.Array,
    memory: Any,
) -> tuple[Any, Any, Running | None]:
    """What these clients do in a round, side by side: their messages, what they keep, and the running average."""
    vmap = jax.vmap if len(cohort) > 1 else _alone
    draws = vmap(lambda m: plan.draws(key, m))(cohort)
    clients = vmap(lambda _, kept: method.start(sent, kept))(cohort, memory)

    def step(k: jax.Array, client: Any, m: jax.Array, drawn: Any) -> Any:
        moved = client_step(problem, method, plan, k, client, m, drawn)
        if plan.equal_steps or len(cohort) == 1:
            return moved
        return jax.tree.map(lambda new, old: jnp.where(k < plan.steps[m], new, old), moved, client)

    def steps(k: jax.Array, carry: tuple[Any, Running | None]) -> tuple[Any, Running | None]:
        clients, running = carry
        moved = vmap(partial(step, k))(clients, cohort, draws)
        if average is not None and running is not None and not average.between_rounds:
            point = method.primal(_over_devices(mean(moved if average.after_step else clients, weights), axis))
            t = r * plan.most_steps + k
            keep, gain = average.keep_and_gain(t, total_steps, jax.random.key(plan.seed))
            running = running.add(point, keep, gain)
        return moved, running

    last = plan.most_steps if plan.equal_steps else jnp.max(plan.steps[cohort])
    clients, running = jax.lax.fori_loop(0, last, steps, (clients, running))
    messages, kept = vmap(lambda client: method.finish(sent, client))(clients)
    return messages, kept, running


def client_step(
    problem: AbstractProblem, method: LocalMethod, plan: Plan, k: jax.Array, client: Any, m: jax.Array, drawn: Any
) -> Any:
    """Local step k of client m."""
    if plan.batch_size is None:
        return method.step(client, lambda x: problem.full_gradient(x, m))
    return method.step(client, lambda x: problem.gradient(x, plan.batch(drawn, m, k)))


def block_size(sent: Server, clients: int) -> int:
    """How many clients go side by side: as many as have states of CACHE_BYTES together, in blocks of equal size."""
    state_bytes = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(sent))
    blocks = -(-clients * state_bytes // CACHE_BYTES)
    return -(-clients // min(blocks, clients))


def _alone(fn: Callable[..., Any]) -> Callable[..., Any]:
    """vmap over one client without the axis: plain matrix products are faster than batches of one."""

    def call(*arguments: Any) -> Any:
        result = fn(*jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: jnp.asarray(a)[None], result)

    return call


def _rows(memory: Any, clients: jax.Array) -> Any:
    return jax.tree.map(lambda a: a[clients], memory)


def mean(tree: Any, weights: jax.Array) -> Any:
    """The weighted mean over the first axis of every array."""
    return jax.tree.map(lambda a: jnp.tensordot(weights.astype(a.dtype), a, 1, precision="highest"), tree)


def _over_devices(tree: Any, axis: str | None) -> Any:
    """The sum over the devices of a mesh; what there is where there is none."""
    return tree if axis is None else jax.lax.psum(tree, axis)


def message_fields(method: LocalMethod, x0: Params) -> dict[str, str | None]:
    """Column name and field of each part of a method's message that has the shape of the parameters."""

    def message(x0: Params) -> Any:
        return method.finish(method.broadcast(method.init(x0)), first_client(method, x0))[0]

    fields = vector_fields(message, x0)
    return {"discrepancy" if len(fields) == 1 else f"discrepancy_{f}": f for f in sorted(fields, key=str)}


def first_client(method: LocalMethod, x0: Params) -> Client:
    """What a client holds when round 0 begins."""
    return method.start(method.broadcast(method.init(x0)), method.init_memory(x0))


def vector_fields(tree_of: Callable[[Params], Any], x: Params) -> list[str | None]:
    """The fields of the NamedTuple tree_of(x) that have the shape of x; None for a tree that has it itself.

    Where x is one number, counts and step lengths have its shape, too; they do not follow it when it becomes (1,).
    """

    def shapes(tree: Any) -> Any:
        return jax.tree.map(jnp.shape, tree, is_leaf=lambda a: hasattr(a, "shape"))

    x = jax.eval_shape(lambda x: x, x)
    if shapes(x) == ():
        x = jax.ShapeDtypeStruct((1,), x.dtype)
    tree, wanted = jax.eval_shape(tree_of, x), shapes(x)
    if shapes(tree) == wanted:
        return [None]
    return [f for f in getattr(tree, "_fields", ()) if shapes(getattr(tree, f)) == wanted]


def message_spread(
    fields: dict[str, str | None], messages: Any, center: Any, weights: jax.Array
) -> dict[str, jax.Array]:
    """mean_m ||message_m - mean||^2 for each of these fields."""

    def spread(field: Params, middle: Params) -> jax.Array:
        squares = jax.tree.map(lambda a, c: jnp.sum((a - c) ** 2, axis=tuple(range(1, a.ndim))), field, middle)
        return jnp.sum(weights * sum(jax.tree.leaves(squares))).astype(jnp.result_type(float))

    def pick(tree: Any, field: str | None) -> Params:
        return tree if field is None else getattr(tree, field)

    return {name: spread(pick(messages, f), pick(center, f)) for name, f in fields.items()}
