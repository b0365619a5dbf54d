"""One client's part of a round: begin, local steps, end. `client_round` is all of it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlocal.core import AbstractProblem, Client, LocalMethod
from fedlocal.core.schedule import at_round
from fedlocal.simulation.plan import Plan

Step = Callable[[Any, Any], Any]  # (k, client state) -> client state
Iterate = Callable[[Step, Any, Any], tuple[Any, Any]]  # (step, first state, steps) -> (last state, states to return)


class ClientRound(NamedTuple):
    """What a client's round results in."""

    message: Any  # for the server
    memory: Any  # kept until the client takes part again
    states: Any = None  # those that the client went through, as `iterate` returns them


def begin(
    method: LocalMethod, plan: Plan, sent: Any, memory: Any, client: jax.Array, number: jax.Array | int
) -> tuple[Client, Any]:
    """Return the client's state when round `number` begins, and all that it draws for the round."""
    return method.start(sent, memory), plan.draws(plan.round_key(number), client)


def step(
    problem: AbstractProblem, method: LocalMethod, plan: Plan, client: jax.Array, draws: Any, k: Any, state: Client
) -> Client:
    """Return the client's state after its local step k."""
    if plan.batch_size is None:
        return method.step(state, lambda x: problem.full_gradient(x, client))
    return method.step(state, lambda x: problem.gradient(x, plan.batch(draws, client, k)))


def last_state(step: Step, state: Client, steps: jax.Array | int) -> tuple[Client, None]:
    """Take the steps in a compiled loop; return the last state alone."""
    return jax.lax.fori_loop(0, steps, step, state), None


def all_states(step: Step, state: Client, steps: int) -> tuple[Client, Client]:
    """Take the steps in a compiled loop; return the last state, and all of them stacked (steps + 1, ...)."""

    def one(state: Client, k: jax.Array) -> tuple[Client, Client]:
        moved = step(k, state)
        return moved, moved

    last, after = jax.lax.scan(one, state, jnp.arange(steps))
    return last, jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), state, after)


def client_round(
    problem: AbstractProblem,
    method: LocalMethod,
    plan: Plan,
    sent: Any,
    memory: Any,
    client: jax.Array,
    number: jax.Array | int,
    iterate: Iterate = last_state,
) -> ClientRound:
    """Run one client's part of round `number`, from what the server sent and what the client kept the last time.

    `iterate` takes the local steps and chooses the states to return: `last_state`, `all_states`, or another function.
    """
    method = at_round(method, number)
    state, draws = begin(method, plan, sent, memory, client, number)
    steps = plan.most_steps if plan.equal_steps else plan.steps[client]
    last, states = iterate(partial(step, problem, method, plan, client, draws), state, steps)
    return ClientRound(*method.finish(sent, last), states)
