"""FedMiD: clients take mirror-descent (proximal) steps, the server averages primal points and takes a proximal step."""

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


class PrimalState(NamedTuple):
    x: Params
    walked: Scalar  # step length walked in this round: the weight of psi in the server's step


class FedMiD(LocalMethod[Params, PrimalState, PrimalState, NoMemory]):
    r"""Federated mirror descent for min_x mean_m F_m(x) + psi(x).

    Client m repeats, from x of the server:  x <- grad (h + eta_c psi)^*(grad h(x) - eta_c g_m(x)).
    Server:  x <- grad (h + eta_s w psi)^*(grad h(x + eta_s mean_m (x_m - x))),  w = mean_m of the walked eta_c K_m.

    psi = 0 with h = 1/2||.||^2 is FedAvg. `prox_on_clients=False` (only server proximal, OSP) drops psi from the client's
    step; then one client with one step per round and eta_s = 1 is sequential mirror descent. The full method applies psi
    twice in such a round, so it is sequential mirror descent only when psi is zero or a constraint.
    Reference: dissertation, algorithms fedmid and fedmid-osp. Differs from it: for h other than Euclidean the box adds a
    primal change to a dual point, here the average is taken in the primal; unequal numbers of local steps allowed.

    >>> from fedlocal.regularizers import L1
    >>> method = FedMiD(client_step_size=0.1, regularizer=L1(1.0))
    >>> client = method.start(jnp.array([1.0]), ())
    >>> round(float(method.step(client, lambda x: 0 * x).x[0]), 6)
    0.9
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
        self.client_step_size = checks.number("FedMiD", "client_step_size", client_step_size, above=0)
        self.server_step_size = checks.number("FedMiD", "server_step_size", server_step_size, above=0)
        self.regularizer = checks.instance("FedMiD", "regularizer", regularizer, Regularizer)
        self.mirror_map = checks.instance("FedMiD", "mirror_map", mirror_map, MirrorMap)
        self.prox_on_clients = bool(prox_on_clients)

    def init(self, x0: Params) -> Params:
        return x0

    def check_start(self, x0: Params) -> None:
        self.mirror_map.check(x0)

    def start(self, server: Params, memory: NoMemory) -> PrimalState:
        return PrimalState(server, jnp.zeros((), optax.tree.dtype(server, "promote")))

    def step(self, client: PrimalState, grad_fn: GradFn) -> PrimalState:
        eta = self.client_step_size
        y = optax.tree.add_scale(self.mirror_map.grad(client.x), -eta, grad_fn(client.x))
        psi = self.regularizer if self.prox_on_clients else Zero()
        return PrimalState(self.mirror_map.conjugate_grad(y, psi, eta), client.walked + eta)

    def finish(self, server: Params, client: PrimalState) -> tuple[PrimalState, NoMemory]:
        return PrimalState(optax.tree.sub(client.x, server), client.walked), ()

    def update(self, server: Params, mean_message: PrimalState, round: Round) -> Params:
        eta = self.server_step_size
        average = optax.tree.add_scale(server, eta, mean_message.x)
        y = self.mirror_map.grad(average)
        return self.mirror_map.conjugate_grad(y, self.regularizer, eta * mean_message.walked)

    def solution(self, server: Params) -> Params:
        return server

    def primal(self, client: PrimalState) -> Params:
        return client.x

    def affine(self, local_steps: int) -> Affine | None:
        psi = self.regularizer.separable()
        if psi is None or type(self.mirror_map) is not Euclidean:
            return None
        eta, server = self.client_step_size, float(self.server_step_size)  # in float64, whatever it was given in
        proximal = Proximal(psi, eta, server, dual=False, on_clients=self.prox_on_clients)
        return Affine([1], [[1]], [eta], start=[[1]], keep=[[1 - server]], take=[[server]], proximal=proximal)
