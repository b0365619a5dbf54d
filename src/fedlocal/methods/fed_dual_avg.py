"""FedDualAvg: clients walk in the dual space, the server averages how far they walked."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedlocal.core import (
    Affine,
    GradFn,
    LocalMethod,
    MirrorMap,
    NoMemory,
    Params,
    Proximal,
    Regularizer,
    Round,
    Scalar,
    static,
)
from fedlocal.mirrors import Euclidean
from fedlocal.regularizers import Zero
from fedlocal.util import checks


class DualState(NamedTuple):
    y: Params  # dual point
    walked: Scalar  # step length walked so far: the weight of psi


class FedDualAvg(LocalMethod[DualState, DualState, DualState, NoMemory]):
    r"""Federated dual averaging for min_x mean_m F_m(x) + psi(x).

    Client m repeats, from (y, walked) of the server:
        x = grad (h + walked psi)^*(y),   y <- y - eta_c g_m(x),   walked <- walked + eta_c.
    Server: (y, walked) <- (y, walked) + eta_s mean_m (their changes). The solution is grad (h + walked psi)^*(y).

    psi = 0 with h = 1/2||.||^2 is FedAvg; one client with one step per round and eta_s = 1 is sequential dual averaging.
    `prox_on_clients=False` (only server proximal, OSP) drops psi from the client's x.
    Reference: dissertation, algorithms feddualavg and feddualavg-osp. Differs from it: unequal numbers of local steps
    allowed; with equal ones `walked` is the box's eta_s eta_c r K + eta_c k.

    >>> from fedlocal.regularizers import L1
    >>> method = FedDualAvg(client_step_size=0.1, regularizer=L1(1.0))
    >>> [round(float(v), 6) for v in method.solution(DualState(jnp.array([1.0, 0.2]), 0.5))]
    [0.5, 0.0]
    """

    client_step_size: Scalar
    server_step_size: Scalar
    regularizer: Regularizer
    mirror_map: MirrorMap
    prox_on_clients: bool = static()

    def __init__(
        self,
        client_step_size: Scalar,
        server_step_size: Scalar = 1.0,
        regularizer: Regularizer = Zero(),  # noqa: B008  (frozen)
        mirror_map: MirrorMap = Euclidean(),  # noqa: B008
        prox_on_clients: bool = True,
    ):
        self.client_step_size = checks.number("FedDualAvg", "client_step_size", client_step_size, above=0)
        self.server_step_size = checks.number("FedDualAvg", "server_step_size", server_step_size, above=0)
        self.regularizer = checks.instance("FedDualAvg", "regularizer", regularizer, Regularizer)
        self.mirror_map = checks.instance("FedDualAvg", "mirror_map", mirror_map, MirrorMap)
        self.prox_on_clients = bool(prox_on_clients)

    def init(self, x0: Params) -> DualState:
        return DualState(self.mirror_map.grad(x0), jnp.zeros((), optax.tree.dtype(x0, "promote")))

    def check_start(self, x0: Params) -> None:
        self.mirror_map.check(x0)

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
        psi = self.regularizer.separable()
        if psi is None or type(self.mirror_map) is not Euclidean:
            return None
        eta, server = self.client_step_size, float(self.server_step_size)  # in float64, whatever it was given in
        proximal = Proximal(psi, eta, server, dual=True, on_clients=self.prox_on_clients)
        return Affine([1], [[1]], [eta], start=[[1]], keep=[[1 - server]], take=[[server]], proximal=proximal)
