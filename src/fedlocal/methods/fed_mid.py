"""FedMiD: clients take mirror-descent (proximal) steps, the server averages primal points and takes a proximal step."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedlocal.core import Affine, GradFn, NoMemory, Params, Round, Scalar
from fedlocal.methods.mirror_method import MirrorMethod


class PrimalState(NamedTuple):
    x: Params
    walked: Scalar  # step length walked in this round: the weight of psi in the server's step


class FedMiD(MirrorMethod[Params, PrimalState, PrimalState, NoMemory]):
    r"""Federated mirror descent for min_x mean_m F_m(x) + psi(x).

    Client m repeats, from x of the server:  x <- grad (h + eta_c psi)^*(grad h(x) - eta_c g_m(x)).
    Server:  x <- grad (h + eta_s w psi)^*(grad h(x + eta_s mean_m (x_m - x))),  w = mean_m of the walked eta_c K_m.

    psi = 0 with h = 1/2||.||^2 is FedAvg. With `prox_on_clients=False`, one client with one step per round and
    eta_s = 1 is sequential mirror descent. The full method applies psi twice in such a round, so it is sequential
    mirror descent only when psi is zero or a constraint.

    Args:
        client_step_size, server_step_size: eta_c and eta_s, above 0.
        regularizer, mirror_map: psi and h; zero and Euclidean by default.
        prox_on_clients: False drops psi from the clients' steps (only server proximal, OSP).

    Reference: dissertation, algorithms fedmid and fedmid-osp. Differs from it: for h other than Euclidean the box adds a
    primal change to a dual point, here the average is taken in the primal; unequal numbers of local steps allowed.

    >>> from fedlocal.regularizers import L1
    >>> method = FedMiD(client_step_size=0.1, regularizer=L1(1.0))
    >>> client = method.start(jnp.array([1.0]), ())
    >>> round(float(method.step(client, lambda x: 0 * x).x[0]), 6)
    0.9
    """

    __init__ = MirrorMethod.__init__  # said again for type checkers, which would make one from the fields

    def init(self, x0: Params) -> Params:
        return x0

    def start(self, server: Params, memory: NoMemory) -> PrimalState:
        return PrimalState(server, jnp.zeros((), optax.tree.dtype(server, "promote")))

    def step(self, client: PrimalState, grad_fn: GradFn) -> PrimalState:
        eta = self.client_step_size
        y = optax.tree.add_scale(self.mirror_map.grad(client.x), -eta, grad_fn(client.x))
        return PrimalState(self.mirror_map.conjugate_grad(y, self.client_regularizer, eta), client.walked + eta)

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
        return self.proximal_affine(dual=False)
