"""What a site adds to a certificate: its gradient at the model, and sums of the slopes of its rows' losses.

The coordinator makes KKT residual and duality gap from the means over sites (`certificate.py`). The conjugates of the losses
are asked in a second question, once it knows by how much the slopes must shrink.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Params
from fedlocal.flower.site.policy import Refused
from fedlocal.problems.linear import LeastSquares, LinearProblem, Logistic
from fedlocal.problems.smooth_part import PooledMean

KINDS = {Logistic: "logistic", LeastSquares: "squares"}
CONJUGATE = "conjugate."
FACTORS = ("positive", "negative", "shift")  # slopes u become factor(sign of u) u - shift


def optimality(problem: AbstractProblem, x: Params) -> tuple[Params, dict[str, Any]]:
    """grad F_m(x), and for linear models the sums of slopes that a duality gap needs; in float64.

    The sum of the positive slopes of squares is not given: its kinks would tell every residual.
    """
    with jax.enable_x64(True):
        x = _in_float64(x)
        gradient = jax.device_get(_gradient(problem, x))
        if type(problem) not in KINDS:
            return gradient, {}
        assert isinstance(problem, LinearProblem)
        positive, squares = (float(a) for a in _slope_sums(problem, x))
        positive = 0.0 if isinstance(problem, LeastSquares) else positive
        l2 = 0.0 if problem.l2 is None else float(problem.l2)
        return gradient, {"positive": positive, "squares": squares, "l2": l2}


def proper_factors(problem: AbstractProblem, config: Mapping[str, Any]) -> list[float]:
    """The factors of the slopes that a question asks for; raise Refused if they do not make a dual point."""
    if type(problem) not in KINDS:
        raise Refused(f"{type(problem).__name__} has no conjugate here")
    factors: list[Any] = [config.get(f"{CONJUGATE}{name}") for name in FACTORS]
    fine = all(isinstance(a, float) and np.isfinite(a) for a in factors) and all(0 <= a <= 1 for a in factors[:2])
    squares = isinstance(problem, LeastSquares)
    if not fine or (factors[0] != factors[1] if squares else factors[2] != 0):
        raise Refused("the question has no proper factors of the slopes")
    return factors


def conjugate_mean(problem: AbstractProblem, x: Params, config: Mapping[str, Any]) -> float:
    """The mean conjugate of the site's losses at the slopes that the question describes."""
    factors = proper_factors(problem, config)
    with jax.enable_x64(True):
        return float(_conjugates(problem, _in_float64(x), jnp.asarray(factors)))


def _in_float64(x: Params) -> Params:
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), x)


@jax.jit
def _gradient(problem: AbstractProblem, x: Params) -> Params:
    return problem.full_gradient(x, jnp.zeros((), jnp.int32))


@jax.jit
def _slope_sums(problem: Any, x: Params) -> tuple[jax.Array, jax.Array]:
    def sums(examples: tuple[Any, ...], weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        u = problem.slopes(x, examples)
        return jnp.sum(weights * jnp.maximum(u, 0)), jnp.sum(weights * u**2)

    return PooledMean.of_equal(problem)(sums)


@jax.jit
def _conjugates(problem: Any, x: Params, factors: jax.Array) -> jax.Array:
    def sums(examples: tuple[Any, ...], weights: jax.Array) -> jax.Array:
        u = problem.slopes(x, examples)
        u = jnp.where(u > 0, factors[0], factors[1]) * u - factors[2]
        return jnp.sum(weights * problem.score_loss.conjugate(u, examples[1]))

    return PooledMean.of_equal(problem)(sums)
