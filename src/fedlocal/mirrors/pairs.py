"""Helpers of the mirror maps: the table of formulas, the unregularised intercept, and the water level of a sum."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedlocal.core import MirrorMap, Params, Regularizer, Scalar, is_free
from fedlocal.regularizers import Monotone, TotalVariation

ORDERED = (TotalVariation, Monotone)  # whose subdifferentials see only the order of x
Formulas = Mapping[type[Regularizer], Callable[..., jax.Array]]  # from (y, psi, t, ...) to the primal array


def formula(mirror: MirrorMap, formulas: Formulas, psi: Regularizer, hint: str = "") -> Callable[..., jax.Array]:
    """Return the formula for exactly the class of psi, because a subclass may need another one than its parent."""
    found = formulas.get(type(psi))
    if found is None:
        known = ", ".join(kind.__name__ for kind in formulas)
        pair = f"{type(mirror).__name__} has no conjugate_grad with {type(psi).__name__}"
        raise TypeError(f"{pair}; it has one with: {known}{hint}")
    return found


def sum_weights(on_weights: Callable[[jax.Array], jax.Array], x: Params) -> jax.Array:
    """The sum of `on_weights` over all arrays but an intercept, which adds half its square."""
    leaves = jax.tree.leaves_with_path(x)
    each = [half_square(a) if is_free(path) else on_weights(jnp.asarray(a)) for path, a in leaves]
    return sum(each, jnp.zeros(()))


def map_weights(on_weights: Callable[[jax.Array], jax.Array], x: Params) -> Params:
    """Apply `on_weights` to every array but an intercept, which stays as it is."""
    return jax.tree_util.tree_map_with_path(lambda path, a: a if is_free(path) else like(a, on_weights(a)), x)


def map_pairs(
    on_weights: Callable[[jax.Array, Regularizer], jax.Array], y: Params, regularizer: Regularizer, t: Scalar
) -> Params:
    """Apply `on_weights` to every array and its regulariser but to an intercept, which gets the Euclidean prox."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(y)
    mapped = [
        like(a, psi.array_prox(a, t) if is_free(path) else on_weights(jnp.asarray(a), psi))
        for (path, a), psi in zip(leaves, regularizer.parts(y), strict=True)
    ]
    return jax.tree.unflatten(treedef, mapped)


def half_square(x: Any) -> jax.Array:
    return jnp.sum(jnp.square(x)) / 2


def like(a: Any, b: jax.Array) -> jax.Array:
    """b in the precision of a."""
    return jnp.asarray(b, jnp.result_type(a))


def water_level(v: jax.Array, weights: Scalar, total: Scalar) -> jax.Array:
    r"""The c with sum_i weights_i max(v_i - c, 0) = total, for weights > 0 and total >= 0; max(v) for total = 0.

    The sum is piecewise linear with a kink at every v_i, so with v sorted downwards c is
        c_k = (sum_{i <= k} weights_i v_i - total) / sum_{i <= k} weights_i   for the last k with v_k > c_k.

    >>> float(water_level(jnp.array([3.0, 0.0, 2.0]), 1.0, 3.0))
    1.0
    """
    flat, spread = v.ravel(), jnp.broadcast_to(weights, v.shape).ravel()
    order = jnp.argsort(-flat)
    top, w = flat[order[0]], spread[order]
    # seen from the top, where nothing can be lost; what lies below total / w_1 is dry and must not overflow the sums
    sorted_v = jnp.maximum(flat[order] - top, -total / w[0])
    level = (jnp.cumsum(w * sorted_v) - total) / jnp.cumsum(w)
    wet = jnp.maximum(jnp.sum(sorted_v > level), 1)
    return top + level[wet - 1]
