"""The loss in float64, and metrics of it: on other data, against the optimum, and the fraction of right answers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Params
from fedlocal.core.types import Weights
from fedlocal.data.federated_data import FederatedData
from fedlocal.metrics.base import Evaluation, Metric
from fedlocal.problems.data_problem import DataProblem
from fedlocal.problems.smooth_part import check_shapes, client_weights
from fedlocal.util import checks


class Suboptimality(Metric):
    """objective - optimum.

    Args:
        optimum: the minimum of F + psi, e.g. `fl.solvers.centralized(problem, psi).objective`.
    """

    def __init__(self, optimum: float):
        self.optimum = checks.number("Suboptimality", "optimum", optimum)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return {"suboptimality": evaluation.objective - self.optimum}


class Loss(Metric):
    """The loss of the same parameters on other data.

    Args:
        other: data, e.g. for validation, on which the problem of the run is taken; or another problem.
        name: of the column.
        weights: how the clients of `other` count: "uniform", "examples", or a number for each.
    """

    def __init__(
        self, other: FederatedData | AbstractProblem, name: str = "validation_loss", weights: Weights = "uniform"
    ):
        if not isinstance(other, (FederatedData, AbstractProblem)):
            raise TypeError(f"Loss: other must be FederatedData or a problem, got {type(other).__name__}")
        self.other, self.name = other, name
        self.weights: Weights = weights

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        problem = problem_on("Loss", self.other, evaluations[0])
        weights = client_weights("Loss", problem, self.weights)
        losses = losses_in_float64(problem, stacked_points(evaluations), problem.loss_weights(weights))
        return [{self.name: float(loss)} for loss in losses]


class Accuracy(Metric):
    """The fraction of examples that are classified correctly.

    Args:
        data: the examples; None takes those of the problem.
        name: of the column.
    """

    def __init__(self, data: FederatedData | None = None, name: str = "accuracy"):
        self.data, self.name = data, name

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        problem: Any = evaluations[0].problem
        if not hasattr(problem, "correct"):
            raise TypeError(f"Accuracy: needs Logistic, Softmax or MLP, got {type(problem).__name__}")
        assert isinstance(problem, DataProblem)
        measured = problem if self.data is None else problem_on("Accuracy", self.data, evaluations[0])
        points = stacked_points(evaluations)
        with jax.enable_x64(True):
            return [{self.name: float(value)} for value in _accuracies(measured, points)]


def problem_on(owner: str, other: FederatedData | AbstractProblem, evaluation: Evaluation) -> AbstractProblem:
    """Return the problem of a run on other data, or `other` itself if it is a problem; before the first round it is checked."""
    own, found = evaluation.problem, other
    if isinstance(found, FederatedData):
        if not isinstance(own, DataProblem):
            raise TypeError(f"{owner}: {type(own).__name__} has no data; give another problem instead of data")
        found = own.with_data(found)
    if evaluation.round == 0:
        check_shapes(owner, "x of the run", found, evaluation.x)
        found.check_losses(owner, evaluation.x)
    return found


def stacked_points(evaluations: Sequence[Evaluation]) -> Params:
    """Return the points of several evaluations, stacked along the first axis of every array."""
    return jax.tree.map(lambda *a: np.stack(a), *(evaluation.x for evaluation in evaluations))


def losses_in_float64(problem: AbstractProblem, points: Params, loss_weights: np.ndarray) -> np.ndarray:
    """Return F at several points, which are stacked along the first axis of every array."""
    with jax.enable_x64(True):
        points = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), points)
        return np.asarray(_losses(problem, points, jnp.asarray(loss_weights, jnp.float64)))


@jax.jit
def _losses(problem: AbstractProblem, points: Params, loss_weights: jax.Array) -> jax.Array:
    if len(jax.tree.leaves(points)[0]) == 1:  # a product with a vector is faster than with a matrix of one column
        return problem.loss(jax.tree.map(lambda a: a[0], points), loss_weights)[None]
    return jax.vmap(problem.loss, (0, None))(points, loss_weights)


@jax.jit
def _accuracies(problem: Any, points: Params) -> jax.Array:
    each = jnp.full(problem.data.num_examples, 1 / problem.data.num_examples)
    return jax.vmap(lambda x: problem.weighted_sum(problem.correct, x, each))(points)
