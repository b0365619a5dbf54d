"""Separation: classes that some direction of the weights tells apart, so that without a penalty no finite weights are optimal."""

from typing import Any

import numpy as np
import scipy.sparse

from fedlocal.solvers.newton.iteration import LARGEST
from fedlocal.solvers.newton.penalties import Penalty, SumPenalty
from fedlocal.solvers.newton.stopping import FitResult
from fedlocal.solvers.newton.weighted_sums import WeightedSums

ROUNDING = 1e-6  # a margin that is a smaller part of its terms is zero but for rounding
CLEAR = 1e-3  # a margin that is a larger part of its terms is not
SINGULAR = 1e-11  # eigenvalues that are a smaller part of the largest are zero but for rounding


def no_finite_optimum(sums: WeightedSums, penalty: Penalty, fit: FitResult, tol: float) -> bool:
    r"""True if the loss falls for ever along a direction that the penalty allows at no cost.

    That is a direction of weights and intercepts that lowers no margin (the score of an example's own class minus that of another
    class) and raises some (Albert and Anderson 1984): the classes are separable, or some examples of them are.
    Where there is one, a fit goes along it until the probabilities of these other classes are as small as `tol` asks for. So we
    take the fit, and the part of it that changes no margin of which there is still doubt. They are tested on all examples:
    True is a proof, up to rounding. False is none, but for separable classes and a small `tol` it is rare.
    """
    if sums.loss.targets == "numbers" or not _is_cone(penalty):
        return False
    others = _probabilities_of_others(sums, sums.scores(fit.x, fit.b))
    in_doubt = others > np.sqrt(tol)
    sums.sent.exchange(0, 2)
    if np.count_nonzero(in_doubt) == np.count_nonzero(np.isfinite(others)):
        return False
    if _separates(sums, fit.x, fit.b):
        return True
    if fit.x.size > LARGEST or not penalty.smooth:
        return False
    x, b = _part_without(sums, in_doubt, fit.x, fit.b)
    return _separates(sums, x, b) or _separates(sums, -x, -b)  # other weights may hide the sign


def _is_cone(penalty: Penalty) -> bool:
    """True if multiples of allowed weights are allowed and cost nothing."""
    if not isinstance(penalty, SumPenalty) or penalty.l1 > 0 or penalty.l2 > 0:
        return False
    return penalty.lower in (0.0, -np.inf) and penalty.upper in (0.0, np.inf)


def _probabilities_of_others(sums: WeightedSums, scores: np.ndarray) -> np.ndarray:
    """(n, 1) of the other one of two classes, or (n, classes) of all classes and -inf for an example's own."""
    slopes = sums.slopes(scores)
    if sums.loss.outputs == 1:
        return np.abs(slopes)
    slopes[np.arange(len(slopes)), sums.targets] = -np.inf
    return slopes


def _part_without(sums: WeightedSums, pairs: np.ndarray, x: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part of a direction that changes no margin of these pairs of example and class; sites send second moments."""
    columns = _with_ones(sums.features) if sums.intercept else sums.features
    size = np.asarray(abs(columns).T @ sums.weights)
    size = np.repeat(np.where(size > 0, size, 1.0)[:, None], len(b), axis=1).ravel(order="F")  # output by output
    count, outputs = columns.shape[1], len(b)
    moments = np.zeros((outputs, count, outputs, count))
    for c, e, h in _coefficients(sums, pairs):
        moments[c, :, e, :] = _product(columns, sums.weights * h)
        moments[e, :, c, :] = moments[c, :, e, :].T
    moments = moments.reshape(outputs * count, -1) / size / size[:, None]
    sums.sent.exchange(0, len(moments) * (len(moments) + 1) // 2)
    values, vectors = np.linalg.eigh(moments)
    null = vectors[:, values <= SINGULAR * values[-1]]
    both = np.vstack([x, b]) if sums.intercept else x
    part = null @ (null.T @ (both.ravel(order="F") * size)) / size
    both = part.reshape(both.shape, order="F")
    return (both[:-1], both[-1]) if sums.intercept else (both, b)


def _coefficients(sums: WeightedSums, pairs: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """For each two outputs the (n,) weights of an example in the second moments of its margins' vectors."""
    if sums.loss.outputs == 1:
        return [(0, 0, pairs[:, 0].astype(float))]
    own, outputs = np.arange(sums.loss.outputs) == sums.targets[:, None], range(sums.loss.outputs)
    same = [(c, c, np.where(own[:, c], pairs.sum(axis=1), pairs[:, c])) for c in outputs]
    crossed = [(c, e, -1.0 * own[:, c] * pairs[:, e] - own[:, e] * pairs[:, c]) for e in outputs for c in outputs[:e]]
    return same + crossed


def _with_ones(features: Any) -> Any:
    both = features, np.ones((features.shape[0], 1))
    return scipy.sparse.hstack(both, "csr") if scipy.sparse.issparse(features) else np.hstack(both)


def _product(columns: Any, h: np.ndarray) -> np.ndarray:
    """columns' diag(h) columns"""
    if scipy.sparse.issparse(columns):
        return (columns.T @ columns.multiply(h[:, None]).tocsr()).toarray()
    return columns.T @ (h[:, None] * columns)


def _separates(sums: WeightedSums, x: np.ndarray, b: np.ndarray) -> bool:
    """True if no margin falls along a direction and some rise."""
    sums.sent.exchange(x.size + b.size, sums.width + 2)
    along, size = sums.scores(x, b), abs(sums.features)
    typical = np.asarray(size.T @ sums.weights) @ np.abs(x)  # for examples whose own terms are zero but for rounding
    terms = np.maximum(np.asarray(size @ np.abs(x)), typical) + np.abs(b)
    if sums.loss.outputs == 1:
        margins, sizes = sums.targets[:, None] * along, terms
    else:
        rows, others = np.arange(len(along)), np.arange(sums.loss.outputs) != sums.targets[:, None]
        margins = (along[rows, sums.targets][:, None] - along)[others]
        sizes = (terms[rows, sums.targets][:, None] + terms)[others]
    return bool((margins >= -ROUNDING * sizes).all() and (margins > CLEAR * sizes).any())
