"""A method with client memory, written by a user: SCAFFOLD on the same contract."""

from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import fedlocal as fl
from conformance.federation import SIZES, closeness, federation, numpy_gradient, start
from fedlocal.core import GradFn, Params


class ScaffoldState(NamedTuple):
    x: Params
    control: Params


class ScaffoldClient(NamedTuple):
    x: Params
    control: Params  # of the server
    own: Params
    steps: Any


class Scaffold(fl.LocalMethod):
    """Karimireddy et al. (2020), option II."""

    step_size: float

    def init(self, x0: Params) -> ScaffoldState:
        return ScaffoldState(x0, optax.tree.zeros_like(x0))

    def init_memory(self, x0: Params) -> Params:
        return optax.tree.zeros_like(x0)

    def start(self, server: ScaffoldState, memory: Params) -> ScaffoldClient:
        return ScaffoldClient(server.x, server.control, memory, 0.0 * jax.tree.leaves(memory)[0].sum())

    def step(self, client: ScaffoldClient, grad_fn: GradFn) -> ScaffoldClient:
        g = jax.tree.map(lambda g, c, own: g + c - own, grad_fn(client.x), client.control, client.own)
        return client._replace(x=optax.tree.add_scale(client.x, -self.step_size, g), steps=client.steps + 1)

    def finish(self, server: ScaffoldState, client: ScaffoldClient) -> tuple[ScaffoldState, Params]:
        walked = client.steps * self.step_size
        own = jax.tree.map(
            lambda own, c, a, b: own - c + (a - b) / walked, client.own, server.control, server.x, client.x
        )
        return ScaffoldState(optax.tree.sub(client.x, server.x), optax.tree.sub(own, client.own)), own

    def update(self, server: ScaffoldState, mean_message: ScaffoldState) -> ScaffoldState:
        return optax.tree.add(server, mean_message)

    def solution(self, server: ScaffoldState) -> Params:
        return server.x

    def primal(self, client: ScaffoldClient) -> Params:
        return client.x


def test_memory_survives_between_rounds_in_both_engines():
    arguments = {"rounds": 6, "local_epochs": 1, "batch_size": 3, "clients_per_round": 2, "x0": start(False)}
    fast, slow = (run(federation(), Scaffold(0.05), **arguments) for run in (fl.simulate, fl.loop))
    assert closeness(fast.x, slow.x) < 1e-12


def test_scaffold_removes_the_drift_that_fed_avg_keeps():
    """With full gradients SCAFFOLD converges to the optimum of the mean loss; FedAvg with several steps does not."""
    problem = federation()
    arguments = {"rounds": 20_000, "local_steps": 4, "eval_every": 20_000}
    gradients = [numpy_gradient(problem, sum(SIZES[:m]) + np.arange(n)) for m, n in enumerate(SIZES)]

    def norm(result: fl.Result) -> float:
        x = np.concatenate([[result.x["intercept"]], result.x["weights"].ravel()])
        return float(np.linalg.norm(np.mean([g(x) for g in gradients], axis=0)))

    assert norm(fl.simulate(problem, Scaffold(0.01), **arguments)) < 1e-6
    assert norm(fl.simulate(problem, fl.methods.FedAvg(0.01), **arguments)) > 1e-3
