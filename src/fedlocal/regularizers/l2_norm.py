"""L2Norm: the Euclidean norm, which makes a whole array zero or not."""

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, gauges
from fedlocal.regularizers.scaled_norm import ScaledNorm


class L2Norm(ScaledNorm):
    r"""psi(x) = strength * ||x||_2, not squared (Frobenius norm for matrices).

    prox: x max(1 - t strength / ||x||_2, 0). psi^*(y) = 0 if ||y||_2 <= strength, else inf.
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
