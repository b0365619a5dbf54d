"""Zero: no regulariser."""

import jax
import jax.numpy as jnp

from fedlocal.core import Regularizer, Scalar, Separable
from fedlocal.regularizers import gauges


class Zero(Regularizer):
    """psi(x) = 0, so that a composite method becomes its smooth counterpart.

    psi^*(y) = 0 if y = 0 (within rounding), else inf.
    Reference: dissertation, section on composite optimisation. Differs from it: nothing.

    >>> Zero().prox(jnp.array([1.0, -2.0]), 0.5).tolist()
    [1.0, -2.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return jnp.zeros((), x.dtype)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return x

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return gauges.unit_ball(self.array_gauge(y))

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.cone(jnp.max(jnp.abs(y)), 1.0)

    def separable(self) -> Separable:
        return Separable()
