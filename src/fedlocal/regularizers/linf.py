"""LInf: the largest absolute value, which makes many coordinates equally large."""

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, gauges
from fedlocal.regularizers.balls import onto_l1_ball
from fedlocal.regularizers.scaled_norm import ScaledNorm


class LInf(ScaledNorm):
    r"""psi(x) = strength * ||x||_inf = strength * max_i |x_i|.

    prox, by Moreau: x minus its projection onto {||.||_1 <= t strength}. psi^*(y) = 0 if ||y||_1 <= strength, else inf.
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
