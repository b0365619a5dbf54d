"""WeightedSums: the examples of all sites with their weights, and the sums over them that the sites send.

Each site computes its own part of a sum, and the server adds these up; here all rows are added up at once.
"""

from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse

from fedlocal.data.moments import UnitError
from fedlocal.losses import ScoreLoss
from fedlocal.simulation.kernels.jit import compiled
from fedlocal.solvers.intercept import InterceptSlope, best_intercept

ROUNDING = 1e-15  # relative; a smaller sum of slopes is zero
NEWTON_STEPS, HALVINGS = 30, 20
SMALLEST, LARGEST = 1e-140, 1e140  # sizes of features and targets: products of two of them are numbers of float64
CONSTANT = 1e-12  # a column whose deviation is a smaller part of its size is constant but for rounding


def norm(v: np.ndarray) -> float:
    """The Euclidean norm, also where float64 cannot hold the squares."""
    largest = float(np.max(np.abs(v), initial=0.0))
    return largest * float(np.linalg.norm(v / largest)) if 0 < largest < np.inf else largest


@dataclass
class Communication:
    """What one site exchanged with the server."""

    rounds: int = 0  # exchanges: something down, an answer up
    numbers_down: int = 0
    numbers_up: int = 0

    def exchange(self, down: int, up: int) -> None:
        self.rounds += 1
        self.numbers_down += int(down)
        self.numbers_up += int(up)

    def since(self, before: "Communication") -> "Communication":
        """What was exchanged after another state of the same counts."""
        return Communication(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


@dataclass
class WeightedSums:
    """sum_i w_i loss(a_i'x + b, target_i) as a function of weights x (d, outputs) and intercepts b (outputs,)."""

    features: Any  # (n, d) float64 array or csr_array
    targets: np.ndarray  # (n,)
    weights: np.ndarray  # (n,) w_i, which sum to one
    loss: ScoreLoss
    intercept: bool
    level: float  # that was subtracted from the targets
    center: np.ndarray | None  # (d,) that was subtracted from dense features; None for nothing
    sent: Communication = field(default_factory=Communication)

    @classmethod
    def of(cls, features: Any, targets: np.ndarray, weights: np.ndarray, loss: ScoreLoss, intercept: bool) -> Self:
        """Where there is an intercept, dense features and targets of squares are centred: sums of their squares would have fewer
        digits."""
        size = abs(features).max(axis=0)
        size = size.toarray().ravel() if scipy.sparse.issparse(size) else size
        if (size > LARGEST).any():
            raise UnitError("WeightedSums.of", int(np.argmax(size > LARGEST)), "large")
        level = float(weights @ targets) if intercept and loss.quadratic else 0.0
        targets = targets - level if loss.quadratic else targets
        if scipy.sparse.issparse(features) or not intercept:
            return cls(features, targets, weights, loss, intercept, level, None)
        center = weights @ features
        centred = features - center
        unit = np.where(size > 0, size, 1.0)
        constant = weights @ (centred / unit) ** 2 <= (CONSTANT * center / unit) ** 2
        centred[:, constant] = 0.0
        sums = cls(centred, targets, weights, loss, intercept, level, center)
        sums.sent.exchange(sums.width, 2 * sums.width + 2)
        return sums

    @property
    def width(self) -> int:
        return self.features.shape[1]

    @cached_property
    def gram(self) -> np.ndarray:
        """(d, d) sum_i w_i l'' a_i a_i', for a quadratic loss."""
        self.sent.exchange(0, self.width * (self.width + 1) // 2)
        return self._product(np.arange(self.width), self.loss.curvature_bound * self.weights, np.arange(self.width))

    def scores(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(self.features @ x) + b

    def value(self, scores: np.ndarray) -> float:
        """The weighted sum of the losses."""
        return float(self.weights @ self.loss.value(self.scores_of_loss(scores), self.targets))

    def conjugate(self, slopes: np.ndarray) -> float:
        """The weighted sum of the conjugates at slopes (n, outputs)."""
        return float(self.weights @ self.loss.conjugate(self.scores_of_loss(slopes), self.targets))

    def slopes(self, scores: np.ndarray) -> np.ndarray:
        """(n, outputs) derivatives of the losses."""
        return self.loss.slope(self.scores_of_loss(scores), self.targets).reshape(scores.shape)

    def weighted_slopes(self, scores: np.ndarray) -> np.ndarray:
        """(n, outputs) derivatives of the losses, times the weights."""
        return self.weights[:, None] * self.slopes(scores)

    def scores_of_loss(self, scores: np.ndarray) -> np.ndarray:
        """Scores (n, outputs) in the shape that the loss takes: (n,) if there is one output."""
        return scores[:, 0] if self.loss.outputs == 1 else scores

    def gradient(self, weighted_slopes: np.ndarray) -> np.ndarray:
        """(d, outputs) with respect to the weights."""
        return np.asarray(self.features.T @ weighted_slopes)

    def best_intercept(self, scores: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Intercepts at which the sum has slope zero for given weights, and the scores with them."""
        if not self.intercept:
            return b, scores
        if self.loss.outputs == 1:
            return self._best_of_one(scores, b)
        slopes, outputs = self.weighted_slopes(scores), len(b)
        self.sent.exchange(outputs, 2 * outputs + 1)
        for _ in range(NEWTON_STEPS):
            slope = slopes.sum(axis=0)
            if norm(slope) <= ROUNDING * norm(np.abs(slopes).sum(axis=0)):
                break
            curvature = self.loss.mean_curvature(self.scores_of_loss(scores), self.targets, self.weights)
            self.sent.exchange(0, outputs * (outputs + 1) // 2)
            step, value = np.linalg.lstsq(curvature, slope, rcond=1e-12)[0], self.value(scores)
            for _ in range(HALVINGS):  # a full step nearly always
                moved = self.weighted_slopes(scores - step)
                self.sent.exchange(outputs, 2 * outputs + 1)
                if norm(moved.sum(axis=0)) < norm(slope) or self.value(scores - step) < value:
                    break
                step = step / 2
            else:
                break
            if np.max(np.abs(step)) <= ROUNDING * np.max(np.abs(scores)):
                break
            b, scores, slopes = b - step, scores - step, moved
        return b, scores

    def scores_without_weights(self) -> np.ndarray:
        """The scores (n, outputs) of the best intercepts alone."""
        b = np.zeros(self.loss.outputs)
        return self.best_intercept(np.zeros((len(self.targets), len(b))), b)[1]

    def _best_of_one(self, scores: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`best_intercept` for one output; a sum over several outputs needs Newton steps in several dimensions."""

        def slope_fn(shift: float) -> InterceptSlope:
            moved = scores[:, 0] + shift
            slopes = self.weights * self.loss.slope(moved, self.targets)
            curvatures = self.weights * self.loss.curvature(moved, self.targets)
            if shift != 0:  # it starts there
                self.sent.exchange(0, 1)
            self.sent.exchange(1, 3)
            size = np.abs(slopes).sum() + np.abs(moved) @ curvatures
            return InterceptSlope(float(slopes.sum()), float(curvatures.sum()), float(size))

        shift = best_intercept(slope_fn, 0.0)
        return b + shift, scores + shift

    def curvature(self, scores: np.ndarray, chosen: np.ndarray, caution: float) -> tuple[np.ndarray, np.ndarray]:
        """Second derivatives in the chosen weights (their places in x.ravel()) if the intercepts follow every change, and which
        of them have any."""
        count = len(chosen)
        if self.loss.quadratic and count == self.width:
            matrix, sums = self.gram, self._sums[:, None]
        else:
            matrix, sums = self._blocks(scores, chosen, caution)
            self.sent.exchange(count + 1, count * (count + 1) // 2)
        raw = np.diag(matrix).copy()
        if self.intercept and not (self.loss.quadratic and self.center is not None):
            own = [[self._example_curvature(scores, c, e, caution).sum() for e in self._outputs] for c in self._outputs]
            self.sent.exchange(0, sums.size + len(own) * (len(own) + 1) // 2)
            matrix = matrix - sums @ np.linalg.pinv(np.array(own), rcond=1e-12, hermitian=True) @ sums.T
        return matrix, np.diag(matrix) > CONSTANT * raw

    def _example_curvature(self, scores: np.ndarray, one: int, other: int, caution: float) -> np.ndarray:
        """(n,) weighted second derivatives in two outputs, with a share `caution` of those of the loss's majorizer."""
        scores = self.scores_of_loss(scores)
        exact = self.loss.curvature(scores, self.targets, one, other)
        if caution == 0 or self.loss.quadratic:
            return self.weights * exact
        majorizer = self.loss.majorizer_curvature(scores, self.targets, one, other)
        return self.weights * ((1 - caution) * exact + caution * majorizer)

    @cached_property
    def _sums(self) -> np.ndarray:
        return np.asarray(self.features.T @ (self.loss.curvature_bound * self.weights))

    def _blocks(self, scores: np.ndarray, chosen: np.ndarray, caution: float) -> tuple[np.ndarray, np.ndarray]:
        """Second derivatives among the chosen weights, and between them and the intercepts."""
        if self.loss.outputs == 1:
            h = self._example_curvature(scores, 0, 0, caution)
            sums = np.asarray(self.features.T @ h)[chosen] if self.intercept else np.zeros(len(chosen))
            return self._product(chosen, h, chosen), sums[:, None]
        rows, outputs = chosen // self.loss.outputs, chosen % self.loss.outputs
        places = [np.flatnonzero(outputs == c) for c in self._outputs]
        matrix, sums = np.empty((len(chosen), len(chosen))), np.zeros((len(chosen), self.loss.outputs))
        for c in self._outputs:
            for e in self._outputs:
                h = self._example_curvature(scores, c, e, caution)
                if self.intercept:
                    sums[places[c], e] = np.asarray(self.features.T @ h)[rows[places[c]]]
                if e >= c and len(places[c]) and len(places[e]):
                    block = self._product(rows[places[c]], h, rows[places[e]])
                    matrix[np.ix_(places[c], places[e])] = block
                    matrix[np.ix_(places[e], places[c])] = block.T
        return matrix, sums

    def _product(self, some: np.ndarray, h: np.ndarray, others: np.ndarray) -> np.ndarray:
        """A' diag(h) B for the columns A = `some` and B = `others` of the features, both in order."""
        same = len(some) == len(others) and np.array_equal(some, others)
        if not scipy.sparse.issparse(self.features):
            right = self.features if len(others) == self.width else self.features[:, others]
            left = right if same else self.features[:, some]
            return left.T @ (h[:, None] * right)
        place, other_place = np.full((2, self.width), -1)
        place[some], other_place[others] = np.arange(len(some)), np.arange(len(others))
        out, csr = np.zeros((len(some), len(others))), self.features
        _add_products(csr.indptr, csr.indices, csr.data, h, place, other_place, same, out)
        return out

    @property
    def _outputs(self) -> range:
        return range(self.loss.outputs)


@compiled
def _add_products(
    starts: Any, columns: Any, values: Any, h: Any, place: Any, other_place: Any, same: bool, out: Any
) -> None:
    """Add h_i times the products of all pairs of entries of row i, for every row of a CSR matrix, to the places of their columns;
    of a `same` set of columns half of them. Far faster than a product of sparse matrices, which would be sparse."""
    width = 0
    for i in range(len(h)):
        width = max(width, starts[i + 1] - starts[i])
    at, number = np.empty(width, np.int64), np.empty(width)
    for i in range(len(h)):
        found = 0
        for k in range(starts[i], starts[i + 1]):
            if other_place[columns[k]] >= 0:
                at[found], number[found] = other_place[columns[k]], values[k]
                found += 1
        passed = 0
        for k in range(starts[i], starts[i + 1]):
            here = place[columns[k]]
            if here >= 0:
                factor, row = h[i] * values[k], out[here]
                for b in range(passed if same else 0, found):
                    row[at[b]] += factor * number[b]
                passed += 1
    if same:
        for i in range(len(out)):
            for j in range(i):
                out[i, j] = out[j, i]
