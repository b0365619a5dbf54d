"""How sparse or how low-rank the weights are, and how close they are to true ones."""

from typing import Any

import jax
import numpy as np

from fedlocal.core import is_free
from fedlocal.metrics.base import Evaluation, Metric
from fedlocal.util import checks


class Density(Metric):
    """The fraction of weights (intercepts aside) that are not zero.

    Args:
        threshold: weights of at most this absolute value count as zero; at least 0.
    """

    def __init__(self, threshold: float = 0.0):
        self.threshold = checks.number("Density", "threshold", threshold, at_least=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return {"density": float(np.mean(np.abs(_weights(evaluation.x)) > self.threshold))}


class SparseRecovery(Metric):
    """Density, precision, recall and F1 of the recovered support.

    Args:
        truth: the true weights, an array, or the true parameters, whose intercepts are left out.
        threshold: weights of at most this absolute value count as zero; at least 0.
    """

    def __init__(self, truth: Any, threshold: float = 1e-2):
        self.support = np.abs(_weights(truth)) > 0
        self.threshold = checks.number("SparseRecovery", "threshold", threshold, at_least=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        found = np.abs(_weights(evaluation.x)) > self.threshold
        if found.shape != self.support.shape:
            raise ValueError(f"SparseRecovery: truth has {self.support.size} weights, the parameters have {found.size}")
        hits = np.sum(found & self.support)
        precision = hits / found.sum() if found.any() else 0.0
        recall = hits / self.support.sum() if self.support.any() else 1.0
        f1 = 2 * hits / (found.sum() + self.support.sum()) if found.any() or self.support.any() else 1.0
        return {"density": float(found.mean()), "precision": float(precision), "recall": float(recall), "f1": float(f1)}


class Rank(Metric):
    """The rank of the weight matrix.

    Args:
        threshold: singular values of at most this count as zero; at least 0.
    """

    def __init__(self, threshold: float = 1e-2):
        self.threshold = checks.number("Rank", "threshold", threshold, at_least=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        kept = [a for path, a in jax.tree_util.tree_flatten_with_path(evaluation.x)[0] if not is_free(path)]
        if len(kept) != 1 or np.ndim(kept[0]) != 2:
            raise ValueError(f"Rank: needs parameters with one weight matrix, got shapes {[np.shape(a) for a in kept]}")
        matrix = np.asarray(kept[0])
        if not np.isfinite(matrix).all():
            return {"rank": np.nan}
        singular = np.linalg.svd(matrix, compute_uv=False)
        return {"rank": float(np.sum(singular > self.threshold))}


class FrobeniusError(Metric):
    """||X - truth||_F for the weights.

    Args:
        truth: the true weights, an array, or the true parameters, whose intercepts are left out.
    """

    def __init__(self, truth: Any):
        self.truth = _weights(truth)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        found = _weights(evaluation.x)
        if found.shape != self.truth.shape:
            raise ValueError(f"FrobeniusError: truth has {self.truth.size} weights, the parameters have {found.size}")
        return {"frobenius_error": float(np.linalg.norm(found - self.truth))}


def _weights(x: Any) -> np.ndarray:
    """Return all parameters but intercepts as one vector."""
    leaves = jax.tree_util.tree_flatten_with_path(x)[0]
    return np.concatenate([np.ravel(a) for path, a in leaves if not is_free(path)])
