"""The vocabulary: Problem, Regularizer, MirrorMap, LocalMethod. Nothing here computes an algorithm.

    minimise over x:  F(x) + psi(x),   F(x) = sum_m p_m F_m(x)

A problem knows F_m and its gradients, a regulariser knows psi, a mirror map knows h, a method knows how clients step and
how the server combines what they send. The engines know the rest: data, random numbers, who takes part, the mean.
"""

from fedlocal.core.method import Acceleration, Affine, LocalMethod, Proximal, Round
from fedlocal.core.mirror_map import MirrorMap
from fedlocal.core.problem import AbstractProblem, Batch
from fedlocal.core.regularizer import UNPENALIZED, Regularizer, Separable, Zero, is_free
from fedlocal.core.types import Client, GradFn, Memory, Message, NoMemory, Params, Scalar, Server, static

__all__ = [
    "UNPENALIZED",
    "AbstractProblem",
    "Acceleration",
    "Affine",
    "Batch",
    "Client",
    "GradFn",
    "LocalMethod",
    "Memory",
    "Message",
    "MirrorMap",
    "NoMemory",
    "Params",
    "Proximal",
    "Regularizer",
    "Round",
    "Scalar",
    "Separable",
    "Server",
    "Zero",
    "is_free",
    "static",
]
