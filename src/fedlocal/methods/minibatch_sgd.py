"""MinibatchSGD: clients only send gradients at the server's point, the server takes one step a round."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedlocal.core import Affine, GradFn, LocalMethod, NoMemory, Params, Round, Scalar
from fedlocal.core.method import Server
from fedlocal.core.schedule import checked_step_size


class GradientSum(NamedTuple):
    """A client of a minibatch method: it walks nowhere, it adds up gradients at one point."""

    x: Params  # where the gradients are taken
    total: Params  # their sum
    count: Scalar  # how many there are

    @classmethod
    def at(cls, x: Params) -> "GradientSum":
        return cls(x, optax.tree.zeros_like(x), jnp.zeros((), optax.tree.dtype(x, "promote")))


class GradientMethod(LocalMethod[Server, GradientSum, Params, NoMemory]):
    """A method whose clients only send the mean of their gradients, all at the point of their `start`."""

    def step(self, client: GradientSum, grad_fn: GradFn) -> GradientSum:
        return GradientSum(client.x, optax.tree.add(client.total, grad_fn(client.x)), client.count + 1)

    def finish(self, server: Server, client: GradientSum) -> tuple[Params, NoMemory]:
        return jax.tree.map(lambda g: g / client.count, client.total), ()

    def primal(self, client: GradientSum) -> Params:
        return client.x


class MinibatchSGD(GradientMethod[Params]):
    r"""SGD with batches as large as all local steps of all clients together.

    Client m returns the mean of its K stochastic gradients, all at x of the server.
    Server:  x <- x - eta mean_m g_m.

    One local step per round is FedAvg with client step size eta.

    Args:
        step_size: eta, above 0.

    Reference: dissertation, baselines of the FedAc experiments (MB-SGD). Differs from it: nothing.

    >>> method = MinibatchSGD(step_size=0.1)
    >>> client = method.step(method.start(jnp.array(1.0), ()), lambda x: 2 * x)
    >>> round(float(method.update(jnp.array(1.0), method.finish(jnp.array(1.0), client)[0], Round())), 6)
    0.8
    """

    step_size: Scalar

    def __init__(self, step_size: Scalar):
        self.step_size = checked_step_size("MinibatchSGD", "step_size", step_size)

    def init(self, x0: Params) -> Params:
        return x0

    def start(self, server: Params, memory: NoMemory) -> GradientSum:
        return GradientSum.at(server)

    def update(self, server: Params, mean_message: Params, round: Round) -> Params:
        return optax.tree.add_scale(server, -self.step_size, mean_message)

    def solution(self, server: Params) -> Params:
        return server

    def affine(self, local_steps: int) -> Affine:
        return gradient_sum_affine(local_steps, middle=[1], keep=[[1]], gains=[self.step_size])


def gradient_sum_affine(local_steps: int, middle: Any, keep: Any, gains: Any) -> Affine:
    """The affine form of a method whose clients add up gradients at middle'V and whose server does V <- keep V - gains g."""
    start = [list(middle), [0.0] * len(middle)]
    take = [[0.0, -gain / local_steps] for gain in gains]
    return Affine([1, 0], [[1, 0], [0, 1]], [0, -1], start, keep, take)
