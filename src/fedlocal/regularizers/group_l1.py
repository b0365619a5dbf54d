"""GroupL1: the sum of the norms of groups of coordinates, which makes whole groups zero."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Scalar, gauges, static
from fedlocal.regularizers.norms import ScaledNorm, shrinkage


class GroupL1(ScaledNorm):
    r"""psi(x) = sum_g strength_g * ||x_g||_2 over groups g of the coordinates of x.

    prox: x_g max(1 - t strength_g / ||x_g||_2, 0) for each g.
    psi^*(y) = 0 if ||y_g||_2 <= strength_g for each g, else inf.

    Args:
        strength: one number for all groups, or an array with one per group; at least 0.
        groups: labels 0, 1, ... in the shape of x; None makes each row of a matrix (index of the first axis) a group.

    Reference: Yuan and Lin, Model selection and estimation in regression with grouped variables (2006). Differs from it:
    the strengths do not grow with the sizes of the groups unless they are given so.

    >>> GroupL1(1.0).prox(jnp.array([[0.0, 4.0], [0.5, 0.0]]), 1.0).tolist()
    [[0.0, 3.0], [0.0, 0.0]]
    >>> GroupL1(1.0, groups=[0, 0, 1]).prox(jnp.array([3.0, 4.0, 0.5]), 2.5).tolist()
    [1.5, 2.0, 0.0]
    """

    groups: Any = static(default=None)  # None, or nested tuples of labels: hashable, as the compiled program needs it

    def __init__(self, strength: Scalar, groups: Any = None):
        super().__init__(strength)
        self.groups = None if groups is None else _labels(groups)

    def array_value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self._strengths(x) * self._norms(x))

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return x * self._spread(shrinkage(self._norms(x), t * self._strengths(x)), x)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        norms = self._norms(x)
        return x * self._spread(self._strengths(x) / jnp.where(norms > 0, norms, 1), x)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return jnp.max(gauges.ratio(self._norms(y), self._strengths(y)))

    def _strengths(self, x: jax.Array) -> jax.Array:
        """(), or one per group."""
        strength, count = jnp.asarray(self.strength, x.dtype), self._count(x)
        if strength.shape not in ((), (count,)):
            wanted = f"a number or one per group ({count})"
            raise ValueError(f"GroupL1: strength must be {wanted}, got an array of shape {strength.shape}")
        return strength

    def _count(self, x: jax.Array) -> int:
        if self.groups is not None:
            labels = np.asarray(self.groups)
            if labels.shape != x.shape:
                raise ValueError(f"GroupL1: groups of shape {labels.shape} do not fit parameters of shape {x.shape}")
            return int(labels.max()) + 1
        if x.ndim == 0:
            raise ValueError("GroupL1: acts on arrays with a first axis, got a number; name the matrix with Blocks")
        return x.shape[0]

    def _norms(self, x: jax.Array) -> jax.Array:
        count = self._count(x)
        if self.groups is None:
            return jnp.linalg.norm(x.reshape(count, -1), axis=1)
        return jnp.sqrt(jax.ops.segment_sum(x.ravel() ** 2, np.ravel(self.groups), count))

    def _spread(self, each: jax.Array, x: jax.Array) -> jax.Array:
        """One number per group, at every coordinate of the group."""
        if self.groups is None:
            return each.reshape((-1,) + (1,) * (x.ndim - 1))
        return each[np.asarray(self.groups)]


def _labels(groups: Any) -> Any:
    labels = np.asarray(groups)
    if labels.size == 0 or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        got = "none" if labels.size == 0 else labels.dtype if labels.dtype.kind not in "iu" else labels.min()
        raise ValueError(f"GroupL1: groups must be whole numbers >= 0 in the shape of the parameters, got {got}")
    return _nested(labels.tolist())


def _nested(labels: Any) -> Any:
    return tuple(map(_nested, labels)) if isinstance(labels, list) else labels
