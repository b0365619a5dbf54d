"""SquaredLoss: squares of residuals, for targets that are numbers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fedlocal.losses.score_loss import UnivariateLoss, array_namespace


@dataclass(frozen=True)
class SquaredLoss(UnivariateLoss):
    r"""l(s, b) = factor (s - b)^2.

    l' = 2 factor (s - b), l'' = 2 factor, l''' = 0, l^*(u) = u^2 / (4 factor) + u b.

    Args:
        factor: 1 in the text and in `problems.LeastSquares`, 1/2 in the estimators, as in scikit-learn's linear models.

    >>> import numpy as np
    >>> SquaredLoss(0.5).value(np.array([3.0]), np.array([1.0])).tolist()
    [2.0]
    """

    factor: float = 1.0

    name: ClassVar[str] = "squares"
    targets: ClassVar = "numbers"
    quadratic: ClassVar[bool] = True
    slope_bound: ClassVar[float | None] = None  # pyright: ignore[reportIncompatibleVariableOverride]
    third_bound: ClassVar[float] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def curvature_bound(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 2 * self.factor

    def value(self, scores: Any, targets: Any) -> Any:
        return self.factor * (scores - targets) ** 2

    def slope(self, scores: Any, targets: Any) -> Any:
        return 2 * self.factor * (scores - targets)

    def second(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).full_like(scores, 2 * self.factor)

    def third(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).zeros_like(scores)

    def conjugate(self, slopes: Any, targets: Any) -> Any:
        return slopes**2 / (4 * self.factor) + slopes * targets
