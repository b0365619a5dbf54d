"""Linear models whose examples are gathered for a solver: as a Gram matrix where the loss is quadratic, or as dense features."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.linalg.blas import dsyrk  # pyright: ignore[reportAttributeAccessIssue]

from fedlocal.core import AbstractProblem, Params
from fedlocal.data.federated_data import SparseMatrix
from fedlocal.problems.linear import LinearProblem
from fedlocal.problems.smooth_part import SmoothPart
from fedlocal.solvers.coordinates import Coordinates

MOST_PARAMETERS = 4097  # parameters; the matrix has their square
BLOCK_NUMBERS = 1 << 23  # numbers of the features that are copied at once
MOST_NUMBERS = 1 << 24  # numbers


class Gram(SmoothPart):
    """F(x) = 1/2 v'Qv - c'v + constant for v the parameters of x as one vector."""

    matrix: jax.Array  # (D, D): Q
    linear: jax.Array  # (D,): c
    constant: jax.Array

    def value_and_gradient(self, x: Params) -> tuple[jax.Array, Params]:
        v, unravel = ravel_pytree(x)
        g = self.matrix @ v - self.linear
        return v @ (g - self.linear) / 2 + self.constant, unravel(g)

    def scaled(self, s: jax.Array) -> "Gram":
        """F as a function of v / s."""
        return Gram(s[:, None] * self.matrix * s, s * self.linear, self.constant)


def worth_gathering(problem: AbstractProblem) -> bool:
    """Return True if a problem is quadratic, dense, and has more examples than parameters, which are not too many."""
    if not isinstance(problem, LinearProblem) or not problem.score_loss.quadratic:
        return False
    if isinstance(problem.data.arrays[0], SparseMatrix):
        return False
    parameters = 1 + int(np.prod(problem.data.arrays[0].shape[1:]))
    return parameters <= min(MOST_PARAMETERS, problem.data.num_examples)


def gather(problem: LinearProblem, example_weights: np.ndarray, center: Any = None) -> Gram:
    """Q = h sum_i w_i a_i a_i' + l2, c = h sum_i w_i b_i a_i, constant = h/2 sum_i w_i b_i^2, where h is the second derivative
    of the loss; a_i begins with 1 for an intercept.

    `center` is subtracted from the features first: from their sums there would be fewer digits of it.
    """
    features, targets = feature_matrix(problem), np.asarray(problem.data.arrays[1], np.float64)
    first = int(problem.intercept)  # parameters are in the order of their names: intercept, weights
    size = first + features.shape[1]
    matrix, linear = np.zeros((size, size), order="F"), np.zeros(size)
    curvature = problem.score_loss.curvature_bound
    rows = max(1, BLOCK_NUMBERS // size)
    for start in range(0, len(features), rows):
        here = slice(start, start + rows)
        block = np.ones((len(targets[here]), size))
        block[:, first:] = features[here]
        if center is not None:
            block[:, first:] -= np.ravel(center)
        block *= np.sqrt(example_weights[here])[:, None]
        # half the work of a product of matrices: only one triangle is filled
        matrix = dsyrk(curvature, block.T, beta=1.0, c=matrix, lower=0, overwrite_c=True)
        linear += curvature * block.T @ (np.sqrt(example_weights[here]) * targets[here])
    matrix = np.triu(matrix) + np.triu(matrix, 1).T
    if problem.l2 is not None:
        matrix[range(first, size), range(first, size)] += float(problem.l2)
    constant: Any = curvature / 2 * np.sum(example_weights * targets**2)
    return Gram(jnp.asarray(matrix), jnp.asarray(linear), jnp.asarray(constant))


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
        scores = scores + scales["intercept"] * x["intercept"] if self.problem.intercept else scores
        value, u = jax.value_and_grad(mean_loss)(scores)
        g = {"weights": (u.T @ self.features).T.reshape(x["weights"].shape)}
        if self.problem.intercept:
            g["intercept"] = scales["intercept"] * jnp.sum(u, axis=0)
        penalty, pull = jax.value_and_grad(lambda z: self.problem.penalty(jax.tree.map(jnp.multiply, z, scales)))(x)
        return value + penalty, jax.tree.map(jnp.add, g, pull)


def fits(problem: AbstractProblem) -> bool:
    """Return True if a problem is a linear model with few enough numbers."""
    return isinstance(problem, LinearProblem) and int(np.prod(problem.data.arrays[0].shape)) <= MOST_NUMBERS


def feature_matrix(problem: LinearProblem) -> np.ndarray:
    """(n, d) features, in their own precision."""
    features: Any = problem.data.arrays[0]
    if isinstance(features, SparseMatrix):
        features = features.to_scipy().toarray()
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
