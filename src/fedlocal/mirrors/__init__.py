"""Mirror maps h, the geometry of a step: each has `value`, `grad` (primal to dual) and `conjugate_grad` (dual to primal)."""

from fedlocal.mirrors.diagonal_quadratic import DiagonalQuadratic
from fedlocal.mirrors.entropy import Entropy
from fedlocal.mirrors.euclidean import Euclidean
from fedlocal.mirrors.p_norm import PNorm

__all__ = ["DiagonalQuadratic", "Entropy", "Euclidean", "PNorm"]


def __dir__() -> list[str]:
    return sorted(__all__)
