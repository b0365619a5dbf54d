"""Attendance: waiting for sites. Who comes and who is missing is told, and when patience is over the run stops."""

import time
from collections.abc import Callable, Sequence

from flwr.serverapp import Grid

from fedlocal.engines.flower.events import Events
from fedlocal.engines.flower.patience import Patience, TooFewSites
from fedlocal.engines.flower.roll import Roll

RETURN_SECONDS = 15.0  # how long a run that continues waits for sites that are not connected and that it does not need
DEAD_SECONDS = (
    60.0  # how long Flower takes a dead site to be connected, and keeps a site busy with a message of a dead run
)


class Attendance:
    """The sites of a run, of which each round needs the answers of at least so many."""

    def __init__(self, roll: Roll, least: int, patience: float, events: Events):
        self.roll, self.least, self.events = roll, least, events
        self._away = Patience(patience)  # with sites that are away
        self._lost = Patience(patience)  # with rounds that do not count
        self._last: set[str] = set()  # sites that were there when the last round began: for these it waits a little

    def meet(self, grid: Grid, done: int, timeout: float, again: bool) -> None:
        """Wait until all sites are there, or enough of them and the others had their time. `again`: the run is continued."""
        began = time.monotonic()
        while len(online := self._online(grid, done)) < self.roll.size:
            late = self._away.lost()
            if len(online) >= self.least and time.monotonic() - began >= self._longest(timeout, again):
                break
            if late:
                raise self._too_few(len(online), time.monotonic() - began)
            self._away.wait()
        self._tell(done, self.roll.agree())
        self.roll.send_notices(grid)
        if len(self.roll.online(grid)) < self.least:
            raise self._too_few(len(self.roll.online(grid)), time.monotonic() - began)
        self._away.calm()

    def _longest(self, timeout: float, again: bool) -> float:
        """Seconds for sites beyond those that are needed. A site that is connected but slow is one to wait for, as in a round."""
        if not again:
            return self._away.seconds
        return min(self._away.seconds, max(timeout, DEAD_SECONDS) if self.roll.silent else RETURN_SECONDS)

    def measure(self, grid: Grid, done: int, clients: Sequence[int], ask: Callable[[], bool]) -> None:
        """Ask sites for what is needed before the first round until enough of them gave it."""
        while not ask():
            self._be_patient(self._lost, 0)
            self.wait(grid, done, clients)
        self._lost.calm()

    def wait(self, grid: Grid, done: int, clients: Sequence[int]) -> dict[str, int]:
        """The nodes of the sites that are there, once there are enough of them among these clients."""
        called, began = self.roll.called(clients), time.monotonic()
        while True:
            online = self._online(grid, done)
            there = sum(site in online for site in called)
            gone = [site for site in called if site in self._last and site not in online]
            if there >= self.least and not (
                gone and time.monotonic() - began < min(self._away.seconds, RETURN_SECONDS)
            ):
                self._away.calm()
                self._last = set(online)
                return online
            self._be_patient(self._away, there)

    def enough(self, done: int, answers: int) -> bool:
        """Whether a round with so many answers counts; one that does not is to be repeated."""
        if answers >= self.least:
            self._lost.calm()
            return True
        self.events.add(done, "", f"{answers} answers, {self.least} needed; the round is repeated")
        self._be_patient(self._lost, answers)
        return False

    def _online(self, grid: Grid, done: int) -> dict[str, int]:
        self._tell(done, self.roll.call(grid))
        return self.roll.online(grid)

    def _tell(self, done: int, news: list[tuple[str, str]]) -> None:
        for site, what in news:
            self.events.add(done, site, what)

    def _be_patient(self, patience: Patience, there: int) -> None:
        if patience.lost():
            raise self._too_few(there, patience.waited())
        patience.wait()

    def _too_few(self, there: int, waited: float) -> TooFewSites:
        away = [name for name in self.roll.names if name not in self.roll.node_of]
        missing = f"; not there: {', '.join(away)}" if away else ""
        refused = "".join(f"; refused: {why}" for why, _ in self.roll.refused.values())
        return TooFewSites(
            f"{there} of {self.roll.size} sites take part, {self.least} are needed; gave up after waiting "
            f"{waited:.0f} s{missing}{refused}"
        )
