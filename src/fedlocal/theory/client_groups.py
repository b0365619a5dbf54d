"""Clients that own the same examples, together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedlocal.core import AbstractProblem


class Group(NamedTuple):
    """The clients that own the same examples."""

    client: int  # the first of them
    weight: float  # of all of them together in F
    rows: slice

    @property
    def size(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def mean_weights(self) -> np.ndarray:
        """(n,) the weights of a mean over the examples."""
        return np.full(self.size, 1 / self.size)


def groups_of(problem: AbstractProblem, p: np.ndarray) -> list[Group]:
    """Clients with the same rows, together; each client alone, without rows, where there are no examples."""
    starts, sizes = problem.starts(), problem.sizes()
    if starts is None or sizes is None:
        return [Group(m, float(weight), slice(0, 0)) for m, weight in enumerate(p)]
    intervals, first, index = np.unique(
        np.stack([starts, sizes], axis=1), axis=0, return_index=True, return_inverse=True
    )
    totals = np.bincount(index.ravel(), weights=p)
    return [
        Group(int(m), float(t), slice(int(a), int(a + n)))
        for (a, n), m, t in zip(intervals, first, totals, strict=True)
    ]


def some_of(groups: Sequence[Group], count: int, rng: np.random.Generator) -> list[Group]:
    """All of them, or `count` drawn without replacement where they are more."""
    if len(groups) <= count:
        return list(groups)
    return [groups[i] for i in rng.choice(len(groups), count, replace=False)]
