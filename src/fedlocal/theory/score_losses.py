"""Losses of scores with their derivatives and the bounds of these: squares, logistic, softmax. In NumPy."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

LARGEST_THIRD = 1 / (6 * math.sqrt(3))  # of p (1 - p) (1 - 2 p), the third derivative of log(1 + e^s)


@dataclass(frozen=True)
class Scores:
    """A loss l of scores s with targets b. Slopes are (n,) or (n, C), of curvature and third order there is one per example."""

    slope: Callable[[np.ndarray, np.ndarray], np.ndarray]  # l'(s)
    curvature: Callable[[np.ndarray, np.ndarray], np.ndarray]  # l''(s); for softmax the probabilities it is made of
    third: Callable[[np.ndarray, np.ndarray], np.ndarray]  # at least |l'''(s)|
    slope_bound: float | None  # the largest |l'|
    curvature_bound: float  # the largest l''
    third_bound: float  # the largest |l'''|
    name: str


SQUARES = Scores(
    slope=lambda s, b: 2 * (s - b),
    curvature=lambda s, b: np.full_like(s, 2.0),
    third=lambda s, b: np.zeros_like(s),
    slope_bound=None,
    curvature_bound=2.0,
    third_bound=0.0,
    name="squares",
)
LOGISTIC = Scores(
    slope=lambda s, b: -b * expit(-b * s),
    curvature=lambda s, b: expit(s) * expit(-s),
    third=lambda s, b: np.abs(expit(s) * expit(-s) * (expit(-s) - expit(s))),
    slope_bound=1.0,
    curvature_bound=1 / 4,
    third_bound=LARGEST_THIRD,
    name="logistic",
)


def _softmax_slope(s: np.ndarray, b: np.ndarray) -> np.ndarray:
    slopes = softmax(s, axis=1)
    slopes[np.arange(len(b)), b] -= 1
    return slopes


def _softmax_third(s: np.ndarray, b: np.ndarray) -> np.ndarray:
    """E|u - Eu|^3 <= range(u) Var(u) <= sqrt(2) lambda_max(diag p - pp') for ||u|| = 1, and the bound of all p."""
    p = softmax(s, axis=1)
    return np.minimum(math.sqrt(2) * np.max(2 * p * (1 - p), axis=1), SOFTMAX.third_bound)


# diag p - pp' has Gershgorin discs up to 2 p_j (1 - p_j) <= 1/2. The third derivative along u is the third central moment of u
# under p, whose range is at most sqrt(2) ||u||; of all variables in an interval, two-point ones have the largest.
SOFTMAX = Scores(
    slope=_softmax_slope,
    curvature=lambda s, b: softmax(s, axis=1),
    third=_softmax_third,
    slope_bound=math.sqrt(2),
    curvature_bound=1 / 2,
    third_bound=math.sqrt(2) ** 3 * LARGEST_THIRD,
    name="softmax",
)
