"""Norm balls: constraints ||x|| <= radius on every array of the parameters."""

import jax
import jax.numpy as jnp
from optax import projections

from fedlocal import checks
from fedlocal.core import Regularizer, Scalar

FEASIBILITY = 1e-5  # relative; about what float32 rounding leaves of a projection


def indicator(violation: jax.Array, scale: Scalar) -> jax.Array:
    """0 where a violation is only rounding at this scale, inf elsewhere."""
    return jnp.where(violation <= FEASIBILITY * jnp.maximum(scale, 1.0), 0.0, jnp.inf).astype(violation.dtype)


def onto_simplex(x: jax.Array, total: Scalar) -> jax.Array:
    """Projection onto {x >= 0, sum(x) = total}; shifted first, so that large coordinates (dual points) lose no digits."""
    return projections.projection_simplex(x - jnp.max(x), total).astype(x.dtype)


def onto_l1_ball(x: jax.Array, radius: Scalar) -> jax.Array:
    """Projection onto {||x||_1 <= radius}, radius > 0."""
    outside = jnp.sum(jnp.abs(x)) > radius
    return jnp.where(outside, jnp.sign(x) * onto_simplex(jnp.abs(x), radius), x)


class L1Ball(Regularizer):
    r"""psi(x) = 0 if ||x||_1 <= radius, else inf.

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_inf.
    Reference: dissertation, task 4 (constrained Federated EMNIST). Differs from it: nothing.

    >>> L1Ball(1.0).prox(jnp.array([2.0, 0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    radius: Scalar

    def __init__(self, radius: Scalar):
        self.radius = checks.number("L1Ball", "radius", radius, above=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return indicator(self.array_violation(x), self.radius)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return onto_l1_ball(x, self.radius)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.sum(jnp.abs(x)) - self.radius, 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.radius * jnp.max(jnp.abs(y))


class L2Ball(Regularizer):
    r"""psi(x) = 0 if ||x||_2 <= radius, else inf (Frobenius norm for matrices).

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_2.
    Reference: dissertation, task 4 (constrained Federated EMNIST). Differs from it: nothing.

    >>> L2Ball(1.0).prox(jnp.array([0.0, 2.0]), 1.0).tolist()
    [0.0, 1.0]
    """

    radius: Scalar

    def __init__(self, radius: Scalar):
        self.radius = checks.number("L2Ball", "radius", radius, above=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return indicator(self.array_violation(x), self.radius)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_l2_ball(x, self.radius)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.linalg.norm(x.ravel()) - self.radius, 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.radius * jnp.linalg.norm(y.ravel())


class LInfBall(Regularizer):
    r"""psi(x) = 0 if |x_i| <= radius for every i, else inf.

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_1.
    Reference: dissertation, eq. FCO with a constraint. Differs from it: nothing.

    >>> LInfBall(1.0).prox(jnp.array([-2.0, 0.5]), 1.0).tolist()
    [-1.0, 0.5]
    """

    radius: Scalar

    def __init__(self, radius: Scalar):
        self.radius = checks.number("LInfBall", "radius", radius, above=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return indicator(self.array_violation(x), self.radius)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_linf_ball(x, self.radius)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.max(jnp.abs(x)) - self.radius, 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.radius * jnp.sum(jnp.abs(y))
