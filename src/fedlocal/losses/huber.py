"""HuberLoss: squares of small residuals, sizes of large ones, for targets that are numbers of which some are far off."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from fedlocal.losses.score_loss import UnivariateLoss, array_namespace
from fedlocal.util import checks


@dataclass(frozen=True)
class HuberLoss(UnivariateLoss):
    r"""l(s, b) = r^2 / 2 for r = s - b with |r| <= delta, and delta |r| - delta^2 / 2 beyond.

    l' = clip(r, -delta, delta), l'' = 1 for |r| <= delta and 0 beyond, l''' = 0 but for |r| = delta, where l'' jumps, so that it
    has no bound; l^*(u) = u^2 / 2 + u b for |u| <= delta. The parabola of curvature delta / max(|r|, delta) touches l at s and is
    nowhere below it.
    Reference: Huber, Robust estimation of a location parameter (1964). Differs from it: delta is in the units of the
    targets; no scale is estimated, as scikit-learn's `HuberRegressor` does. Its model is that of delta = epsilon * scale_.

    Args:
        delta: the size of a residual from which on it counts by its size alone, above 0, in the units of the targets.

    >>> import numpy as np
    >>> HuberLoss(2.0).value(np.array([1.0, 10.0]), np.zeros(2)).tolist()
    [0.5, 18.0]
    """

    delta: float = 1.0

    name: ClassVar[str] = "Huber"
    targets: ClassVar = "numbers"
    quadratic: ClassVar[bool] = False
    curvature_bound: ClassVar[float] = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]
    third_bound: ClassVar[float] = math.inf  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        checks.number("HuberLoss", "delta", self.delta, above=0)

    @property
    def slope_bound(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.delta

    def value(self, scores: Any, targets: Any) -> Any:
        slope = self.slope(scores, targets)
        return slope * (scores - targets - slope / 2)

    def slope(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).clip(scores - targets, -self.delta, self.delta)

    def second(self, scores: Any, targets: Any) -> Any:
        return (abs(scores - targets) <= self.delta).astype(scores.dtype)

    def majorizer_curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        return self.delta / array_namespace(scores).maximum(abs(scores - targets), self.delta)

    def third(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).zeros_like(scores)

    def conjugate(self, slopes: Any, targets: Any) -> Any:
        xp = array_namespace(slopes)
        return xp.where(abs(slopes) <= self.delta, slopes**2 / 2 + slopes * targets, xp.inf)
