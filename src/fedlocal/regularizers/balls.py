"""Norm balls and the simplex: constraints ||x|| <= radius, or x >= 0 with a given sum, on every array of the parameters."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from optax import projections

from fedlocal.core import Regularizer, Scalar, gauges
from fedlocal.regularizers.l1 import L1
from fedlocal.regularizers.norms import L2Norm, LInf, ScaledNorm, onto_l1_ball, onto_simplex
from fedlocal.util import checks


class Constraint(Regularizer):
    r"""psi(x) = 0 where `array_violation` is only rounding, else inf. For a cone, psi^*(y) = 0 where the gauge is 0, else inf."""

    def array_value(self, x: jax.Array) -> jax.Array:
        return gauges.cone(self.array_violation(x), jnp.maximum(self._scale(x), 1.0))

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return gauges.unit_ball(self.array_gauge(y))

    def is_constraint(self) -> bool:
        return True

    def _scale(self, x: jax.Array) -> Scalar:
        """What rounding of the violation is relative to."""
        return jnp.max(jnp.abs(x))


class NormBall(Constraint):
    r"""psi(x) = 0 if norm(x) <= radius, else inf, for a norm that a concrete one names. psi^*(y) = radius times the dual norm."""

    norm: ClassVar[type[ScaledNorm]]
    radius: Scalar

    def __init__(self, radius: Scalar):
        self.radius = checks.number(type(self).__name__, "radius", radius, above=0)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(self.norm(1.0).array_value(x) - self.radius, 0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.radius * self.norm(1.0).array_gauge(y)

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        return float(self.radius)

    def _scale(self, x: jax.Array) -> Scalar:
        return self.radius


class L1Ball(NormBall):
    r"""psi(x) = 0 if ||x||_1 <= radius, else inf.

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_inf.

    Args:
        radius: above 0.

    Reference: dissertation, task 4 (constrained Federated EMNIST). Differs from it: nothing.

    >>> L1Ball(1.0).prox(jnp.array([2.0, 0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    norm = L1

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return onto_l1_ball(x, self.radius)


class L2Ball(NormBall):
    r"""psi(x) = 0 if ||x||_2 <= radius, else inf (Frobenius norm for matrices).

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_2.

    Args:
        radius: above 0.

    Reference: dissertation, task 4 (constrained Federated EMNIST). Differs from it: nothing.

    >>> L2Ball(1.0).prox(jnp.array([0.0, 2.0]), 1.0).tolist()
    [0.0, 1.0]
    """

    norm = L2Norm

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_l2_ball(x, self.radius)


class LInfBall(NormBall):
    r"""psi(x) = 0 if |x_i| <= radius for every i, else inf.

    prox: Euclidean projection onto the ball, whatever t. psi^*(y) = radius ||y||_1.

    Args:
        radius: above 0.

    Reference: dissertation, eq. FCO with a constraint. Differs from it: nothing.

    >>> LInfBall(1.0).prox(jnp.array([-2.0, 0.5]), 1.0).tolist()
    [-1.0, 0.5]
    """

    norm = LInf

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_linf_ball(x, self.radius)

    def is_separable(self) -> bool:
        return True

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        return float(self.radius) * math.sqrt(math.prod(shape))


class Simplex(Constraint):
    r"""psi(x) = 0 if x >= 0 and sum(x) = total, else inf.

    prox: Euclidean projection onto the simplex, whatever t. psi^*(y) = total max_i y_i.

    Args:
        total: above 0.

    Reference: dissertation, eq. FCO with a constraint; the natural partner of the entropy. Differs from it: nothing.

    >>> Simplex(1.0).prox(jnp.array([2.0, 0.0]), 1.0).tolist()
    [1.0, 0.0]
    """

    total: Scalar

    def __init__(self, total: Scalar = 1.0):
        self.total = checks.number("Simplex", "total", total, above=0)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return onto_simplex(x, self.total)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.max(-x), jnp.abs(jnp.sum(x) - self.total))

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.total * jnp.max(y)

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        return float(self.total)

    def _scale(self, x: jax.Array) -> Scalar:
        return self.total
