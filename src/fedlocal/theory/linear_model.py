"""LinearModel: the features of a linear model on the host, in float64, with their products and eigenvalues."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from fedlocal.core import Params
from fedlocal.federated_data import SparseMatrix
from fedlocal.problems import LeastSquares, Logistic, MatrixSensing, Softmax
from fedlocal.problems.linear import LinearProblem
from fedlocal.theory.client_groups import groups_of
from fedlocal.theory.score_losses import LOGISTIC, SOFTMAX, SQUARES

MODELS = (LeastSquares, MatrixSensing, Logistic, Softmax)
DENSE = 512  # parameters up to which eigenvalues are those of a dense matrix, else of a Krylov space
SMALL = 1 << 24  # numbers of dense features that are kept in float64
BLOCK = 1 << 22  # numbers of larger ones that are looked at at once
ROUNDING = 1e-12  # relative; smaller differences of matrices are none, and smaller eigenvalues are zero


class LinearModel:
    """F_m(x) = mean_i l(a_i'x, b_i) + l2/2 ||weights||^2, where a_i begins with a 1 for the intercept, if there is one."""

    def __init__(self, problem: LinearProblem, p: np.ndarray):
        data, features = problem.data, problem.data.arrays[0]
        self.loss = LOGISTIC if isinstance(problem, Logistic) else SOFTMAX if isinstance(problem, Softmax) else SQUARES
        self.l2 = 0.0 if problem.l2 is None else float(problem.l2)
        self.first = int(problem.intercept)  # where the weights begin
        self.count, self.size = data.num_examples, self.first + math.prod(features.shape[1:])
        self.targets = np.asarray(data.arrays[1])
        self.outputs = problem.output_shape()
        self.groups = groups_of(problem, p)
        self.example_weights = data.example_weights(p)
        self._wide = True  # whether the matrix has its column of ones and is in float64
        if isinstance(features, SparseMatrix):
            parts = [np.asarray(a) for a in (features.values, features.columns, features.row_starts)]
            matrix = scipy.sparse.csr_array((parts[0].astype(np.float64), *parts[1:]), shape=features.shape)
            ones = scipy.sparse.csr_array(np.ones((self.count, self.first)))
            self._matrix: Any = scipy.sparse.csr_array(scipy.sparse.hstack([ones, matrix])) if self.first else matrix
        else:
            self._matrix, self._wide = np.asarray(features).reshape(self.count, -1), False
            if self.count * self.size <= SMALL:
                self._matrix, self._wide = self._widened(self._matrix), True
        everything = slice(0, self.count)
        squares = [_row_sums(block) for _, block in self.blocks(everything)]
        self.norms = np.sqrt(np.concatenate(squares))  # (n,) ||a_i||

    def _widened(self, block: np.ndarray) -> np.ndarray:
        wide = np.ones((len(block), self.size))
        wide[:, self.first :] = block
        return wide

    def blocks(self, rows: slice) -> Iterator[tuple[slice, Any]]:
        """Some rows after the other, in float64: their places, and a."""
        step = max(1, BLOCK // self.size)
        for start in range(rows.start, rows.stop, step):
            here = slice(start, min(start + step, rows.stop))
            block = self._matrix[here]
            yield here, block if self._wide else self._widened(block)

    def coefficients(self, x: Params) -> np.ndarray:
        """(D,) or (D, C): x with the intercept first."""
        weights = np.asarray(x["weights"], np.float64).reshape(-1, *self.outputs)
        return np.concatenate([np.asarray(x["intercept"], np.float64)[None], weights]) if self.first else weights

    def times(self, rows: slice, v: np.ndarray) -> np.ndarray:
        """A v."""
        return np.concatenate([block @ v for _, block in self.blocks(rows)])

    def transposed_times(self, rows: slice, u: np.ndarray) -> np.ndarray:
        """A'u."""
        return sum(block.T @ u[_within(here, rows)] for here, block in self.blocks(rows))  # pyright: ignore

    def gram(self, rows: slice, weights: np.ndarray, ridge: float = 0.0) -> np.ndarray:
        """A' diag(weights) A + ridge on the weights of x, a dense matrix."""
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
        """Whether matrices of all parameters are small enough to be made."""
        return self.size <= DENSE

    def top_eigenvalue(self, rows: slice, weights: np.ndarray, ridge: float = 0.0) -> float:
        """The largest eigenvalue of `gram`, by the smallest way."""
        n = rows.stop - rows.start
        if n < min(self.size, DENSE) and (ridge == 0 or not self.first):
            block = np.sqrt(weights)[:, None] * np.concatenate([_dense(block) for _, block in self.blocks(rows)])
            return float(np.linalg.eigvalsh(block @ block.T)[-1]) + ridge
        if self.dense:
            return float(np.linalg.eigvalsh(self.gram(rows, weights, ridge))[-1])

        def product(v: np.ndarray) -> np.ndarray:
            return self.transposed_times(rows, weights * self.times(rows, v)) + ridge * self.penalized * v

        return krylov_top(product, self.size)


def krylov_top(product: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """The largest eigenvalue of a symmetric matrix, known by its products with vectors."""
    start = np.random.default_rng(0).standard_normal(size)
    if size == 1 or not product(start).any():
        return float((product(start) / start)[0])
    operator = LinearOperator((size, size), matvec=lambda v: product(v.ravel()), dtype=np.float64)  # pyright: ignore
    found: Any = eigsh(operator, k=1, which="LA", v0=start, tol=1e-10, return_eigenvectors=False)  # pyright: ignore
    return float(found[0])


def least_eigenvalue(matrix: np.ndarray) -> float:
    """The smallest eigenvalue of a positive semidefinite matrix; zero where it is only rounding."""
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]) if values[0] > ROUNDING * values[-1] else 0.0


def _within(here: slice, rows: slice) -> slice:
    return slice(here.start - rows.start, here.stop - rows.start)


def _row_sums(block: Any) -> np.ndarray:
    squares = block.multiply(block) if scipy.sparse.issparse(block) else block * block
    return np.asarray(squares.sum(axis=1)).ravel()


def _dense(block: Any) -> np.ndarray:
    return block.toarray() if scipy.sparse.issparse(block) else block
