"""Gauges: how far a dual point has to be scaled down to enter the domain of psi^*."""

import jax
import jax.numpy as jnp

from fedlocal.core.types import Scalar

FEASIBILITY = 1e-5  # relative; about what float32 rounding leaves of a projection


def ratio(dual_norm: jax.Array, strength: Scalar) -> jax.Array:
    """dual_norm / strength: the gauge of strength * norm.

    With strength 0 the only point of the domain is the origin (within rounding), so the gauge is 0 there and inf elsewhere.
    """
    strength = jnp.asarray(strength, dual_norm.dtype)
    scaled = dual_norm / jnp.where(strength > 0, strength, 1)
    return jnp.where(strength > 0, scaled, cone(dual_norm, 1.0))


def cone(violation: jax.Array, scale: Scalar) -> jax.Array:
    """The gauge of a cone: 0 where a violation is only rounding at this scale, inf elsewhere."""
    return jnp.where(violation <= FEASIBILITY * scale, 0.0, jnp.inf).astype(violation.dtype)


def unit_ball(gauge: jax.Array) -> jax.Array:
    """psi^* of a psi with psi(c x) = c psi(x) for c > 0: 0 where the gauge is at most 1 within rounding, inf elsewhere."""
    return jnp.where(gauge <= 1 + FEASIBILITY, 0.0, jnp.inf).astype(gauge.dtype)


def over_curvature(numerator: jax.Array, curvature: Scalar, flat: jax.Array) -> jax.Array:
    """numerator / curvature; `flat` where the curvature, which may be traced, is 0."""
    curvature = jnp.asarray(curvature, numerator.dtype)
    return jnp.where(curvature > 0, numerator / jnp.where(curvature > 0, curvature, 1), flat)
