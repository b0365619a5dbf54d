"""Groups of clients that own the same examples, so that each group is evaluated once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedlocal.core import AbstractProblem


class ClientGroup(NamedTuple):
    """All clients that own the same examples."""

    client: int  # the first client of the group
    weight: float  # the sum of their weights in F
    rows: slice  # their examples

    @property
    def size(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def mean_weights(self) -> np.ndarray:
        """(n,) weights 1/n of the mean over the examples."""
        return np.full(self.size, 1 / self.size)


def group_clients(problem: AbstractProblem, p: np.ndarray) -> list[ClientGroup]:
    """Group the clients that have the same rows; without examples, each client is a group with no rows."""
    starts, sizes = problem.starts(), problem.sizes()
    if starts is None or sizes is None:
        return [ClientGroup(m, float(weight), slice(0, 0)) for m, weight in enumerate(p)]
    intervals, first, index = np.unique(
        np.stack([starts, sizes], axis=1), axis=0, return_index=True, return_inverse=True
    )
    totals = np.bincount(index.ravel(), weights=p)
    return [
        ClientGroup(int(m), float(t), slice(int(a), int(a + n)))
        for (a, n), m, t in zip(intervals, first, totals, strict=True)
    ]


def sample_groups(groups: Sequence[ClientGroup], count: int, rng: np.random.Generator) -> list[ClientGroup]:
    """Return all groups, or `count` of them drawn without replacement if there are more."""
    if len(groups) <= count:
        return list(groups)
    return [groups[i] for i in rng.choice(len(groups), count, replace=False)]
