"""L1: the sum of absolute values, which makes a solution sparse."""

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, Separable, gauges
from fedlocal.regularizers.norms import ScaledNorm


class L1(ScaledNorm):
    r"""psi(x) = strength * ||x||_1.

    prox: soft thresholding, sign(x) max(|x| - t strength, 0). psi^*(y) = 0 if ||y||_inf <= strength, else inf.

    Args:
        strength: at least 0.

    Reference: dissertation, section on composite optimisation (proximal gradient method). Differs from it: nothing.

    >>> L1(1.0).prox(jnp.array([3.0, -0.5, -2.0]), 1.0).tolist()
    [2.0, -0.0, -1.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(jnp.abs(x))

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return jnp.sign(x) * jnp.maximum(jnp.abs(x) - t * self.strength, 0)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        return self.strength * jnp.sign(x)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.ratio(jnp.max(jnp.abs(y)), self.strength)

    def separable(self) -> Separable:
        return Separable(l1=self.strength)
