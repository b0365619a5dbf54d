"""SoftmaxLoss: any number of classes."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from fedlocal.losses.logistic import LARGEST_THIRD
from fedlocal.losses.score_loss import ScoreLoss, array_namespace, special_functions

ROUNDING = 5  # units in the last place by which a probability may be negative


@dataclass(frozen=True)
class SoftmaxLoss(ScoreLoss):
    r"""l(s, b) = -log softmax(s)[b] for labels b in 0, ..., outputs - 1.

    With p = softmax(s): l' = p - e_b, l'' = diag p - pp', and l^*(u) = sum_c v_c log v_c for v = u + e_b in the simplex.

    Bounds: diag p - pp' has Gershgorin discs up to 2 p_c (1 - p_c) <= 1/2. The third derivative along v is the third central
    moment of v under p, whose range is at most sqrt(2) ||v||; of all variables in an interval, two-point ones have the largest.
    Reference: the majorizer's curvature (I - 11'/outputs) / 2 is that of Boehning, Multinomial logistic regression algorithm
    (1992). Differs from it: nothing.

    Args:
        outputs: number of classes.

    >>> import numpy as np
    >>> SoftmaxLoss(2).slope(np.zeros((1, 2)), np.array([1])).tolist()
    [[0.5, -0.5]]
    """

    outputs: int

    name: ClassVar[str] = "softmax"
    targets: ClassVar = "classes"
    quadratic: ClassVar[bool] = False
    slope_bound: ClassVar[float | None] = math.sqrt(2)  # pyright: ignore[reportIncompatibleVariableOverride]
    curvature_bound: ClassVar[float] = 1 / 2  # pyright: ignore[reportIncompatibleVariableOverride]
    diagonal_bound: ClassVar[float] = 1 / 4  # pyright: ignore[reportIncompatibleVariableOverride]
    third_bound: ClassVar[float] = math.sqrt(2) ** 3 * LARGEST_THIRD  # pyright: ignore[reportIncompatibleVariableOverride]

    def probabilities(self, scores: Any) -> Any:
        """(n, outputs) softmax of the scores."""
        return special_functions(scores).softmax(scores, axis=1)

    def value(self, scores: Any, targets: Any) -> Any:
        own = array_namespace(scores).take_along_axis(scores, targets[:, None], axis=1)[:, 0]
        return special_functions(scores).logsumexp(scores, axis=1) - own

    def slope(self, scores: Any, targets: Any) -> Any:
        return self.probabilities(scores) - self._own(scores, targets)

    def curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        xp = array_namespace(scores)
        largest = xp.max(scores, axis=1)
        total = xp.sum(xp.exp(scores - largest[:, None]), axis=1)
        p = xp.exp(scores[:, one] - largest) / total
        return p * (1 - p) if one == other else -p * xp.exp(scores[:, other] - largest) / total

    def majorizer_curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        return array_namespace(scores).full_like(scores[:, 0], ((one == other) - 1 / self.outputs) / 2)

    def mean_curvature(self, scores: Any, targets: Any, weights: Any) -> Any:
        p = self.probabilities(scores)
        return array_namespace(scores).diag(weights @ p) - p.T @ (weights[:, None] * p)

    def third_size(self, scores: Any, targets: Any) -> Any:
        """E|v - Ev|^3 <= range(v) Var(v) <= sqrt(2) lambda_max(diag p - pp') for ||v|| = 1, and the bound of all p."""
        xp, p = array_namespace(scores), self.probabilities(scores)
        return xp.minimum(math.sqrt(2) * xp.max(2 * p * (1 - p), axis=1), self.third_bound)

    def conjugate(self, slopes: Any, targets: Any) -> Any:
        xp = array_namespace(slopes)
        v, eps = slopes + self._own(slopes, targets), float(xp.finfo(slopes.dtype).eps)
        inside = xp.all(v >= -ROUNDING * eps, axis=1) & (xp.abs(xp.sum(slopes, axis=1)) <= math.sqrt(eps))
        v = xp.maximum(v, 0)
        return xp.where(inside, xp.sum(special_functions(slopes).xlogy(v, v), axis=1), xp.inf)

    def _own(self, scores: Any, targets: Any) -> Any:
        """(n, outputs) 1 at the example's own class, 0 elsewhere."""
        return (array_namespace(scores).arange(self.outputs) == targets[:, None]).astype(scores.dtype)
