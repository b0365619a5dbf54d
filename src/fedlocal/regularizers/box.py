"""Box: every coordinate between two bounds. NonNegative: no coordinate below zero."""

import jax
import jax.numpy as jnp
import numpy as np
from optax import projections

from fedlocal.core import Scalar, Separable, gauges
from fedlocal.regularizers.balls import Constraint
from fedlocal.util import checks


class Box(Constraint):
    r"""psi(x) = 0 if lower <= x <= upper in every coordinate, else inf.

    prox: clipping, whatever t. psi^*(y) = sum_i max(lower_i y_i, upper_i y_i).

    Args:
        lower, upper: numbers, or arrays that fit the parameters by broadcasting; -inf and inf for no bound.

    Reference: dissertation, eq. FCO with a constraint. Differs from it: nothing.

    >>> Box(-1.0, 1.0).prox(jnp.array([2.0, 0.5]), 1.0).tolist()
    [1.0, 0.5]
    """

    lower: Scalar
    upper: Scalar

    def __init__(self, lower: Scalar, upper: Scalar):
        low, high = _number("lower", lower), _number("upper", upper)
        if low is not None and high is not None and not np.all(low <= high):
            raise ValueError(f"Box: lower must be <= upper, got lower={lower} and upper={upper}")
        self.lower, self.upper = lower, upper

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        self._check_shape(x)
        return jnp.clip(x, self.lower, self.upper)

    def array_violation(self, x: jax.Array) -> jax.Array:
        self._check_shape(x)
        return jnp.max(jnp.maximum(jnp.maximum(self.lower - x, x - self.upper), 0))

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        bound = self._bound(y)
        return jnp.sum(jnp.where(jnp.isfinite(bound), bound * y, 0)).astype(y.dtype) + self.array_gauge(y)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        # pushes against a bound that is not there: none are allowed beyond rounding, whatever their scale
        unbounded = jnp.where(jnp.isfinite(self._bound(y)), 0, jnp.abs(y))
        return gauges.cone(jnp.max(unbounded), jnp.maximum(jnp.max(jnp.abs(y)), 1))

    def separable(self) -> Separable | None:
        if np.ndim(self.lower) or np.ndim(self.upper):
            return None
        return Separable(lower=self.lower, upper=self.upper)

    def is_separable(self) -> bool:  # also for bounds that are arrays
        return True

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        most = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return float(np.linalg.norm(np.broadcast_to(most, shape)))

    def _bound(self, y: jax.Array) -> jax.Array:
        """The bound that y pushes x against."""
        self._check_shape(y)
        return jnp.where(y > 0, self.upper, self.lower)

    def _check_shape(self, x: jax.Array) -> None:
        for shape in map(np.shape, (self.lower, self.upper)):
            if not broadcasts(shape, x.shape):
                raise ValueError(f"Box: bounds of shape {shape} do not fit parameters of shape {x.shape}")


def _number(name: str, value: Scalar) -> np.ndarray | None:
    """A bound as an array; None for a traced one, which cannot be checked."""
    try:
        return None if checks.is_traced(value) else np.asarray(value, float)
    except (TypeError, ValueError):
        raise TypeError(f"Box: {name} must be a number or an array, got {value!r}") from None


def broadcasts(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    """Return True if an array of this shape can be spread over another shape."""
    return len(shape) <= len(onto) and all(a in (1, b) for a, b in zip(shape[::-1], onto[::-1], strict=False))


class NonNegative(Constraint):
    r"""psi(x) = 0 if x >= 0 in every coordinate, else inf.

    prox: max(x, 0), whatever t. psi^*(y) = 0 if y <= 0 in every coordinate, else inf.
    Reference: dissertation, eq. FCO with a constraint. Differs from it: nothing.

    >>> NonNegative().prox(jnp.array([2.0, -0.5]), 1.0).tolist()
    [2.0, 0.0]
    """

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return projections.projection_non_negative(x)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.max(-x), 0)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.cone(jnp.max(y), jnp.maximum(jnp.max(jnp.abs(y)), 1))

    def separable(self) -> Separable:
        return Separable(lower=0.0)
