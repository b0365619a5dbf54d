"""What a policy asks of a site's rows: how many there are, which columns are too rare, which rows matter to a gradient."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from fedlocal.core import AbstractProblem, Params
from fedlocal.data.federated_data import SparseMatrix, SparseRows
from fedlocal.data.moments import Moments
from fedlocal.flower.site.policy import Policy, Refused
from fedlocal.problems.data_problem import DataProblem
from fedlocal.problems.linear import LeastSquares, LinearProblem, Logistic, MatrixSensing
from fedlocal.problems.smooth_part import PooledMean

LARGEST_LEVERAGE = 0.9  # of a row; at 1 a combination of the columns is zero in all other rows
RANK = 1e-9  # relative; smaller singular values are rounding
ROUNDING = 1e-9  # relative, of the number of rows that matter in effect: one row is 1 - 1e-16 of them
MOST_DENSE = 10**7  # numbers of a sparse table that are looked at as a dense one
CURVATURE = {Logistic: 1 / 4, LeastSquares: 2.0, MatrixSensing: 2.0}  # largest second derivative of the loss of a score


def examples_of(problem: AbstractProblem) -> int:
    """Return the number of rows of a site; 1 for a problem without rows."""
    sizes = problem.sizes()
    return 1 if sizes is None else int(sizes[0])


def parameters_of(problem: AbstractProblem) -> Params:
    """Return shapes and types of a problem's parameters."""
    return jax.eval_shape(lambda: problem.init(jax.random.key(0)))


def check_rows(policy: Policy, problem: AbstractProblem) -> None:
    """Refuse a site with too few rows for its policy, or for the size of its model."""
    if problem.sizes() is None:
        return
    rows, numbers = examples_of(problem), sum(a.size for a in jax.tree.leaves(parameters_of(problem)))
    if rows < policy.fewest_rows:
        raise policy.refusal(f"there are {rows} rows", "fewest_rows")
    if numbers > policy.most_parameters_per_row * rows:
        raise policy.refusal(f"the model has {numbers} numbers for {rows} rows", "most_parameters_per_row")
    if isinstance(problem, LinearProblem):
        targets = np.asarray(problem.data.arrays[1])
        is_number = isinstance(problem, (LeastSquares, MatrixSensing))
        few = _unusual(targets) if is_number else int(np.unique(targets, return_counts=True)[1].min())
        if 0 < few < policy.smallest_cell:  # the gradient at the zero model would tell the sum of these rows
            raise policy.refusal(f"the target has another value than usual in {few} of {rows} rows", "smallest_cell")


def rare_columns(policy: Policy, problem: AbstractProblem) -> np.ndarray:
    """Places of the columns in which one row or a few differ from the usual value: their sums would tell on those rows."""
    if not isinstance(problem, LinearProblem) or policy.smallest_cell <= 1:
        return np.zeros(0, np.intp)
    features = problem.data.arrays[0]
    if isinstance(features, SparseMatrix):
        values, columns = np.asarray(features.values), np.asarray(features.columns)
        others = np.bincount(columns[values != 0], minlength=features.shape[1])  # the usual value is zero
        table = features.to_scipy().toarray() if np.prod(features.shape) <= MOST_DENSE else None
    else:
        table = np.asarray(features).reshape(len(features), -1)
        others = np.array([_unusual(column) for column in table.T])
    rare = np.flatnonzero((others > 0) & (others < policy.smallest_cell))
    return rare if table is None else np.union1d(rare, isolating_columns(table, rare)).astype(np.intp)


def isolating_columns(table: np.ndarray, without: np.ndarray) -> np.ndarray:
    """Places of columns to leave out, so that no combination of the others and a constant is zero in all rows but one.

    The second moments of such a combination with the columns would be that row: of a value far from all others, of two columns
    that differ in one row, or of a group of categories without one that a single row has. A row's leverage tells.
    """
    with np.errstate(all="ignore"):
        centred = np.asarray(table, np.float64) - np.mean(table, axis=0, dtype=np.float64)
        sizes = np.linalg.norm(centred, axis=0)
        columns = np.where(sizes > 0, centred / np.where(sizes > 0, sizes, 1), 0.0)
    columns[:, without] = 0.0
    found: list[int] = []
    while 2 * (columns.shape[1] - len(found)) <= len(table):  # with more columns every row has a large one
        left, values, right = np.linalg.svd(columns, full_matrices=False)
        known = values > RANK * max(values.max(initial=0.0), 1.0)
        leverage = np.sum(left[:, known] ** 2, axis=1) + 1 / len(table)
        row = int(np.argmax(leverage))
        if leverage[row] <= LARGEST_LEVERAGE:
            break
        parts = np.abs((left[row, known] / values[known]) @ right[known])  # of each column in the combination
        found.append(int(np.argmax(parts)))
        columns[:, found[-1]] = 0.0
    return np.array(found, np.intp)


def _unusual(column: np.ndarray) -> int:
    """Return how many values differ from the most frequent one."""
    return len(column) - int(np.unique(column, return_counts=True)[1].max())


def without_columns(problem: Any, places: np.ndarray) -> Any:
    """The problem with zeros in these columns, which is their mean where they are standardised."""
    if not places.size:
        return problem
    features = problem.data.arrays[0]
    if isinstance(features, SparseMatrix):
        kept = jnp.where(jnp.isin(features.columns, places), 0, features.values)
        new = eqx.tree_at(lambda f: f.values, features, kept)
    else:
        flat = features.reshape(len(features), -1).at[:, places].set(0)
        new = flat.reshape(features.shape)
    return eqx.tree_at(lambda p: p.data.arrays[0], problem, new)


def moments_without(moments: Moments, places: np.ndarray) -> Moments:
    """Moments that say nothing of these columns."""
    keep = np.ones(moments.present.size, bool)
    keep[places[places < keep.size]] = False
    return Moments(*(np.where(keep, field, 0.0) for field in moments))


def check_point(policy: Policy, problem: AbstractProblem, x: Params, zero_loss: Callable[[], float]) -> None:
    """Refuse a point at which a few rows make up the gradient, or at which the model is worse than no model.

    Points far away, where most losses are flat or steep, single out rows; a run does not get there. For linear models; for
    other problems with data the loss is not compared, since their zero model means nothing.
    """
    if not isinstance(problem, DataProblem):
        return
    loss, effective = _loss_and_effective_rows(problem, x)
    if not np.isfinite(effective) or effective < policy.fewest_rows * (1 - ROUNDING):
        what = f"in effect {effective:.3g} rows make up the gradient at this point"
        raise policy.refusal(what, "fewest_rows", "point")
    if isinstance(problem, LinearProblem) and np.isfinite(policy.largest_loss):
        nothing = zero_loss()
        if nothing > 0 and not loss <= policy.largest_loss * nothing:
            what = f"the loss is {loss:.3g} here and {nothing:.3g} for the zero model"
            raise policy.refusal(what, "largest_loss", "point", ". Step sizes may be too large")


def at_zero(problem: AbstractProblem) -> tuple[float, float]:
    """Return the loss of the zero model, and how many rows in effect make up its gradient; inf for a problem without rows."""
    if not isinstance(problem, DataProblem):
        return np.inf, np.inf
    return _loss_and_effective_rows(problem, jax.tree.map(lambda a: np.zeros(a.shape), parameters_of(problem)))


def _loss_and_effective_rows(problem: DataProblem, x: Params) -> tuple[float, float]:
    """The loss, and n (mean ||g_i||)^2 / mean ||g_i||^2, which is n where all rows have gradients of the same length."""
    with jax.enable_x64(True):
        x = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), x)
        loss, first, second = (float(a) for a in _row_sums(problem, x))
    rows = problem.data.num_examples
    return loss, rows * first**2 / second if second > 0 else rows


@jax.jit
def _row_sums(problem: DataProblem, x: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means over the rows of the loss, of the norm of a row's gradient, and of its square."""

    def sums(examples: tuple[Any, ...], weights: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        losses = problem.losses(x, examples)
        norms = _gradient_norms(problem, x, examples)
        return jnp.sum(weights * losses), jnp.sum(weights * norms), jnp.sum(weights * norms**2)

    return PooledMean.of_equal(problem)(sums)


def _gradient_norms(problem: DataProblem, x: Params, examples: tuple[Any, ...]) -> jax.Array:
    """(B,) norms of the gradients of the rows' losses."""
    if isinstance(problem, LinearProblem):
        features, slopes = examples[0], problem.slopes(x, examples)
        values = features.values if isinstance(features, SparseRows) else features
        squares = jnp.sum(values.reshape(values.shape[0], -1) ** 2, axis=1) + problem.intercept
        return jnp.sqrt(jnp.sum(slopes.reshape(slopes.shape[0], -1) ** 2, axis=1) * squares)

    def norm(example: tuple[Any, ...]) -> jax.Array:
        one = jax.tree.map(lambda a: a[None], example)
        g = jax.grad(lambda x: jnp.sum(problem.losses(x, one)))(x)
        return jnp.sqrt(sum(jnp.sum(a**2) for a in jax.tree.leaves(g)))

    return jax.lax.map(norm, examples)


def curvature(problem: AbstractProblem) -> float:
    """The largest curvature of a site's loss, the smoothness of F_m: c lambda_max([X 1]'[X 1] / n) + l2."""
    if type(problem) not in CURVATURE:
        raise Refused(f"{type(problem).__name__} has no known curvature; give the step size")
    assert isinstance(problem, LinearProblem)
    features, n = problem.data.arrays[0], problem.data.num_examples
    sparse = isinstance(features, SparseMatrix)
    matrix: Any = features.to_scipy().astype(np.float64) if sparse else np.asarray(features, np.float64).reshape(n, -1)
    if problem.intercept:
        ones = np.ones((n, 1))
        matrix = scipy.sparse.hstack([matrix, ones]).tocsr() if sparse else np.c_[matrix, ones]
    top = _largest_singular_value(matrix) ** 2 / n
    return CURVATURE[type(problem)] * top + float(0.0 if problem.l2 is None else problem.l2)


def _largest_singular_value(matrix: Any) -> float:
    if not scipy.sparse.issparse(matrix) or min(matrix.shape) <= 2:
        return float(np.linalg.norm(matrix.toarray() if scipy.sparse.issparse(matrix) else matrix, 2))
    start = np.ones(min(matrix.shape))
    found = scipy.sparse.linalg.svds(matrix, k=1, v0=start, return_singular_vectors=False, tol=1e-6)
    return float(found[0]) * (1 + 1e-6)
