"""Monotone: a vector whose coordinates never decrease, or never increase."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, gauges, static
from fedlocal.regularizers.balls import Constraint
from fedlocal.regularizers.total_variation import vector
from fedlocal.util import checks


class Monotone(Constraint):
    r"""psi(x) = 0 if x_1 <= x_2 <= ... <= x_n (>= if not `increasing`), else inf, for vectors.

    prox: Euclidean projection, whatever t, by pooling adjacent violators; linear time. With S_k = y_1 + ... + y_k,
    psi^*(y) = 0 if S_n = 0 and S_k >= 0 for each k (<= if not `increasing`), else inf.

    Args:
        increasing: False for coordinates that never increase.

    Reference: Best and Chakravarti, Active set algorithms for isotonic regression (1990). Differs from it: nothing.

    >>> Monotone().prox(jnp.array([1.0, 4.0, 2.0, 5.0]), 1.0).tolist()
    [1.0, 3.0, 3.0, 5.0]
    """

    increasing: bool = static(default=True)

    def __init__(self, increasing: bool = True):
        self.increasing = checks.instance("Monotone", "increasing", increasing, bool)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return self.weighted_prox(x, t, jnp.ones_like(x))

    def weighted_prox(self, y: jax.Array, t: Scalar, weights: jax.Array) -> jax.Array:
        """argmin_x sum_i weights_i/2 x_i^2 - y_i x_i + t psi(x)."""
        return self._turn(isotonic(self._turn(vector("Monotone", y)), self._turn(weights)))

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.max(-jnp.diff(self._turn(vector("Monotone", x))), initial=0)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        sums = jnp.cumsum(self._turn(vector("Monotone", y)))
        outside = jnp.maximum(jnp.max(-sums), jnp.abs(sums[-1]))
        return gauges.cone(outside, jnp.maximum(jnp.sum(jnp.abs(y)), 1))

    def _turn(self, x: jax.Array) -> jax.Array:
        return x if self.increasing else x[::-1]


class _Pools(NamedTuple):
    """Blocks of coordinates with increasing values: all but the last on a stack."""

    seen: jax.Array  # coordinates that belong to a block
    depth: jax.Array  # blocks on the stack
    block: jax.Array  # (2,) sum of y and of the weights of the last block
    start: jax.Array  # first coordinate of the last block
    stack: jax.Array  # (n+1, 2)
    starts: jax.Array  # (n+1,)
    below: jax.Array  # (2,) the block on top of the stack
    below_start: jax.Array


def isotonic(y: jax.Array, weights: jax.Array) -> jax.Array:
    r"""argmin over x_1 <= ... <= x_n of sum_i weights_i/2 x_i^2 - y_i x_i, for vectors and weights > 0.

    >>> isotonic(jnp.array([4.0, 2.0]), jnp.array([1.0, 2.0])).tolist()
    [2.0, 2.0]
    """
    pools, _ = _pool(y, jnp.asarray(weights, y.dtype))
    # coordinate i belongs to the last block that starts at or before i
    starts = jnp.where(jnp.arange(y.size) < pools.depth, pools.starts[:-1], y.size)
    block = jnp.searchsorted(starts, jnp.arange(y.size), side="right") - 1
    return (pools.stack[:, 0] / pools.stack[:, 1])[block]


def _pool(y: jax.Array, weights: jax.Array) -> tuple[_Pools, jax.Array]:
    """The blocks, all on the stack, and the number of steps that it took.

    A step merges the last block into the one below it, or puts it on the stack and begins the next: at most 2n - 1 steps.
    Their number is fixed because a loop that stops early would under `vmap` copy the stack of every problem in every step.
    """
    n, write = y.size, partial(jax.lax.dynamic_update_index_in_dim, axis=0)
    rows = jnp.stack([y, weights], axis=1)

    def step(_: int, carry: tuple[_Pools, jax.Array]) -> tuple[_Pools, jax.Array]:
        p, steps = carry
        works = p.seen <= n
        merge = works & (p.depth > 0) & (p.below[0] / p.below[1] > p.block[0] / p.block[1])
        push = works & ~merge
        depth = p.depth - merge
        # written also by a step that merges: to the row that it frees
        stack, starts = write(p.stack, p.block, depth), write(p.starts, p.start, depth)
        block = jnp.where(push, rows[p.seen], jnp.where(merge, p.block + p.below, p.block))
        start = jnp.where(push, p.seen, jnp.where(merge, p.below_start, p.start))
        # read after the write and kept: a read of the old stack in the next step would cost a copy of it
        depth = depth + push
        below, below_start = stack[depth - 1], starts[depth - 1]
        return _Pools(p.seen + push, depth, block, start, stack, starts, below, below_start), steps + works

    zero = jnp.zeros((), jnp.int32)
    stack, starts = jnp.ones((n + 1, 2), y.dtype), jnp.zeros(n + 1, jnp.int32)
    begin = _Pools(zero + 1, zero, rows[0], zero, stack, starts, rows[0], zero)
    return jax.lax.fori_loop(0, 2 * n - 1, step, (begin, zero))
