"""The l1 ball with a projection that does not sort, for studies that project at every local step of many runs."""

import math

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar
from fedlocal.regularizers import L1Ball

COLUMNS = 64


class FastL1Ball(L1Ball):
    r"""L1Ball whose projection finds the threshold theta of sign(x) max(|x| - theta, 0) by Michelot's iteration.

    From theta of all numbers, theta <- (sum of those above theta - radius) / how many they are, until none drops out; this is
    the exact threshold, reached in about ten passes over the numbers. A point inside the ball needs none.
    Reference: Michelot, J. Optim. Theory Appl. 50, 1986. Differs from it: numbers are counted from the largest one, so that
    large ones (dual points) lose no digits.

    >>> FastL1Ball(1.0).prox(jnp.array([2.0, 0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        size = jnp.abs(x)
        outside = _total(size) > self.radius
        below = size - jnp.max(size)  # at most 0

        def tighter(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            theta, count, _ = state
            above = below > theta
            left = _total(above.astype(jnp.int32))
            return (_total(jnp.where(above, below, 0)) - self.radius) / left, left, count

        first = (_total(below) - self.radius) / x.size, jnp.asarray(x.size), x.size + outside
        theta, _, _ = jax.lax.while_loop(lambda state: state[1] < state[2], tighter, first)
        return jnp.where(outside, jnp.sign(x) * jnp.maximum(below - theta, 0), x).astype(x.dtype)


def _total(a: jax.Array) -> jax.Array:
    """The sum of all numbers, in columns first: processors add those side by side."""
    return jnp.sum(jnp.sum(a.reshape(-1, math.gcd(a.size, COLUMNS)), axis=0))
