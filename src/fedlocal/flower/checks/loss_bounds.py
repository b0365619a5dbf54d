"""LossBounds: what is known of the losses of a linear model whatever the data are."""

from typing import NamedTuple


class LossBounds(NamedTuple):
    """Bounds of a row's loss as a function of its score, and the strength of the l2 penalty inside F."""

    slope: float | None  # largest absolute first derivative; None where it has no bound
    curvature: float  # largest second derivative
    l2: float = 0.0
