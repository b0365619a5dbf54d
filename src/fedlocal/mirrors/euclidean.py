"""Euclidean: h = 1/2 ||x||^2, under which primal and dual points are the same."""

from fedlocal.core import MirrorMap, Params, Regularizer, Scalar


class Euclidean(MirrorMap):
    r"""h(x) = 1/2 ||x||_2^2; grad h is the identity and grad (h + t psi)^* is the prox of t psi.

    >>> import jax.numpy as jnp
    >>> from fedlocal.regularizers import L1
    >>> Euclidean().conjugate_grad(jnp.array([3.0]), L1(1.0), 2.0).tolist()
    [1.0]
    """

    def grad(self, x: Params) -> Params:
        return x

    def conjugate_grad(self, y: Params, regularizer: Regularizer, t: Scalar) -> Params:
        return regularizer.prox(y, t)
