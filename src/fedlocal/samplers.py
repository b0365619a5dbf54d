"""Samplers: which clients take part in a round. `sampler=` of `fl.simulate` takes one, its name, or a function of the round."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from fedlocal.util import checks

__all__ = ["Availability", "ByWeight", "RoundRobin", "Sampler", "WithoutReplacement"]


def __dir__() -> list[str]:
    return sorted(__all__)


class Sampler(ABC):
    """A rule that chooses the clients of each round. It may draw; what it draws depends on the seed and the round alone.

    `equal_mean` is True if the mean of a round is over the clients as they were drawn, all alike, since the weights of the
    clients are in the drawing already. Otherwise the server's mean is weighted.
    """

    equal_mean = False

    @abstractmethod
    def choose(
        self, round: int, count: int, weights: np.ndarray, rng: np.random.Generator
    ) -> Sequence[int] | np.ndarray:
        """Return the clients of a round: at most `count` numbers from 0, perhaps fewer.

        Args:
            round: counted from 0.
            count: how many clients take part at most.
            weights: (M,) of the clients in the objective, with sum 1.
            rng: what to draw from; rounds draw one after the other.
        """

    def largest(self, rounds: int, clients: int, count: int | None) -> tuple[int, bool]:
        """Return the largest number of clients of a round, and whether every round has as many.

        Args:
            rounds: of the run.
            clients: all clients, M.
            count: `clients_per_round` as the user gave it; None means all that can.
        """
        return clients if count is None else count, True


class WithoutReplacement(Sampler):
    """Clients drawn uniformly without replacement: the default."""

    def choose(self, round: int, count: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(len(weights), count, replace=False, shuffle=False)


class ByWeight(Sampler):
    """Clients drawn with replacement, with their weights as probabilities; the mean of a round counts every draw alike.

    The mean over a round is then without bias for that over all clients. A client that is drawn twice counts twice.

    Reference: Li et al. (2020), On the Convergence of FedAvg on Non-IID Data, scheme I. Differs from it: nothing.
    """

    equal_mean = True

    def choose(self, round: int, count: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(len(weights), count, replace=True, p=weights)


class RoundRobin(Sampler):
    """Clients take turns in the order of their numbers: 0, ..., S - 1 in round 0, S, ..., 2 S - 1 in round 1, and so on."""

    def choose(self, round: int, count: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (round * count + np.arange(count)) % len(weights)


class Availability(Sampler):
    """Clients drawn uniformly among those that a trace says are available; fewer than asked for if there are not enough.

    A round in which nobody is available changes nothing.

    Args:
        trace: (T, M) True where a client is available in a round; round r has row r mod T.
    """

    def __init__(self, trace: Any):
        found = np.asarray(trace)
        if found.ndim != 2 or found.size == 0 or not np.isin(found, (0, 1)).all():
            got = f"{found.dtype} of shape {found.shape}"
            raise ValueError(f"Availability: trace must be a table (rounds, clients) of True and False, got {got}")
        self.trace = found.astype(bool)
        if not self.trace.any():
            raise ValueError("Availability: trace must have an available client, got none in any round")

    def choose(self, round: int, count: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        there = np.flatnonzero(self.trace[round % len(self.trace)])
        return there if len(there) <= count else rng.choice(there, count, replace=False, shuffle=False)

    def largest(self, rounds: int, clients: int, count: int | None) -> tuple[int, bool]:
        if self.trace.shape[1] != clients:
            text = f"must have a column for each of the {clients} clients, got {self.trace.shape[1]}"
            raise ValueError(f"Availability: trace {text}")
        there = self.trace.sum(axis=1)
        most = int(there.max()) if count is None else min(count, int(there.max()))
        return most, bool((there >= most).all())


class Listed(Sampler):
    """The clients of every round, one by one.

    Args:
        rows: the client numbers of each round.
    """

    def __init__(self, rows: Sequence[np.ndarray]):
        self.rows = rows

    @classmethod
    def by(cls, function: Callable[[int], Any], rounds: int, clients: int) -> "Listed":
        """Return what a user's function of the round gives for all rounds."""
        return cls([cls._checked(function, r, clients) for r in range(rounds)])

    @staticmethod
    def _checked(function: Callable[[int], Any], round: int, clients: int) -> np.ndarray:
        owner = getattr(function, "__name__", type(function).__name__)
        try:
            row = np.atleast_1d(np.asarray(function(round)))
        except Exception as error:  # whatever a user's function raises
            raise ValueError(f"sampler: {owner}({round}) raised {error!r}") from error
        wanted = f"sampler: {owner}({round}) must return different client numbers from 0 to {clients - 1}"
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise TypeError(f"{wanted}, got {row.dtype} of shape {row.shape}")
        if row.size and (row.min() < 0 or row.max() >= clients or len(np.unique(row)) != len(row)):
            raise ValueError(f"{wanted}, got {row.tolist()}")
        return row.astype(np.int32)

    def choose(self, round: int, count: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.rows[round] if round < len(self.rows) else np.empty(0, np.int32)

    def largest(self, rounds: int, clients: int, count: int | None) -> tuple[int, bool]:
        sizes = [len(row) for row in self.rows] or [1]
        if count is not None and max(sizes) > count:
            r = sizes.index(max(sizes))
            text = f"the sampler gives {max(sizes)} clients for round {r}, more than clients_per_round={count}"
            raise ValueError(f"sampler: {text}")
        most = max(1, *sizes)
        return most, min(sizes) == most


SamplerName: TypeAlias = Literal["uniform", "by_weight", "round_robin"]
AnySampler: TypeAlias = SamplerName | Sampler | Callable[[int], Any]
SAMPLERS: dict[str, type[Sampler]] = {"uniform": WithoutReplacement, "by_weight": ByWeight, "round_robin": RoundRobin}


def sampler_of(owner: str, sampler: Any, rounds: int, clients: int) -> Sampler:
    """Return the sampler that a user means by a name, an object or a function of the round."""
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, type) and issubclass(sampler, Sampler):
        raise TypeError(f"{owner}: sampler is the class {sampler.__name__}; give {sampler.__name__}(...)")
    if callable(sampler):
        return Listed.by(sampler, rounds, clients)
    return SAMPLERS[checks.choice(owner, "sampler", sampler, SAMPLERS)]()
