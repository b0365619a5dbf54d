"""Norm balls: constraints ||x|| <= radius on every array of the parameters."""

import math

import jax
import jax.numpy as jnp
from optax import projections

from fedlocal.core import Regularizer, Scalar
from fedlocal.core.gauges import FEASIBILITY
from fedlocal.util import checks

COLUMNS = 64


def indicator(violation: jax.Array, scale: Scalar) -> jax.Array:
    """0 where a violation is only rounding at this scale, inf elsewhere."""
    return jnp.where(violation <= FEASIBILITY * jnp.maximum(scale, 1.0), 0.0, jnp.inf).astype(violation.dtype)


def onto_simplex(x: jax.Array, total: Scalar, needed: jax.Array | bool = True) -> jax.Array:
    """Projection onto {x >= 0, sum(x) = total}: max(x - theta, 0). Where it is not `needed`, nothing is computed for long.

    theta is found without sorting: from that of all numbers, theta <- (sum of those above theta - total) / how many they are,
    until none drops out; about ten passes over the numbers.
    Reference: Michelot, J. Optim. Theory Appl. 50 (1986). Differs from it: numbers are counted from the largest one, so that
    large ones (dual points) lose no digits.
    """
    below = x - jnp.max(x)  # at most 0

    def tighter(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        theta, count, _ = state
        above = below > theta
        left = _sum(above.astype(count.dtype))
        return (_sum(jnp.where(above, below, 0)) - total) / left, left, count

    first = (_sum(below) - total) / x.size, jnp.asarray(x.size), jnp.asarray(x.size + needed)
    theta, _, _ = jax.lax.while_loop(lambda state: state[1] < state[2], tighter, first)
    return jnp.maximum(below - theta, 0).astype(x.dtype)


def _sum(a: jax.Array) -> jax.Array:
    """The sum of all numbers, in columns first: processors add those side by side."""
    return jnp.sum(jnp.sum(a.reshape(-1, math.gcd(a.size, COLUMNS)), axis=0))


def onto_l1_ball(x: jax.Array, radius: Scalar) -> jax.Array:
    """Projection onto {||x||_1 <= radius}, radius > 0."""
    outside = _sum(jnp.abs(x)) > radius
    return jnp.where(outside, jnp.sign(x) * onto_simplex(jnp.abs(x), radius, outside), x)


class NormBall(Regularizer):
    r"""psi(x) = 0 if norm(x) <= radius, else inf. A concrete one has `array_prox`, `array_violation` and `array_conjugate`."""

    radius: Scalar

    def __init__(self, radius: Scalar):
        self.radius = checks.number(type(self).__name__, "radius", radius, above=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return indicator(self.array_violation(x), self.radius)

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        return float(self.radius)


class L1Ball(NormBall):
    r"""psi(x) = 0 if ||x||_1 <= radius, else inf.

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_inf.
    Reference: dissertation, task 4 (constrained Federated EMNIST). Differs from it: nothing.

    >>> L1Ball(1.0).prox(jnp.array([2.0, 0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return onto_l1_ball(x, self.radius)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.sum(jnp.abs(x)) - self.radius, 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.radius * jnp.max(jnp.abs(y))


class L2Ball(NormBall):
    r"""psi(x) = 0 if ||x||_2 <= radius, else inf (Frobenius norm for matrices).

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_2.
    Reference: dissertation, task 4 (constrained Federated EMNIST). Differs from it: nothing.

    >>> L2Ball(1.0).prox(jnp.array([0.0, 2.0]), 1.0).tolist()
    [0.0, 1.0]
    """

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_l2_ball(x, self.radius)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.linalg.norm(x.ravel()) - self.radius, 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.radius * jnp.linalg.norm(y.ravel())


class LInfBall(NormBall):
    r"""psi(x) = 0 if |x_i| <= radius for every i, else inf.

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_1.
    Reference: dissertation, eq. FCO with a constraint. Differs from it: nothing.

    >>> LInfBall(1.0).prox(jnp.array([-2.0, 0.5]), 1.0).tolist()
    [-1.0, 0.5]
    """

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_linf_ball(x, self.radius)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.max(jnp.abs(x)) - self.radius, 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.radius * jnp.sum(jnp.abs(y))

    def is_separable(self) -> bool:
        return True

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        return float(self.radius) * math.sqrt(math.prod(shape))
