"""F: losses with client data, and analytic oracles where noise replaces data."""

from fedlocal.problems.custom import Problem
from fedlocal.problems.linear import LeastSquares, Logistic, MatrixSensing, Softmax
from fedlocal.problems.mlp import MLP
from fedlocal.problems.oracle import Oracle, normal_noise, piecewise_quadratic, quadratics
from fedlocal.problems.views import augmented, only, pooled

__all__ = [
    "MLP",
    "LeastSquares",
    "Logistic",
    "MatrixSensing",
    "Oracle",
    "Problem",
    "Softmax",
    "augmented",
    "normal_noise",
    "only",
    "piecewise_quadratic",
    "pooled",
    "quadratics",
]


def __dir__() -> list[str]:
    return sorted(__all__)
