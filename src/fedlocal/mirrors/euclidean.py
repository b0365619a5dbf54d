"""Euclidean: h = 1/2 ||x||^2, under which primal and dual points are the same."""

import jax
import jax.numpy as jnp
import optax

from fedlocal.core import MirrorMap, Params, Regularizer, Scalar
from fedlocal.mirrors.pairs import half_square


class Euclidean(MirrorMap):
    r"""h(x) = 1/2 ||x||_2^2; grad h is the identity and grad (h + t psi)^* is the prox of t psi, for every psi.

    Its divergence is half the squared distance, 1/2 ||x - z||_2^2.
    Reference: dissertation, eq. bpgm. Differs from it: nothing.

    >>> from fedlocal.regularizers import L1
    >>> Euclidean().conjugate_grad(jnp.array([3.0]), L1(1.0), 2.0).tolist()
    [1.0]
    """

    def value(self, x: Params) -> jax.Array:
        return sum((half_square(a) for a in jax.tree.leaves(x)), jnp.zeros(()))

    def grad(self, x: Params) -> Params:
        return x

    def conjugate_grad(self, y: Params, regularizer: Regularizer, t: Scalar) -> Params:
        return regularizer.prox(y, t)

    def divergence(self, x: Params, z: Params) -> jax.Array:
        return self.value(optax.tree.sub(x, z))  # no digits lost between close points
