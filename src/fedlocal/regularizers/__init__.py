"""psi: what makes a solution sparse, low-rank or feasible. Each has `value`, `prox`, `conjugate` and, where finite,
`subgradient`."""

from fedlocal.core import Zero
from fedlocal.regularizers.balls import L1Ball, L2Ball, LInfBall
from fedlocal.regularizers.blocks import Blocks
from fedlocal.regularizers.box import Box
from fedlocal.regularizers.elastic_net import ElasticNet
from fedlocal.regularizers.group_l1 import GroupL1
from fedlocal.regularizers.l1 import L1
from fedlocal.regularizers.l2_norm import L2Norm
from fedlocal.regularizers.linf import LInf
from fedlocal.regularizers.lp import Lp
from fedlocal.regularizers.monotone import Monotone
from fedlocal.regularizers.non_negative import NonNegative
from fedlocal.regularizers.nuclear import Nuclear, NuclearBall
from fedlocal.regularizers.simplex import Simplex
from fedlocal.regularizers.squared_l2 import SquaredL2
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
