"""The strength from which on every weight is zero: where a path of strengths begins."""

from collections.abc import Callable

import jax

from fedlocal.core import AbstractProblem, Regularizer
from fedlocal.means import client_weights, smooth_part
from fedlocal.regularizers.l1 import L1
from fedlocal.solvers.centralized import centralized

HUGE = 1e100


def zero_strength(
    problem: AbstractProblem, make_regularizer: Callable[[float], Regularizer] = L1, *, weights: str = "uniform"
) -> float:
    """The smallest strength of a norm at which the solution has no weights: the dual norm of the gradient there.

    >>> import numpy as np
    >>> from fedlocal.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 1.0]))])
    >>> zero_strength(LeastSquares(data, intercept=False))
    3.0
    """
    empty = centralized(problem, make_regularizer(HUGE), weights=weights, progress=False).x
    with jax.enable_x64(True):
        _, gradient = smooth_part(problem, client_weights("zero_strength", problem, weights)).value_and_gradient(empty)
        one = make_regularizer(1.0)
        parts = zip(one.parts(gradient), jax.tree.leaves(gradient), strict=True)
        return max(float(part.array_gauge(a)) for part, a in parts if type(part) is type(one))
