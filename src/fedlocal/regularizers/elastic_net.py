"""SquaredL2: weight decay. ElasticNet: sparse as L1, and strongly convex as weight decay."""

import jax
import jax.numpy as jnp

from fedlocal.core import Regularizer, Scalar, Separable, gauges
from fedlocal.regularizers.l1 import L1
from fedlocal.util import checks


class SquaredL2(Regularizer):
    r"""psi(x) = strength / 2 * ||x||_2^2.

    prox: x / (1 + t strength). psi^*(y) = ||y||_2^2 / (2 strength).

    Args:
        strength: at least 0.

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


class ElasticNet(Regularizer):
    r"""psi(x) = l1 * ||x||_1 + l2 / 2 * ||x||_2^2.

    prox: soft thresholding, then shrinking, sign(x) max(|x| - t l1, 0) / (1 + t l2).
    psi^*(y) = sum_i max(|y_i| - l1, 0)^2 / (2 l2); that of L1(l1) when l2 = 0.

    Args:
        l1, l2: at least 0.

    Reference: Zou and Hastie, Regularization and variable selection via the elastic net (2005). Differs from it: the factor
    1/2, and each term has its own strength.

    >>> ElasticNet(1.0, 1.0).prox(jnp.array([3.0, -0.5]), 1.0).tolist()
    [1.0, -0.0]
    """

    l1: Scalar
    l2: Scalar

    def __init__(self, l1: Scalar, l2: Scalar):
        self.l1 = checks.number("ElasticNet", "l1", l1, at_least=0)
        self.l2 = checks.number("ElasticNet", "l2", l2, at_least=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.l1 * jnp.sum(jnp.abs(x)) + self.l2 / 2 * jnp.sum(x**2)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return L1(self.l1).array_prox(x, t) / (1 + t * self.l2)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        return self.l1 * jnp.sign(x) + self.l2 * x

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        excess = jnp.maximum(jnp.abs(y) - self.l1, 0).astype(y.dtype)
        return gauges.over_curvature(jnp.sum(excess**2) / 2, self.l2, L1(self.l1).array_conjugate(y))

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.over_curvature(jnp.zeros((), y.dtype), self.l2, L1(self.l1).array_gauge(y))

    def separable(self) -> Separable:
        return Separable(l1=self.l1, l2=self.l2)

    def strong_convexity(self) -> Scalar:
        return self.l2

    def strengths(self) -> tuple[Scalar, ...]:
        return (self.l1, self.l2)

    def without_squares(self) -> L1:
        return L1(self.l1)
