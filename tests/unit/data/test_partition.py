"""Partitioners: every row dealt once, every client served, skew as documented."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedlocal.data import partition

ROWS, CLIENTS, CLASSES = 600, 12, 6
LABELS = np.random.default_rng(0).integers(0, CLASSES, ROWS)
PARTITIONERS: dict[str, Callable[[int], np.ndarray]] = {
    "iid": lambda seed: partition.iid(ROWS, CLIENTS, seed=seed),
    "by_quantity": lambda seed: partition.by_quantity(ROWS, CLIENTS, concentration=0.5, seed=seed),
    "by_quantity_skewed": lambda seed: partition.by_quantity(ROWS, CLIENTS, concentration=0.01, seed=seed),
    "dirichlet": lambda seed: partition.dirichlet(LABELS, CLIENTS, concentration=0.5, seed=seed),
    "dirichlet_skewed": lambda seed: partition.dirichlet(LABELS, CLIENTS, concentration=0.01, seed=seed),
    "shards": lambda seed: partition.shards(LABELS, CLIENTS, shards_per_client=2, seed=seed),
}
over = pytest.mark.parametrize


def sizes(groups: np.ndarray) -> np.ndarray:
    return np.bincount(groups, minlength=CLIENTS)


def classes_seen(groups: np.ndarray) -> float:
    """Mean number of classes that a client sees."""
    return float(np.mean([len(np.unique(LABELS[groups == m])) for m in range(CLIENTS)]))


@over("name", PARTITIONERS)
def test_every_row_goes_to_one_existing_client(name: str):
    groups = PARTITIONERS[name](0)
    assert groups.shape == (ROWS,)
    assert np.issubdtype(groups.dtype, np.integer)
    assert ((groups >= 0) & (groups < CLIENTS)).all()


@over("seed", range(5))
@over("name", PARTITIONERS)
def test_every_client_gets_a_row(name: str, seed: int):
    assert sizes(PARTITIONERS[name](seed)).min() >= 1


@over("name", PARTITIONERS)
def test_the_same_seed_deals_the_same(name: str):
    np.testing.assert_array_equal(PARTITIONERS[name](3), PARTITIONERS[name](3))


@over("name", PARTITIONERS)
def test_another_seed_deals_differently(name: str):
    assert (PARTITIONERS[name](3) != PARTITIONERS[name](4)).any()


@over(("rows", "clients"), [(600, 12), (607, 12), (12, 12), (1, 1)])
def test_iid_sizes_differ_by_at_most_one(rows: int, clients: int):
    counts = np.bincount(partition.iid(rows, clients), minlength=clients)
    assert counts.max() - counts.min() == (rows % clients > 0)


def test_iid_deals_classes_in_their_shares():
    """Each cell of the table of counts is hypergeometric; the sum of squared standard scores has mean 55 on 12 x 6 cells."""
    groups = partition.iid(ROWS, CLIENTS, seed=1)
    table = np.array([np.bincount(LABELS[groups == m], minlength=CLASSES) for m in range(CLIENTS)])
    expected = np.outer(sizes(groups), np.bincount(LABELS)) / ROWS
    freedom = (CLIENTS - 1) * (CLASSES - 1)
    statistic = np.sum((table - expected) ** 2 / expected)
    assert abs(statistic - freedom) < 4 * np.sqrt(2 * freedom)


def test_by_quantity_with_a_small_concentration_gives_almost_all_to_few_clients():
    shares = [sizes(partition.by_quantity(ROWS, CLIENTS, 0.01, seed=s)).max() / ROWS for s in range(20)]
    assert np.mean(shares) > 0.7


def test_by_quantity_with_a_large_concentration_deals_almost_evenly():
    """Sizes are 1 + multinomial with nearly equal shares: standard deviation sqrt((n - M) / M (1 - 1/M))."""
    counts = sizes(partition.by_quantity(ROWS, CLIENTS, 1e6))
    deviation = np.sqrt((ROWS - CLIENTS) / CLIENTS * (1 - 1 / CLIENTS))
    assert np.abs(counts - ROWS / CLIENTS).max() < 4 * deviation


def test_by_quantity_sizes_have_the_variance_of_the_dirichlet_multinomial():
    n, a = ROWS - CLIENTS, 0.5
    draws = np.array([sizes(partition.by_quantity(ROWS, CLIENTS, a, seed=s)) for s in range(200)])
    share, total = 1 / CLIENTS, CLIENTS * a
    variance = n * share * (1 - share) * (n + total) / (1 + total)
    squares = (draws[:, 0] - 1 - n * share) ** 2
    assert abs(squares.mean() - variance) < 4 * squares.std() / np.sqrt(len(squares))


def test_dirichlet_with_a_small_concentration_shows_clients_few_classes():
    assert classes_seen(partition.dirichlet(LABELS, CLIENTS, 0.01)) < 2


def test_dirichlet_with_a_large_concentration_shows_clients_all_classes():
    assert classes_seen(partition.dirichlet(LABELS, CLIENTS, 1e6)) == CLASSES


def test_dirichlet_skew_falls_with_the_concentration():
    seen = [classes_seen(partition.dirichlet(LABELS, CLIENTS, a)) for a in (0.01, 0.1, 1.0, 100.0)]
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


def test_dirichlet_serves_as_many_clients_as_there_are_rows():
    groups = partition.dirichlet(np.zeros(9, int), 9, concentration=0.01)
    assert sorted(groups.tolist()) == list(range(9))


def test_dirichlet_takes_labels_of_any_kind():
    names = np.array(["cat", "dog", "eel", "fox", "gnu", "hen"])[LABELS]
    np.testing.assert_array_equal(partition.dirichlet(names, CLIENTS, 0.5), partition.dirichlet(LABELS, CLIENTS, 0.5))


def test_shards_are_equal_so_clients_are():
    assert set(sizes(PARTITIONERS["shards"](0))) == {ROWS // CLIENTS}


@over("shards", [1, 2, 3])
def test_a_client_sees_no_more_classes_than_its_shards_can_hold(shards: int):
    """A shard of 600 / (12 k) rows is shorter than a class, so it touches at most two classes."""
    assert np.bincount(LABELS).min() > ROWS / CLIENTS
    groups = partition.shards(LABELS, CLIENTS, shards_per_client=shards)
    assert max(len(np.unique(LABELS[groups == m])) for m in range(CLIENTS)) <= 2 * shards


def test_shards_with_as_many_as_rows_serve_every_client_equally():
    groups = partition.shards(np.arange(12), 4, shards_per_client=3)
    assert np.bincount(groups).tolist() == [3, 3, 3, 3]


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "iid_more_clients_than_rows": (
        lambda: partition.iid(3, 4),
        "^partition.iid: num_clients must be a whole number >= 1 and <= 3, got 4$",
    ),
    "iid_no_clients": (lambda: partition.iid(3, 0), "^partition.iid: num_clients must be .* got 0$"),
    "iid_half_a_client": (lambda: partition.iid(3, 1.5), "^partition.iid: num_clients must be .* got 1.5$"),  # pyright: ignore[reportArgumentType]
    "iid_no_rows": (lambda: partition.iid(0, 1), "^partition.iid: num_examples must be .*>= 1, got 0$"),
    "iid_negative_seed": (lambda: partition.iid(3, 2, seed=-1), "^partition.iid: seed must be .*>= 0, got -1$"),
    "by_quantity_more_clients_than_rows": (
        lambda: partition.by_quantity(3, 4, 1.0),
        "^partition.by_quantity: num_clients must be .* <= 3, got 4$",
    ),
    "by_quantity_concentration_zero": (
        lambda: partition.by_quantity(3, 2, 0.0),
        "^partition.by_quantity: concentration must be > 0, got 0",
    ),
    "dirichlet_more_clients_than_rows": (
        lambda: partition.dirichlet([0, 1], 3, 1.0),
        "^partition.dirichlet: num_clients must be .* <= 2, got 3$",
    ),
    "dirichlet_concentration_nan": (
        lambda: partition.dirichlet([0, 1], 2, np.nan),
        "^partition.dirichlet: concentration must be > 0, got nan$",
    ),
    "dirichlet_negative_seed": (
        lambda: partition.dirichlet([0, 1], 2, 1.0, seed=-1),
        "^partition.dirichlet: seed must be .*>= 0, got -1$",
    ),
    "dirichlet_labels_of_two_axes": (
        lambda: partition.dirichlet(np.zeros((4, 1)), 2, 1.0),
        r"^partition.dirichlet: labels must .*\(4, 1\)",
    ),
    "shards_more_clients_than_rows": (
        lambda: partition.shards([0, 1, 2], 5, shards_per_client=1),
        "^partition.shards: num_clients must be .* <= 3, got 5$",
    ),
    "shards_too_many": (
        lambda: partition.shards([0, 1, 2, 3], 2, shards_per_client=3),
        "^partition.shards: shards_per_client must be .* <= 2, got 3$",
    ),
}


@over("name", ERRORS)
def test_a_bad_argument_is_told_in_one_sentence(name: str):
    call, sentence = ERRORS[name]
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()
