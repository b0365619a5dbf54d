"""Losses of scores in NumPy, with what a certificate and a Newton step need: slopes, curvatures, conjugates.

Scores are (n, outputs); one output for squares and for two classes, one per class for softmax.
"""

from typing import Protocol

import numpy as np
from scipy.special import expit, log_expit, logsumexp, softmax, xlog1py, xlogy


class Loss(Protocol):
    """A convex loss of the scores of an example."""

    outputs: int
    quadratic: bool  # whether curvatures are the same everywhere
    smoothness: float  # the largest curvature

    def values(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(n,) losses."""
        ...

    def slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(n, outputs) derivatives."""
        ...

    def curvature(self, scores: np.ndarray, one: int, other: int, caution: float) -> np.ndarray:
        """(n,) second derivatives in the outputs `one` and `other`, with a share `caution` of those of a parabola that touches
        the loss at the scores and is nowhere below it: with all of it, a step to the parabola's minimum is never too long."""
        ...

    def mean_curvature(self, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(outputs, outputs) weighted sum of the second derivatives."""
        ...

    def conjugates(self, slopes: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(n,) conjugates at slopes; inf outside their domain."""
        ...


class Squares:
    """(s - b)^2 / 2, as in scikit-learn's linear models."""

    outputs, quadratic, smoothness = 1, True, 1.0

    def values(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return (scores[:, 0] - targets) ** 2 / 2

    def slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return scores - targets[:, None]

    def curvature(self, scores: np.ndarray, one: int, other: int, caution: float) -> np.ndarray:
        return np.ones(len(scores))

    def mean_curvature(self, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.array([[weights.sum()]])

    def conjugates(self, slopes: np.ndarray, targets: np.ndarray) -> np.ndarray:
        u = slopes[:, 0]
        return u**2 / 2 + u * targets


class Logistic:
    """log(1 + exp(-b s)) for labels b of -1 and +1."""

    outputs, quadratic, smoothness = 1, False, 0.25

    def values(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return -log_expit(targets * scores[:, 0])

    def slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return (-targets * expit(-targets * scores[:, 0]))[:, None]

    def curvature(self, scores: np.ndarray, one: int, other: int, caution: float) -> np.ndarray:
        s = scores[:, 0]
        exact = expit(s) * expit(-s)
        if caution == 0:
            return exact
        size = np.maximum(np.abs(s), 1e-4)  # Jaakkola and Jordan (2000); 1/4 at zero
        return (1 - caution) * exact + caution * np.tanh(size / 2) / (2 * size)

    def mean_curvature(self, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.array([[weights @ self.curvature(scores, 0, 0, 0.0)]])

    def conjugates(self, slopes: np.ndarray, targets: np.ndarray) -> np.ndarray:
        v = -targets * slopes[:, 0]
        inside = (v >= 0) & (v <= 1)
        v = np.where(inside, v, 0)
        return np.where(inside, xlogy(v, v) + xlog1py(1 - v, -v), np.inf)


class Softmax:
    """-log softmax(s)[b] for labels b in 0, ..., outputs - 1."""

    quadratic, smoothness = False, 0.5

    def __init__(self, outputs: int):
        self.outputs = outputs

    def values(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return logsumexp(scores, axis=1) - scores[np.arange(len(targets)), targets]

    def slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        slopes = softmax(scores, axis=1)
        slopes[np.arange(len(targets)), targets] -= 1
        return slopes

    def curvature(self, scores: np.ndarray, one: int, other: int, caution: float) -> np.ndarray:
        largest = np.max(scores, axis=1)
        total = np.sum(np.exp(scores - largest[:, None]), axis=1)
        p = np.exp(scores[:, one] - largest) / total
        exact = p * (1 - p) if one == other else -p * np.exp(scores[:, other] - largest) / total
        return (1 - caution) * exact + caution * ((one == other) - 1 / self.outputs) / 2  # Boehning (1992)

    def mean_curvature(self, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
        p = softmax(scores, axis=1)
        return np.diag(weights @ p) - p.T @ (weights[:, None] * p)

    def conjugates(self, slopes: np.ndarray, targets: np.ndarray) -> np.ndarray:
        v = slopes.copy()  # a point of the simplex
        v[np.arange(len(targets)), targets] += 1
        inside = np.all(v >= -1e-15, axis=1)
        return np.where(inside, np.sum(xlogy(np.maximum(v, 0), np.maximum(v, 0)), axis=1), np.inf)
