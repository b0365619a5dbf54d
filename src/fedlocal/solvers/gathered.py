"""Gram: a quadratic F through its matrix, so that an iteration costs d^2 instead of n d."""

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

LARGEST = 4097  # parameters; the matrix has their square
BLOCK_NUMBERS = 1 << 23  # numbers of the features that are copied at once


class Gram(SmoothPart):
    """F(x) = 1/2 v'Qv - c'v + constant for v the parameters of x as one vector."""

    matrix: jax.Array  # (D, D): Q
    linear: jax.Array  # (D,): c
    constant: jax.Array

    def value_and_gradient(self, x: Params) -> tuple[jax.Array, Params]:
        v, unravel = ravel_pytree(x)
        g = self.matrix @ v - self.linear
        return v @ (g - self.linear) / 2 + self.constant, unravel(g)

    def scaled(self, scales: np.ndarray) -> "Gram":
        """F as a function of v / scales."""
        s = jnp.asarray(scales)
        return Gram(s[:, None] * self.matrix * s, s * self.linear, self.constant)


def worth_gathering(problem: AbstractProblem) -> bool:
    """Return True if a problem is quadratic, dense, and has more examples than parameters, which are not too many."""
    if not isinstance(problem, LinearProblem) or not problem.score_loss.quadratic:
        return False
    if isinstance(problem.data.arrays[0], SparseMatrix):
        return False
    parameters = 1 + int(np.prod(problem.data.arrays[0].shape[1:]))
    return parameters <= min(LARGEST, problem.data.num_examples)


def gather(problem: LinearProblem, example_weights: np.ndarray, center: np.ndarray | None = None) -> Gram:
    """Q = h sum_i w_i a_i a_i' + l2, c = h sum_i w_i b_i a_i, constant = h/2 sum_i w_i b_i^2, where h is the second derivative
    of the loss; a_i begins with 1 for an intercept.

    `center` is subtracted from the features first: from their sums there would be fewer digits of it.
    """
    features = np.asarray(problem.data.arrays[0]).reshape(problem.data.num_examples, -1)
    targets = np.asarray(problem.data.arrays[1], np.float64)
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
