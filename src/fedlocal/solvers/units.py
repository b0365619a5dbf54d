"""Units of columns: those of which float64 cannot hold products are refused by name."""

from typing import Any

import numpy as np

from fedlocal.core import AbstractProblem
from fedlocal.data.federated_data import SparseMatrix
from fedlocal.data.moments import UnitError
from fedlocal.problems.linear import LinearProblem

# of features: beyond it the square of a curvature, which is a product of four of them, is hardly a number of float64
LARGEST = 1e100


def check_units(owner: str, problem: AbstractProblem) -> None:
    """Raise a `UnitError` for the first column of a linear model that has too large values.

    Args:
        owner: who asks, for the message.
        problem: any problem; those that are no linear models pass.

    >>> from fedlocal.data.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> check_units("model", LeastSquares(FederatedData.from_clients([(np.eye(2), np.array([3.0, 0.0]))])))
    """
    if not isinstance(problem, LinearProblem):
        return
    features: Any = problem.data.arrays[0]
    if isinstance(features, SparseMatrix):
        largest = abs(features.to_scipy()).max(axis=0).toarray().ravel()
    else:
        values = np.asarray(features)
        largest = np.maximum(values.max(axis=0), -values.min(axis=0)).ravel()
    wrong = np.flatnonzero(largest.astype(np.float64) > LARGEST)
    if len(wrong):
        raise UnitError(owner, int(wrong[0]), "large")
