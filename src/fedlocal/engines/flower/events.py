"""Events: what happened in a deployment that its users should know of."""

import logging
from dataclasses import asdict, dataclass
from typing import Any

from fedlocal.engines.flower.text import clean

log = logging.getLogger("fedlocal")


@dataclass(frozen=True)
class Event:
    """Something that happened before or in a round."""

    round: int  # in which it happened, counted from one
    site: str  # "" where it concerns all
    what: str

    def __str__(self) -> str:
        return f"round {self.round}: {self.site + ': ' if self.site else ''}{self.what}"


class Events(list[Event]):
    """All events of a run, in order; each is logged as it comes."""

    def add(self, done: int, site: str, what: str) -> None:
        event = Event(done + 1, clean(site), clean(what))  # some of it comes from another machine
        log.warning("%s", event)
        self.append(event)

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(event) for event in self]
