"""Simplex: non-negative coordinates that sum to a given total."""

import jax
import jax.numpy as jnp

from fedlocal.core import Regularizer, Scalar
from fedlocal.regularizers.balls import indicator, onto_simplex
from fedlocal.util import checks


class Simplex(Regularizer):
    r"""psi(x) = 0 if x >= 0 and sum(x) = total, else inf.

    prox: Euclidean projection onto the simplex, whatever t. psi^*(y) = total max_i y_i.
    Reference: dissertation, eq. FCO with a constraint; the natural partner of the entropy. Differs from it: nothing.

    >>> Simplex(1.0).prox(jnp.array([2.0, 0.0]), 1.0).tolist()
    [1.0, 0.0]
    """

    total: Scalar

    def __init__(self, total: Scalar = 1.0):
        self.total = checks.number("Simplex", "total", total, above=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return indicator(self.array_violation(x), self.total)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return onto_simplex(x, self.total)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.max(-x), jnp.abs(jnp.sum(x) - self.total))

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return self.total * jnp.max(y)

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        return float(self.total)
