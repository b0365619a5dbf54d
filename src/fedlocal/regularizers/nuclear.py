"""Nuclear: the sum of singular values, which makes a matrix low-rank."""

import jax
import jax.numpy as jnp

from fedlocal import checks
from fedlocal.core import Regularizer, Scalar


class Nuclear(Regularizer):
    r"""psi(X) = strength * ||X||_nuc = strength * sum_i sigma_i(X), for matrices.

    prox: soft thresholding of the singular values, U max(S - t strength, 0) V'.
    Reference: dissertation, eq. fed:matrix:estimation. Differs from it: nothing.

    >>> X = Nuclear(1.0).prox(jnp.diag(jnp.array([3.0, 0.5])), 1.0)
    >>> [round(float(v), 5) for v in jnp.diag(X)]
    [2.0, 0.0]
    """

    strength: Scalar

    def __init__(self, strength: Scalar):
        self.strength = checks.number("Nuclear", "strength", strength, at_least=0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(jnp.linalg.svd(_matrix(x), compute_uv=False))

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        u, s, vt = jnp.linalg.svd(_matrix(x), full_matrices=False)
        return (u * jnp.maximum(s - t * self.strength, 0)) @ vt

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        u, s, vt = jnp.linalg.svd(_matrix(x), full_matrices=False)
        positive = s > jnp.finfo(x.dtype).eps * max(x.shape) * s[0]
        return self.strength * (u * positive) @ vt


def _matrix(x: jax.Array) -> jax.Array:
    if x.ndim != 2:
        raise ValueError(f"Nuclear: acts on matrices, got an array of shape {x.shape}; name the matrix with Blocks")
    return x
