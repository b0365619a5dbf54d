"""The plain loop compiles gradients once: more rounds trace no loss again."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl

RNG = np.random.default_rng(0)
DATA = fl.FederatedData.from_groups(
    (RNG.standard_normal((12, 3)), RNG.standard_normal(12)), np.repeat([0, 1, 2], [3, 4, 5])
)


class Counted:
    """A loss that counts how often it is traced; with a loop inside, which JAX compiles wherever it runs by itself."""

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, x: Any, a: Any, b: Any) -> Any:
        self.traces += 1
        return jax.lax.fori_loop(0, 2, lambda i, total: total + (a @ x - b) ** 2, jnp.zeros(()))


PROBLEMS: dict[str, Callable[[fl.Problem], Any]] = {
    "itself": lambda problem: problem,
    "augmented": lambda problem: fl.problems.augmented(problem, 0.1, np.zeros(3)),
}
WORK: dict[str, dict[str, Any]] = {
    "full gradients": {"local_steps": 2},
    "minibatches": {"local_steps": 2, "batch_size": 2},
    "epochs": {"local_epochs": 1, "batch_size": 2},
}


def traces(make: Callable[[fl.Problem], Any], rounds: int, **work: Any) -> int:
    loss = Counted()
    problem = make(fl.Problem(loss, DATA))
    arguments: dict[str, Any] = {"x0": np.zeros(3), "rounds": rounds, "eval_every": rounds, "progress": False}
    fl.loop(problem, fl.methods.FedAvg(0.01), **arguments, **work)
    return loss.traces


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("view", PROBLEMS)
def test_more_rounds_trace_no_loss_again(view: str, work: str):
    few, many = (traces(PROBLEMS[view], rounds, **WORK[work]) for rounds in (1, 4))
    assert 1 <= few <= 8
    assert many == few
