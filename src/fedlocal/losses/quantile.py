"""SmoothedQuantileLoss: the loss of a quantile, whose kink is rounded by a parabola, for targets that are numbers."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from fedlocal.losses.score_loss import UnivariateLoss, array_namespace
from fedlocal.util import checks


def checked_quantile(owner: str, quantile: Any) -> float:
    """A number above 0 and below 1."""
    checked = checks.number(owner, "quantile", quantile, above=0, at_most=1)
    if checked == 1:
        raise ValueError(f"{owner}: quantile must be > 0 and < 1, got {quantile}")
    return checked


@dataclass(frozen=True)
class SmoothedQuantileLoss(UnivariateLoss):
    r"""l(s, b) = max_u u r - width/2 u^2 over -quantile <= u <= 1 - quantile, for r = s - b.

    l' = u = clip(r / width, -quantile, 1 - quantile), l'' = 1 / width where r / width is between these bounds and 0 elsewhere,
    l''' = 0 but at the bounds, so that it has no bound; l^*(u) = width/2 u^2 + u b between the bounds. As the width goes to
    zero, l becomes the loss of the quantile, max((1 - quantile) r, -quantile r), from below. Where |r| is large, the parabola
    that touches l at s and is nowhere below it has a curvature of 1 / (2 |r| - width u^2).
    Reference: Koenker and Bassett, Regression quantiles (1978); Nesterov, Smooth minimization of non-smooth functions (2005).
    Differs from them: nothing.

    Args:
        quantile: above 0 and below 1; a half is the median.
        width: above 0, in the units of the targets.

    >>> import numpy as np
    >>> SmoothedQuantileLoss(0.25, 0.1).slope(np.array([-1.0, 0.0, 1.0]), np.zeros(3)).tolist()
    [-0.25, 0.0, 0.75]
    """

    quantile: float
    width: float

    name: ClassVar[str] = "smoothed quantile"
    targets: ClassVar = "numbers"
    quadratic: ClassVar[bool] = False
    third_bound: ClassVar[float] = math.inf  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        checked_quantile("SmoothedQuantileLoss", self.quantile)
        checks.number("SmoothedQuantileLoss", "width", self.width, above=0)

    @property
    def slope_bound(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(self.quantile, 1 - self.quantile)

    @property
    def curvature_bound(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 / self.width

    def value(self, scores: Any, targets: Any) -> Any:
        slope = self.slope(scores, targets)
        return slope * (scores - targets - self.width / 2 * slope)

    def slope(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).clip((scores - targets) / self.width, -self.quantile, 1 - self.quantile)

    def second(self, scores: Any, targets: Any) -> Any:
        inside = self._is_inside((scores - targets) / self.width)
        return inside.astype(scores.dtype) / self.width

    def majorizer_curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        xp, r, slope = array_namespace(scores), scores - targets, self.slope(scores, targets)
        reach = xp.where(self._is_inside(r / self.width), 0.0, 2 * abs(r) - self.width * slope**2)
        return 1 / xp.maximum(reach, self.width)

    def third(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).zeros_like(scores)

    def conjugate(self, slopes: Any, targets: Any) -> Any:
        xp = array_namespace(slopes)
        return xp.where(self._is_inside(slopes), self.width / 2 * slopes**2 + slopes * targets, xp.inf)

    def _is_inside(self, slopes: Any) -> Any:
        return (slopes >= -self.quantile) & (slopes <= 1 - self.quantile)
