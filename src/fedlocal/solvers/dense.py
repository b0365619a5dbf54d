"""Dense: a linear model's features as one float64 matrix, which is several times faster than block after block."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from fedlocal.core import AbstractProblem, Params
from fedlocal.data.federated_data import SparseMatrix
from fedlocal.problems.linear import LinearProblem
from fedlocal.problems.smooth_part import SmoothPart
from fedlocal.solvers.coordinates import Coordinates

LARGEST = 1 << 24  # numbers


class Dense(SmoothPart):
    """F(x) = sum_i w_i l_i(s_i) + penalty, s = A x + x0, as a function of the z of some coordinates."""

    problem: LinearProblem
    coordinates: Coordinates
    features: jax.Array  # (n, d): centred and scaled
    targets: jax.Array
    example_weights: jax.Array  # (n,)

    def value_and_gradient(self, x: Params) -> tuple[jax.Array, Params]:
        scales = self.coordinates.scales

        def mean_loss(scores: jax.Array) -> jax.Array:
            return jnp.sum(self.example_weights * self.problem.losses_of_scores(scores, self.targets))

        outputs = self.problem.output_shape()
        scores = self.features @ x["weights"].reshape(-1, *outputs)
        value, u = jax.value_and_grad(mean_loss)(
            scores + scales["intercept"] * x["intercept"] if self.problem.intercept else scores
        )
        g = {"weights": (u.T @ self.features).T.reshape(x["weights"].shape)}
        if self.problem.intercept:
            g["intercept"] = scales["intercept"] * jnp.sum(u, axis=0)
        penalty, pull = jax.value_and_grad(lambda z: self.problem.penalty(jax.tree.map(jnp.multiply, z, scales)))(x)
        return value + penalty, jax.tree.map(jnp.add, g, pull)


def fits(problem: AbstractProblem) -> bool:
    """Return True if a problem is a linear model with few enough numbers."""
    return isinstance(problem, LinearProblem) and int(np.prod(problem.data.arrays[0].shape)) <= LARGEST


def feature_matrix(problem: LinearProblem) -> np.ndarray:
    """(n, d) features, in their own precision."""
    features: Any = problem.data.arrays[0]
    if isinstance(features, SparseMatrix):
        parts = (np.asarray(features.values), np.asarray(features.columns), np.asarray(features.row_starts))
        features = scipy.sparse.csr_array(parts, shape=features.shape).toarray()
    return np.asarray(features).reshape(problem.data.num_examples, -1)


def gather_features(
    problem: LinearProblem, matrix: np.ndarray, example_weights: np.ndarray, coordinates: Coordinates
) -> Dense:
    """All features as one matrix, ready for a z of these coordinates."""
    matrix = np.asarray(matrix, np.float64)
    if coordinates.center is not None:
        matrix = matrix - np.ravel(coordinates.center)
    matrix = matrix * np.ravel(coordinates.scales["weights"])  # one number, or one per column
    targets = np.asarray(problem.data.arrays[1])
    if np.issubdtype(targets.dtype, np.floating):
        targets = targets.astype(np.float64)
    return Dense(problem, coordinates, jnp.asarray(matrix), jnp.asarray(targets), jnp.asarray(example_weights))
