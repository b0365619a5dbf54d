"""Partitioners: functions that assign the rows of a data set to clients. Each returns the client of every row.

groups = fl.data.partition.dirichlet(y, num_clients=10, concentration=0.3, seed=0)
data = fl.FederatedData.from_groups((X, y), groups)
"""

from typing import Any

import numpy as np

from fedlocal.util import checks

__all__ = ["by_quantity", "dirichlet", "iid", "shards"]


def __dir__() -> list[str]:
    return sorted(__all__)


def iid(num_examples: int, num_clients: int, seed: int = 0) -> np.ndarray:
    """Rows dealt at random, as evenly as possible.

    >>> np.bincount(iid(10, 3)).tolist()
    [4, 3, 3]
    """
    num_examples = checks.whole("partition.iid", "num_examples", num_examples)
    num_clients = checks.whole("partition.iid", "num_clients", num_clients, at_most=num_examples)
    return _rng("partition.iid", seed).permutation(np.arange(num_examples) % num_clients)


def by_quantity(num_examples: int, num_clients: int, concentration: float, seed: int = 0) -> np.ndarray:
    """Rows dealt at random, in unequal numbers: shares drawn from a symmetric Dirichlet; every client gets at least one."""
    owner = "partition.by_quantity"
    num_examples = checks.whole(owner, "num_examples", num_examples)
    num_clients = checks.whole(owner, "num_clients", num_clients, at_most=num_examples)
    concentration = checks.number(owner, "concentration", concentration, above=0)
    rng = _rng(owner, seed)
    shares = rng.dirichlet(np.full(num_clients, concentration))
    sizes = 1 + rng.multinomial(num_examples - num_clients, shares)
    return rng.permutation(np.repeat(np.arange(num_clients), sizes))


def dirichlet(labels: Any, num_clients: int, concentration: float, seed: int = 0) -> np.ndarray:
    """Label skew: each class is dealt by shares drawn from a symmetric Dirichlet; every client gets at least one row.

    A small concentration gives clients that see few classes, a large one approaches iid.
    """
    owner = "partition.dirichlet"
    labels = _labels(owner, labels)
    num_clients = checks.whole(owner, "num_clients", num_clients, at_most=len(labels))
    concentration = checks.number(owner, "concentration", concentration, above=0)
    rng = _rng(owner, seed)
    groups = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        sizes = rng.multinomial(len(rows), rng.dirichlet(np.full(num_clients, concentration)))
        groups[rows] = np.repeat(np.arange(num_clients), sizes)
    for client in range(num_clients):  # a client left empty takes one row from the largest
        if not (groups == client).any():
            largest = np.flatnonzero(groups == np.bincount(groups, minlength=num_clients).argmax())
            groups[rng.choice(largest)] = client
    return groups


def shards(labels: Any, num_clients: int, shards_per_client: int = 2, seed: int = 0) -> np.ndarray:
    """Rows sorted by label and cut into equal shards; every client gets `shards_per_client` of them at random."""
    labels = _labels("partition.shards", labels)
    num_clients = checks.whole("partition.shards", "num_clients", num_clients, at_most=len(labels))
    most = len(labels) // num_clients
    per_client = checks.whole("partition.shards", "shards_per_client", shards_per_client, at_most=most)
    rng = _rng("partition.shards", seed)
    owners = rng.permutation(np.repeat(np.arange(num_clients), per_client))
    groups = np.empty(len(labels), np.int64)
    for owner, rows in zip(owners, np.array_split(np.argsort(labels, kind="stable"), len(owners)), strict=True):
        groups[rows] = owner
    return groups


def _rng(owner: str, seed: int) -> np.random.Generator:
    return np.random.default_rng(checks.whole(owner, "seed", seed, at_least=0))


def _labels(owner: str, labels: Any) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"{owner}: labels must have one entry per row, got shape {labels.shape}")
    return labels
