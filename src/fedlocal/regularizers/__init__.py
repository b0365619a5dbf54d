"""psi: what makes a solution sparse, low-rank or feasible. Each has `value`, `prox` and, where finite, `subgradient`."""

from fedlocal.regularizers.balls import L1Ball, L2Ball
from fedlocal.regularizers.blocks import Blocks
from fedlocal.regularizers.box import Box
from fedlocal.regularizers.l1 import L1
from fedlocal.regularizers.nuclear import Nuclear
from fedlocal.regularizers.simplex import Simplex
from fedlocal.regularizers.squared_l2 import SquaredL2
from fedlocal.regularizers.zero import Zero

__all__ = ["L1", "Blocks", "Box", "L1Ball", "L2Ball", "Nuclear", "Simplex", "SquaredL2", "Zero"]
