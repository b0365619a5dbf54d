"""Smooth objectives: L-BFGS, then a few Newton steps for the digits that its line search cannot see."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from fedlocal.core import Params
from fedlocal.solvers.coordinates import Objective
from fedlocal.solvers.gathered import Gram
from fedlocal.util.progress import ProgressBar

NEWTON_STEPS = 8
SINGULAR = 1e-13  # a pivot or singular value that is a smaller part of the largest is zero but for rounding
MEMORY = 20  # pairs of vectors that L-BFGS keeps


def minimize_smooth(
    objective: Objective, x: Params, tolerance: float, max_iterations: int, bar: ProgressBar
) -> tuple[Params, int, bool, str]:
    """Return a point, the iterations spent, True if its KKT residual is at most what the objective allows, and what ran."""
    iterations, newton_step, ran = 0, _gram_step, "Newton steps on the Gram matrix"
    if not isinstance(objective.smooth, Gram):
        x, iterations = _minimize_parameters(objective, x, tolerance, max_iterations, bar)
        newton_step, ran = _newton_step, "L-BFGS"
    residual, allowed = map(float, _residual(objective, x, tolerance))
    for _ in range(min(NEWTON_STEPS, max_iterations - iterations)):
        if residual <= allowed:
            break
        x_new = newton_step(objective, x)
        ran = "L-BFGS and Newton steps" if ran == "L-BFGS" else ran
        residual_new, allowed_new = map(float, _residual(objective, x_new, tolerance))
        iterations += 1
        if not residual_new < residual:
            break
        x, residual, allowed = x_new, residual_new, allowed_new
    return x, iterations, residual <= allowed, ran


def minimize_lbfgs(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    max_iterations: int,
    gradient_tolerance: float,
    callback: Callable[[Any], None] | None = None,
) -> tuple[np.ndarray, int]:
    """Minimise a smooth function by SciPy's L-BFGS-B, until no number of its gradient is larger than the tolerance.

    Return the point and the iterations. SciPy calls `callback` with `intermediate_result` after each iteration.
    """
    options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations + 20, "maxcor": MEMORY, "maxls": 40}
    options |= {"ftol": 0.0, "gtol": gradient_tolerance}
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
    return found.x, int(found.nit)


def _minimize_parameters(
    objective: Objective, x: Params, tolerance: float, max_iterations: int, bar: ProgressBar
) -> tuple[Params, int]:
    (start, unravel), steps = ravel_pytree(x), itertools.count(1)

    def value_and_gradient(v: np.ndarray) -> tuple[float, np.ndarray]:
        value, g = _value_and_gradient(objective, unravel(jnp.asarray(v)))
        return float(value), np.asarray(ravel_pytree(g)[0])

    def show(intermediate_result: Any) -> None:
        bar.advance_to(next(steps), f"objective {intermediate_result.fun:.10g}")

    gradient_tolerance = tolerance / np.sqrt(start.size)
    found, iterations = minimize_lbfgs(value_and_gradient, np.asarray(start), max_iterations, gradient_tolerance, show)
    return unravel(jnp.asarray(found)), iterations


def _gram_step(objective: Objective, x: Params) -> Params:
    """Newton's step on a quadratic: its minimum, also where that is not unique."""
    quadratic: Any = objective.smooth
    _, g = _value_and_gradient(objective, x)
    v, unravel = ravel_pytree(x)
    curvature = ravel_pytree(objective.psi_gradient(jax.tree.map(jnp.ones_like, x)))[0]  # of psi, which is diagonal
    matrix, g = np.asarray(quadratic.matrix + jnp.diag(curvature)), np.asarray(ravel_pytree(g)[0])
    return unravel(v - _solve(matrix, g))


def _solve(matrix: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The shortest solution of a system that is positive semidefinite, but for rounding."""
    try:
        factor = scipy.linalg.cho_factor(matrix)
        if np.min(np.diag(factor[0])) ** 2 > SINGULAR * np.max(np.diag(matrix)):
            return scipy.linalg.cho_solve(factor, g)
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(matrix, g, rcond=SINGULAR)[0]


@jax.jit
def _newton_step(objective: Objective, x: Params) -> Params:
    def gradient(x: Params) -> Params:
        return _value_and_gradient(objective, x)[1]

    def hessian(direction: Params) -> Params:
        return jax.jvp(gradient, (x,), (direction,))[1]

    change, _ = jax.scipy.sparse.linalg.cg(hessian, gradient(x), tol=1e-4, maxiter=500)
    return optax.tree.sub(x, change)


@jax.jit
def _value_and_gradient(objective: Objective, x: Params) -> tuple[jax.Array, Params]:
    value, g = objective.smooth.value_and_gradient(x)
    return value + objective.psi_value(x), optax.tree.add(g, objective.psi_gradient(x))


@jax.jit
def _residual(objective: Objective, x: Params, tolerance: float) -> tuple[jax.Array, jax.Array]:
    """The KKT residual, and what is asked for."""
    residual = objective.residual(x, objective.smooth.value_and_gradient(x)[1])
    return residual, objective.allowed(x, tolerance)
