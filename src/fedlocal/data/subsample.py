"""Subsample: a random fraction of every client's examples."""

import numpy as np

from fedlocal.util import checks


class Subsample:
    """Draws a fraction of each client's rows, rounded, but at least one; the draws follow from a seed and the client's number.

    >>> subsample = Subsample("mine", fraction=0.1, seed=0)
    >>> len(subsample.rows(0, 42)), len(subsample.rows(1, 3))
    (4, 1)
    """

    def __init__(self, owner: str, fraction: float, seed: int):
        self.fraction = checks.number(owner, "fraction", fraction, above=0)
        if self.fraction > 1:
            raise ValueError(f"{owner}: fraction must be > 0 and <= 1, got {fraction}")
        self.seed = checks.whole(owner, "seed", seed, at_least=0)

    def rows(self, client: int, size: int) -> np.ndarray:
        """Return which of a client's `size` rows are kept, in ascending order."""
        if self.fraction == 1:
            return np.arange(size)
        count = max(1, round(self.fraction * size))
        return np.sort(np.random.default_rng([self.seed, client]).choice(size, count, replace=False))
