"""FederatedData: how it is made, what it hands out, sparse rows, and what it refuses."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from fedlocal import FederatedData
from fedlocal.data.federated_data import SparseMatrix

SIZES = (3, 1, 4)
over = pytest.mark.parametrize


def clients() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((n, 2)), rng.standard_normal(n)) for n in SIZES]


def rows_of(data: FederatedData, m: int) -> np.ndarray:
    return int(data.client_starts[m]) + np.arange(int(data.client_sizes[m]))


def sparse(seed: int = 0, rows: int = 8) -> scipy.sparse.csr_array:
    """A CSR matrix whose rows 0, 3 and last are empty."""
    matrix = scipy.sparse.random_array((rows, 5), density=0.5, rng=np.random.default_rng(seed), format="lil")
    matrix[[0, min(3, rows - 1), rows - 1]] = 0
    return scipy.sparse.csr_array(matrix)


def test_from_clients_gives_every_client_its_own_rows():
    data = FederatedData.from_clients(clients())
    for m, (features, targets) in enumerate(clients()):
        got = data.take(jnp.asarray(rows_of(data, m)))
        np.testing.assert_array_equal(got[0], features)
        np.testing.assert_array_equal(got[1], targets)


def test_from_clients_counts_clients_examples_and_the_largest():
    data = FederatedData.from_clients(clients())
    assert (data.num_clients, data.num_examples, data.largest) == (3, 8, 4)
    assert data.client_sizes.tolist() == list(SIZES)


def test_from_clients_takes_plain_arrays_and_lists():
    data = FederatedData.from_clients([[[[1.0], [2.0]], [1, 2]], [[[3.0]], [3]]])
    assert data.arrays[0].tolist() == [[1.0], [2.0], [3.0]]
    assert FederatedData.from_clients([np.ones((2, 3)), np.ones((1, 3))]).num_examples == 3


def test_from_groups_gathers_the_rows_of_each_group_in_their_order():
    groups = np.array(["b", "a", "b", "c", "a", "b"])
    data = FederatedData.from_groups((np.arange(6.0)[:, None], np.arange(6)), groups)
    owned = [data.arrays[1][rows_of(data, m)].tolist() for m in range(3)]
    assert owned == [[1, 4], [0, 2, 5], [3]]


def test_from_groups_equals_from_clients():
    features, targets = (np.concatenate(column) for column in zip(*clients(), strict=True))
    order = np.random.default_rng(1).permutation(8)
    groups = np.repeat([10, 20, 30], SIZES)[order]
    data, expected = (
        FederatedData.from_groups((features[order], targets[order]), groups),
        FederatedData.from_clients(clients()),
    )
    for m in range(3):
        got, want = data.arrays[1][rows_of(data, m)], expected.arrays[1][rows_of(expected, m)]
        assert sorted(got.tolist()) == sorted(want.tolist())


def test_shared_stores_the_examples_once_and_gives_all_of_them_to_every_client():
    data = FederatedData.shared(np.ones((5, 2)), np.arange(5), num_clients=1000)
    assert (data.num_clients, data.num_examples, data.arrays[0].shape) == (1000, 5, (5, 2))
    assert rows_of(data, 999).tolist() == [0, 1, 2, 3, 4]


def test_only_is_the_federation_of_one_client():
    data = FederatedData.from_clients(clients()).only(2)
    assert data.num_clients == 1
    np.testing.assert_array_equal(data.arrays[1][rows_of(data, 0)], clients()[2][1])


def test_only_holds_no_examples_of_other_clients():
    assert FederatedData.from_clients(clients()).only(2).num_examples == 4


def test_pooled_after_only_is_still_one_client():
    data = FederatedData.from_clients(clients()).only(2).pooled()
    np.testing.assert_array_equal(data.arrays[1][rows_of(data, 0)], clients()[2][1])


def test_pooled_gives_all_examples_to_one_client():
    data = FederatedData.from_clients(clients()).pooled()
    assert (data.num_clients, data.client_sizes.tolist(), data.client_starts.tolist()) == (1, [8], [0])


def test_only_and_pooled_keep_the_truth():
    full = FederatedData([np.ones((2, 1)), np.ones(2)], [0, 1], [1, 1], truth={"weights": np.ones(1)})
    assert full.only(0).truth is not None
    assert full.pooled().truth is not None


def mean_of_means(data: FederatedData, weights: np.ndarray, losses: np.ndarray) -> float:
    total = 0.0
    for m in range(data.num_clients):
        total += weights[m] * np.mean([losses[i] for i in rows_of(data, m)])
    return total


FEDERATIONS: dict[str, Callable[[], FederatedData]] = {
    "from_clients": lambda: FederatedData.from_clients(clients()),
    "shared": lambda: FederatedData.shared(np.ones((5, 2)), num_clients=3),
    "overlapping": lambda: FederatedData([np.ones((9, 2))], [0, 2, 4], [4, 3, 5]),
    "out_of_order": lambda: FederatedData([np.ones((9, 2))], [5, 0, 2], [3, 2, 3]),
    "some_rows_unused": lambda: FederatedData([np.ones((9, 2))], [1, 4, 6], [2, 1, 2]),
    "only": lambda: FederatedData.from_clients(clients()).only(1),
    "pooled": lambda: FederatedData.from_clients(clients()).pooled(),
}


@over("name", FEDERATIONS)
def test_example_weights_make_the_mean_of_means_one_sum(name: str):
    data, rng = FEDERATIONS[name](), np.random.default_rng(2)
    weights, losses = rng.dirichlet(np.ones(data.num_clients)), rng.standard_normal(data.num_examples)
    np.testing.assert_allclose(
        data.example_weights(weights) @ losses, mean_of_means(data, weights, losses), rtol=0, atol=1e-14
    )


@over("name", FEDERATIONS)
def test_example_weights_add_up_to_one(name: str):
    data = FEDERATIONS[name]()
    weights = np.full(data.num_clients, 1 / data.num_clients)
    assert abs(data.example_weights(weights).sum() - 1) < 1e-14


def test_sparse_rows_equal_dense_rows():
    matrix, rows = sparse(), np.array([7, 0, 2, 2, 5])
    np.testing.assert_array_equal(
        SparseMatrix.from_scipy(matrix).take(jnp.asarray(rows)).dense(), matrix.toarray()[rows]
    )


@over("shape", [(5,), (5, 3)])
def test_products_of_sparse_rows_equal_dense_products(shape: tuple[int, ...]):
    matrix, w = sparse(), np.random.default_rng(3).standard_normal(shape)
    got = SparseMatrix.from_scipy(matrix).take(jnp.arange(8)) @ jnp.asarray(w)
    np.testing.assert_allclose(got, matrix.toarray() @ w, rtol=0, atol=1e-14)


def test_sparse_matrix_without_any_entry_gives_zero_rows():
    rows = SparseMatrix.from_scipy(scipy.sparse.csr_array((3, 5))).take(jnp.arange(3))
    assert not rows.dense().any()
    assert (rows @ jnp.ones(5)).tolist() == [0, 0, 0]


def test_duplicate_entries_of_a_sparse_matrix_add_up():
    matrix = scipy.sparse.coo_array((np.array([1.0, 2.0]), (np.array([0, 0]), np.array([1, 1]))), shape=(1, 3))
    assert SparseMatrix.from_scipy(matrix).take(jnp.arange(1)).dense().tolist() == [[0, 3, 0]]


def test_a_sparse_matrix_of_the_user_is_not_changed():
    matrix = scipy.sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    SparseMatrix.from_scipy(matrix)
    assert matrix.nnz == 2


def test_from_clients_takes_a_list_of_csr():
    parts: list[Any] = [sparse(1, 3), sparse(2, 4)]
    data = FederatedData.from_clients([(part, np.zeros(part.shape[0])) for part in parts])
    assert isinstance(data.arrays[0], SparseMatrix)
    for m, part in enumerate(parts):
        np.testing.assert_array_equal(data.take(jnp.asarray(rows_of(data, m)))[0].dense(), part.toarray())


def test_from_groups_takes_csr():
    matrix, groups = sparse(), np.array([1, 0] * 4)
    data = FederatedData.from_groups((matrix, np.arange(8)), groups)
    features, targets = data.take(jnp.asarray(rows_of(data, 0)))
    np.testing.assert_array_equal(features.dense(), matrix.toarray()[np.asarray(targets)])


def test_shared_takes_csr():
    data = FederatedData.shared(sparse(), np.arange(8), num_clients=3)
    np.testing.assert_array_equal(data.take(jnp.arange(8))[0].dense(), sparse().toarray())


X, Y = np.ones((3, 2)), np.ones(3)


def with_nan(value: float) -> np.ndarray:
    return np.array([[1.0, value], [0.0, 1.0], [1.0, 1.0]])


def in_float32(clients: list[Any]) -> FederatedData:
    with jax.enable_x64(False):
        return FederatedData.from_clients(clients)


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "empty_client": (
        lambda: FederatedData.from_clients([(X, Y), (X[:0], Y[:0])]),
        "^FederatedData: client 1 has no examples; leave out",
    ),
    "no_client": (
        lambda: FederatedData.from_clients([]),
        "^FederatedData.from_clients: at least one client is needed, got an empty list$",
    ),
    "no_client_in_constructor": (
        lambda: FederatedData([X], [], []),
        "^FederatedData: at least one client is needed, got none$",
    ),
    "unequal_rows_in_a_client": (
        lambda: FederatedData.from_clients([(X, Y), (X, Y[:2])]),
        r"^FederatedData.from_clients: the arrays of client 1 have different numbers of rows: \[3, 2\]$",
    ),
    "unequal_rows_shared": (
        lambda: FederatedData.shared(X, Y[:2], num_clients=2),
        r"^FederatedData: all arrays must have the same number of rows, got shapes \(3, 2\), \(2,\)$",
    ),
    "unequal_numbers_of_arrays": (
        lambda: FederatedData.from_clients([(X, Y), (X,)]),
        "^FederatedData.from_clients: client 1 has 1 arrays, client 0 has 2$",
    ),
    "mismatching_features": (
        lambda: FederatedData.from_clients([(X, Y), (np.ones((3, 4)), Y)]),
        r"^FederatedData.from_clients: client 1 has examples of shape \(4,\), client 0 of shape \(2,\)$",
    ),
    "mismatching_sparse_features": (
        lambda: FederatedData.from_clients([(sparse(), np.ones(8)), (scipy.sparse.csr_array((8, 6)), np.ones(8))]),
        r"^FederatedData.from_clients: client 1 has examples of shape \(6,\), client 0 of shape \(5,\)$",
    ),
    "nan": (lambda: FederatedData.from_clients([(with_nan(np.nan), Y)]), "^FederatedData: array 0 holds nan or inf; "),
    "inf": (lambda: FederatedData.from_clients([(X, Y * np.inf)]), "^FederatedData: array 1 holds nan or inf; "),
    "nan_in_sparse": (
        lambda: FederatedData.from_clients([(scipy.sparse.csr_array(with_nan(np.nan)), Y)]),
        "^FederatedData: array 0 holds nan or inf; ",
    ),
    "too large for float32": (
        lambda: in_float32([(X * [1.0, 1e200], Y)]),
        r"^FederatedData: array 0 has values in column 1 \(counted from 0\) that float32 cannot hold; change their unit",
    ),
    "too large in sparse": (
        lambda: in_float32([(scipy.sparse.csr_array(X * [1.0, 1e200]), Y)]),
        r"^FederatedData: array 0 has values in column 1 \(counted from 0\) that float32 cannot hold; change their unit",
    ),
    "targets too large for float32": (
        lambda: in_float32([(X, Y + 1e200)]),
        r"^FederatedData: array 1 has values that float32 cannot hold; change their unit",
    ),
    "groups_too_short": (
        lambda: FederatedData.from_groups((X, Y), [0, 1]),
        r"^FederatedData.from_groups: groups must have one entry per row, got \(2,\) for arrays \[\(3, 2\), \(3,\)\]$",
    ),
    "groups_of_two_axes": (
        lambda: FederatedData.from_groups((X, Y), np.zeros((3, 1))),
        r"^FederatedData.from_groups: groups must have one entry per row, got \(3, 1\)",
    ),
    "no_clients_to_share": (
        lambda: FederatedData.shared(X, Y, num_clients=0),
        "^FederatedData.shared: num_clients must be a whole number >= 1, got 0$",
    ),
    "client_that_does_not_exist": (
        lambda: FederatedData.from_clients([(X, Y)]).only(1),
        "^FederatedData.only: client must be a whole number >= 0 and <= 0, got 1$",
    ),
    "a_single_number_for_an_array": (
        lambda: FederatedData.from_clients([(X, 1.0)]),
        "^FederatedData.* one row per example, got a single number",
    ),
    "text_for_numbers": (
        lambda: FederatedData.from_clients([(X, np.array(["yes", "no", "yes"]))]),
        "^FederatedData: array 1 must hold numbers, got ",
    ),
    "groups_of_one_array": (
        lambda: FederatedData.from_groups(X, [0, 0, 1]),  # pyright: ignore[reportArgumentType]
        r"^FederatedData.from_groups: arrays must be a tuple such as \(X, y\), got ",
    ),
    "one_tuple_instead_of_a_list_of_clients": (
        lambda: FederatedData.from_clients((X, Y)),
        r"^FederatedData.from_clients: clients must be a list with one \(X, y\) per client",
    ),
    "one_array_instead_of_a_list_of_clients": (
        lambda: FederatedData.from_clients(X),  # pyright: ignore[reportArgumentType]
        r"clients must be a list with one \(X, y\) per client, got one array of shape \(3, 2\)$",
    ),
    "groups_that_are_missing": (
        lambda: FederatedData.from_groups((X, Y), [0.0, np.nan, 1.0]),
        "^FederatedData.from_groups: groups has no value in row 1; leave these rows out, or name a client$",
    ),
    "named_groups_that_are_missing": (
        lambda: FederatedData.from_groups((X, Y), np.array(["a", "b", None], dtype=object)),
        "^FederatedData.from_groups: groups has no value in row 2; ",
    ),
    "groups_that_are_missing_in_a_list": (
        lambda: FederatedData.from_groups((X, Y), ["a", "b", np.nan]),
        "^FederatedData.from_groups: groups has no value in row 2; ",
    ),
    "groups_that_are_missing_in_pandas": (
        lambda: FederatedData.from_groups((X, Y), pd.array(["a", None, "b"], dtype="string")),
        "^FederatedData.from_groups: groups has no value in row 1; ",
    ),
    "dates_that_are_missing": (
        lambda: FederatedData.from_groups((X, Y), pd.to_datetime(["2020-01-01", None, "2020-01-02"])),
        "^FederatedData.from_groups: groups has no value in row 1; ",
    ),
    "rows_that_do_not_exist": (
        lambda: FederatedData([X, Y], [0, 2], [2, 2]),
        "^FederatedData: client 1 .* 3",
    ),
    "starts_and_sizes_of_unequal_length": (
        lambda: FederatedData([X, Y], [0], [2, 1]),
        "^FederatedData: .*starts.*sizes",
    ),
}


@over("name", ERRORS)
def test_what_it_refuses_is_told_in_one_sentence(name: str):
    call, sentence = ERRORS[name]
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_clients_are_the_items_of_data():
    """They are what `from_clients` takes, dense or sparse."""
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((n, 2)), np.arange(n) + 1.0) for n in (3, 1, 2)]
    data = FederatedData.from_clients(clients)
    assert len(data) == 3
    for given, (X, y) in zip(clients, data, strict=True):
        np.testing.assert_allclose(X, given[0], rtol=1e-15)
        np.testing.assert_array_equal(y, given[1])
    again = FederatedData.from_clients(list(data))
    np.testing.assert_array_equal(again.arrays[0], data.arrays[0])
    assert data[-1][1].tolist() == [1.0, 2.0]
    rare = FederatedData.from_clients([(sparse(), np.ones(8)), (sparse(), np.zeros(8))])
    np.testing.assert_array_equal(rare[1][0].toarray(), sparse().toarray())
    with pytest.raises(IndexError, match=r"client must be in 0..2, got 3"):
        data[3]


def test_data_say_what_they_are():
    data = FederatedData.from_clients([(np.ones((n, 5)), np.ones(n)) for n in (30, 80, 12)])
    assert repr(data) == "FederatedData(3 clients, 122 examples, 12 to 80 each; arrays (122, 5), (122,))"
    assert repr(data.only(0)) == "FederatedData(1 client, 30 examples, 30 each; arrays (30, 5), (30,))"
    assert "SparseMatrix" not in repr(FederatedData.from_clients([(sparse(), np.ones(8))]))
    jax.jit(lambda d: len(repr(d)) and d.arrays[1])(data)  # while it is traced, too
