"""h: the geometry of a step. Each has `grad` (primal to dual) and `conjugate_grad` (dual to primal, with psi)."""

from fedlocal.mirrors.entropy import Entropy
from fedlocal.mirrors.euclidean import Euclidean

__all__ = ["Entropy", "Euclidean"]
