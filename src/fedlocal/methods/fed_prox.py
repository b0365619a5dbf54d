"""FedProx: FedAvg whose clients are pulled back to the point that they were sent."""

from typing import NamedTuple

import jax
import optax

from fedlocal.core import GradFn, LocalMethod, NoMemory, Params, Round, Scalar
from fedlocal.core.schedule import checked_step_size
from fedlocal.util import checks


class PulledClient(NamedTuple):
    x: Params
    center: Params  # x as it came


class FedProx(LocalMethod[Params, PulledClient, Params, NoMemory]):
    r"""Federated averaging with a proximal term on the clients, for min_x mean_m F_m(x).

    Client m repeats, from y = x of the server:  y <- y - eta_c (g_m(y) + mu (y - x)).
    Server:  x <- x + eta_s mean_m (y - x).

    mu = 0 is FedAvg; one local step per round is minibatch SGD with step size eta_s eta_c, whatever mu is; a round is FedAvg's on
    F_m(y) + mu/2 ||y - x||^2.

    Args:
        client_step_size, server_step_size: eta_c and eta_s, above 0.
        proximity: mu, at least 0.

    Reference: Li et al. (2020), Federated Optimization in Heterogeneous Networks, algorithm 2. Differs from it: the clients'
    inexact solver is K gradient steps, weights are in the mean and not in the sampling of clients, the server's step size.

    >>> import jax.numpy as jnp
    >>> method = FedProx(client_step_size=0.1, proximity=2.0)
    >>> client = PulledClient(x=jnp.array(1.0), center=jnp.array(0.0))
    >>> round(float(method.step(client, lambda x: 3 * x).x), 6)
    0.5
    """

    client_step_size: Scalar
    proximity: Scalar
    server_step_size: Scalar

    def __init__(self, client_step_size: Scalar, proximity: Scalar, server_step_size: Scalar = 1.0):
        self.client_step_size = checked_step_size("FedProx", "client_step_size", client_step_size)
        self.proximity = checks.number("FedProx", "proximity", proximity, at_least=0)
        self.server_step_size = checked_step_size("FedProx", "server_step_size", server_step_size)

    def init(self, x0: Params) -> Params:
        return x0

    def start(self, server: Params, memory: NoMemory) -> PulledClient:
        return PulledClient(server, server)

    def step(self, client: PulledClient, grad_fn: GradFn) -> PulledClient:
        g = jax.tree.map(lambda g, y, x: g + self.proximity * (y - x), grad_fn(client.x), client.x, client.center)
        return client._replace(x=optax.tree.add_scale(client.x, -self.client_step_size, g))

    def finish(self, server: Params, client: PulledClient) -> tuple[Params, NoMemory]:
        return optax.tree.sub(client.x, server), ()

    def update(self, server: Params, mean_message: Params, round: Round) -> Params:
        return optax.tree.add_scale(server, self.server_step_size, mean_message)

    def solution(self, server: Params) -> Params:
        return server

    def primal(self, client: PulledClient) -> Params:
        return client.x
