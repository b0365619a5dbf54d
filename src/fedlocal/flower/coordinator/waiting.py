"""Waiting for sites: until enough of them are connected, and for how long; slow sites are asked less often."""

import time
from collections.abc import Callable, Sequence

from flwr.serverapp import Grid

from fedlocal.flower.coordinator.run_log import EventLog
from fedlocal.flower.coordinator.site_registry import SiteRegistry

POLL_SECONDS = 0.5  # between two tries
RETURN_SECONDS = 15.0  # how long a run that continues waits for sites that are not connected and that it does not need
# how long Flower takes a dead site to be connected, and keeps a site busy with a message of a dead run
DEAD_SECONDS = 60.0


class TooFewSites(RuntimeError):
    """Fewer sites answered than a run needs, for longer than it was to wait."""


class Deadline:
    """A time limit that starts with the first failure and ends with a success (`reset`)."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.since: float | None = None

    def exceeded(self) -> bool:
        """Return True if failures have gone on for longer than the limit. The first call starts the clock."""
        self.since = time.monotonic() if self.since is None else self.since
        return time.monotonic() - self.since > self.seconds

    def elapsed(self) -> float:
        """Return the seconds since the first failure."""
        return 0.0 if self.since is None else time.monotonic() - self.since

    def reset(self) -> None:
        self.since = None


class Quorum:
    """The sites of a run, of which each round needs the answers of at least `least`.

    Args:
        registry: the sites.
        least: how many of them a round needs.
        seconds: how long to wait for missing sites before the run stops.
        events: where connections and losses are reported.
    """

    def __init__(self, registry: SiteRegistry, least: int, seconds: float, events: EventLog):
        self.registry, self.least, self.events = registry, least, events
        self._absence = Deadline(seconds)  # of sites that are not connected
        self._failure = Deadline(seconds)  # of rounds that do not count
        self._last: set[str] = set()  # sites that were connected when the last round began: for these it waits a little

    def meet(self, grid: Grid, done: int, timeout: float, again: bool) -> None:
        """Wait until all sites are connected, or enough of them and the time for the others is over.

        `again`: the run is continued from a checkpoint.
        """
        began = time.monotonic()
        while len(online := self._online(grid, done)) < self.registry.size:
            late = self._absence.exceeded()
            if len(online) >= self.least and time.monotonic() - began >= self._longest(timeout, again):
                break
            if late:
                raise self._too_few(len(online), time.monotonic() - began)
            time.sleep(POLL_SECONDS)
        self.events.add_all(done, self.registry.agree())
        self.registry.send_notices(grid)
        if len(self.registry.online(grid)) < self.least:
            raise self._too_few(len(self.registry.online(grid)), time.monotonic() - began)
        self._absence.reset()

    def _longest(self, timeout: float, again: bool) -> float:
        """Return the seconds to wait for sites beyond those that are needed; connected ones get as long as in a round."""
        if not again:
            return self._absence.seconds
        return min(self._absence.seconds, max(timeout, DEAD_SECONDS) if self.registry.silent else RETURN_SECONDS)

    def measure(self, grid: Grid, done: int, clients: Sequence[int], ask: Callable[[], bool]) -> None:
        """Ask sites for what is needed before the first round until enough of them gave it."""
        while not ask():
            self._wait_or_stop(self._failure, 0)
            self.wait(grid, done, clients)
        self._failure.reset()

    def wait(self, grid: Grid, done: int, clients: Sequence[int]) -> dict[str, int]:
        """Wait until enough of these clients are connected; return the nodes of all connected sites."""
        names, began = self.registry.names_of(clients), time.monotonic()
        while True:
            online = self._online(grid, done)
            there = sum(site in online for site in names)
            gone = [site for site in names if site in self._last and site not in online]
            if there >= self.least and not (
                gone and time.monotonic() - began < min(self._absence.seconds, RETURN_SECONDS)
            ):
                self._absence.reset()
                self._last = set(online)
                return online
            self._wait_or_stop(self._absence, there)

    def enough(self, done: int, answers: int) -> bool:
        """Return True if a round with so many answers counts; one that does not is to be repeated."""
        if answers >= self.least:
            self._failure.reset()
            return True
        self.events.add(done, "", f"{answers} answers, {self.least} needed; the round is repeated")
        self._wait_or_stop(self._failure, answers)
        return False

    def _online(self, grid: Grid, done: int) -> dict[str, int]:
        self.events.add_all(done, self.registry.update(grid))
        return self.registry.online(grid)

    def _wait_or_stop(self, deadline: Deadline, there: int) -> None:
        if deadline.exceeded():
            raise self._too_few(there, deadline.elapsed())
        time.sleep(POLL_SECONDS)

    def _too_few(self, there: int, waited: float) -> TooFewSites:
        away = [name for name in self.registry.names if name not in self.registry.node_of]
        missing = f"; not there: {', '.join(away)}" if away else ""
        refused = "".join(f"; refused: {why}" for why, _ in self.registry.refused.values())
        part = f"{there} of {self.registry.size} sites take part, {self.least} are needed"
        return TooFewSites(f"{part}; gave up after waiting {waited:.0f} s{missing}{refused}")


class SlowSites:
    """Backs off from sites that are connected and do not answer, since each of them delays the round for all.

    After the n-th time in a row without an answer a site is not asked for 2^(n-1) - 1 rounds.

    >>> slow = SlowSites()
    >>> slow.note(["b"], ["a", "c"], done=0)
    >>> slow.without(["a", "b", "c"], done=1, least=2)
    ['a', 'b', 'c']
    >>> slow.note(["b"], ["a", "c"], done=1)
    >>> slow.without(["a", "b", "c"], done=2, least=2), slow.without(["a", "b", "c"], done=3, least=2)
    (['a', 'c'], ['a', 'b', 'c'])
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[int, int]] = {}  # rounds in a row without an answer, and when it is asked again

    def note(self, silent: Sequence[str], answered: Sequence[str], done: int) -> None:
        """Count who answered and who did not."""
        for site in answered:
            self._until.pop(site, None)
        for site in silent:
            times, _ = self._until.get(site, (0, 0))
            self._until[site] = times + 1, done + 2**times

    def without(self, sites: Sequence[str], done: int, least: int) -> list[str]:
        """Return the sites that are asked in this round; all of them where the others are too few."""
        asked = [site for site in sites if self._until.get(site, (0, 0))[1] <= done]
        return asked if len(asked) >= least else list(sites)
