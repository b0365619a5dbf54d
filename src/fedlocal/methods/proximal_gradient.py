"""ProximalGradient: the centralised baseline; on one client's data alone, the local baseline."""

import optax

from fedlocal.core import MirrorMap, NoMemory, Params, Regularizer, Round, Scalar
from fedlocal.core.schedule import checked_step_size
from fedlocal.methods.minibatch_sgd import GradientMethod, GradientSum
from fedlocal.mirrors import Euclidean
from fedlocal.regularizers import Zero
from fedlocal.util import checks


class ProximalGradient(GradientMethod[Params]):
    r"""Proximal gradient descent (composite mirror descent for other h) for min_x mean_m F_m(x) + psi(x).

    Client m returns the mean of its stochastic gradients at x of the server.
    Server:  x <- grad (h + eta psi)^*(grad h(x) - eta mean_m g_m).

    psi = 0 is MinibatchSGD. With batch_size=None and weights="examples" it is `centralized`: proximal gradient descent on the
    data of all clients gathered. On `fl.problems.only(problem, client)` it is `local`: one client without communication.

    Args:
        step_size: eta, above 0.
        regularizer, mirror_map: psi and h; zero and Euclidean by default.

    Reference: dissertation, eq. pgm and bpgm; baselines of the fMRI task. Differs from it: eq. md:oneline lacks eta before
    the gradient.

    >>> from fedlocal.regularizers import L1
    >>> import jax.numpy as jnp
    >>> method = ProximalGradient(step_size=0.5, regularizer=L1(1.0))
    >>> method.update(jnp.array([2.0]), jnp.array([1.0]), Round()).tolist()
    [1.0]
    """

    step_size: Scalar
    regularizer: Regularizer
    mirror_map: MirrorMap

    def __init__(
        self,
        step_size: Scalar,
        regularizer: Regularizer = Zero(),  # noqa: B008  (frozen)
        mirror_map: MirrorMap = Euclidean(),  # noqa: B008
    ):
        self.step_size = checked_step_size("ProximalGradient", "step_size", step_size)
        self.regularizer = checks.instance("ProximalGradient", "regularizer", regularizer, Regularizer)
        self.mirror_map = checks.instance("ProximalGradient", "mirror_map", mirror_map, MirrorMap)

    def init(self, x0: Params) -> Params:
        return x0

    def check_start(self, x0: Params) -> None:
        self.mirror_map.check(x0)

    def start(self, server: Params, memory: NoMemory) -> GradientSum:
        return GradientSum.at(server)

    def update(self, server: Params, mean_message: Params, round: Round) -> Params:
        y = optax.tree.add_scale(self.mirror_map.grad(server), -self.step_size, mean_message)
        return self.mirror_map.conjugate_grad(y, self.regularizer, self.step_size)

    def solution(self, server: Params) -> Params:
        return server
