"""LogisticLoss: two classes."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from fedlocal.losses.score_loss import UnivariateLoss, array_namespace, special_functions

LARGEST_THIRD = 1 / (6 * math.sqrt(3))  # of p (1 - p) (1 - 2 p), the third derivative of log(1 + e^s)
SMALL = 1e-4  # a score below which tanh(s / 2) / (2 s) is 1/4 up to 1e-9


@dataclass(frozen=True)
class LogisticLoss(UnivariateLoss):
    r"""l(s, b) = log(1 + exp(-b s)) for labels b of -1 and +1.

    With p = 1 / (1 + exp(-s)): l' = -b / (1 + exp(b s)), l'' = p (1 - p), l''' = p (1 - p) (1 - 2 p), and
    l^*(u) = v log v + (1 - v) log(1 - v) for v = -b u in [0, 1].
    Reference: the majorizer's curvature tanh(s / 2) / (2 s) is that of Jaakkola and Jordan, Bayesian parameter estimation via
    variational methods (2000). Differs from it: nothing.

    >>> import numpy as np
    >>> LogisticLoss().slope(np.zeros(2), np.array([1.0, -1.0])).tolist()
    [-0.5, 0.5]
    """

    name: ClassVar[str] = "logistic"
    targets: ClassVar = "signs"
    quadratic: ClassVar[bool] = False
    slope_bound: ClassVar[float | None] = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]
    curvature_bound: ClassVar[float] = 1 / 4  # pyright: ignore[reportIncompatibleVariableOverride]
    third_bound: ClassVar[float] = LARGEST_THIRD  # pyright: ignore[reportIncompatibleVariableOverride]

    def value(self, scores: Any, targets: Any) -> Any:
        return array_namespace(scores).logaddexp(-targets * scores, 0.0)

    def slope(self, scores: Any, targets: Any) -> Any:
        return -targets * special_functions(scores).expit(-targets * scores)

    def second(self, scores: Any, targets: Any) -> Any:
        expit = special_functions(scores).expit
        return expit(scores) * expit(-scores)

    def majorizer_curvature(self, scores: Any, targets: Any, one: int = 0, other: int = 0) -> Any:
        xp = array_namespace(scores)
        size = xp.maximum(xp.abs(scores), SMALL)
        return xp.tanh(size / 2) / (2 * size)

    def third(self, scores: Any, targets: Any) -> Any:
        expit = special_functions(scores).expit
        return expit(scores) * expit(-scores) * (expit(-scores) - expit(scores))

    def conjugate(self, slopes: Any, targets: Any) -> Any:
        xp, special = array_namespace(slopes), special_functions(slopes)
        v = -targets * slopes
        inside = (v >= 0) & (v <= 1)
        v = xp.where(inside, v, 0)
        return xp.where(inside, special.xlogy(v, v) + special.xlog1py(1 - v, -v), xp.inf)
