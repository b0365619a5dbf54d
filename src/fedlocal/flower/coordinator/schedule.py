"""Schedule: who takes part in which round, and what each is to do. The same as a simulation's plan, without the data."""

from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedlocal.core.types import WEIGHTS, Weights
from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.coordinator.site_registry import KnownSites
from fedlocal.flower.messages.records import ARRAYS, CONFIG
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.flower.site.question import NUMBER
from fedlocal.simulation.plan import COHORT_BLOCK, Sampling, cohort_table, local_work
from fedlocal.util import checks

EXTRA_SECONDS = 60.0  # for which Flower keeps a message after the time for its answer is over


@dataclass(frozen=True)
class Schedule:
    """The checked numbers of a run."""

    rounds: int
    sites: int
    local_steps: list[int] | None  # of each site
    local_epochs: int | None
    batch_size: int | None
    clients_per_round: int
    weights: Weights
    seed: int

    @classmethod
    def make(cls, owner: str, rounds: int, sites: int, sampling: Sampling) -> "Schedule":
        """Return the schedule of a run between so many sites, after checking its numbers in the name of `owner`."""
        steps, epochs = local_work(owner, sampling.local_steps, sampling.local_epochs, sites)
        batch_size, per_round = sampling.batch_size, sampling.clients_per_round
        return cls(
            rounds=checks.whole(owner, "rounds", rounds),
            sites=sites,
            local_steps=steps,
            local_epochs=epochs,
            batch_size=None if batch_size is None else checks.whole(owner, "batch_size", batch_size),
            clients_per_round=checks.whole(
                owner, "clients_per_round", sites if per_round is None else per_round, at_most=sites
            ),
            weights=checks.choice(owner, "weights", sampling.weights, WEIGHTS),
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
        return RoundSettings(
            round=r,
            client=client,
            seed=self.seed,
            weights=self.weights,
            local_steps=None if self.local_steps is None else self.local_steps[client],
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            largest=None if self.local_epochs is None else largest,
        )


@dataclass(frozen=True)
class QuestionWriter:
    """Writes messages about the coordinator's present state."""

    coordinator: Coordinator
    schedule: Schedule
    sites: KnownSites
    timeout: float  # seconds for an answer

    def write(self, arrays: ArrayRecord, config: ConfigRecord, site: str, node: int, kind: str) -> Message:
        """Return a message of this kind (train, evaluate) for a site: state, method, settings of the round, moments."""
        registry, server = self.sites.registry, self.coordinator
        number = registry.names.index(site)
        settings = self.schedule.settings(server.done, number, max(registry.examples.values()))
        numbers = {f"{NUMBER}{name}": value for name, value in server.payload.numbers.items()}
        moments = self.sites.moments.to_config(site)
        values = {**config, **server.description, **numbers, **moments, **settings.to_config()}
        content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(values)})
        return Message(content, node, kind, ttl=self.timeout + EXTRA_SECONDS, group_id=str(server.done))
