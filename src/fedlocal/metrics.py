"""Metrics: what is measured at every evaluation besides loss and objective, in float64.

A metric is an object with `measure(evaluation)`, or a function of the parameters that returns numbers, one or a dict.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, LocalMethod, Params, Regularizer, Server, Zero, is_free
from fedlocal.data.federated_data import FederatedData
from fedlocal.problems.data_problem import DataProblem
from fedlocal.util import checks

__all__ = [
    "Accuracy",
    "ClientDiscrepancy",
    "ConstraintViolation",
    "Density",
    "Evaluation",
    "FrobeniusError",
    "Loss",
    "Metric",
    "Potentials",
    "Rank",
    "SparseRecovery",
    "Suboptimality",
]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class Evaluation:
    """What a metric is computed from: a point of a run with its problem, method and objective."""

    x: Params  # parameters as float64 NumPy arrays
    loss: float
    objective: float
    problem: AbstractProblem
    method: LocalMethod
    client_weights: np.ndarray
    discrepancy: dict[str, float]
    server: Server = None  # the method's server state, as NumPy arrays
    round: int = 0  # rounds done
    plan: Any = None  # who took part: the `Plan` of the run


class Metric(ABC):
    """A quantity that is measured at every evaluation."""

    @abstractmethod
    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        """Return column names and values at one point."""

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        """Return the columns at several points of one problem; for metrics that are faster together."""
        return [self.measure(evaluation) for evaluation in evaluations]


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
    """The loss of the same parameters on other data; clients have equal weights.

    Args:
        other: data, e.g. for validation, on which the problem of the run is taken; or another problem.
        name: of the column.
    """

    def __init__(self, other: FederatedData | AbstractProblem, name: str = "validation_loss"):
        if not isinstance(other, (FederatedData, AbstractProblem)):
            raise TypeError(f"Loss: other must be FederatedData or a problem, got {type(other).__name__}")
        self.other, self.name = other, name

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        problem = self.other
        if isinstance(problem, FederatedData):
            own = evaluations[0].problem
            if not isinstance(own, DataProblem):
                raise TypeError(f"Loss: {type(own).__name__} has no data; give another problem instead of data")
            problem = own.with_data(problem)
        weights = np.full(problem.num_clients, 1 / problem.num_clients)
        points = jax.tree.map(lambda *a: np.stack(a), *(evaluation.x for evaluation in evaluations))
        losses = losses_in_float64(problem, points, problem.loss_weights(weights))
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
        problem = evaluations[0].problem
        if not hasattr(problem, "correct"):
            raise TypeError(f"Accuracy: needs Logistic, Softmax or MLP, got {type(problem).__name__}")
        assert isinstance(problem, DataProblem)
        measured = problem if self.data is None else problem.with_data(self.data)
        points = jax.tree.map(lambda *a: np.stack(a), *(seen.x for seen in evaluations))
        with jax.enable_x64(True):
            return [{self.name: float(value)} for value in _accuracies(measured, points)]


class Density(Metric):
    """The fraction of weights (intercepts aside) that are not zero.

    Args:
        threshold: weights of at most this absolute value count as zero; at least 0.
    """

    def __init__(self, threshold: float = 0.0):
        self.threshold = checks.number("Density", "threshold", threshold, at_least=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return {"density": float(np.mean(np.abs(_weights(evaluation.x)) > self.threshold))}


class SparseRecovery(Metric):
    """Density, precision, recall and F1 of the recovered support.

    Args:
        truth: the true weights, an array, or the true parameters, whose intercepts are left out.
        threshold: weights of at most this absolute value count as zero; at least 0.
    """

    def __init__(self, truth: Any, threshold: float = 1e-2):
        self.support = np.abs(_weights(truth)) > 0
        self.threshold = checks.number("SparseRecovery", "threshold", threshold, at_least=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        found = np.abs(_weights(evaluation.x)) > self.threshold
        if found.shape != self.support.shape:
            raise ValueError(f"SparseRecovery: truth has {self.support.size} weights, the parameters have {found.size}")
        hits = np.sum(found & self.support)
        precision = hits / found.sum() if found.any() else 0.0
        recall = hits / self.support.sum() if self.support.any() else 1.0
        f1 = 2 * hits / (found.sum() + self.support.sum()) if found.any() or self.support.any() else 1.0
        return {"density": float(found.mean()), "precision": float(precision), "recall": float(recall), "f1": float(f1)}


class Rank(Metric):
    """The rank of the weight matrix.

    Args:
        threshold: singular values of at most this count as zero; at least 0.
    """

    def __init__(self, threshold: float = 1e-2):
        self.threshold = checks.number("Rank", "threshold", threshold, at_least=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        kept = [a for path, a in jax.tree_util.tree_flatten_with_path(evaluation.x)[0] if not is_free(path)]
        if len(kept) != 1 or np.ndim(kept[0]) != 2:
            raise ValueError(f"Rank: needs parameters with one weight matrix, got shapes {[np.shape(a) for a in kept]}")
        matrix = np.asarray(kept[0])
        if not np.isfinite(matrix).all():
            return {"rank": np.nan}
        singular = np.linalg.svd(matrix, compute_uv=False)
        return {"rank": float(np.sum(singular > self.threshold))}


class FrobeniusError(Metric):
    """||X - truth||_F for the weights.

    Args:
        truth: the true weights, an array, or the true parameters, whose intercepts are left out.
    """

    def __init__(self, truth: Any):
        self.truth = _weights(truth)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        found = _weights(evaluation.x)
        if found.shape != self.truth.shape:
            raise ValueError(f"FrobeniusError: truth has {self.truth.size} weights, the parameters have {found.size}")
        return {"frobenius_error": float(np.linalg.norm(found - self.truth))}


class ConstraintViolation(Metric):
    """How far the parameters are outside a constraint.

    Args:
        regularizer: the constraint; None takes the regulariser of the method.
    """

    def __init__(self, regularizer: Regularizer | None = None):
        self.regularizer = regularizer

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        psi = self.regularizer or evaluation.method.regularizer
        if isinstance(psi, Zero):
            raise TypeError(f"ConstraintViolation: {type(evaluation.method).__name__} has no regularizer; give one")
        with jax.enable_x64(True):
            return {"constraint_violation": float(psi.violation(evaluation.x))}


class ClientDiscrepancy(Metric):
    """mean_m ||x_m - mean x||^2 at the end of a round, in the space that the method averages (the dual for FedDualAvg)."""

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return evaluation.discrepancy


class Potentials(Metric):
    """What the analyses of FedAc decrease, at the end of a round, where all clients hold the server's (x, x_ag).

    Psi = F(x_ag) - F* + mu/2 ||x - x*||^2 for FedAc-I, Phi = F(x_ag) - F* + mu/6 ||x - x*||^2 for FedAc-II.

    Args:
        optimum, solution: F* and x*.
        strong_convexity: mu, above 0.

    Reference: dissertation, eq. fedaci:potential and centralied:potential. Differs from it: not measured inside a round.
    """

    def __init__(self, optimum: float, solution: Params, strong_convexity: float):
        self.optimum, self.solution = checks.number("Potentials", "optimum", optimum), solution
        self.strong_convexity = checks.number("Potentials", "strong_convexity", strong_convexity, above=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        if not {"x", "ag"} <= set(getattr(evaluation.server, "_fields", ())):
            name = type(evaluation.method).__name__
            raise TypeError(f"Potentials: needs a method with (x, x_ag) such as FedAc, got {name}")
        squares = jax.tree.map(lambda a, b: float(np.sum((np.asarray(a) - b) ** 2)), evaluation.server.x, self.solution)
        distance, gap = sum(jax.tree.leaves(squares)), evaluation.loss - self.optimum
        mu = self.strong_convexity
        return {"psi": gap + mu / 2 * distance, "phi": gap + mu / 6 * distance}


def measure(metric: Metric | Callable[[Params], Any], evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
    """Return a metric's columns at these points; a plain function gives a column of its own name."""
    if isinstance(metric, Metric):
        return metric.measure_many(evaluations)
    values = [metric(evaluation.x) for evaluation in evaluations]
    named = [value if isinstance(value, dict) else {metric_name(metric): value} for value in values]
    return [{name: _number(metric, number) for name, number in each.items()} for each in named]


def measure_point(problem: AbstractProblem, metrics: Sequence[Metric], x: Params) -> dict[str, float]:
    """Return the values of metrics that look at the point alone, outside a run."""
    evaluation = Evaluation(x, np.nan, np.nan, problem, None, np.ones(1), {})  # pyright: ignore[reportArgumentType]
    return {name: value for metric in metrics for name, value in metric.measure(evaluation).items()}


def _number(metric: Callable[[Params], Any], value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        name = metric_name(metric)
        raise TypeError(f"metrics: {name} must return a number or a dict of numbers, got {value!r}") from None


def metric_name(metric: Metric | Callable[[Params], Any]) -> str:
    """Return the name of a metric."""
    return type(metric).__name__ if isinstance(metric, Metric) else getattr(metric, "__name__", "metric")


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


def _weights(x: Any) -> np.ndarray:
    """Return all parameters but intercepts as one vector."""
    leaves = jax.tree_util.tree_flatten_with_path(x)[0]
    return np.concatenate([np.ravel(a) for path, a in leaves if not is_free(path)])
