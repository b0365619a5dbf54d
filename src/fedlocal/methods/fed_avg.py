"""FedAvg: clients take gradient steps, the server averages how far they moved."""

from typing import Any, NamedTuple

import jax
import optax

from fedlocal.core import Affine, GradFn, LocalMethod, NoMemory, Params, Round, Scalar, static
from fedlocal.core.schedule import checked_step_size
from fedlocal.util import checks


class AvgState(NamedTuple):
    x: Params
    optimizer: Any  # state of the server optimiser; stays on the server


class FedAvg(LocalMethod[AvgState, Params, Params, NoMemory]):
    r"""Federated averaging, also known as local SGD, for min_x mean_m F_m(x).

    Client m repeats, from x of the server:  x <- x - eta_c g_m(x).
    Server:  x <- x + eta_s mean_m (x_m - x),  or any Optax optimiser applied to the negative mean change.

    server_step_size = 1 with all clients is the simple form; on `fl.problems.only(problem, client)` it is single-client SGD;
    one local step per round is minibatch SGD with step size eta_s eta_c; server_optimizer = optax.sgd(eta_s) is
    server_step_size = eta_s.

    Args:
        client_step_size: eta_c, above 0.
        server_step_size: eta_s, above 0; None is 1, or that of the optimiser.
        server_optimizer: an Optax optimiser with a step size of its own, instead of `server_step_size`; None for none.

    Reference: dissertation, algorithms fedavg and fedavg:slr. Differs from it: the optional server optimiser (Reddi et al.,
    2021), unequal numbers of local steps, weights.

    >>> method = FedAvg(client_step_size=0.1)
    >>> server = method.init(1.0)
    >>> client = method.step(method.start(server, ()), lambda x: 2 * x)
    >>> round(float(method.solution(method.update(server, method.finish(server, client)[0], Round()))), 6)
    0.8
    """

    client_step_size: Scalar
    server_step_size: Scalar  # None where an optimiser has its own
    server_optimizer: optax.GradientTransformation | None = static()

    def __init__(
        self,
        client_step_size: Scalar,
        server_step_size: Scalar | None = None,
        server_optimizer: optax.GradientTransformation | None = None,
    ):
        if server_optimizer is not None and server_step_size is not None:
            advice = "give server_step_size or server_optimizer, not both; the optimizer has its own step size"
            raise ValueError(f"FedAvg: {advice}")
        if server_optimizer is not None:
            checks.instance("FedAvg", "server_optimizer", server_optimizer, optax.GradientTransformation)
        self.client_step_size = checked_step_size("FedAvg", "client_step_size", client_step_size)
        self.server_optimizer, self.server_step_size = server_optimizer, None
        if server_optimizer is None:
            server_step_size = 1.0 if server_step_size is None else server_step_size
            self.server_step_size = checked_step_size("FedAvg", "server_step_size", server_step_size)

    def init(self, x0: Params) -> AvgState:
        return AvgState(x0, () if self.server_optimizer is None else self.server_optimizer.init(x0))

    def broadcast(self, server: AvgState) -> AvgState:
        return AvgState(server.x, ())

    def start(self, server: AvgState, memory: NoMemory) -> Params:
        return server.x

    def step(self, client: Params, grad_fn: GradFn) -> Params:
        return optax.tree.add_scale(client, -self.client_step_size, grad_fn(client))

    def finish(self, server: AvgState, client: Params) -> tuple[Params, NoMemory]:
        return optax.tree.sub(client, server.x), ()

    def update(self, server: AvgState, mean_message: Params, round: Round) -> AvgState:
        if self.server_optimizer is None:
            return AvgState(optax.tree.add_scale(server.x, self.server_step_size, mean_message), ())
        negative = jax.tree.map(lambda delta: -delta, mean_message)
        updates, state = self.server_optimizer.update(negative, server.optimizer, server.x)
        return AvgState(optax.apply_updates(server.x, updates), state)

    def solution(self, server: AvgState) -> Params:
        return server.x

    def primal(self, client: Params) -> Params:
        return client

    def for_clients(self) -> "FedAvg":
        return self if self.server_optimizer is None else FedAvg(self.client_step_size)

    def affine(self, local_steps: int) -> Affine | None:
        if self.server_optimizer is not None:
            return None
        eta = float(self.server_step_size)  # in float64, whatever it was given in
        return Affine([1], [[1]], [self.client_step_size], start=[[1]], keep=[[1 - eta]], take=[[eta]])
