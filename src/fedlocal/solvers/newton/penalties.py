"""Penalties in NumPy: what a Newton step and a certificate need of a regulariser, without a compiled program for every shape.

They act on weights (d, outputs). `gauge` is the smallest c for which the conjugate is finite at y / c; inf where that proves
nothing. `smooth` says that psi is l2/2 ||.||^2.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Regularizer, Separable


class SumPenalty(Separable):
    """l1 |x_j| + l2/2 x_j^2 with lower <= x_j <= upper, summed over all j."""

    @property
    def smooth(self) -> bool:
        return self.l1 == 0 and self.lower == -np.inf and self.upper == np.inf

    def value(self, x: np.ndarray) -> float:
        squares = float(np.sum(x**2)) if self.l2 > 0 else 0.0  # they may be too large to be numbers
        return self.l1 * float(np.sum(np.abs(x))) + self.l2 / 2 * squares

    def prox(self, x: np.ndarray, t: float | np.ndarray) -> np.ndarray:
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
        above, below = self.upper == np.inf, self.lower == -np.inf
        if self.l2 > 0 or not (above or below):
            return 0.0
        if self.l1 == 0:  # the conjugate is finite on a cone only, which rounding leaves
            return np.inf
        return max(np.max(y, initial=0.0) if above else 0.0, np.max(-y, initial=0.0) if below else 0.0) / self.l1

    def violation(self, x: np.ndarray) -> float:
        return float(np.max(np.maximum(x - self.upper, self.lower - x), initial=0.0))


@dataclass(frozen=True)
class AnyPenalty:
    """Any other regulariser, through its own functions in float64."""

    regularizer: Regularizer
    shape: tuple[int, ...]  # of the weights, as the regulariser sees them
    l1, l2, smooth = 0.0, 0.0, False

    def value(self, x: np.ndarray) -> float:
        return float(self._call("array_value", x))

    def prox(self, x: np.ndarray, t: float) -> np.ndarray:
        return np.asarray(self._call("array_prox", x, t)).reshape(x.shape)

    def conjugate(self, y: np.ndarray) -> float:
        return float(self._call("array_conjugate", y))

    def gauge(self, y: np.ndarray) -> float:
        probe = np.random.default_rng(0).normal(size=y.shape)
        if not self.regularizer.has_conjugate() or np.inf in (self._gauge(probe), self._gauge(-probe)):
            return np.inf
        return self._gauge(y)

    def violation(self, x: np.ndarray) -> float:
        return float(self._call("array_violation", x))

    def _gauge(self, y: np.ndarray) -> float:
        return float(self._call("array_gauge", y))

    def _call(self, name: str, x: np.ndarray, *rest: float) -> Any:
        with jax.enable_x64(True):
            return _compiled(name, self.regularizer, jnp.asarray(x.reshape(self.shape), float), *rest)


Penalty = SumPenalty | AnyPenalty


@partial(jax.jit, static_argnums=0)
def _compiled(name: str, psi: Regularizer, x: jax.Array, *rest: Any) -> jax.Array:
    return getattr(psi, name)(x, *rest)


def penalty_of(psi: Regularizer | Separable, shape: tuple[int, ...]) -> Penalty:
    """The penalty psi of weights that have this shape to a regulariser."""
    parts = psi if isinstance(psi, Separable) else psi.separable()
    if parts is None or any(np.ndim(number) for number in parts):
        return AnyPenalty(psi, shape)  # pyright: ignore[reportArgumentType]
    return SumPenalty(*map(float, parts))
