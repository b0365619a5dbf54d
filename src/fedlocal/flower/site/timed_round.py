"""One client's round in parts, so that a site can stop it when its time is over."""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedlocal.core import AbstractProblem, Client, LocalMethod, Memory, Params
from fedlocal.core import Message as Sent
from fedlocal.flower.site.policy import Refused
from fedlocal.simulation.clients import begin, step
from fedlocal.simulation.plan import Plan

FIRST_STEPS = 16  # before the clock is read for the first time
SECONDS = 0.5  # between two looks at the clock


def local_round(
    problem: AbstractProblem, method: LocalMethod, plan: Plan, sent: Any, memory: Memory, r: int, seconds: float
) -> tuple[Sent, Memory, Params]:
    """Do what `simulate` does for one client in round r; return its message, what it keeps, and the point where it ends.

    Raise Refused after `seconds`. XLA cannot be interrupted, so steps are taken some at a time.
    """
    began = time.monotonic()
    client, draws = _begin(method, plan, sent, memory, jnp.asarray(r, jnp.int32))
    done, steps, some = 0, int(plan.steps[0]), FIRST_STEPS
    while done < steps:
        started = time.monotonic()
        if started - began > seconds:
            took = f"{done} of {steps} local steps took {seconds:g} s"
            raise Refused(f"{took}; most_seconds of the policy is over", "most_seconds")
        last = min(steps, done + some)
        client = jax.block_until_ready(_steps(problem, method, plan, client, draws, done, last))
        elapsed = max(time.monotonic() - started, 1e-6)
        some = max(1, min(int(2 * some), int(some * SECONDS / elapsed)))
        done = last
    return jax.device_get(_end(method, sent, client))


@jax.jit
def _begin(method: LocalMethod, plan: Plan, sent: Any, memory: Memory, r: jax.Array) -> tuple[Client, Any]:
    return begin(method, plan, sent, memory, jnp.zeros((), jnp.int32), r)


@jax.jit
def _steps(
    problem: AbstractProblem, method: LocalMethod, plan: Plan, client: Client, draws: Any, first: int, last: int
) -> Client:
    number = jnp.zeros((), jnp.int32)
    return jax.lax.fori_loop(first, last, partial(step, problem, method, plan, number, draws), client)


@jax.jit
def _end(method: LocalMethod, sent: Any, client: Client) -> tuple[Sent, Memory, Params]:
    message, kept = method.finish(sent, client)
    return message, kept, method.primal(client)
