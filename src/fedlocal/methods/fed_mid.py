"""FedMiD: clients take mirror-descent (proximal) steps, the server averages primal points and takes a proximal step."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedlocal.core import Affine, GradFn, MirrorMap, NoMemory, Params, Regularizer, Round, Scalar, Zero, static
from fedlocal.methods.mirror_method import MirrorMethod
from fedlocal.mirrors import Euclidean
from fedlocal.util import checks


class PrimalState(NamedTuple):
    x: Params
    walked: Scalar  # step length walked in this round: the weight of psi in the server's step


class FedMiD(MirrorMethod[Params, PrimalState, PrimalState, NoMemory]):
    r"""Federated mirror descent for min_x mean_m F_m(x) + psi(x).

    Client m repeats, from x of the server:  x <- grad (h + eta_c psi)^*(grad h(x) - eta_c g_m(x)).
    Server:  x <- grad (h + eta_s w psi)^*(grad h(x + eta_s mean_m (x_m - x))),  w = mean_m of the walked eta_c K_m.

    This is the box of the text. It counts a finite psi twice: for small step sizes it minimises F + 2 psi. With `client_share` s
    clients take s psi for psi and the server (1 - s) psi, so that psi counts once and small steps lead to the minimiser of
    F + psi. s = 0 is the only-server-proximal variant (OSP), the one that has a bound with a finite psi
    (`fl.theory.fed_mid_osp_bound`). s = 1 is the only-client-proximal one, whose server takes no proximal step, so that its point
    is an average, in general neither sparse nor, with eta_s > 1, allowed by a constraint. With a constraint every s between is
    the box.

    psi = 0 with h = 1/2||.||^2 is FedAvg. With `prox_on_clients=False`, one client with one step per round and
    eta_s = 1 is sequential mirror descent. The full method applies psi twice in such a round, so it is sequential
    mirror descent only when psi is zero or a constraint.

    Args:
        client_step_size, server_step_size: eta_c and eta_s, above 0.
        regularizer, mirror_map: psi and h; zero and Euclidean by default.
        prox_on_clients: False drops psi from the clients' steps (only server proximal, OSP), as client_share=0 does.
        client_share: s, from 0 to 1: the part of psi that the clients apply; None: the box, all of it and all of it again.

    Reference: dissertation, algorithms fedmid and fedmid-osp. Differs from it: for h other than Euclidean the box adds a
    primal change to a dual point, here the average is taken in the primal; unequal numbers of local steps allowed;
    client_share, which is not in the text.

    >>> from fedlocal.regularizers import L1
    >>> method = FedMiD(client_step_size=0.1, regularizer=L1(1.0))
    >>> client = method.start(jnp.array([1.0]), ())
    >>> round(float(method.step(client, lambda x: 0 * x).x[0]), 6)
    0.9
    """

    client_share: float | None = static(default=None)

    def __init__(
        self,
        client_step_size: Scalar,
        server_step_size: Scalar = 1.0,
        regularizer: Regularizer = Zero(),  # noqa: B008  (frozen)
        mirror_map: MirrorMap = Euclidean(),  # noqa: B008
        prox_on_clients: bool = True,
        client_share: float | None = None,
    ):
        super().__init__(client_step_size, server_step_size, regularizer, mirror_map, prox_on_clients)
        if client_share is not None:
            client_share = float(checks.number("FedMiD", "client_share", client_share, at_least=0, at_most=1))
            if client_share > 0 and not prox_on_clients:
                raise ValueError(
                    f"FedMiD: client_share must be None or 0 with prox_on_clients=False, got {client_share:g}"
                )
        self.client_share = client_share

    @property
    def shares(self) -> tuple[float, float]:
        """The parts of psi that a client and the server apply."""
        if self.client_share is None:
            return float(self.prox_on_clients), 1.0
        return self.client_share, 1 - self.client_share

    def init(self, x0: Params) -> Params:
        return x0

    def start(self, server: Params, memory: NoMemory) -> PrimalState:
        return PrimalState(server, jnp.zeros((), optax.tree.dtype(server, "promote")))

    def step(self, client: PrimalState, grad_fn: GradFn) -> PrimalState:
        eta = self.client_step_size
        y = optax.tree.add_scale(self.mirror_map.grad(client.x), -eta, grad_fn(client.x))
        return PrimalState(self._primal(y, self.shares[0], eta), client.walked + eta)

    def finish(self, server: Params, client: PrimalState) -> tuple[PrimalState, NoMemory]:
        return PrimalState(optax.tree.sub(client.x, server), client.walked), ()

    def update(self, server: Params, mean_message: PrimalState, round: Round) -> Params:
        eta = self.server_step_size
        average = optax.tree.add_scale(server, eta, mean_message.x)
        return self._primal(self.mirror_map.grad(average), self.shares[1], eta * mean_message.walked)

    def solution(self, server: Params) -> Params:
        return server

    def primal(self, client: PrimalState) -> Params:
        return client.x

    def affine(self, local_steps: int) -> Affine | None:
        return self.proximal_affine(dual=False, shares=self.shares)

    def _primal(self, y: Params, share: float, weight: Scalar) -> Params:
        """grad (h + share weight psi)^*(y); a share of zero is no psi, also for a constraint."""
        psi = self.regularizer if share > 0 else Zero()
        return self.mirror_map.conjugate_grad(y, psi, weight if share == 1 else share * weight)
