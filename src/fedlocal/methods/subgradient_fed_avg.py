"""SubgradientFedAvg: FedAvg on f + psi with a subgradient of psi. The baseline that composite methods improve on."""

import optax

from fedlocal.core import GradFn, LocalMethod, NoMemory, Params, Regularizer, Round, Scalar
from fedlocal.core.schedule import checked_step_size
from fedlocal.util import checks


class SubgradientFedAvg(LocalMethod[Params, Params, Params, NoMemory]):
    r"""Federated averaging with subgradients for min_x mean_m F_m(x) + psi(x), psi finite.

    Client m repeats, from x of the server:  x <- x - eta_c (g_m(x) + s),  s in the subdifferential of psi at x.
    Server:  x <- x + eta_s mean_m (x_m - x).

    psi = 0 is FedAvg.

    Args:
        client_step_size, server_step_size: eta_c and eta_s, above 0.
        regularizer: psi, not a constraint.

    Reference: dissertation, FedAvg(partial) in the figure haxby:simplified. Differs from it: nothing.

    >>> from fedlocal.regularizers import L1
    >>> import jax.numpy as jnp
    >>> method = SubgradientFedAvg(client_step_size=0.1, regularizer=L1(1.0))
    >>> round(float(method.step(jnp.array([1.0]), lambda x: 0 * x)[0]), 6)
    0.9
    """

    client_step_size: Scalar
    regularizer: Regularizer
    server_step_size: Scalar

    def __init__(self, client_step_size: Scalar, regularizer: Regularizer, server_step_size: Scalar = 1.0):
        self.client_step_size = checked_step_size("SubgradientFedAvg", "client_step_size", client_step_size)
        self.server_step_size = checked_step_size("SubgradientFedAvg", "server_step_size", server_step_size)
        self.regularizer = checks.instance("SubgradientFedAvg", "regularizer", regularizer, Regularizer)

    def init(self, x0: Params) -> Params:
        return x0

    def start(self, server: Params, memory: NoMemory) -> Params:
        return server

    def step(self, client: Params, grad_fn: GradFn) -> Params:
        g = optax.tree.add(grad_fn(client), self.regularizer.subgradient(client))
        return optax.tree.add_scale(client, -self.client_step_size, g)

    def finish(self, server: Params, client: Params) -> tuple[Params, NoMemory]:
        return optax.tree.sub(client, server), ()

    def update(self, server: Params, mean_message: Params, round: Round) -> Params:
        return optax.tree.add_scale(server, self.server_step_size, mean_message)

    def solution(self, server: Params) -> Params:
        return server

    def primal(self, client: Params) -> Params:
        return client
