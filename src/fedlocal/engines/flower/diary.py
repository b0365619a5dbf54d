"""Diary: what a run says of itself as it goes. A checkpoint keeps it, beside the method's state."""

from typing import Any

from fedlocal.engines.checkpoint import Checkpoint, fingerprint
from fedlocal.engines.flower.coordinator import Coordinator
from fedlocal.engines.flower.events import Event, Events
from fedlocal.engines.flower.roll import Roll
from fedlocal.engines.flower.site_moments import SiteMoments


class Diary:
    """History, events, the roll, and the account of privacy where there is one; without a path they are not kept."""

    def __init__(self, path: str | None, roll: Roll, moments: SiteMoments):
        self.path, self.roll, self.moments = path, roll, moments
        self.history: list[dict[str, float]] = []
        self.events = Events()
        self.accountant: Any = None  # of a wrapper that keeps account of privacy; `start` sets it
        self.before = 0  # rounds that were done when the run began
        self._file: Checkpoint | None = None  # once it is known which run it belongs to

    def take_up(self, identity: dict[str, Any]) -> bool:
        """Go on from the last words of a checkpoint of this run, if there is one; whether there is."""
        if self.path is None:
            return False
        checkpoint = Checkpoint(self.path, identity)
        checkpoint.check_writable()
        read = checkpoint.read()
        if read is None:
            return False
        with checkpoint.resuming():
            self.before, extra = read[0]["rounds"], read[0]["extra"]
            self.roll.resume(extra["roll"])
            self.moments.resume(extra["moments"])
            if self.accountant is not None:
                self.accountant.load_state_dict(extra["privacy"])
            self.history.extend(extra["history"])
            self.events.extend(Event(**event) for event in extra["events"])
        self.events.add(self.before, "", f"continued from {self.path} after {self.before} rounds")
        return True

    def begin(self, identity: dict[str, Any], coordinator: Coordinator) -> None:
        """The method's state from the checkpoint, if there is one; from now on `save` writes."""
        if self.path is None:
            return
        self._file = Checkpoint(self.path, {**identity, "x0": fingerprint(coordinator.x0)})
        previous = self._file.load(coordinator.server)
        if previous is not None:
            coordinator.resume(*previous[:2])

    def save(self, coordinator: Coordinator) -> None:
        """Write it all down."""
        if self._file is None:
            return
        kept = {"roll": self.roll.to_json(), "moments": self.moments.to_json()}
        extra: dict[str, Any] = {**kept, "history": self.history, "events": self.events.to_json()}
        if self.accountant is not None:
            extra["privacy"] = self.accountant.state_dict()
        self._file.save(coordinator.done, coordinator.server, extra)
