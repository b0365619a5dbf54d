"""Nuclear, NuclearBall: the sum of singular values, which makes a matrix low-rank."""

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, gauges
from fedlocal.regularizers.balls import NormBall
from fedlocal.regularizers.norms import ScaledNorm, onto_l1_ball


class Nuclear(ScaledNorm):
    r"""psi(X) = strength * ||X||_nuc = strength * sum_i sigma_i(X), for matrices.

    prox: soft thresholding of the singular values, U max(S - t strength, 0) V'.
    psi^*(Y) = 0 if the largest singular value of Y is <= strength, else inf.

    Args:
        strength: at least 0.

    Reference: dissertation, eq. fed:matrix:estimation. Differs from it: nothing.

    >>> X = Nuclear(1.0).prox(jnp.diag(jnp.array([3.0, 0.5])), 1.0)
    >>> [round(float(v), 5) for v in jnp.diag(X)]
    [2.0, 0.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(_singular_values(x))

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        u, s, vt = _svd(x)
        return _product(u * jnp.maximum(s - t * self.strength, 0), vt)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        u, s, vt = _svd(x)
        positive = s > jnp.finfo(x.dtype).eps * max(x.shape) * s[0]
        return self.strength * _product(u * positive, vt)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.ratio(_singular_values(y)[0], self.strength)


class NuclearBall(NormBall):
    r"""psi(X) = 0 if ||X||_nuc = sum_i sigma_i(X) <= radius, else inf, for matrices.

    prox: Euclidean projection onto the ball, whatever t: the singular values are projected onto the l1 ball.
    psi^*(Y) = radius times the largest singular value of Y.

    Args:
        radius: above 0.

    Reference: dissertation, eq. FCO with a constraint. Differs from it: nothing.

    >>> X = NuclearBall(2.0).prox(jnp.diag(jnp.array([3.0, 0.5])), 1.0)
    >>> [round(float(v), 5) for v in jnp.diag(X)]
    [2.0, 0.0]
    """

    norm = Nuclear

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        u, s, vt = _svd(x)
        # a point inside is returned as it came, without the rounding of its decomposition
        return jnp.where(jnp.sum(s) > self.radius, _product(u * onto_l1_ball(s, self.radius), vt), x)


def _svd(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    clean, finite = _finite(x)
    u, s, vt = jnp.linalg.svd(clean, full_matrices=False)
    return u, jnp.where(finite, s, jnp.nan), vt


def _singular_values(x: jax.Array) -> jax.Array:
    clean, finite = _finite(x)
    return jnp.where(finite, jnp.linalg.svd(clean, compute_uv=False), jnp.nan)


def _finite(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A matrix, or zeros where it is not finite, and which it is: LAPACK prints complaints about what it cannot decompose."""
    if x.ndim != 2:
        got = f"got an array of shape {x.shape}; name the matrix with Blocks"
        raise ValueError(f"the nuclear norm (Nuclear, NuclearBall) is of matrices, {got}")
    finite = jnp.all(jnp.isfinite(x))
    return jnp.where(finite, x, 0), finite


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    """left @ right in full precision: the default of an accelerator would cost the digits that the SVD has."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
