"""AcceleratedProximalGradient: FISTA with adaptive restart, where clients only compute gradients."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedlocal.core import NoMemory, Params, Regularizer, Round, Scalar
from fedlocal.core.schedule import checked_step_size
from fedlocal.methods.minibatch_sgd import GradientMethod, GradientSum
from fedlocal.regularizers import Zero
from fedlocal.util import checks


class ExtrapolatedState(NamedTuple):
    x: Params  # the solution
    z: Params  # the extrapolated point, where clients compute gradients
    t: Any  # grows with the rounds since the last restart; stays on the server, since restarts depend on the data


class AcceleratedProximalGradient(GradientMethod[ExtrapolatedState]):
    r"""FISTA with adaptive restart for min_x mean_m F_m(x) + psi(x), F convex and L-smooth.

    Client m returns the mean of its stochastic gradients at z of the server. At first z = x and t = 1.
    Server, with g the mean over clients:
        x+ = prox_{eta psi}(z - eta g),
        t+ = (1 + sqrt(1 + 4 t^2)) / 2,   z+ = x+ + (t - 1) / t+ (x+ - x),
        but t+ = 1 and z+ = x+ (restart) where <z - x+, x+ - x> > 0.

    Its first two rounds are ProximalGradient's, and with psi = 0 MinibatchSGD's. With batch_size=None and weights="examples"
    it is the centralised method on the data of all clients gathered. z may lie outside a constraint, where F must have a
    gradient, too; x does not.

    Args:
        step_size: eta, above 0; at most 1/L in the theorems.
        regularizer: psi; zero by default.

    Reference: Beck and Teboulle (2009), "A fast iterative shrinkage-thresholding algorithm for linear inverse problems", FISTA
    with constant step size; O'Donoghue and Candes (2015), "Adaptive restart for accelerated gradient schemes", gradient scheme
    with the generalised gradient (z - x+) / eta. Differs from it: x, z, t are x_{k-1}, y_k, t_k of FISTA; the gradient is a
    mean over clients and may be stochastic, in which case noise causes restarts as well.

    >>> from fedlocal.regularizers import L1
    >>> method = AcceleratedProximalGradient(step_size=0.5, regularizer=L1(1.0))
    >>> server = method.init(jnp.array([2.0]))
    >>> method.solution(method.update(server, jnp.array([1.0]), Round())).tolist()
    [1.0]
    """

    step_size: Scalar
    regularizer: Regularizer

    def __init__(self, step_size: Scalar, regularizer: Regularizer = Zero()):  # noqa: B008  (frozen)
        owner = "AcceleratedProximalGradient"
        self.step_size = checked_step_size(owner, "step_size", step_size)
        self.regularizer = checks.instance(owner, "regularizer", regularizer, Regularizer)

    def init(self, x0: Params) -> ExtrapolatedState:
        return ExtrapolatedState(x0, x0, jnp.ones((), optax.tree.dtype(x0, "promote")))

    def broadcast(self, server: ExtrapolatedState) -> ExtrapolatedState:
        return server._replace(t=())

    def start(self, server: ExtrapolatedState, memory: NoMemory) -> GradientSum:
        return GradientSum.at(server.z)

    def update(self, server: ExtrapolatedState, mean_message: Params, round: Round) -> ExtrapolatedState:
        forward = optax.tree.add_scale(server.z, -self.step_size, mean_message)
        x = self.regularizer.prox(forward, self.step_size)
        move = optax.tree.sub(x, server.x)
        restart = jnp.asarray(optax.tree.vdot(optax.tree.sub(server.z, x), move)) > 0
        grown = (1 + jnp.sqrt(1 + 4 * server.t**2)) / 2
        momentum = jnp.where(restart, 0, (server.t - 1) / grown)
        return ExtrapolatedState(x, optax.tree.add_scale(x, momentum, move), jnp.where(restart, 1, grown))

    def solution(self, server: ExtrapolatedState) -> Params:
        return server.x
