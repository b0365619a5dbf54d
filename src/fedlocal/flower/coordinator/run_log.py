"""RunLog: history and events of a run. A checkpoint keeps them, beside the method's state."""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.coordinator.site_registry import KnownSites
from fedlocal.flower.messages.text import clean
from fedlocal.simulation.checkpoint import Checkpoint
from fedlocal.util.hashing import fingerprint

log = logging.getLogger("fedlocal")


@dataclass(frozen=True)
class Event:
    """Something that happened before or in a round."""

    round: int  # in which it happened, counted from one
    site: str  # "" where it concerns all
    what: str

    def __str__(self) -> str:
        return f"round {self.round}: {self.site + ': ' if self.site else ''}{self.what}"


class EventLog(list[Event]):
    """All events of a run, in order; each is logged when it is added."""

    def add(self, done: int, site: str, what: str) -> None:
        """Add an event of the round after `done` rounds."""
        event = Event(done + 1, clean(site), clean(what))  # some of it comes from another machine
        log.warning("%s", event)
        self.append(event)

    def add_all(self, done: int, news: Iterable[tuple[str, str]]) -> None:
        """Add what happened to some sites."""
        for site, what in news:
            self.add(done, site, what)


class RunLog:
    """History, events, what is known of the sites, and the privacy accountant's state where there is one.

    Args:
        path: the checkpoint's file; None keeps nothing.
        sites: what is known of the sites; it is restored from the checkpoint.
    """

    def __init__(self, path: str | None, sites: KnownSites):
        self.path, self.sites = path, sites
        self.history: list[dict[str, float]] = []
        self.events = EventLog()
        self.accountant: Any = None  # of a wrapper that accounts for privacy; `start` sets it
        self.before = 0  # rounds that were done when the run began
        self._file: Checkpoint | None = None  # once it is known which run it belongs to

    def resume(self, identity: dict[str, Any]) -> bool:
        """Read the checkpoint of this run. Return False if there is none."""
        if self.path is None:
            return False
        checkpoint = Checkpoint(self.path, identity)
        checkpoint.check_writable()
        read = checkpoint.read()
        if read is None:
            return False
        with checkpoint.resuming():
            self.before, extra = read[0]["rounds"], read[0]["extra"]
            self.sites.registry.resume(extra["sites"])
            self.sites.moments.resume(extra["moments"])
            if self.accountant is not None:
                self.accountant.load_state_dict(extra["privacy"])
            self.history.extend(extra["history"])
            self.events.extend(Event(**event) for event in extra["events"])
        self.events.add(self.before, "", f"continued from {self.path} after {self.before} rounds")
        return True

    def begin(self, identity: dict[str, Any], coordinator: Coordinator) -> None:
        """Restore the method's state if there is a checkpoint; from now on `save` writes."""
        if self.path is None:
            return
        self._file = Checkpoint(self.path, {**identity, "x0": fingerprint(coordinator.x0)})
        previous = self._file.load(coordinator.server)
        if previous is not None:
            coordinator.resume(*previous[:2])

    def save(self, coordinator: Coordinator) -> None:
        """Write the checkpoint."""
        if self._file is None:
            return
        extra: dict[str, Any] = {"sites": self.sites.registry.to_json(), "moments": self.sites.moments.to_json()}
        extra |= {"history": self.history, "events": [asdict(event) for event in self.events]}
        if self.accountant is not None:
            extra["privacy"] = self.accountant.state_dict()
        self._file.save(coordinator.done, coordinator.server, extra)
