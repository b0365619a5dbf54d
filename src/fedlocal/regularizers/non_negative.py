"""NonNegative: no coordinate below zero."""

import jax
import jax.numpy as jnp
from optax import projections

from fedlocal.core import Regularizer, Scalar, Separable, gauges
from fedlocal.regularizers.balls import indicator


class NonNegative(Regularizer):
    r"""psi(x) = 0 if x >= 0 in every coordinate, else inf.

    prox: max(x, 0), whatever t. psi^*(y) = 0 if y <= 0 in every coordinate, else inf.
    Reference: dissertation, eq. FCO with a constraint. Differs from it: nothing.

    >>> NonNegative().prox(jnp.array([2.0, -0.5]), 1.0).tolist()
    [2.0, 0.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return indicator(self.array_violation(x), jnp.max(jnp.abs(x)))

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_non_negative(x)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.max(-x), 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return gauges.unit_ball(self.array_gauge(y))

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.cone(jnp.max(y), jnp.maximum(jnp.max(jnp.abs(y)), 1))

    def separable(self) -> Separable:
        return Separable(lower=0.0)
