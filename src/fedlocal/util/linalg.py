"""Eigenvalues of symmetric matrices, also of matrices given by their products with vectors."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

ROUNDING = 1e-12  # relative; smaller differences of matrices and smaller eigenvalues count as zero


def krylov_top(product: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """Return the largest eigenvalue of a symmetric matrix that is given by its products with vectors."""
    start = np.random.default_rng(0).standard_normal(size)
    if size == 1 or not product(start).any():
        return float((product(start) / start)[0])
    operator = LinearOperator((size, size), matvec=lambda v: product(v.ravel()), dtype=np.float64)  # pyright: ignore
    found: Any = eigsh(operator, k=1, which="LA", v0=start, tol=1e-10, return_eigenvectors=False)  # pyright: ignore
    return float(found[0])


def least_eigenvalue(matrix: np.ndarray) -> float:
    """Return the smallest eigenvalue of a positive semidefinite matrix; zero if it is within rounding errors."""
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]) if values[0] > ROUNDING * values[-1] else 0.0
