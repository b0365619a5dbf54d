"""AGD: Nesterov's accelerated gradient descent, for the study of its instability and as a deterministic baseline."""

import numpy as np

from fedlocal.core import Scalar
from fedlocal.methods.fed_ac import Coupling
from fedlocal.methods.minibatch_ac_sgd import AcceleratedGradientMethod
from fedlocal.util import checks


class AGD(AcceleratedGradientMethod):
    r"""Deterministic accelerated gradient descent for an L-smooth, mu-strongly convex F; kappa = L / mu.

    Clients return their gradient at x_md = x / (sqrt(kappa) + 1) + x_ag sqrt(kappa) / (sqrt(kappa) + 1).
    Server, with g their mean:
        x_ag <- x_md - g / L,   x <- (1 - 1/sqrt(kappa)) x + x_md / sqrt(kappa) - g / sqrt(L mu).

    It is MinibatchAcSGD with step size 1/L. Run it with batch_size=None and local_steps=1 to be deterministic.

    Args:
        smoothness, strong_convexity: L and mu, L >= mu > 0.

    Reference: dissertation, algorithm algo:agd. Differs from it: the gradient is a mean over clients.

    >>> AGD(smoothness=4.0, strong_convexity=1.0).init(1.0)
    AcState(x=1.0, ag=1.0)
    """

    smoothness: Scalar
    strong_convexity: Scalar

    def __init__(self, smoothness: Scalar, strong_convexity: Scalar):
        self.strong_convexity = checks.number("AGD", "strong_convexity", strong_convexity, above=0)
        self.smoothness = checks.number("AGD", "smoothness", smoothness, above=0)
        known = not checks.is_traced(smoothness) and not checks.is_traced(strong_convexity)
        if known and np.any(np.asarray(smoothness) < np.asarray(strong_convexity)):
            raise ValueError(f"AGD: smoothness must be >= strong_convexity, got {smoothness} and {strong_convexity}")

    def coupling(self) -> Coupling:
        kappa = self.smoothness / self.strong_convexity
        return Coupling(kappa**0.5, kappa**0.5 + 1, (1 / (self.smoothness * self.strong_convexity)) ** 0.5)

    def eta(self) -> Scalar:
        return 1 / self.smoothness
