"""A small federation with unequal clients, and its gradients in plain NumPy for the transcripts."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedlocal as fl
from fedlocal.core.types import Weights
from fedlocal.problems.data_problem import DataProblem
from fedlocal.simulation.plan import Plan, Sampling
from oracles.transcripts import Grads

SIZES = (4, 7, 1, 12, 5)
SHAPE = (2, 3)  # weights are a matrix, so that the nuclear norm has something to do


def federation(seed: int = 0) -> fl.problems.MatrixSensing:
    """Matrix sensing with an unpenalised intercept; client m has SIZES[m] examples."""
    return _federation(seed, bool(jax.config.jax_enable_x64))  # pyright: ignore[reportAttributeAccessIssue]


@cache
def _federation(seed: int, _: bool) -> fl.problems.MatrixSensing:
    """The data have the precision that is in force when they are made."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(SHAPE)
    clients = []
    for n in SIZES:
        features = rng.standard_normal((n, *SHAPE)) + rng.standard_normal(SHAPE)
        clients.append((features, np.tensordot(features, truth, 2) + 0.5 + 0.1 * rng.standard_normal(n)))
    return fl.problems.MatrixSensing(fl.FederatedData.from_clients(clients))


def start(positive: bool) -> dict[str, np.ndarray]:
    """A starting point that is feasible for all constraints of the tests."""
    weights = np.array([[0.05, 0.02, 0.1], [0.04, 0.06, 0.01]])
    return {
        "weights": weights if positive else weights * np.array([[1, -1, 1], [-1, 1, 1]]),
        "intercept": np.array(0.3),
    }


def flat(x: dict[str, Any]) -> np.ndarray:
    """Intercept first, then the weights."""
    return np.concatenate([[x["intercept"]], np.ravel(x["weights"])])


MASK = np.array([False] + [True] * 6)


def numpy_gradient(problem: DataProblem, rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """x -> gradient of the mean squared error over these rows, by the formula."""
    features, targets = (np.asarray(a) for a in problem.data.arrays)
    design = np.concatenate([np.ones((len(rows), 1)), features[rows].reshape(len(rows), -1)], axis=1)
    return lambda x: 2 * design.T @ (design @ x - targets[rows]) / len(rows)


def rounds_of(problem: fl.problems.MatrixSensing, rounds: int, weights: Weights, **sampling: Any) -> list:
    """What the transcripts take: for every round and client its weight and its gradients, one per local step."""
    plan = Plan.make(problem, Sampling(weights=weights, **sampling))
    starts, sizes = np.asarray(problem.data.client_starts), np.asarray(problem.data.client_sizes)
    out = []
    for r in range(rounds):
        cohort = plan.cohort(r)
        raw = sizes[cohort] if weights == "examples" else np.ones(len(cohort))
        clients = []
        for m, weight in zip(cohort, raw / raw.sum(), strict=True):
            own = starts[m] + np.arange(int(sizes[m]))
            draws = plan.draws(plan.round_key(r), jnp.asarray(m))
            grads = []
            for k in range(int(plan.steps[m])):
                rows = own
                if plan.batch_size is not None:
                    batch = plan.batch(draws, jnp.asarray(m), k)
                    rows = np.asarray(batch.rows)
                    if batch.weights is not None:
                        rows = rows[np.asarray(batch.weights) > 0]
                grads.append(numpy_gradient(problem, rows))
            clients.append((weight, Grads(grads, int(m), len(sizes))))
        out.append(clients)
    return out


def closeness(a: Any, b: Any) -> float:
    """Largest absolute difference between two pytrees."""
    return max(
        float(np.max(np.abs(np.asarray(x) - np.asarray(y)))) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
    )
