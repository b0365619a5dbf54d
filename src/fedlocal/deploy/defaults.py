"""What there is to choose from for sites that have a file each."""

from typing import NamedTuple


class DeployableLoss(NamedTuple):
    """A loss that can be deployed."""

    problem: str  # its class in fl.problems
    bounds: str  # of a row's loss by its score, as arguments of LossBounds


LOSSES = {
    "logistic": DeployableLoss("Logistic", "slope=1.0, curvature=0.25"),
    "least-squares": DeployableLoss("LeastSquares", "slope=None, curvature=2.0"),
}
EXACT = "AcceleratedProximalGradient"  # one full gradient a round: it converges to the optimum of all rows
LOCAL = ("FedDualAvg", "FedMiD", "FedAvg")
METHODS = (EXACT, *LOCAL)
LOCAL_ROUNDS, EXACT_ROUNDS = 100, 500
TOL = 1e-6
AGGREGATES = ("mean", "median", "trimmed", "norm-bounded")
