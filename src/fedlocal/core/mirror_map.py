"""MirrorMap: h, a distance-generating function."""

from abc import abstractmethod

import equinox as eqx
import jax
import optax

from fedlocal.core.regularizer import Regularizer
from fedlocal.core.types import Params, Scalar


class MirrorMap(eqx.Module):
    """h, a distance-generating function, known by its value and two maps between primal and dual points."""

    def value(self, x: Params) -> jax.Array:
        """h(x). Only divergences need it."""
        raise TypeError(f"{type(self).__name__} has no value")

    @abstractmethod
    def grad(self, x: Params) -> Params:
        """grad h(x): from the primal to the dual."""

    def check(self, x0: Params) -> None:
        """Say what is wrong with a starting point outside the domain of h; nothing by default."""

    @abstractmethod
    def conjugate_grad(self, y: Params, regularizer: Regularizer, t: Scalar) -> Params:
        """grad (h + t psi)^*(y) = argmin_x h(x) + t psi(x) - <y, x>: from the dual to the primal."""

    def divergence(self, x: Params, z: Params) -> jax.Array:
        """The Bregman divergence D_h(x, z) = h(x) - h(z) - <grad h(z), x - z>."""
        return self.value(x) - self.value(z) - optax.tree.vdot(self.grad(z), optax.tree.sub(x, z))

    def generalized_divergence(self, x: Params, y: Params, regularizer: Regularizer, t: Scalar) -> jax.Array:
        r"""The divergence of g = h + t psi, which need not be differentiable, from the primal point of a dual point y.

        g(x) - g(z) - <y, x - z> with z = grad g^*(y); at least D_h(x, z).
        Reference: dissertation, definition generalized_bregman. Differs from it: nothing.
        """
        z = self.conjugate_grad(y, regularizer, t)
        psi = t * (regularizer.value(x) - regularizer.value(z))
        return self.value(x) - self.value(z) + psi - optax.tree.vdot(y, optax.tree.sub(x, z))
