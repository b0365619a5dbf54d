"""FederatedData: the examples of all clients, one after the other, with the place where each client's begin."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse

from fedlocal.core import static
from fedlocal.util import checks, html
from fedlocal.util.hashing import IDENTITY
from fedlocal.util.placement import Rounding, on_device


class SparseRows(eqx.Module):
    """Some rows of a CSR matrix, padded to the longest row: a padded entry has value zero and column zero."""

    values: jax.Array  # (B, k)
    columns: jax.Array  # (B, k)
    num_columns: int = static()

    def dense(self) -> jax.Array:
        """(B, d) array."""
        empty = jnp.zeros((*self.values.shape[:-1], self.num_columns), self.values.dtype)
        return jax.vmap(lambda row, columns, values: row.at[columns].add(values))(empty, self.columns, self.values)

    def __matmul__(self, w: jax.Array) -> jax.Array:
        """(B,) or (B, C) scores; touches only the coordinates of `w` that the rows use."""
        return jnp.einsum("bk,bk...->b...", self.values, w[self.columns])


class SparseMatrix(eqx.Module):
    """A CSR matrix on the device. Rows are read without ever making the dense matrix."""

    values: jax.Array  # (nnz,)
    columns: jax.Array  # (nnz,)
    row_starts: jax.Array  # (n + 1,)
    shape: tuple[int, int] = static()
    longest_row: int = static()

    @classmethod
    def from_scipy(cls, matrix: Any) -> "SparseMatrix":
        csr = scipy.sparse.csr_array(matrix)
        if not csr.has_canonical_format:
            csr = csr.copy()  # summing works in place, and the matrix is the user's
            csr.sum_duplicates()
        if csr.nnz == 0:  # something to point padding at
            csr = scipy.sparse.csr_array((np.zeros(1), ([0], [0])), shape=csr.shape)
        lengths = np.diff(csr.indptr)
        values = on_device(np.asarray(csr.data, jnp.result_type(float)))
        columns, starts = on_device(csr.indices.astype(np.int32)), on_device(csr.indptr.astype(np.int32))
        rows, width = np.shape(matrix)
        return cls(values, columns, starts, (rows, width), int(lengths.max(initial=1)))

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def to_scipy(self) -> scipy.sparse.csr_array:
        parts = (np.asarray(self.values), np.asarray(self.columns), np.asarray(self.row_starts))
        return scipy.sparse.csr_array(parts, shape=self.shape)

    def take(self, rows: jax.Array) -> SparseRows:
        start, stop = self.row_starts[rows], self.row_starts[rows + 1]
        place = start[:, None] + jnp.arange(self.longest_row)
        inside = place < stop[:, None]
        place = jnp.where(inside, place, 0)
        values = jnp.where(inside, self.values[place], 0)
        return SparseRows(values, jnp.where(inside, self.columns[place], 0), self.shape[1])


class FederatedData(eqx.Module):
    """Examples of all clients, concatenated; client m owns `sizes[m]` rows from `starts[m]`. Unequal clients waste nothing.

    Args:
        arrays: (features, targets, ...), each with n rows of finite numbers; SciPy's sparse ones are allowed.
        starts, sizes: (M,) first row and number of rows, at least one, of each client; clients may share rows.
        truth: the parameters that synthetic data was made from; None for real data.
        rounding: that of the data which the arrays were taken from; None finds out what JAX rounds now.

    >>> data = FederatedData.from_clients([(np.ones((3, 2)), np.zeros(3)), (np.ones((1, 2)), np.ones(1))])
    >>> data
    FederatedData(2 clients, 4 examples, 1 to 3 each; arrays (4, 2), (4,))
    >>> len(data), data[1][1].tolist()
    (2, [1.0])
    """

    arrays: tuple[Any, ...]  # on the device, sparse ones as SparseMatrix
    client_starts: jax.Array  # (M,)
    client_sizes: jax.Array  # (M,)
    truth: Any
    largest: int = static()  # examples of the largest client
    rounding: Rounding = static(repr=False, metadata={IDENTITY: False})

    def __init__(
        self, arrays: Sequence[Any], starts: Any, sizes: Any, truth: Any = None, rounding: Rounding | None = None
    ):
        with np.errstate(over="ignore"):  # what overflows is told below
            self.arrays = tuple(_device_array(i, a) for i, a in enumerate(arrays))
        self.rounding = Rounding.of(arrays, self.arrays) if rounding is None else rounding
        rows = {a.shape[0] for a in self.arrays}
        if len(rows) != 1:
            shapes = ", ".join(str(a.shape) for a in self.arrays)
            raise ValueError(f"FederatedData: all arrays must have the same number of rows, got shapes {shapes}")
        for i, a in enumerate(self.arrays):
            values = a.values if isinstance(a, SparseMatrix) else a
            if jnp.issubdtype(values.dtype, jnp.floating) and not np.isfinite(values).all():  # compiles nothing
                raise ValueError(f"FederatedData: array {i} {_why_not_finite(arrays[i], a)}")
        self.truth = truth
        starts, sizes, count = np.asarray(starts, np.int32), np.asarray(sizes, np.int32), rows.pop()
        empty = np.flatnonzero(sizes < 1)
        if len(empty):
            raise ValueError(f"FederatedData: client {empty[0]} has no examples; leave out clients without data")
        if len(sizes) == 0:
            raise ValueError("FederatedData: at least one client is needed, got none")
        if starts.shape != sizes.shape:
            got = f"{starts.shape} starts and {sizes.shape} sizes"
            raise ValueError(f"FederatedData: one of starts per one of sizes, got {got}")
        beyond = np.flatnonzero((starts < 0) | (starts + sizes > count))
        if len(beyond):
            m, last = beyond[0], (starts + sizes - 1)[beyond[0]]
            raise ValueError(f"FederatedData: client {m} has rows {starts[m]} to {last}, but there are {count} rows")
        self.client_starts, self.client_sizes, self.largest = on_device(starts), on_device(sizes), int(sizes.max())

    @classmethod
    def from_clients(cls, clients: Sequence[Any]) -> "FederatedData":
        """One item per client: a tuple of arrays `(X, y)` with as many rows as the client has examples."""
        owner = "FederatedData.from_clients"
        if hasattr(clients, "shape"):
            got = f"one array of shape {np.shape(clients)}"
            raise TypeError(f"{owner}: clients must be a list with one (X, y) per client, got {got}")
        if isinstance(clients, tuple) and all(hasattr(c, "shape") for c in clients):
            raise TypeError(f"{owner}: clients must be a list with one (X, y) per client, got one tuple of arrays")
        items = [tuple(c) if isinstance(c, (tuple, list)) else (c,) for c in clients]
        if not items:
            raise ValueError(f"{owner}: at least one client is needed, got an empty list")
        for m, item in enumerate(items):
            if len(item) != len(items[0]):
                raise ValueError(f"{owner}: client {m} has {len(item)} arrays, client 0 has {len(items[0])}")
            if any(np.ndim(a) == 0 for a in item):
                raise ValueError(f"{owner}: arrays need one row per example, got a single number for client {m}")
            for a, b in zip(item, items[0], strict=True):
                if np.shape(a)[1:] != np.shape(b)[1:]:
                    shapes = f"{np.shape(a)[1:]}, client 0 of shape {np.shape(b)[1:]}"
                    raise ValueError(f"{owner}: client {m} has examples of shape {shapes}")
            rows = [np.shape(a)[0] for a in item]
            if len(set(rows)) != 1:
                raise ValueError(f"{owner}: the arrays of client {m} have different numbers of rows: {rows}")
        sizes = np.array([np.shape(item[0])[0] for item in items])
        return cls([_stack(column) for column in zip(*items, strict=True)], np.cumsum(sizes) - sizes, sizes)

    @classmethod
    def from_groups(cls, arrays: Sequence[Any], groups: Any) -> "FederatedData":
        """Rows with the same value of `groups` belong to one client; clients come in the order of the sorted values."""
        owner = "FederatedData.from_groups"
        if not isinstance(arrays, (tuple, list)):
            raise TypeError(f"{owner}: arrays must be a tuple such as (X, y), got {type(arrays).__name__}")
        listed = groups if hasattr(groups, "dtype") else np.asarray(groups, object)  # a list would become text
        missing, groups = np.flatnonzero(pd.isna(listed)), np.asarray(groups)
        if groups.ndim != 1 or any(groups.shape[0] != np.shape(a)[0] for a in arrays):
            shapes = [np.shape(a) for a in arrays]
            raise ValueError(f"{owner}: groups must have one entry per row, got {groups.shape} for arrays {shapes}")
        if len(missing):
            raise ValueError(
                f"{owner}: groups has no value in row {missing[0]}; leave these rows out, or name a client"
            )
        _, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        order = np.argsort(index, kind="stable")
        everything = (scipy.sparse.csr_array(a) if scipy.sparse.issparse(a) else np.asarray(a) for a in arrays)
        return cls([a[order] for a in everything], np.cumsum(sizes) - sizes, sizes)

    @classmethod
    def shared(cls, *arrays: Any, num_clients: int) -> "FederatedData":
        """The homogeneous case: every one of `num_clients` clients draws from all examples, which are stored once."""
        num_clients = checks.whole("FederatedData.shared", "num_clients", num_clients)
        rows = np.shape(arrays[0])[0]
        return cls(arrays, np.zeros(num_clients), np.full(num_clients, rows))

    @property
    def num_clients(self) -> int:
        return self.client_sizes.shape[0]

    def __len__(self) -> int:
        """The number of clients."""
        return self.num_clients

    def __getitem__(self, client: int) -> tuple[Any, ...]:
        """The arrays of one client, as NumPy's or SciPy's: what `from_clients` takes of it."""
        place = operator.index(client)
        if not -len(self) <= place < len(self):
            raise IndexError(f"FederatedData: client must be in 0..{len(self) - 1}, got {client}")
        start, size = int(self.client_starts[place]), int(self.client_sizes[place])
        whole = (a.to_scipy() if isinstance(a, SparseMatrix) else np.asarray(a) for a in self.arrays)
        return tuple(a[start : start + size] for a in whole)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (self[client] for client in range(len(self)))

    def __repr__(self) -> str:
        if checks.is_traced(self.client_sizes):
            return super().__repr__()
        sizes, shapes = np.asarray(self.client_sizes), ", ".join(str(tuple(a.shape)) for a in self.arrays)
        clients = "1 client" if len(self) == 1 else f"{len(self)} clients"
        each = f"{sizes.min()} each" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()} each"
        return f"FederatedData({clients}, {self.num_examples} examples, {each}; arrays {shapes})"

    def _repr_html_(self) -> str:
        sizes = np.asarray(self.client_sizes)
        rows: dict[str, Any] = {"clients": len(self), "examples": self.num_examples}
        rows["examples of a client"] = f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}"
        rows |= {f"array {i}": f"{a.dtype} {tuple(a.shape)}" for i, a in enumerate(self.arrays)}
        return html.section("FederatedData", html.facts(rows))

    @property
    def num_examples(self) -> int:
        return self.arrays[0].shape[0]

    def take(self, rows: jax.Array) -> tuple[Any, ...]:
        """The examples in these rows, which must exist."""
        return tuple(
            a.take(rows) if isinstance(a, SparseMatrix) else a.at[rows].get(mode="promise_in_bounds")
            for a in self.arrays
        )

    def only(self, client: int) -> "FederatedData":
        """One client's data as a federation of its own."""
        client = checks.whole("FederatedData.only", "client", client, at_least=0, at_most=self.num_clients - 1)
        return FederatedData(self[client], [0], [int(self.client_sizes[client])], self.truth, self.rounding)

    def pooled(self) -> "FederatedData":
        """All examples gathered at one client."""
        return FederatedData(self.arrays, [0], [self.num_examples], self.truth, self.rounding)

    def example_weights(self, client_weights: np.ndarray) -> np.ndarray:
        """(n,) weights v with sum_m p_m mean_{i in client m} loss_i = sum_i v_i loss_i, in float64."""
        starts, sizes = np.asarray(self.client_starts), np.asarray(self.client_sizes)
        each = client_weights / sizes
        weights = np.zeros(self.num_examples)
        if (starts[1:] >= starts[:-1] + sizes[:-1]).all():  # no row belongs to two clients
            rows = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
            weights[rows] = np.repeat(each, sizes)
        else:
            intervals, index = np.unique(np.stack([starts, sizes], axis=1), axis=0, return_inverse=True)
            sums = np.bincount(index.ravel(), weights=each)  # over the clients that own the same rows
            for (start, size), total in zip(intervals, sums, strict=True):
                weights[start : start + size] += total
        return weights


def _device_array(i: int, a: Any) -> Any:
    if isinstance(a, SparseMatrix):
        return a
    if scipy.sparse.issparse(a):
        return SparseMatrix.from_scipy(a)
    if not isinstance(a, jax.Array) and np.asarray(a).dtype.kind not in "biufc":
        raise TypeError(f"FederatedData: array {i} must hold numbers, got {np.asarray(a).ravel()[:1].tolist()}")
    array = a if isinstance(a, jax.Array) else on_device(a)
    if array.ndim == 0:
        raise ValueError("FederatedData: arrays need one row per example, got a single number")
    return array


def _why_not_finite(given: Any, kept: Any) -> str:
    """Why an array on the device has values that are no numbers, and what would help."""
    values = given.data if scipy.sparse.issparse(given) else np.asarray(given)
    if isinstance(given, SparseMatrix) or not np.isfinite(values).all():
        return "holds nan or inf; remove or impute those rows first"
    if isinstance(kept, SparseMatrix):
        columns = np.asarray(kept.columns)[~np.isfinite(kept.values)]
    else:
        columns = np.argwhere(~np.isfinite(kept))[0, 1:]
    where = f" in column {int(columns[0])} (counted from 0)" if len(columns) else ""
    wide = 'jax.config.update("jax_enable_x64", True)'
    return f"has values{where} that {kept.dtype} cannot hold; change their unit, or use {wide}"


def _stack(column: Sequence[Any]) -> Any:
    if any(scipy.sparse.issparse(a) for a in column):
        return scipy.sparse.vstack(column, format="csr")
    return np.concatenate([np.asarray(a) for a in column])
