"""Schedule: who takes part in which round, and what each is to do. The same as a simulation's plan, without the data."""

from dataclasses import dataclass
from typing import cast

from fedlocal.core.types import WEIGHTS, WeightsName
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.simulation.plan import COHORT_BLOCK, Sampling, cohort_table, local_work
from fedlocal.util import checks


@dataclass(frozen=True)
class Schedule:
    """The checked numbers of a run."""

    rounds: int
    sites: int
    local_steps: list[int] | None  # of each site
    local_epochs: int | None
    batch_size: int | None
    clients_per_round: int
    weights: WeightsName
    seed: int

    @classmethod
    def make(cls, owner: str, rounds: int, sites: int, sampling: Sampling) -> "Schedule":
        """Return the schedule of a run between so many sites, after checking its numbers in the name of `owner`."""
        steps, epochs = local_work(owner, sampling.local_steps, sampling.local_epochs, sites)
        batch_size = sampling.batch_size
        per_round = sites if sampling.clients_per_round is None else sampling.clients_per_round
        return cls(
            rounds=checks.whole(owner, "rounds", rounds),
            sites=sites,
            local_steps=steps,
            local_epochs=epochs,
            batch_size=None if batch_size is None else checks.whole(owner, "batch_size", batch_size),
            clients_per_round=checks.whole(owner, "clients_per_round", per_round, at_most=sites),
            weights=cast(WeightsName, checks.choice(owner, "weights", cast(str, sampling.weights), WEIGHTS)),
            seed=checks.whole(owner, "seed", sampling.seed, at_least=0, at_most=2**31 - 1),
        )

    def cohort(self, r: int) -> list[int]:
        """The clients of round r."""
        block, i = divmod(r, COHORT_BLOCK)
        return cohort_table(self.seed, self.sites, self.clients_per_round, block)[i].tolist()

    def steps(self, client: int, rows: int) -> int:
        """The local steps of a client with so many rows."""
        if self.local_steps is not None:
            return self.local_steps[client]
        return (self.local_epochs or 0) * (1 if self.batch_size is None else -(-rows // self.batch_size))

    def smallest_batch(self, rows: int) -> int:
        """How many different rows every step of a client with so many rows has at least."""
        if self.batch_size is None:
            return rows
        if self.local_epochs is None:  # drawn with replacement
            return 1
        return rows % self.batch_size or min(rows, self.batch_size)

    def settings(self, r: int, client: int, largest: int) -> RoundSettings:
        """Return what a client does in round r; `largest` is the number of examples of the largest site."""
        steps = None if self.local_steps is None else self.local_steps[client]
        most = None if self.local_epochs is None else largest
        work = {"local_steps": steps, "local_epochs": self.local_epochs, "batch_size": self.batch_size}
        return RoundSettings(r, client, self.seed, self.weights, **work, largest=most)
