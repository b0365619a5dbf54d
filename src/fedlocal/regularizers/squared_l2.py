"""SquaredL2: weight decay."""

import jax
import jax.numpy as jnp

from fedlocal.core import Regularizer, Scalar, Separable, gauges
from fedlocal.util import checks


class SquaredL2(Regularizer):
    r"""psi(x) = strength / 2 * ||x||_2^2.

    prox: x / (1 + t strength). psi^*(y) = ||y||_2^2 / (2 strength).
    Reference: dissertation, section on composite optimisation. Differs from it: the factor 1/2, so that `strength` is the
    modulus of strong convexity.

    >>> SquaredL2(1.0).prox(jnp.array([3.0, -1.0]), 1.0).tolist()
    [1.5, -0.5]
    """

    strength: Scalar

    def __init__(self, strength: Scalar):
        self.strength = checks.number("SquaredL2", "strength", strength, at_least=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength / 2 * jnp.sum(x**2)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return x / (1 + t * self.strength)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        return self.strength * x

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return gauges.over_curvature(jnp.sum(y**2) / 2, self.strength, gauges.unit_ball(self.array_gauge(y)))

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.over_curvature(jnp.zeros((), y.dtype), self.strength, gauges.cone(jnp.max(jnp.abs(y)), 1.0))

    def separable(self) -> Separable:
        return Separable(l2=self.strength)

    def is_smooth(self) -> bool:
        return True

    def strong_convexity(self) -> Scalar:
        return self.strength

    def strengths(self) -> tuple[Scalar, ...]:
        return (self.strength,)
