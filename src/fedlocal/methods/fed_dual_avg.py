"""FedDualAvg: clients walk in the dual space, the server averages how far they walked."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedlocal.core import Affine, GradFn, NoMemory, Params, Round, Scalar, Zero
from fedlocal.methods.mirror_method import MirrorMethod


class DualState(NamedTuple):
    y: Params  # dual point
    walked: Scalar  # step length walked so far: the weight of psi


class FedDualAvg(MirrorMethod[DualState, DualState, DualState, NoMemory]):
    r"""Federated dual averaging for min_x mean_m F_m(x) + psi(x).

    Client m repeats, from (y, walked) of the server:
        x = grad (h + walked psi)^*(y),   y <- y - eta_c g_m(x),   walked <- walked + eta_c.
    Server: (y, walked) <- (y, walked) + eta_s mean_m (their changes). The solution is grad (h + walked psi)^*(y).

    psi = 0 with h = 1/2||.||^2 is FedAvg; one client with one step per round and eta_s = 1 is sequential dual averaging.

    Args:
        client_step_size, server_step_size: eta_c and eta_s, above 0.
        regularizer, mirror_map: psi and h; zero and Euclidean by default.
        prox_on_clients: False drops psi from the clients' x (only server proximal, OSP).

    Reference: dissertation, algorithms feddualavg and feddualavg-osp. Differs from it: unequal numbers of local steps
    allowed; with equal ones `walked` is the box's eta_s eta_c r K + eta_c k.

    >>> from fedlocal.regularizers import L1
    >>> method = FedDualAvg(client_step_size=0.1, regularizer=L1(1.0))
    >>> [round(float(v), 6) for v in method.solution(DualState(jnp.array([1.0, 0.2]), 0.5))]
    [0.5, 0.0]
    """

    __init__ = MirrorMethod.__init__  # said again for type checkers, which would make one from the fields

    def init(self, x0: Params) -> DualState:
        return DualState(self.mirror_map.grad(x0), jnp.zeros((), optax.tree.dtype(x0, "promote")))

    def start(self, server: DualState, memory: NoMemory) -> DualState:
        return server

    def step(self, client: DualState, grad_fn: GradFn) -> DualState:
        eta, g = self.client_step_size, grad_fn(self.primal(client))
        return DualState(optax.tree.add_scale(client.y, -eta, g), client.walked + eta)

    def finish(self, server: DualState, client: DualState) -> tuple[DualState, NoMemory]:
        return optax.tree.sub(client, server), ()

    def update(self, server: DualState, mean_message: DualState, round: Round) -> DualState:
        return optax.tree.add_scale(server, self.server_step_size, mean_message)

    def solution(self, server: DualState) -> Params:
        return self.mirror_map.conjugate_grad(server.y, self.regularizer, server.walked)

    def primal(self, client: DualState) -> Params:
        psi = self.regularizer if self.prox_on_clients else Zero()
        return self.mirror_map.conjugate_grad(client.y, psi, client.walked)

    def affine(self, local_steps: int) -> Affine | None:
        return self.proximal_affine(dual=True)
