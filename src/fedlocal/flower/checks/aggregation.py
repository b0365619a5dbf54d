"""How the sites' answers become one: the mean, or means that a single false answer cannot move far.

All take the states that sites answered with, (S, ...) for every array, their weights, and the state that they were sent.
Reference: coordinate-wise median and trimmed mean, Yin et al. 2018; clipping to the median norm, as in Sun et al. 2019.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

Arrays = Mapping[str, np.ndarray]
TRIMMED = 0.2  # share of the sites that is cut off at each end, at least one of three or more


def median(states: Arrays, weights: np.ndarray, sent: Arrays) -> dict[str, np.ndarray]:
    """The middle answer of every number; sites count equally.

    >>> states = {"x": np.array([[1.0], [2.0], [1e30]])}
    >>> median(states, np.ones(3), {"x": np.zeros(1)})["x"].tolist()
    [2.0]
    """
    return {name: np.median(stack, axis=0) for name, stack in states.items()}


def trimmed(states: Arrays, weights: np.ndarray, sent: Arrays) -> dict[str, np.ndarray]:
    """The mean of every number without its largest and its smallest answers; sites count equally.

    >>> trimmed({"x": np.array([[1.0], [2.0], [1e30]])}, np.ones(3), {"x": np.zeros(1)})["x"].tolist()
    [2.0]
    """
    count = len(weights)
    cut = min(max(1, int(TRIMMED * count)), (count - 1) // 2)
    return {name: np.sort(stack, axis=0)[cut : count - cut].mean(axis=0) for name, stack in states.items()}


def norm_bounded(states: Arrays, weights: np.ndarray, sent: Arrays) -> dict[str, np.ndarray]:
    """The weighted mean of changes that are no longer than their median: longer ones are shrunk to it.

    >>> states = {"x": np.array([[1.0], [2.0], [1e30]])}
    >>> norm_bounded(states, np.ones(3), {"x": np.zeros(1)})["x"].round(9).tolist()
    [1.666666667]
    """
    norms = change_norms(states, sent)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.where(norms > 0, np.minimum(1, np.median(norms) / norms), 1.0)
    share = weights / weights.sum() * shrink
    return {name: sent[name] + np.tensordot(share, a - sent[name], 1).astype(a.dtype) for name, a in states.items()}


def change_norms(states: Arrays, sent: Arrays) -> np.ndarray:
    """(S,) norms of what the sites changed, without overflow."""
    changes = [np.abs(stack - sent[name]).reshape(len(stack), -1) for name, stack in states.items()]
    changes = np.concatenate(changes, axis=1).astype(np.float64)
    largest = changes.max(axis=1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return scale * np.sqrt(np.sum((changes / scale[:, None]) ** 2, axis=1))


Aggregate = Callable[[Arrays, np.ndarray, Arrays], dict[str, np.ndarray]]
AggregateName = Literal["mean", "median", "trimmed", "norm-bounded"]
AGGREGATES: dict[str, Aggregate | None] = {  # None: Flower's own weighted mean
    "mean": None,
    "median": median,
    "trimmed": trimmed,
    "norm-bounded": norm_bounded,
}
