"""Norms times a strength: what they share, L2Norm (a whole array is zero or not), LInf (many coordinates equally large)."""

import math

import jax
import jax.numpy as jnp

from fedlocal.core import Regularizer, Scalar, gauges
from fedlocal.util import checks

COLUMNS = 64


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


class ScaledNorm(Regularizer):
    r"""psi(x) = strength * norm(x), where the norm may be a seminorm. psi^*(y) = 0 where the gauge is at most 1, else inf.

    A concrete one has `array_value`, `array_prox`, `array_subgradient`, and `array_gauge`: the dual norm over the strength.
    """

    strength: Scalar

    def __init__(self, strength: Scalar):
        self.strength = checks.number(type(self).__name__, "strength", strength, at_least=0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return gauges.unit_ball(self.array_gauge(y))

    def strengths(self) -> tuple[Scalar, ...]:
        return (self.strength,)


class L2Norm(ScaledNorm):
    r"""psi(x) = strength * ||x||_2, not squared (Frobenius norm for matrices).

    prox: x max(1 - t strength / ||x||_2, 0). psi^*(y) = 0 if ||y||_2 <= strength, else inf.

    Args:
        strength: at least 0.

    Reference: Parikh and Boyd, Proximal algorithms (2014), section 6.5.1. Differs from it: nothing.

    >>> L2Norm(1.0).prox(jnp.array([0.0, -4.0]), 1.0).tolist()
    [0.0, -3.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength * jnp.linalg.norm(x.ravel())

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return x * shrinkage(jnp.linalg.norm(x.ravel()), t * self.strength)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        norm = jnp.linalg.norm(x.ravel())
        return self.strength * x / jnp.where(norm > 0, norm, 1)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.ratio(jnp.linalg.norm(y.ravel()), self.strength)


def shrinkage(norm: jax.Array, threshold: Scalar) -> jax.Array:
    """max(1 - threshold / norm, 0), and 0 where the norm is 0."""
    return jnp.where(norm > threshold, 1 - threshold / jnp.where(norm > 0, norm, 1), 0).astype(norm.dtype)


class LInf(ScaledNorm):
    r"""psi(x) = strength * ||x||_inf = strength * max_i |x_i|.

    prox, by Moreau: x minus its projection onto {||.||_1 <= t strength}. psi^*(y) = 0 if ||y||_1 <= strength, else inf.

    Args:
        strength: at least 0.

    Reference: Parikh and Boyd, Proximal algorithms (2014), section 6.5.2. Differs from it: nothing.

    >>> LInf(1.0).prox(jnp.array([3.0, -0.5, 2.0]), 1.0).tolist()
    [2.0, -0.5, 2.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength * jnp.max(jnp.abs(x))

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        radius = jnp.asarray(t * self.strength, x.dtype)
        # the projection divides by its radius
        dual = onto_l1_ball(x, jnp.where(radius > 0, radius, 1))
        return jnp.where(radius > 0, x - dual, x)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        largest = jnp.arange(x.size).reshape(x.shape) == jnp.argmax(jnp.abs(x))
        return self.strength * jnp.where(largest, jnp.sign(x), 0)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.ratio(jnp.sum(jnp.abs(y)), self.strength)
