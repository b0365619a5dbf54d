"""MinibatchAcSGD: accelerated SGD at the server, gradients from the clients."""

from abc import abstractmethod

from fedlocal.core import Affine, NoMemory, Params, Round, Scalar
from fedlocal.core.schedule import checked_step_size, has_schedule
from fedlocal.methods import fed_ac
from fedlocal.methods.fed_ac import AcState, Coupling, middle_point
from fedlocal.methods.minibatch_sgd import GradientMethod, GradientSum, gradient_sum_affine
from fedlocal.util import checks


class AcceleratedGradientMethod(GradientMethod[AcState]):
    """A method whose clients send gradients at x_md, with which the server takes an accelerated step."""

    @abstractmethod
    def coupling(self) -> Coupling:
        """(alpha, beta, gamma)."""

    @abstractmethod
    def eta(self) -> Scalar:
        """The step size of x_ag."""

    def init(self, x0: Params) -> AcState:
        return AcState(x0, x0)

    def start(self, server: AcState, memory: NoMemory) -> GradientSum:
        return GradientSum.at(middle_point(server, self.coupling().beta))

    def update(self, server: AcState, mean_message: Params, round: Round) -> AcState:
        alpha, beta, gamma = self.coupling()
        return fed_ac.accelerated_step(server, middle_point(server, beta), mean_message, alpha, self.eta(), gamma)

    def solution(self, server: AcState) -> Params:
        return server.ag


class MinibatchAcSGD(AcceleratedGradientMethod):
    r"""Accelerated SGD with batches as large as all local steps of all clients together.

    Client m returns the mean of its K stochastic gradients, all at x_md = x / beta + (1 - 1/beta) x_ag.
    Server, with g their mean:  x_ag <- x_md - eta g,  x <- (1 - 1/alpha) x + x_md / alpha - gamma g,
        gamma = sqrt(eta / mu),  alpha = 1 / (gamma mu),  beta = alpha + 1.

    One local step per round is vanilla FedAc with one local step; full gradients with eta = 1/L is AGD.

    Args:
        step_size, strong_convexity: eta and mu, above 0, eta mu at most 1.

    Reference: dissertation, baselines of the FedAc experiments (MB-AC-SGD). Differs from it: nothing.

    >>> MinibatchAcSGD(step_size=0.5, strong_convexity=0.5).coupling()
    Coupling(alpha=2.0, beta=3.0, gamma=1.0)
    """

    step_size: Scalar
    strong_convexity: Scalar

    def __init__(self, step_size: Scalar, strong_convexity: Scalar):
        self.step_size = checked_step_size("MinibatchAcSGD", "step_size", step_size)
        self.strong_convexity = checks.number("MinibatchAcSGD", "strong_convexity", strong_convexity, above=0)
        if not has_schedule(self):  # else it is checked when a run knows its rounds
            fed_ac.check_coupling("MinibatchAcSGD", self.coupling().alpha, self.step_size, self.strong_convexity)

    def coupling(self) -> Coupling:
        return Coupling.from_gamma((self.step_size / self.strong_convexity) ** 0.5, self.strong_convexity)

    def eta(self) -> Scalar:
        return self.step_size

    def affine(self, local_steps: int) -> Affine:
        alpha, beta, gamma = self.coupling()
        md, gains = fed_ac.middle_weights(beta), [gamma, self.step_size]
        return gradient_sum_affine(local_steps, md, keep=fed_ac.accelerated_weights(md, alpha), gains=gains)
