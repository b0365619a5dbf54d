"""Accelerated proximal gradient with adaptive restart: the solver for every psi that has a prox."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedlocal.core import Params
from fedlocal.losses.score_loss import array_namespace
from fedlocal.solvers.coordinates import Objective
from fedlocal.solvers.gathered import Gram
from fedlocal.util.progress import ProgressBar

CHECK_EVERY = 10  # iterations; the residual of the certificate costs one more prox
GROWTH = 1.01  # of an accepted step size
SHORT = 1e-11  # relative length of a step whose curvature is lost in rounding
LONGEST = 0.3  # seconds in compiled code, about: Ctrl-C has no effect there


class FistaState(NamedTuple):
    """Where the iteration is."""

    x: Params
    g: Params  # gradient at x
    y: Params  # the extrapolated point, from which the next step is taken
    y_value: jax.Array
    y_gradient: Params
    theta: jax.Array  # momentum
    step_size: jax.Array
    residual: jax.Array  # of the KKT conditions at x, as of the last check
    iterations: jax.Array


def accelerated(objective: Objective, x: Params, tolerance: float, max_iterations: int, bar: ProgressBar) -> FistaState:
    r"""Minimise F + psi from x, a point in the objective's coordinates, until the KKT residual is at most what it allows.

        x+ = prox_{t psi}(y - t grad F(y)),   y <- x+ + (theta - 1) / theta+ (x+ - x),   theta+ = (1 + sqrt(1 + 4 theta^2)) / 2,
    with theta = 1 and y = x+ again whenever <y - x+, x+ - x> > 0, or F is not finite at the extrapolated y. The step size t
    shrinks to the inverse of the curvature seen where it was too long, and grows slowly otherwise.
    Reference: Beck & Teboulle (2009), O'Donoghue & Candes (2015), gradient scheme. Differs from them: the step size is tested
    on gradients too, since differences of values are lost in rounding long before 1e-10.
    """
    state, chunk = _start(objective, x), 10 * CHECK_EVERY
    while True:
        started = time.monotonic()
        state = _advance(objective, state, tolerance, min(int(state.iterations) + chunk, max_iterations))
        bar.advance_to(int(state.iterations), f"KKT residual {float(state.residual):.1e}")
        if int(state.iterations) >= max_iterations or is_solved(objective, state, tolerance):
            return state
        if time.monotonic() - started < LONGEST:
            chunk *= 2


# The next two functions take NumPy numbers or JAX arrays: the loop here is one compiled program, that of
# newton/first_order.py runs on the host and exchanges sums with sites, and that of newton/model_step.py has a known step size.
def next_momentum(theta: Any, restart: Any) -> tuple[Any, Any]:
    """theta+ = (1 + sqrt(1 + 4 theta^2)) / 2 and (theta - 1) / theta+; 1 and 0 at a restart."""
    xp = array_namespace(theta)
    after = xp.where(restart, 1.0, (1 + xp.sqrt(1 + 4 * theta**2)) / 2)
    return after, xp.where(restart, 0.0, (theta - 1) / after)


def first_step_size(x_norm: Any, g_norm: Any, change_fn: Callable[[Any], Any]) -> Any:
    """The inverse of the curvature along the gradient g at x; g changes by `change_fn(reach)` from x to x - reach * g."""
    xp = array_namespace(g_norm)
    reach = 1e-3 * xp.maximum(1, x_norm) / xp.maximum(g_norm, 1e-300)
    change = change_fn(reach)
    return xp.where(change > 0, reach * g_norm / xp.maximum(change, 1e-300), 1.0)


@jax.jit
def is_solved(objective: Objective, state: FistaState, tolerance: float) -> jax.Array:
    return state.residual <= objective.allowed(state.x, tolerance)


@jax.jit
def _start(objective: Objective, x: Params) -> FistaState:
    value, g = objective.smooth.value_and_gradient(x)

    def change_fn(reach: jax.Array) -> jax.Array:
        _, g_near = objective.smooth.value_and_gradient(optax.tree.add_scale(x, -reach, g))
        return optax.tree.norm(optax.tree.sub(g_near, g))

    step_size = first_step_size(optax.tree.norm(x), optax.tree.norm(g), change_fn)
    return FistaState(x, g, x, value, g, jnp.ones(()), step_size, objective.residual(x, g), jnp.zeros((), int))


@jax.jit
def _advance(objective: Objective, state: FistaState, tolerance: float, until: int) -> FistaState:
    def unfinished(s: FistaState) -> jax.Array:
        return (s.iterations < until) & ~is_solved(objective, s, tolerance)

    return jax.lax.while_loop(unfinished, partial(_iteration, objective), state)


def _iteration(objective: Objective, s: FistaState) -> FistaState:
    smooth = objective.smooth
    x = objective.prox(optax.tree.add_scale(s.y, -s.step_size, s.y_gradient), s.step_size)
    value, g = smooth.value_and_gradient(x)
    move = optax.tree.sub(x, s.y)
    length2 = optax.tree.vdot(move, move)
    curvature = optax.tree.vdot(optax.tree.sub(g, s.y_gradient), move)  # times length2
    model = s.y_value + optax.tree.vdot(s.y_gradient, move) + length2 / (2 * s.step_size)
    # of a Gram matrix the curvature says it all, and without rounding of values
    below = isinstance(smooth, Gram) | (value <= model + 1e-12 * jnp.maximum(1, jnp.abs(s.y_value)))
    short = jnp.sqrt(length2) <= SHORT * jnp.maximum(1, optax.tree.norm(x))
    bent = s.step_size * curvature > length2
    accepted = short | (~bent & below)
    seen = jnp.clip(0.98 * length2 / curvature, 0.1 * s.step_size, 0.95 * s.step_size)
    shrunk = jnp.where(bent, seen, s.step_size / 2)

    def accept() -> FistaState:
        forward = optax.tree.sub(x, s.x)
        theta, momentum = next_momentum(s.theta, jnp.asarray(optax.tree.vdot(move, forward)) < 0)
        y = optax.tree.add_scale(x, momentum, forward)
        if isinstance(smooth, Gram):  # affine gradients extrapolate; values are not used
            y_value, y_gradient = value, optax.tree.add_scale(g, momentum, optax.tree.sub(g, s.g))
        else:
            y_value, y_gradient = jax.lax.cond(momentum == 0, lambda: (value, g), lambda: smooth.value_and_gradient(y))
            inside = jnp.isfinite(y_value) & jnp.isfinite(optax.tree.vdot(y_gradient, y_gradient))
            theta = jnp.where(inside, theta, 1.0)  # y left the domain of F: begin again at x
            y, y_value, y_gradient = jax.tree.map(
                lambda a, b: jnp.where(inside, a, b), (y, y_value, y_gradient), (x, value, g)
            )
        step_size = jnp.where(short, s.step_size, GROWTH * s.step_size)
        return FistaState(x, g, y, y_value, y_gradient, theta, step_size, s.residual, s.iterations)

    s = jax.lax.cond(accepted, accept, lambda: s._replace(step_size=shrunk))
    iterations = s.iterations + 1
    residual = jax.lax.cond(iterations % CHECK_EVERY == 0, lambda: objective.residual(s.x, s.g), lambda: s.residual)
    return s._replace(iterations=iterations, residual=residual)
