"""Means and variances of columns over several sites, from sums over each site's rows."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from fedlocal.util import checks

ROUNDING = 8 * np.finfo(np.float64).eps  # a deviation this small against the mean is rounding
TINY = np.finfo(np.float64).tiny
SMALLEST = 1e-150  # the least deviation whose square float64 holds with all digits


class UnitError(ValueError):
    """A column has a unit in which float64 cannot hold the squares of its values."""

    def __init__(self, owner: str, column: int, size: str, name: str | None = None):
        self.column, self.size = column, size
        which = f"column {column} (counted from 0)" if name is None else f"column {name!r}"
        wrong = f"{owner}: {which} has values so {size} that float64 cannot hold their squares"
        super().__init__(f"{wrong}; change its unit, so that they are nearer to 1, or drop it")


class Moments(NamedTuple):
    r"""What of each column leaves a site: how many values, their mean, and their sum of squares around it.

    Two sites' moments give those of their rows together (Chan, Golub and LeVeque 1979):
        n = n_a + n_b,   delta = mean_b - mean_a,
        mean = mean_a + delta n_b / n,   squares = squares_a + squares_b + delta^2 n_a n_b / n.

    >>> north = Moments.of(np.array([[1.0], [2.0], [np.nan]]), at_least=1)
    >>> south = Moments.of(np.array([[3.0], [6.0]]), at_least=1)
    >>> scaling = north.merge(south).scaling()
    >>> scaling.mean.tolist(), (scaling.scale**2).round(12).tolist()
    ([3.0], [3.5])
    >>> scaling.apply(np.array([[3.0], [np.nan]])).tolist()
    [[0.0], [0.0]]
    """

    present: np.ndarray  # (d,) number of values that are not missing, or the sum of their weights
    mean: np.ndarray  # (d,) of these; 0 where there are none
    squares: np.ndarray  # (d,) sum of (value - mean)^2, each times its weight

    @classmethod
    def of(cls, features: Any, at_least: int = 5, weights: Any = None) -> "Moments":
        """The moments of one site's features (n, d): an array in which nan is a missing value, or a sparse matrix without nan.

        `weights` (n,), all above zero, count a row as so many rows; None counts each once.

        Few rows could be worked out from their moments: a site with fewer than `at_least` rows is refused, and a column in
        which it has fewer values than that is given as if it had none. That is a small guard and not anonymity: the mean
        of a column of zeros and ones still tells how many ones there are, be it a single one.
        """
        at_least = checks.whole("Moments.of", "at_least", at_least)
        matrix = _matrix("Moments.of", features)
        if matrix.shape[0] < at_least:
            wanted = f"at least {at_least} rows, so that they do not tell on single ones, got {matrix.shape[0]}"
            instead = "leave out this site, or lower at_least if its rows are not secret"
            raise ValueError(f"Moments.of: features must have {wanted}; {instead}")
        each = np.ones(matrix.shape[0]) if weights is None else np.asarray(weights, np.float64)
        if each.shape != matrix.shape[:1] or not (each > 0).all():
            got = f"shape {each.shape}, the smallest {np.min(each, initial=np.inf):g}"
            raise ValueError(f"Moments.of: weights must be {matrix.shape[0]} numbers above zero, got {got}")
        with np.errstate(over="ignore", invalid="ignore"):
            count, moments = (_of_sparse if scipy.sparse.issparse(matrix) else _of_dense)(matrix, each)
        _refuse("Moments.of", ~np.isfinite(moments.squares), "large")
        enough = count >= at_least
        return cls(*(np.where(enough, field, 0.0) for field in moments))

    def merge(self, other: "Moments") -> "Moments":
        """The moments of both sites' rows together."""
        if self.present.shape != other.present.shape:
            got = f"{self.present.size} and {other.present.size} of them"
            raise ValueError(f"Moments.merge: all sites must have the same columns, got {got}")
        present = self.present + other.present
        share = other.present / _or_one(present)
        apart, both = other.mean - self.mean, (self.present > 0) & (other.present > 0)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self.squares + other.squares + np.where(both, apart, 0) ** 2 * self.present * share
        _refuse("Moments.merge", ~np.isfinite(squares), "large")
        differ = both & (np.abs(apart) > ROUNDING * np.maximum(np.abs(self.mean), np.abs(other.mean)))
        return Moments(present, self.mean + apart * share, _not_zero(squares, differ))

    @classmethod
    def merged(cls, sites: Sequence["Moments"]) -> "Moments":
        """The moments of all sites' rows together; their order changes nothing but rounding."""
        if not sites:
            raise ValueError("Moments.merged: at least one site is needed, got none")
        return reduce(Moments.merge, sites)

    def scaling(self) -> "Scaling":
        """What brings each column to mean zero and variance one (of n, not n - 1); constant columns get only the mean zero."""
        deviation = np.sqrt(self.squares / _or_one(self.present))
        constant = deviation <= ROUNDING * np.abs(self.mean)
        _refuse("Moments.scaling", ~constant & (deviation < SMALLEST), "small")
        return Scaling(np.where(self.present > 0, self.mean, np.nan), np.where(constant, 1.0, deviation))


class Scaling(NamedTuple):
    """Columns in common units: (value - mean) / scale, and 0, which is the mean, for what is missing."""

    mean: np.ndarray  # (d,) nan where no site has any value: `apply` makes such a column zero
    scale: np.ndarray  # (d,) 1 where a column is constant or nobody has it

    def apply(self, features: Any) -> Any:
        """Standardised features, in float64. Sparse ones are only divided by the scale: centred, they would be dense."""
        matrix = _matrix("Scaling.apply", features)
        if matrix.shape[1] != self.mean.size:
            raise ValueError(f"Scaling.apply: features must have {self.mean.size} columns, got {matrix.shape[1]}")
        if scipy.sparse.issparse(matrix):
            return scipy.sparse.csr_array(matrix.multiply(self._factors()))
        return np.nan_to_num((matrix - self.mean) / self.scale, nan=0.0)

    def unscale(self, weights: Any, intercept: Any, centred: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Weights (d,) or (d, classes) and intercept of a linear model of `apply(features)`, as those of the features themselves.

        A missing feature then counts as its mean. `centred=False` is for a model of sparse features, which were only scaled.
        """
        weights = np.asarray(weights, np.float64)
        if weights.shape[:1] != self.mean.shape:
            raise ValueError(f"Scaling.unscale: weights must have {self.mean.size} rows, got shape {weights.shape}")
        weights = (weights.T * self._factors()).T
        intercept = np.asarray(intercept, np.float64)
        return weights, intercept - np.nan_to_num(self.mean) @ weights if centred else intercept

    def _factors(self) -> np.ndarray:
        return np.where(np.isnan(self.mean), 0.0, 1 / self.scale)


def _matrix(owner: str, features: Any) -> Any:
    """(n, d) float64, an array or a csr_array without entries that are there twice."""
    sparse = scipy.sparse.issparse(features)
    if sparse:
        matrix: Any = scipy.sparse.csr_array(features, dtype=np.float64, copy=True)  # summing works in place
        matrix.sum_duplicates()
        if not np.isfinite(matrix.data).all():
            raise ValueError(f"{owner}: sparse features must be finite; what is not stored is 0 and not missing")
    else:
        matrix = np.asarray(features, np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"{owner}: features must have two axes, rows and columns, got shape {matrix.shape}")
    if not sparse and np.isinf(matrix).any():
        raise ValueError(f"{owner}: features must be finite, or nan where they are missing, got inf")
    return matrix


def _of_dense(matrix: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, Moments]:
    """The number of values of each column that are not missing, and their moments."""
    known, each = ~np.isnan(matrix), np.broadcast_to(weights[:, None], matrix.shape)
    present = np.sum(each, axis=0, where=known)
    mean = np.zeros(matrix.shape[1])
    for _ in range(2):  # the second time adds what rounding left
        mean = mean + np.sum(each * (matrix - mean), axis=0, where=known) / _or_one(present)
    apart = matrix - mean
    furthest = np.max(np.abs(apart), axis=0, where=known, initial=0.0)
    squares = np.sum(each * apart**2, axis=0, where=known)
    return known.sum(axis=0), Moments(present, mean, _not_zero(squares, furthest > ROUNDING * np.abs(mean)))


def _of_sparse(matrix: Any, weights: np.ndarray) -> tuple[np.ndarray, Moments]:
    """As `_of_dense`."""
    (rows, width), columns, values = matrix.shape, matrix.indices, matrix.data
    each, total = np.repeat(weights, np.diff(matrix.indptr)), weights.sum()
    has_zeros = np.bincount(columns, minlength=width) < rows
    zeros = np.where(has_zeros, total - np.bincount(columns, each, width), 0.0)
    mean = np.zeros(width)
    for _ in range(2):
        mean = mean + (np.bincount(columns, each * (values - mean[columns]), width) - zeros * mean) / total
    apart = values - mean[columns]
    squares = np.bincount(columns, each * apart**2, width) + zeros * mean**2
    furthest = np.where(has_zeros, np.abs(mean), 0.0)
    np.maximum.at(furthest, columns, np.abs(apart))
    moments = Moments(np.full(width, total), mean, _not_zero(squares, furthest > ROUNDING * np.abs(mean)))
    return np.full(width, rows), moments


def _or_one(present: np.ndarray) -> np.ndarray:
    """What to divide by: one where there is nothing."""
    return np.where(present > 0, present, 1.0)


def _not_zero(squares: np.ndarray, differ: np.ndarray) -> np.ndarray:
    """Sums of squares, at least the smallest number with all digits where values differ: zero would say that they do not."""
    return np.where(differ & (squares < TINY), TINY, squares)


def _refuse(owner: str, wrong: np.ndarray, size: str) -> None:
    if wrong.any():
        raise UnitError(owner, int(np.argmax(wrong)), size)
