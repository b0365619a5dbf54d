"""TotalVariation: the sum of jumps of a vector, which makes it piecewise constant."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, gauges
from fedlocal.regularizers.norms import ScaledNorm


class TotalVariation(ScaledNorm):
    r"""psi(x) = strength * sum_i |x_{i+1} - x_i|, for vectors.

    prox: exact, in linear time, by dynamic programming. With S_k = y_1 + ... + y_k,
    psi^*(y) = 0 if S_n = 0 and |S_k| <= strength for each k, else inf.

    Args:
        strength: at least 0.

    Reference: Johnson, A dynamic programming algorithm for the fused lasso and L0-segmentation (2013). Differs from it: the
    coordinates may have weights, and the values are computed anew once it is known where the vector jumps.

    >>> TotalVariation(1.0).prox(jnp.array([0.0, 0.0, 4.0, 6.0]), 1.0).tolist()
    [0.5, 0.5, 4.0, 5.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(jnp.abs(jnp.diff(vector("TotalVariation", x))))

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return self.weighted_prox(x, t, jnp.ones_like(x))

    def weighted_prox(self, y: jax.Array, t: Scalar, weights: jax.Array) -> jax.Array:
        """argmin_x sum_i weights_i/2 x_i^2 - y_i x_i + t psi(x)."""
        return total_variation_prox(vector("TotalVariation", y), weights, t * self.strength)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        jumps = jnp.sign(jnp.diff(vector("TotalVariation", x)))
        return -self.strength * jnp.diff(jumps, prepend=0, append=0)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        sums = jnp.cumsum(vector("TotalVariation", y))
        scale = jnp.maximum(jnp.sum(jnp.abs(y)), self.strength)
        return gauges.ratio(jnp.max(jnp.abs(sums)), self.strength) + gauges.cone(jnp.abs(sums[-1]), scale)


def vector(owner: str, x: jax.Array) -> jax.Array:
    if x.ndim != 1 or not x.size:
        raise ValueError(f"{owner}: acts on vectors, got an array of shape {x.shape}; name the vector with Blocks")
    return x


class _Message(NamedTuple):
    """The derivative of m(b) = min over x_1 ... x_i = b of the objective so far: increasing and piecewise linear in b."""

    stage: jax.Array  # 2i: looking for the lower end of the range of x_i; 2i + 1: for the upper
    first: jax.Array  # row of the leftmost knot
    last: jax.Array  # row of the rightmost knot; first - 1 when there are none
    slope: jax.Array  # of the outermost line, left or right of all knots
    offset: jax.Array
    knot: jax.Array  # (3,) the outermost knot, a row of knots
    knots: jax.Array  # (2n+1, 3) position, and by how much slope and offset change there from left to right
    ends: jax.Array  # (2n,) lower and upper end of each range: x_i = clip(x_{i+1}, lower_i, upper_i)


def total_variation_prox(y: jax.Array, weights: jax.Array, strength: Scalar) -> jax.Array:
    r"""argmin_x sum_i weights_i/2 x_i^2 - y_i x_i + strength sum_i |x_{i+1} - x_i|, for vectors and weights > 0.

    >>> total_variation_prox(jnp.array([0.0, 9.0]), jnp.array([1.0, 3.0]), 0.75).tolist()
    [0.75, 2.75]
    """
    weights, strength = jnp.asarray(weights, y.dtype), jnp.asarray(strength, y.dtype)
    # all coordinates move together with a constant, so that large ones (dual points) lose no digits
    center = jnp.sum(y) / jnp.sum(weights)
    y_centered = y - center * weights
    ranges, _ = _ranges(y_centered, weights, strength)
    end = ranges[-1, 0]
    _, x = jax.lax.scan(lambda b, r: (clipped := jnp.clip(b, r[0], r[1]), clipped), end, ranges[:-1], reverse=True)
    x = _piece_means(jnp.append(x, end), y_centered, weights, strength)
    return jnp.where(strength > 0, center + x, y / weights)


def _piece_means(x: jax.Array, y: jax.Array, weights: jax.Array, strength: jax.Array) -> jax.Array:
    """The solution anew from where x jumps and in which direction: in float32 the knots lose digits that sums do not."""
    jumps = jnp.sign(jnp.diff(x))
    pull = strength * jnp.diff(jumps, prepend=0, append=0)  # of the neighbours on either side of a piece
    piece = jnp.cumsum(jnp.append(jnp.zeros(1, jnp.int32), jumps != 0))
    both = jax.ops.segment_sum(jnp.stack([y + pull, weights], axis=1), piece, x.size, indices_are_sorted=True)
    return (both[:, 0] / jnp.where(both[:, 1] > 0, both[:, 1], 1))[piece]


def _ranges(y: jax.Array, weights: jax.Array, strength: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(n, 2) the range of each coordinate given the next one, and the number of steps that it took.

    A step removes the outermost knot at one end, or, when it stays, ends the stage: clips the message there with a new knot.
    There are 2n - 1 stages, and not more removals than knots: at most 4n - 3 steps. Their number is fixed because a loop
    that stops early would under `vmap` copy the knots of every problem in every step.
    """
    n, write = y.size, partial(jax.lax.dynamic_update_index_in_dim, axis=0)

    def step(_: int, carry: tuple[_Message, jax.Array]) -> tuple[_Message, jax.Array]:
        m, steps = carry
        works, right = m.stage < 2 * n - 1, m.stage % 2 == 1
        side = jnp.where(right, 1, -1).astype(y.dtype)
        limit = jnp.where(m.stage < 2 * n - 2, strength, 0)  # nothing follows the last coordinate: its derivative is 0
        beyond = side * (m.slope * m.knot[0] + m.offset) >= limit
        remove = works & (m.first <= m.last) & beyond
        end = works & ~remove
        slope = jnp.where(remove, m.slope - side * m.knot[1], m.slope)
        slope = jnp.maximum(slope, weights[m.stage // 2])  # the last coordinate's own; weights far apart may cancel
        offset = jnp.where(remove, m.offset - side * m.knot[2], m.offset)
        first, last = m.first + (remove & ~right), m.last - (remove & right)

        # written also by a step that removes: to a row that is free
        position = (side * limit - offset) / slope
        new = jnp.stack([position, -side * slope, limit - side * offset])
        knots = write(m.knots, new, jnp.where(right, last + 1, first - 1))
        ends = write(m.ends, position, m.stage)

        stage, first, last = m.stage + end, first - (end & ~right), last + (end & right)
        right = stage % 2 == 1
        before = jnp.where(right, 1, -1) * jnp.where(stage < 2, 0, strength)
        slope, offset = jnp.where(end, weights[stage // 2], slope), jnp.where(end, before - y[stage // 2], offset)
        # read after the write and kept: a read of the old knots in the next step would cost a copy of them
        knot = knots[jnp.where(right, last, first)]
        return _Message(stage, first, last, slope, offset, knot, knots, ends), steps + works

    zero = jnp.zeros((), jnp.int32)
    knots, ends = jnp.zeros((2 * n + 1, 3), y.dtype), jnp.zeros(2 * n, y.dtype)
    start = _Message(zero, zero + n, zero + n - 1, weights[0], -y[0], knots[0], knots, ends)
    message, steps = jax.lax.fori_loop(0, 4 * n - 3, step, (start, zero))
    return message.ends.reshape(n, 2), steps
