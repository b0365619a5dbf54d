"""Penalties in NumPy: what a Newton step and a certificate need of a regulariser, without a compiled program for every shape."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Regularizer, Separable


class Penalty(Protocol):
    """psi of the weights (d, outputs)."""

    l1: float  # of a sum over coordinates, else 0
    l2: float  # of a sum over coordinates, else 0

    @property
    def smooth(self) -> bool:
        """True if psi is l2/2 ||.||^2."""
        ...

    def value(self, x: np.ndarray) -> float: ...

    def prox(self, x: np.ndarray, t: float) -> np.ndarray: ...

    def conjugate(self, y: np.ndarray) -> float: ...

    def gauge(self, y: np.ndarray) -> float:
        """The smallest c for which the conjugate is finite at y / c; inf where that proves nothing."""
        ...

    def violation(self, x: np.ndarray) -> float: ...


class SumPenalty:
    """l1 |x_j| + l2/2 x_j^2 with lower <= x_j <= upper, summed over all j."""

    def __init__(self, parts: Separable):
        self.l1, self.l2 = float(parts.l1), float(parts.l2)
        self.lower, self.upper = float(parts.lower), float(parts.upper)

    @property
    def bounded(self) -> bool:
        return self.lower > -np.inf or self.upper < np.inf

    @property
    def smooth(self) -> bool:
        return self.l1 == 0 and not self.bounded

    def value(self, x: np.ndarray) -> float:
        squares = float(np.sum(x**2)) if self.l2 > 0 else 0.0  # they may be too large to be numbers
        return self.l1 * float(np.sum(np.abs(x))) + self.l2 / 2 * squares

    def prox(self, x: np.ndarray, t: float) -> np.ndarray:
        shrunk = np.sign(x) * np.maximum(np.abs(x) - t * self.l1, 0) / (1 + t * self.l2)
        return np.clip(shrunk, self.lower, self.upper)

    def conjugate(self, y: np.ndarray) -> float:
        excess = np.sign(y) * np.maximum(np.abs(y) - self.l1, 0)  # what l1 does not hold back
        if self.l2 > 0:
            z = np.clip(excess / self.l2, self.lower, self.upper)
        else:
            ends = np.array([self.lower, 0.0, self.upper])[np.sign(excess).astype(int) + 1]
            z = np.clip(np.where(np.isfinite(ends), ends, 0.0), self.lower, self.upper)
        return float(np.sum(y * z)) - self.value(z)

    def gauge(self, y: np.ndarray) -> float:
        if self.l2 > 0:
            return 0.0
        above, below = self.upper == np.inf, self.lower == -np.inf
        if not (above or below):
            return 0.0
        if self.l1 == 0:  # the conjugate is finite on a cone only, which rounding leaves
            return np.inf
        return max(np.max(y, initial=0.0) if above else 0.0, np.max(-y, initial=0.0) if below else 0.0) / self.l1

    def violation(self, x: np.ndarray) -> float:
        return float(max(np.max(x - self.upper, initial=0.0), np.max(self.lower - x, initial=0.0)))


class AnyPenalty:
    """Any other regulariser, through its own functions in float64."""

    l1, l2, smooth = 0.0, 0.0, False

    def __init__(self, regularizer: Regularizer, shape: tuple[int, ...]):
        self.regularizer, self.shape = regularizer, shape

    def value(self, x: np.ndarray) -> float:
        return float(self._call(_value, x))

    def prox(self, x: np.ndarray, t: float) -> np.ndarray:
        return np.asarray(self._call(_prox, x, t)).reshape(x.shape)

    def conjugate(self, y: np.ndarray) -> float:
        return float(self._call(_conjugate, y))

    def gauge(self, y: np.ndarray) -> float:
        if not self.regularizer.has_conjugate():
            return np.inf
        probe = np.random.default_rng(0).normal(size=y.shape)
        inside = max(float(self._call(_gauge, sign * probe)) for sign in (1, -1)) < np.inf
        return float(self._call(_gauge, y)) if inside else np.inf

    def violation(self, x: np.ndarray) -> float:
        return float(self._call(_violation, x))

    def _call(self, function: Any, x: np.ndarray, *rest: float) -> Any:
        with jax.enable_x64(True):
            return function(self.regularizer, jnp.asarray(x.reshape(self.shape), float), *rest)


_value = jax.jit(lambda psi, x: psi.array_value(x))
_prox = jax.jit(lambda psi, x, t: psi.array_prox(x, t))
_conjugate = jax.jit(lambda psi, y: psi.array_conjugate(y))
_gauge = jax.jit(lambda psi, y: psi.array_gauge(y))
_violation = jax.jit(lambda psi, x: psi.array_violation(x))


def penalty_of(psi: Regularizer | Separable, shape: tuple[int, ...]) -> Penalty:
    """The penalty psi of weights that have this shape to a regulariser."""
    parts = psi if isinstance(psi, Separable) else psi.separable()
    if parts is None or any(np.ndim(number) for number in parts):
        return AnyPenalty(psi, shape)  # pyright: ignore[reportArgumentType]
    return SumPenalty(parts)
