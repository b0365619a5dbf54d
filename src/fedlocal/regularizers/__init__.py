"""psi: what makes a solution sparse, low-rank or feasible. Each has `value`, `prox`, `conjugate` and, where finite,
`subgradient`."""

from fedlocal.core import Zero
from fedlocal.regularizers.balls import L1Ball, L2Ball, LInfBall, Simplex
from fedlocal.regularizers.blocks import Blocks
from fedlocal.regularizers.box import Box, NonNegative
from fedlocal.regularizers.elastic_net import ElasticNet, SquaredL2
from fedlocal.regularizers.group_l1 import GroupL1
from fedlocal.regularizers.l1 import L1
from fedlocal.regularizers.lp import Lp
from fedlocal.regularizers.monotone import Monotone
from fedlocal.regularizers.norms import L2Norm, LInf
from fedlocal.regularizers.nuclear import Nuclear, NuclearBall
from fedlocal.regularizers.total_variation import TotalVariation

__all__ = [
    "L1",
    "Blocks",
    "Box",
    "ElasticNet",
    "GroupL1",
    "L1Ball",
    "L2Ball",
    "L2Norm",
    "LInf",
    "LInfBall",
    "Lp",
    "Monotone",
    "NonNegative",
    "Nuclear",
    "NuclearBall",
    "Simplex",
    "SquaredL2",
    "TotalVariation",
    "Zero",
]


def __dir__() -> list[str]:
    return sorted(__all__)
