"""ScoreLoss: a convex loss of the score of an example, with its derivatives, their bounds, and its conjugate."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special


def array_namespace(a: Any) -> Any:
    """Return `jax.numpy` if a is a JAX array (also a traced one), else `numpy`."""
    return jnp if isinstance(a, jax.Array) else np


def special_functions(a: Any) -> Any:
    """Return `jax.scipy.special` if a is a JAX array (also a traced one), else `scipy.special`."""
    return jax.scipy.special if isinstance(a, jax.Array) else scipy.special


class ScoreLoss(ABC):
    """A convex loss l(s, b) of the score s of an example with target b.

    All functions take n examples at once: targets are (n,), scores are (n,) if a loss has one score per example and
    (n, outputs) if it has several. Arrays may be NumPy arrays or JAX arrays; a result is of the same kind, in the precision of
    the scores.

    A concrete loss is a frozen dataclass (so that it can be a static field of a compiled program) in a file of its own, with a
    row in `fedlocal.losses.LOSSES`. Most have one score per example: derive these from `UnivariateLoss`.
    """

    name: ClassVar[str]  # for messages
    targets: ClassVar[Literal["numbers", "signs", "classes"]]  # real numbers; -1 and +1; 0, ..., outputs - 1
    quadratic: ClassVar[bool]  # True if second derivatives are the same everywhere
    outputs: int  # scores per example
    slope_bound: float | None  # the largest norm of l'; None if it is not bounded
    curvature_bound: float  # the largest eigenvalue of l''
    diagonal_bound: float  # the largest second derivative in one score
    third_bound: float  # the largest third derivative along a direction of length one

    @abstractmethod
    def value(self, scores: Any, targets: Any) -> Any:
        """(n,) l(s, b)."""

    @abstractmethod
    def slope(self, scores: Any, targets: Any) -> Any:
        """The derivatives l'(s), in the shape of the scores."""

    @abstractmethod
    def curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        """(n,) second derivatives in the scores `one` and `other` of an example."""

    @abstractmethod
    def majorizer_curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        """(n,) second derivatives of a parabola that touches l at s and is nowhere below l, so that a step to the parabola's
        minimum never raises l. The smaller, the better."""

    @abstractmethod
    def mean_curvature(self, scores: Any, targets: Any, weights: Any) -> Any:
        """(outputs, outputs) sum over examples of weights (n,) times the second derivatives."""

    @abstractmethod
    def third_size(self, scores: Any, targets: Any) -> Any:
        """(n,) at least the size of the third derivative along every direction of length one."""

    @abstractmethod
    def conjugate(self, slopes: Any, targets: Any) -> Any:
        """(n,) l^*(u) = max_s <u, s> - l(s, b) at slopes u; inf outside its domain."""


class UnivariateLoss(ScoreLoss):
    """A loss of one score per example; scores, targets and all derivatives are (n,)."""

    outputs: ClassVar[int] = 1  # pyright: ignore[reportIncompatibleVariableOverride]

    @abstractmethod
    def second(self, scores: Any, targets: Any) -> Any:
        """(n,) l''(s)."""

    @abstractmethod
    def third(self, scores: Any, targets: Any) -> Any:
        """(n,) l'''(s)."""

    @property
    def diagonal_bound(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.curvature_bound

    def curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        return self.second(scores, targets)

    def majorizer_curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        return array_namespace(scores).full_like(scores, self.curvature_bound)

    def mean_curvature(self, scores: Any, targets: Any, weights: Any) -> Any:
        return (weights @ self.second(scores, targets)).reshape(1, 1)

    def third_size(self, scores: Any, targets: Any) -> Any:
        return abs(self.third(scores, targets))
