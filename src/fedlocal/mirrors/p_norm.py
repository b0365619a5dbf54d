"""PNorm: h = 1/2 ||x||_p^2, between the Euclidean (p = 2) and the sparse (p near 1) geometry."""

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import MirrorMap, Params, Regularizer, Scalar
from fedlocal.mirrors.pairs import ORDERED, Formulas, formula, map_pairs, map_weights, sum_weights
from fedlocal.regularizers import L1, LInf, Lp, NonNegative, Zero
from fedlocal.util import checks


class PNorm(MirrorMap):
    r"""h(x) = 1/2 ||x||_p^2 on every array; an `intercept` or `bias` stays Euclidean.

    grad h(x) = sign(x) |x|^(p-1) ||x||_p^(2-p), the p-norm link; its inverse is the link of q = p / (p - 1).
    The link keeps signs, zeros, order and the place of the largest, so where a subdifferential sees no more of x than
    these, w = grad h(x) solves w + t d psi(w) = y, and
        grad (h + t psi)^*(y) = q-norm link of w,   w = Euclidean prox of t psi at y:
            Zero, L1, NonNegative, LInf, TotalVariation, Monotone.
    With Lp(s, p) of the same p, w = y max(1 - t s / ||y||_q, 0); of another p it is an error, or nan where p is only known
    inside a compiled program.
    p = 2 is Euclidean; p = 2 ln d / (2 ln d - 1) gives rates in d dimensions with ln d in place of d. h is
    (p - 1)-strongly convex in the p-norm.

    Args:
        p: above 1, at most 2; a number like a step size: a sweep over it compiles once.

    Reference: Grove, Littlestone and Schuurmans (2001), General convergence results for linear discriminant updates;
    used in eq. bpgm of the dissertation. Differs from it: every array has its own norm; the intercept.

    >>> mirror = PNorm(1.5)
    >>> y = mirror.grad(jnp.array([4.0, 0.0, -4.0]))
    >>> [round(float(v), 4) for v in mirror.conjugate_grad(y, Zero(), 1.0)]
    [4.0, 0.0, -4.0]
    """

    p: Scalar

    def __init__(self, p: Scalar):
        self.p = checks.number("PNorm", "p", p)
        if not checks.is_traced(p) and not np.all((np.asarray(p) > 1) & (np.asarray(p) <= 2)):
            raise ValueError(f"PNorm: p must be > 1 and <= 2, got {p}")

    def value(self, x: Params) -> jax.Array:
        return sum_weights(lambda a: norm(a, self.p) ** 2 / 2, x)

    def grad(self, x: Params) -> Params:
        return map_weights(lambda a: link(a, self.p), x)

    def conjugate_grad(self, y: Params, regularizer: Regularizer, t: Scalar) -> Params:
        def on_weights(a: jax.Array, psi: Regularizer) -> jax.Array:
            return link(formula(self, FORMULAS, psi)(a, psi, t, self.p), self.p / (self.p - 1))

        return map_pairs(on_weights, y, regularizer, t)


def link(x: jax.Array, p: Scalar) -> jax.Array:
    r"""The gradient of 1/2 ||x||_p^2, for p > 1: sign(x) |x|^(p-1) ||x||_p^(2-p), and zero at zero."""
    scale = _scale(x)
    u = jnp.abs(x) / scale
    total = jnp.maximum(jnp.sum(u**p), 1)  # which it is at least, but for zeros
    return scale * (jnp.sign(x) * u ** (p - 1) * total ** ((2 - p) / p))


def norm(x: jax.Array, p: Scalar) -> jax.Array:
    """||x||_p of all coordinates, without overflow."""
    scale = _scale(x)
    return scale * jnp.sum((jnp.abs(x) / scale) ** p) ** (1 / p)


def _scale(x: jax.Array) -> jax.Array:
    """The largest |x_i|; 1 for zeros. A constant to derivatives: what is scaled by it does not depend on it."""
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x)))
    return jnp.where(largest > 0, largest, 1)


def _same_p(y: jax.Array, psi: Lp, t: Scalar, p: Scalar) -> jax.Array:
    if not checks.is_traced(p) and not np.all(np.asarray(p) == psi.p):
        raise ValueError(f"PNorm: has a conjugate_grad with Lp of the same p only, got p={p} and Lp of p={psi.p}")
    length = norm(y, psi.q)
    left = jnp.maximum(1 - t * psi.strength / jnp.where(length > 0, length, 1), 0)
    return jnp.where(p == psi.p, y * left, jnp.nan)  # a compiled program cannot raise


FORMULAS: Formulas = {  # to w = grad h(x), before the link
    **dict.fromkeys((Zero, L1, NonNegative, LInf, *ORDERED), lambda y, psi, t, p: psi.array_prox(y, t)),
    Lp: _same_p,
}
