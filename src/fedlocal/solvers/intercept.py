"""The best intercept of a linear model with given weights: one number, by Newton's method between bounds."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

STEPS = 100  # Newton's method needs a handful; the rest is for scores so large that it has to bisect
ROUNDING = 1e-15  # relative; a smaller slope is zero
SMALLEST = 1e-17  # of the size at the start; a smaller slope is zero, too: labels of one kind have no best intercept
REACH = 4.0  # of the first step, beside the slope itself: squares get there in one step


class InterceptSlope(NamedTuple):
    """Derivatives of F in the intercept, at one intercept."""

    slope: float
    curvature: float
    size: float  # sum_i w_i (|l_i'| + |s_i| l_i''): what rounding of the slope is relative to


def best_intercept(slope_fn: Callable[[float], InterceptSlope], start: float) -> float:
    """Minimise F over the intercept alone, by Newton's method between the signs of the slope seen so far.

    Where there is no minimum (labels of one kind), it goes so far that the slope is zero but for rounding. It runs on the host,
    so that the sums over examples may be taken by NumPy, by a compiled program, or by sites that keep their data.

    Args:
        slope_fn: derivatives of F at an intercept.
        start: where to begin.

    >>> best_intercept(lambda t: InterceptSlope(2 * (t - 3), 2.0, 1.0), 0.0)
    3.0
    """
    low, high = -np.inf, np.inf
    at, previous, seen = start, np.inf, slope_fn(start)
    reach, least = REACH + abs(seen.slope), SMALLEST * seen.size
    for _ in range(STEPS):
        if at == previous or not abs(seen.slope) > max(ROUNDING * seen.size, least):
            break
        low, high = (at, high) if seen.slope < 0 else (low, at)
        step = seen.slope / max(seen.curvature, 1e-300)
        newton, middle = at - min(max(step, -reach), reach), (low + high) / 2
        inside = low < newton < high or not np.isfinite(middle)  # the middle is infinite while one side is open
        previous, at = at, newton if inside else middle
        seen, reach = slope_fn(at), 2 * reach
    return at
