"""What the proofs look at, at every local step of many runs side by side: all seeds and step sizes in one program.

The library's problems and methods in a loop of our own that keeps everything, in which the numbers of clients, local steps and
rounds are no shapes: clients beyond the first M have weight 0, and R rounds are the first R of more. `test_bounds` shows that
it walks as `fl.simulate` does.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import fedlocal as fl
from fedlocal.core import AbstractProblem, LocalMethod, Params, Round
from fedlocal.methods.fed_ac import AcState, middle_point
from fedlocal.simulation.plan import Plan, Sampling

CLIENTS = 16  # that every problem has
FAST = {"xla_backend_optimization_level": 1}  # to compile: twice as fast as by default, and what it makes is as fast


class Trace(NamedTuple):
    """First axes: step sizes, seeds, rounds; then local steps k = 0..K where there are any."""

    points: np.ndarray  # (..., K + 1, d) the primal point of the clients' mean state
    loss: np.ndarray  # (..., K + 1) F there
    gradient: np.ndarray  # (..., K + 1) ||grad F||^2 there
    apart: np.ndarray  # (..., K + 1, M) ||v_m - mean v||^2 of the vectors that clients hold, x or y
    cross: np.ndarray  # (..., K + 1) of FedAc, see `Shadow`
    gradient_gap: np.ndarray  # (..., K + 1) of FedAc, see `Shadow`
    server: np.ndarray  # (..., d) the solution after the round
    server_loss: np.ndarray  # (...) F there
    distance: np.ndarray  # (...) ||x - x*||^2 after the round; x is the main sequence for FedAc


def walk(
    problem: AbstractProblem,
    methods: Sequence[LocalMethod],
    solution: Params,
    *,
    clients: int,
    local_steps: int,
    rounds: int,
    most_steps: int,
    seeds: int,
    x0: Params,
    norm: np.ndarray | None = None,
    measured: AbstractProblem | None = None,
    strong_convexity: float = 0.0,
    batch_size: int | None = 1,
) -> Trace:
    """Runs from x0 of all methods, which are of one kind, with seeds 0, 1, ...

    `norm` is the matrix W of ||v||^2 = v'Wv for `apart`; F is that of `measured`, by default of the problem itself.
    """
    plan = Plan.make(problem, Sampling(local_steps=most_steps, batch_size=batch_size))
    measured = problem if measured is None else measured
    weights = np.where(np.arange(CLIENTS) < clients, 1 / clients, 0.0)
    stacked = jax.tree.map(lambda *a: jnp.stack([jnp.asarray(b, float) for b in a]), *methods)
    d = ravel_pytree(x0)[0].size
    found = _walk(
        problem,
        measured,
        plan,
        stacked,
        jnp.asarray(weights),
        jnp.asarray(measured.loss_weights(weights)),
        jnp.eye(d) if norm is None else jnp.asarray(norm),
        strong_convexity,
        jax.tree.map(jnp.asarray, x0),
        jax.tree.map(jnp.asarray, solution),
        jnp.arange(seeds),
        local_steps,
        rounds=rounds,
        most_steps=most_steps,
    )
    inside, after = jax.device_get(found)
    inside = {name: a[:, :, :, : local_steps + 1] for name, a in inside.items()}
    inside["apart"] = inside["apart"][..., :clients]
    return Trace(**inside, **after)


@jax.jit
def losses(problem: AbstractProblem, points: jax.Array, loss_weights: jax.Array, like: Params) -> jax.Array:
    """F at points (n, d)."""
    unravel = ravel_pytree(like)[1]
    return jax.lax.map(lambda x: problem.loss(unravel(x), loss_weights), points, batch_size=256)


@partial(jax.jit, static_argnames=("rounds", "most_steps"), compiler_options=FAST)
def _walk(
    problem: Any,
    measured: Any,
    plan: Plan,
    methods: Any,
    weights: jax.Array,
    loss_weights: jax.Array,
    norm: jax.Array,
    mu: Any,
    x0: Params,
    solution: Params,
    seeds: jax.Array,
    local_steps: jax.Array,
    rounds: int,
    most_steps: int,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    clients = jnp.arange(CLIENTS)

    def flat(x: Params) -> jax.Array:
        return ravel_pytree(x)[0]

    def loss(x: Params) -> jax.Array:
        return measured.loss(x, loss_weights)

    def mean(tree: Any) -> Any:
        return jax.tree.map(lambda a: jnp.tensordot(weights, a, 1), tree)

    def away(vectors: Params) -> jax.Array:
        return jax.vmap(flat)(jax.tree.map(lambda a, c: a - c, vectors, mean(vectors)))

    def one_run(method: LocalMethod, seed: jax.Array) -> Any:
        drawn = eqx.tree_at(lambda plan: plan.seed, plan, seed)

        def look(states: Any) -> dict[str, jax.Array]:
            point = method.primal(mean(states))
            value, gradient = jax.value_and_grad(loss)(point)
            held = states.y if hasattr(states, "y") else getattr(states, "x", states)
            vectors = away(held)
            columns = {
                "points": flat(point),
                "loss": value,
                "gradient": jnp.sum(flat(gradient) ** 2),
                "apart": jnp.einsum("md,de,me->m", vectors, norm, vectors),
                "cross": jnp.zeros(()),
                "gradient_gap": jnp.zeros(()),
            }
            if isinstance(method, fl.methods.FedAc):
                columns |= accelerated(method, states)
            return columns

        def accelerated(method: fl.methods.FedAc, states: AcState) -> dict[str, jax.Array]:
            md = middle_point(states, method.beta)
            c = method.gamma * mu
            mixed = (away(states.x) + c * away(states.ag)) / (1 + c)
            lengths = jnp.linalg.norm(away(md), axis=1) * jnp.linalg.norm(mixed, axis=1)
            gap = flat(jax.grad(loss)(mean(md))) - weights @ jax.vmap(lambda x: flat(jax.grad(loss)(x)))(md)
            return {"cross": weights @ lengths, "gradient_gap": gap @ gap}

        def one_round(server: Any, r: jax.Array) -> Any:
            key = drawn.round_key(r)
            draws = jax.vmap(lambda m: drawn.draws(key, m))(clients)
            states = jax.vmap(lambda _: method.start(server, ()))(clients)

            def gradient(x: Params, m: jax.Array, draw: Any, k: jax.Array) -> Params:
                if drawn.batch_size is None:
                    return problem.full_gradient(x, m)
                return problem.gradient(x, drawn.batch(draw, m, k))

            def step(k: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
                """Look, then move; the last time only look."""
                states, kept = carry
                kept = jax.tree.map(lambda a, b: a.at[k].set(b), kept, look(states))
                moved = jax.vmap(lambda s, m, draw: method.step(s, lambda x: gradient(x, m, draw, k)))
                moved = moved(states, clients, draws)
                return jax.tree.map(lambda new, old: jnp.where(k < local_steps, new, old), moved, states), kept

            columns = jax.eval_shape(look, states)
            kept = jax.tree.map(lambda a: jnp.zeros((most_steps + 1, *a.shape)), columns)
            states, kept = jax.lax.fori_loop(0, local_steps + 1, step, (states, kept))
            server = method.update(server, mean(jax.vmap(lambda s: method.finish(server, s)[0])(states)), Round())
            x = method.solution(server)
            main = getattr(server, "x", x)
            after = {
                "server": flat(x),
                "server_loss": loss(x),
                "distance": jnp.sum((flat(main) - flat(solution)) ** 2),
            }
            return server, (kept, after)

        return jax.lax.scan(one_round, method.init(x0), jnp.arange(rounds))[1]

    return jax.vmap(lambda method: jax.vmap(lambda seed: one_run(method, seed))(seeds))(methods)
