"""Entropy: h = sum x log x - x, for positive parameters and probability vectors."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedlocal.core import MirrorMap, Params, Regularizer, Scalar
from fedlocal.regularizers import L1, Box, L1Ball, Simplex, Zero


class Entropy(MirrorMap):
    r"""h(x) = sum_i x_i log x_i - x_i on x > 0; an `intercept` or `bias` stays Euclidean.

    grad h(x) = log x. With u = exp(y), grad (h + t psi)^*(y) is
        Zero: u;   L1(s): u exp(-t s);   Simplex(c): c softmax(y);   L1Ball(r): u, scaled down to sum r;   Box: clip(u).
    Reference: dissertation, eq. bpgm. Differs from it: the intercept.

    >>> x = Entropy().conjugate_grad(jnp.array([0.0, 0.0]), Simplex(), 1.0)
    >>> x.tolist()
    [0.5, 0.5]
    """

    def grad(self, x: Params) -> Params:
        return _positive_part(lambda _, a: jnp.log(a), lambda _, a: a, x, Zero())

    def check(self, x0: Params) -> None:
        leaves, _ = jax.tree.flatten(x0)
        for part, a in zip(Simplex().parts(x0), leaves, strict=True):
            if isinstance(part, Simplex) and not (a > 0).all():
                raise ValueError(
                    f"Entropy: x0 must be > 0 in every weight, got {float(jnp.min(a))}; give x0 to the engine"
                )

    def conjugate_grad(self, y: Params, regularizer: Regularizer, t: Scalar) -> Params:
        return _positive_part(lambda r, a: _conjugate(a, r, t), lambda r, a: r.array_prox(a, t), y, regularizer)


def _positive_part(entropic: Callable, euclidean: Callable, tree: Params, regularizer: Regularizer) -> Params:
    """Apply `entropic` to every array but an intercept, which gets `euclidean`; both also see the array's regulariser."""
    leaves, treedef = jax.tree.flatten(tree)
    positive = [isinstance(r, Simplex) for r in Simplex().parts(tree)]
    parts = regularizer.parts(tree)
    mapped = [
        jnp.asarray((entropic if p else euclidean)(r, a), jnp.result_type(a))
        for p, r, a in zip(positive, parts, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, mapped)


def _conjugate(y: jax.Array, psi: Regularizer, t: Scalar) -> jax.Array:
    match psi:
        case Zero():
            return jnp.exp(y)
        case L1():
            return jnp.exp(y - t * psi.strength)
        case Simplex():
            return psi.total * jax.nn.softmax(y.ravel()).reshape(y.shape)
        case L1Ball():
            log_sum = jax.nn.logsumexp(y)
            return jnp.exp(y - jnp.maximum(log_sum - jnp.log(psi.radius), 0))
        case Box():
            return jnp.clip(jnp.exp(y), psi.lower, psi.upper)
        case _:
            name = type(psi).__name__
            raise TypeError(
                f"Entropy has no conjugate_grad with {name}; it has one with: Zero, L1, Simplex, L1Ball, Box"
            )
