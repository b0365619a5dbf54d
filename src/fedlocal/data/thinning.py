"""Thinning: a part of every client's examples, for studies that need fewer."""

import numpy as np

from fedlocal import checks


class Thinning:
    """Draws a fraction of each client's rows, rounded, but at least one; the draws follow from a seed and the client's number.

    >>> thinning = Thinning("mine", fraction=0.1, seed=0)
    >>> len(thinning.rows(0, 42)), len(thinning.rows(1, 3))
    (4, 1)
    """

    def __init__(self, owner: str, fraction: float, seed: int):
        self.fraction = checks.number(owner, "fraction", fraction, above=0)
        if self.fraction > 1:
            raise ValueError(f"{owner}: fraction must be > 0 and <= 1, got {fraction}")
        self.seed = checks.whole(owner, "seed", seed, at_least=0)

    def rows(self, client: int, size: int) -> np.ndarray:
        """Which of a client's `size` rows are kept, in their order."""
        if self.fraction == 1:
            return np.arange(size)
        count = max(1, round(self.fraction * size))
        return np.sort(np.random.default_rng([self.seed, client]).choice(size, count, replace=False))
