"""LinearModel: products with the features of a linear model and eigenvalues of their Gram matrices, in NumPy and float64."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from fedlocal.core import Params
from fedlocal.data.federated_data import SparseMatrix
from fedlocal.problems import LeastSquares, Logistic, MatrixSensing, Softmax
from fedlocal.problems.linear import LinearProblem
from fedlocal.theory.constants.client_groups import group_clients
from fedlocal.util.linalg import krylov_top

MODELS = (LeastSquares, MatrixSensing, Logistic, Softmax)
DENSE = 512  # parameters up to which eigenvalues are computed from a dense matrix, else in a Krylov space
SMALL = 1 << 24  # entries up to which dense features are copied to float64
BLOCK = 1 << 22  # entries of larger features that are converted at a time


class LinearModel:
    """F_m(x) = mean_i l(a_i'x, b_i) + l2/2 ||weights||^2, where a_i begins with a 1 for the intercept, if there is one."""

    def __init__(self, problem: LinearProblem, p: np.ndarray):
        data, features = problem.data, problem.data.arrays[0]
        self.loss = problem.score_loss
        self.l2 = 0.0 if problem.l2 is None else float(problem.l2)
        self.first = int(problem.intercept)  # where the weights begin
        self.count, self.size = data.num_examples, self.first + math.prod(features.shape[1:])
        self.targets = np.asarray(data.arrays[1])
        self.outputs = problem.output_shape()
        self.groups = group_clients(problem, p)
        self.example_weights = data.example_weights(p)
        self._wide = True  # True if the matrix has its column of ones and is in float64
        if isinstance(features, SparseMatrix):
            matrix = features.to_scipy().astype(np.float64)
            ones = scipy.sparse.csr_array(np.ones((self.count, self.first)))
            self._matrix: Any = scipy.sparse.csr_array(scipy.sparse.hstack([ones, matrix])) if self.first else matrix
        else:
            self._matrix, self._wide = np.asarray(features).reshape(self.count, -1), False
            if self.count * self.size <= SMALL:
                self._matrix, self._wide = self._widened(self._matrix), True
        blocks = (block for _, block in self.blocks(slice(0, self.count)))
        squares = [(block.multiply(block) if scipy.sparse.issparse(block) else block * block) for block in blocks]
        sums = [np.asarray(each.sum(axis=1)).ravel() for each in squares]
        self.norms = np.sqrt(np.concatenate(sums))  # (n,) ||a_i||

    def _widened(self, block: np.ndarray) -> np.ndarray:
        wide = np.ones((len(block), self.size))
        wide[:, self.first :] = block
        return wide

    def blocks(self, rows: slice) -> Iterator[tuple[slice, Any]]:
        """Yield blocks of rows in float64, each with its indices."""
        step = max(1, BLOCK // self.size)
        for start in range(rows.start, rows.stop, step):
            here = slice(start, min(start + step, rows.stop))
            block = self._matrix[here]
            yield here, block if self._wide else self._widened(block)

    def coefficients(self, x: Params) -> np.ndarray:
        """Return x as (D,) or (D, C), with the intercept first."""
        weights = np.asarray(x["weights"], np.float64).reshape(-1, *self.outputs)
        return np.concatenate([np.asarray(x["intercept"], np.float64)[None], weights]) if self.first else weights

    def times(self, rows: slice, v: np.ndarray) -> np.ndarray:
        """Return A v."""
        return np.concatenate([block @ v for _, block in self.blocks(rows)])

    def transposed_times(self, rows: slice, u: np.ndarray) -> np.ndarray:
        """Return A'u."""
        return sum(block.T @ u[_within(here, rows)] for here, block in self.blocks(rows))  # pyright: ignore

    def gram(self, rows: slice, weights: np.ndarray, ridge: float = 0.0) -> np.ndarray:
        """Return the dense matrix A' diag(weights) A, plus `ridge` on the diagonal except for the intercept."""
        total = np.diag(ridge * self.penalized)
        for here, block in self.blocks(rows):
            w = weights[_within(here, rows), None]
            product = block.T @ (block.multiply(w).tocsr() if scipy.sparse.issparse(block) else block * w)
            total += product.toarray() if scipy.sparse.issparse(product) else product
        return total

    @property
    def penalized(self) -> np.ndarray:
        """(D,) zero for the intercept, one for the weights."""
        return (np.arange(self.size) >= self.first).astype(np.float64)

    @property
    def dense(self) -> bool:
        """True if D x D matrices are small enough to be formed."""
        return self.size <= DENSE

    def top_eigenvalue(self, rows: slice, weights: np.ndarray, ridge: float = 0.0) -> float:
        """Return the largest eigenvalue of `gram`, from the smaller of A A' and A'A, or in a Krylov space."""
        n = rows.stop - rows.start
        if n < min(self.size, DENSE) and (ridge == 0 or not self.first):
            dense = [block.toarray() if scipy.sparse.issparse(block) else block for _, block in self.blocks(rows)]
            block = np.sqrt(weights)[:, None] * np.concatenate(dense)
            return float(np.linalg.eigvalsh(block @ block.T)[-1]) + ridge
        if self.dense:
            return float(np.linalg.eigvalsh(self.gram(rows, weights, ridge))[-1])

        def product(v: np.ndarray) -> np.ndarray:
            return self.transposed_times(rows, weights * self.times(rows, v)) + ridge * self.penalized * v

        return krylov_top(product, self.size)


def _within(here: slice, rows: slice) -> slice:
    return slice(here.start - rows.start, here.stop - rows.start)
