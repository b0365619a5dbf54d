"""DiagonalQuadratic: h = 1/2 sum d_i x_i^2, a step size of its own for every coordinate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import MirrorMap, Params, Regularizer, Scalar, is_free
from fedlocal.mirrors.pairs import ORDERED, Formulas, formula, like, water_level
from fedlocal.regularizers import L1, Box, ElasticNet, L1Ball, LInf, LInfBall, NonNegative, Simplex, SquaredL2, Zero
from fedlocal.regularizers.blocks import children, named_parts
from fedlocal.regularizers.box import broadcasts
from fedlocal.util import checks


class DiagonalQuadratic(MirrorMap):
    r"""h(x) = 1/2 sum_i d_i x_i^2 with d > 0: the geometry of a diagonal preconditioner.

    grad h(x) = d x. With v = y / d, grad (h + t psi)^*(y) is, coordinate by coordinate or by one exact sort:
        Zero, L1, SquaredL2, ElasticNet, Box, NonNegative, LInfBall: prox of (t / d_i) psi at v_i;
        Simplex(c): max(y - theta, 0) / d with sum c;   L1Ball(r): v, or sign(y) max(|y| - theta, 0) / d with sum r;
        LInf(s): clip(v, -c, c) with sum_i d_i max(|v_i| - c, 0) = t s, or 0;
        TotalVariation, Monotone: prox at v, projection of v, in the norm with weights d.
    With one number d for a whole array h = d/2 ||x||^2, and the formula is prox of (t / d) psi at v for every psi.
    d = 1 is Euclidean.

    Args:
        diagonal: d, above 0: a number or an array for all weights, and then an `intercept` or `bias` has d = 1; or it
            names parts of the parameters as `Blocks` does ({"weights": d, "intercept": 2.0}, nested where they are),
            and then what it does not name has d = 1. An array must fit its part by broadcasting.

    Reference: dissertation, eq. bpgm, with this h. Differs from it: the intercept.

    >>> h = DiagonalQuadratic(jnp.array([1.0, 4.0]))
    >>> h.conjugate_grad(jnp.array([3.0, 3.0]), L1(1.0), 1.0).tolist()
    [2.0, 0.5]
    """

    diagonal: Params

    def __init__(self, diagonal: Params):
        self.diagonal = jax.tree.map(lambda d: checks.number("DiagonalQuadratic", "diagonal", d, above=0), diagonal)

    def value(self, x: Params) -> jax.Array:
        each = [jnp.sum(d * jnp.square(a)) / 2 for d, a in zip(self._parts(x), jax.tree.leaves(x), strict=True)]
        return sum(each, jnp.zeros(()))

    def grad(self, x: Params) -> Params:
        leaves, treedef = jax.tree.flatten(x)
        return jax.tree.unflatten(treedef, [like(a, d * a) for d, a in zip(self._parts(x), leaves, strict=True)])

    def check(self, x0: Params) -> None:
        self._parts(x0)

    def conjugate_grad(self, y: Params, regularizer: Regularizer, t: Scalar) -> Params:
        leaves, treedef = jax.tree.flatten(y)
        parts = zip(leaves, regularizer.parts(y), self._parts(y), strict=True)
        return jax.tree.unflatten(treedef, [like(a, self._conjugate(jnp.asarray(a), psi, t, d)) for a, psi, d in parts])

    def divergence(self, x: Params, z: Params) -> jax.Array:
        return self.value(optax.tree.sub(x, z))  # no digits lost between close points

    def _conjugate(self, y: jax.Array, psi: Regularizer, t: Scalar, d: Scalar) -> jax.Array:
        if jnp.ndim(d) == 0:
            return psi.array_prox(y / d, t / d)
        hint = " (and with every other where the diagonal is one number)"
        return formula(self, FORMULAS, psi, hint)(y, psi, t, jnp.broadcast_to(d, y.shape))

    def _parts(self, x: Params) -> list[Any]:
        """d of each array of x, in the order of `jax.tree.leaves`."""
        parts = _spread(self.diagonal, x)
        for d, a in zip(parts, jax.tree.leaves(x), strict=True):
            shape, other = np.shape(d), np.shape(a)
            if not broadcasts(shape, other):
                unlike = f"a diagonal of shape {shape} does not fit parameters of shape {other}"
                raise ValueError(f"DiagonalQuadratic: {unlike}")
        return parts


def _spread(diagonal: Params, x: Params) -> list[Any]:
    if jax.tree_util.all_leaves([diagonal]):
        return [1.0 if is_free(path) else diagonal for path, _ in jax.tree.leaves_with_path(x)]
    named = children(diagonal)
    if jax.tree_util.all_leaves([x]):
        got = f"the diagonal has parts {list(named)}, the parameters are a single array of shape {np.shape(x)}"
        raise ValueError(f"DiagonalQuadratic: {got}; give a number or an array")
    return [d for own, child in named_parts("DiagonalQuadratic", named, x, 1.0) for d in _spread(own, child)]


def _l1_ball(y: jax.Array, psi: L1Ball, t: Scalar, d: jax.Array) -> jax.Array:
    outside = jnp.sum(jnp.abs(y) / d) > psi.radius
    return jnp.where(outside, jnp.sign(y) * _onto_simplex(jnp.abs(y), d, psi.radius), y / d)


def _onto_simplex(y: jax.Array, d: jax.Array, total: Scalar) -> jax.Array:
    v = y - jnp.max(y)  # large dual points lose no digits
    return jnp.maximum(v - water_level(v, 1 / d, total), 0) / d


def _linf(y: jax.Array, psi: LInf, t: Scalar, d: jax.Array) -> jax.Array:
    c = jnp.maximum(water_level(jnp.abs(y) / d, d, t * psi.strength), 0)
    return jnp.clip(y / d, -c, c)


FORMULAS: Formulas = {
    **dict.fromkeys(
        (Zero, L1, SquaredL2, ElasticNet, Box, NonNegative, LInfBall),
        lambda y, psi, t, d: psi.array_prox(y / d, t / d),
    ),
    Simplex: lambda y, psi, t, d: _onto_simplex(y, d, psi.total),
    L1Ball: _l1_ball,
    LInf: _linf,
    **dict.fromkeys(ORDERED, lambda y, psi, t, d: psi.weighted_prox(y, t, d)),
}
