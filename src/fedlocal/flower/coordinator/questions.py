"""QuestionWriter: the messages that ask sites for local steps or for an evaluation."""

from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedlocal.flower.checks.known_sites import KnownSites
from fedlocal.flower.coordinator.schedule import Schedule
from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.messages.records import ARRAYS, CONFIG
from fedlocal.flower.site.question import NUMBER

EXTRA_SECONDS = 60.0  # for which Flower keeps a message after the time for its answer is over


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
