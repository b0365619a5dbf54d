"""Regularizer: psi, known by its value, its proximal map and its conjugate; and Zero, which is none."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import gauges
from fedlocal.core.types import Params, Scalar

UNPENALIZED = frozenset({"intercept", "bias"})  # parts that a regulariser leaves alone unless Blocks names them


def is_free(path: tuple[Any, ...]) -> bool:
    """Return True if the array at this path of the parameters is an intercept."""
    return any(key_name(key) in UNPENALIZED for key in path)


def key_name(key: Any) -> Any:
    """The name or number of a part of a pytree, from an entry of its path."""
    return next((getattr(key, a) for a in ("key", "name", "idx") if hasattr(key, a)), None)


class Separable(NamedTuple):
    """psi(x) = sum_j l1 |x_j| + l2/2 x_j^2 for lower <= x_j <= upper, so that its proximal map acts on each number alone:
    prox(x, t) = clip(soft(x, t l1) / (1 + t l2), lower, upper)."""

    l1: Scalar = 0.0
    l2: Scalar = 0.0
    lower: Scalar = -np.inf
    upper: Scalar = np.inf


class Regularizer(eqx.Module):
    """psi. A concrete one says what it does to one array; this class carries it over to any pytree of parameters.

    It acts on every array of the parameters on its own, except on those called `intercept` or `bias`.
    """

    @abstractmethod
    def array_value(self, x: jax.Array) -> jax.Array:
        """psi(x) for one array; inf outside a constraint."""

    @abstractmethod
    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        """argmin_z 1/2 ||z - x||^2 + t psi(z) for one array."""

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        """An element of the subdifferential of psi at x, where psi is finite everywhere."""
        raise TypeError(f"{type(self).__name__} is a constraint and has no subgradient; use FedMiD or FedDualAvg")

    def array_violation(self, x: jax.Array) -> jax.Array:
        """How far x is outside the constraint; zero for what is finite everywhere."""
        return jnp.zeros((), x.dtype)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        """psi^*(y) = max_x <y, x> - psi(x) for one array; inf outside its domain. Only duality gaps need it,
        and `array_gauge` with it where the domain is not everything."""
        raise TypeError(f"{type(self).__name__} has no conjugate")

    def array_gauge(self, y: jax.Array) -> jax.Array:
        """The smallest c >= 0 for which psi^*(y / c) is finite: the dual norm over the strength for a norm, 0 (the default)
        for what has a conjugate that is finite everywhere."""
        return jnp.zeros((), y.dtype)

    def separable(self) -> Separable | None:
        """Return psi as a sum over coordinates of this simple form, or None; engines may then be faster."""
        return None

    def is_separable(self) -> bool:
        """Return True if psi is a sum over coordinates, so that a proximal map with a step size for each coordinate is exact."""
        return self.separable() is not None

    def is_smooth(self) -> bool:
        """Return True if psi is finite and has a Lipschitz continuous gradient, which then is `array_subgradient`."""
        return False

    def strong_convexity(self) -> Scalar:
        """Return the largest c that is known for which psi - c/2 ||.||^2 is convex."""
        return 0.0

    def strengths(self) -> tuple[Scalar, ...]:
        """Return the factors of the terms of psi; none for a constraint."""
        return ()

    def without_squares(self) -> "Regularizer":
        """Return psi without a term l2/2 ||.||^2 that has a strength of its own: its norm, where it has one."""
        return self

    def is_constraint(self) -> bool:
        """Return True if psi is 0 or inf everywhere, so that psi counted twice is psi."""
        return False

    def is_finite(self) -> bool:
        """Return True if psi is finite everywhere: its class does not define `array_violation`."""
        return type(self).array_violation is Regularizer.array_violation

    def largest_norm(self, shape: tuple[int, ...]) -> float:
        """Return at least the Euclidean norm of every array of this shape that a constraint allows; inf if it is not bounded."""
        return float(np.inf)

    def has_conjugate(self) -> bool:
        """Return True if the class of psi defines `array_conjugate`."""
        return type(self).array_conjugate is not Regularizer.array_conjugate

    def has_gauge(self) -> bool:
        """Return True if the class of psi defines `array_gauge`."""
        return type(self).array_gauge is not Regularizer.array_gauge

    def parts(self, x: Params) -> "list[Regularizer]":
        """The regulariser of each array of x, in the order of `jax.tree.leaves`."""
        return [Zero() if is_free(path) else self for path, _ in jax.tree_util.tree_flatten_with_path(x)[0]]

    def value(self, x: Params) -> jax.Array:
        """psi(x)."""
        return sum(self._each(lambda r, a: r.array_value(a), x), jnp.zeros(()))

    def prox(self, x: Params, t: Scalar) -> Params:
        """argmin_z 1/2 ||z - x||^2 + t psi(z)."""
        parts = self._each(lambda r, a: jnp.asarray(r.array_prox(a, t), jnp.result_type(a)), x)
        return jax.tree.unflatten(jax.tree.structure(x), parts)

    def subgradient(self, x: Params) -> Params:
        """An element of the subdifferential of psi at x."""
        return jax.tree.unflatten(jax.tree.structure(x), self._each(lambda r, a: r.array_subgradient(a), x))

    def violation(self, x: Params) -> jax.Array:
        """The largest distance outside the constraint over all arrays; zero when x is feasible."""
        return jnp.max(jnp.stack(self._each(lambda r, a: r.array_violation(a), x)))

    def conjugate(self, y: Params) -> jax.Array:
        """psi^*(y) = max_x <y, x> - psi(x)."""
        return sum(self._each(lambda r, a: r.array_conjugate(a), y), jnp.zeros(()))

    def gauge(self, y: Params) -> jax.Array:
        """The smallest c >= 0 for which psi^*(y / c) is finite."""
        return jnp.max(jnp.stack(self._each(lambda r, a: r.array_gauge(a), y)))

    def _each(self, fn: Callable[["Regularizer", jax.Array], jax.Array], x: Params) -> list[jax.Array]:
        return [fn(r, a) for r, a in zip(self.parts(x), jax.tree.leaves(x), strict=True)]


class Zero(Regularizer):
    """psi(x) = 0, so that a composite method becomes its smooth counterpart.

    psi^*(y) = 0 if y = 0 (within rounding), else inf.
    Reference: dissertation, section on composite optimisation. Differs from it: nothing.

    >>> Zero().prox(jnp.array([1.0, -2.0]), 0.5).tolist()
    [1.0, -2.0]
    """

    def array_value(self, x: jax.Array) -> jax.Array:
        return jnp.zeros((), x.dtype)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        return x

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return gauges.unit_ball(self.array_gauge(y))

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.cone(jnp.max(jnp.abs(y)), 1.0)

    def separable(self) -> Separable:
        return Separable()

    def is_constraint(self) -> bool:
        return True

    def is_smooth(self) -> bool:
        return True
