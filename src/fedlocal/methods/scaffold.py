"""SCAFFOLD: clients correct their gradients by control variates, which they remember between rounds."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedlocal.core import GradFn, LocalMethod, Params, Round, Scalar
from fedlocal.core.schedule import checked_step_size


class ControlledState(NamedTuple):
    x: Params
    control: Params  # c, the server's


class ControlledClient(NamedTuple):
    x: Params
    control: Params  # c, as it came
    own: Params  # c_m before the round
    walked: Scalar  # step length walked in this round, eta K_m


class Scaffold(LocalMethod[ControlledState, ControlledClient, ControlledState, Params]):
    r"""Stochastic controlled averaging, SCAFFOLD, for min_x mean_m F_m(x). Its clients have memory, c_m, at first 0.

    Client m repeats, from y = x of the server, K_m times:  y <- y - eta_c (g_m(y) - c_m + c).
    Then  c_m' = c_m - c + (x - y) / (K_m eta_c),  which is the mean of its gradients in the round.
    Server:  x <- x + eta_s mean_m (y - x),   c <- c + (S / M) mean_m (c_m' - c_m),  where S of M clients took part.

    With one client it is FedAvg; one local step per round of all clients is minibatch SGD with step size eta_s eta_c.

    Args:
        client_step_size, server_step_size: eta_c and eta_s, above 0.

    Reference: Karimireddy et al. (2020), SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, algorithm 1 with
    option II. Differs from it: unequal numbers of local steps, weights.

    >>> method = Scaffold(client_step_size=0.1)
    >>> server = method.init(jnp.array(1.0))
    >>> client = method.step(method.start(server, method.init_memory(jnp.array(1.0))), lambda x: 2 * x)
    >>> message, memory = method.finish(server, client)
    >>> server = method.update(server, message, Round(participation=0.5))
    >>> [round(float(v), 6) for v in (server.x, server.control, memory)]
    [0.8, 1.0, 2.0]
    """

    client_step_size: Scalar
    server_step_size: Scalar

    def __init__(self, client_step_size: Scalar, server_step_size: Scalar = 1.0):
        self.client_step_size = checked_step_size("Scaffold", "client_step_size", client_step_size)
        self.server_step_size = checked_step_size("Scaffold", "server_step_size", server_step_size)

    def init(self, x0: Params) -> ControlledState:
        return ControlledState(x0, optax.tree.zeros_like(x0))

    def init_memory(self, x0: Params) -> Params:
        return optax.tree.zeros_like(x0)

    def start(self, server: ControlledState, memory: Params) -> ControlledClient:
        walked = jnp.zeros((), optax.tree.dtype(server.x, "promote"))
        return ControlledClient(server.x, server.control, memory, walked)

    def step(self, client: ControlledClient, grad_fn: GradFn) -> ControlledClient:
        eta = self.client_step_size
        g = jax.tree.map(lambda g, own, c: g - own + c, grad_fn(client.x), client.own, client.control)
        return client._replace(x=optax.tree.add_scale(client.x, -eta, g), walked=client.walked + eta)

    def finish(self, server: ControlledState, client: ControlledClient) -> tuple[ControlledState, Params]:
        change = optax.tree.sub(client.x, server.x)
        own_change = jax.tree.map(lambda c, d: -c - (d / client.walked).astype(d.dtype), server.control, change)
        return ControlledState(change, own_change), optax.tree.add(client.own, own_change)

    def update(self, server: ControlledState, mean_message: ControlledState, round: Round) -> ControlledState:
        x = optax.tree.add_scale(server.x, self.server_step_size, mean_message.x)
        return ControlledState(x, optax.tree.add_scale(server.control, round.participation, mean_message.control))

    def solution(self, server: ControlledState) -> Params:
        return server.x

    def primal(self, client: ControlledClient) -> Params:
        return client.x
