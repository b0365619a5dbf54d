"""Zero: no regulariser."""

import jax
import jax.numpy as jnp

from fedlocal.core import Regularizer, Scalar


class Zero(Regularizer):
    """psi(x) = 0, so that a composite method becomes its smooth counterpart.

    >>> Zero().prox(jnp.array([1.0, -2.0]), 0.5).tolist()
    [1.0, -2.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return jnp.zeros((), x.dtype)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return x

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x)
