"""Losses of scores: value, derivatives, their bounds, and the conjugate, once, for NumPy and for JAX arrays.

A new loss is a file in this folder and a row in `LOSSES`; the regression estimators then take it by its name.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from fedlocal.losses.huber import HuberLoss
from fedlocal.losses.logistic import LogisticLoss
from fedlocal.losses.quantile import SmoothedQuantileLoss
from fedlocal.losses.score_loss import ScoreLoss, UnivariateLoss
from fedlocal.losses.softmax import SoftmaxLoss
from fedlocal.losses.squares import SquaredLoss

LOSSES: dict[str, Callable[..., ScoreLoss]] = {
    "squares": SquaredLoss,  # (s - b)^2
    "half_squares": partial(SquaredLoss, 0.5),  # (s - b)^2 / 2
    "huber": HuberLoss,  # (s - b)^2 / 2 up to |s - b| = 1, |s - b| - 1/2 beyond
    "logistic": LogisticLoss,
    "softmax": SoftmaxLoss,  # takes the number of classes
}

__all__ = [
    "LOSSES",
    "HuberLoss",
    "LogisticLoss",
    "ScoreLoss",
    "SmoothedQuantileLoss",
    "SoftmaxLoss",
    "SquaredLoss",
    "UnivariateLoss",
    "regression_loss",
]


def regression_loss(owner: str, loss: Any) -> ScoreLoss:
    """Return a loss of targets that are numbers, by its name in `LOSSES` or as it is.

    Args:
        owner: who asks, for messages.
        loss: a name, or a `ScoreLoss`.

    >>> regression_loss("model", "half_squares")
    SquaredLoss(factor=0.5)
    """
    made = {n: make() for n, make in LOSSES.items() if cast(Any, getattr(make, "func", make)).targets == "numbers"}
    found = made.get(loss) if isinstance(loss, str) else loss
    if not isinstance(found, ScoreLoss) or found.targets != "numbers":
        names = ", ".join(map(repr, made))
        raise ValueError(f"{owner}: loss must be one of {names}, or a ScoreLoss of numbers, got {loss!r}")
    return found
