"""Preparation: what is asked of sites before they take part: moments of their columns, curvature of their losses."""

import logging

from flwr.serverapp import Grid

from fedlocal.flower.coordinator.run_log import EventLog
from fedlocal.flower.coordinator.site_registry import KnownSites
from fedlocal.flower.messages.text import LONGEST, clean

MOST_LINES = 60  # of the table of columns on the screen
log = logging.getLogger("fedlocal")


class Preparation:
    """Asks until enough sites have answered. A site that comes later gives its moments before its first round.

    Args:
        sites: what is known of the sites; the answers are added to it.
        events: where wrong answers and unlike sites are reported.
        least: how many sites must answer.
        standardize: True if moments of the columns are needed.
        curvature: True if curvatures of the losses are needed.
    """

    def __init__(self, sites: KnownSites, events: EventLog, least: int, standardize: bool, curvature: bool):
        self.sites, self.registry, self.moments = sites, sites.registry, sites.moments
        self.events, self.least, self.standardize, self.curvature = events, least, standardize, curvature
        self.timeout = 3600.0

    def ask(self, grid: Grid, done: int) -> bool:
        """Ask the connected sites for moments and curvature. Return True if enough of them gave both."""
        if self.standardize:
            self.measured(grid, self.registry.online(grid), done)
            self.moments.add_up(self.least)
            if self.moments.total is None:
                return False
        if self.curvature and len(self.moments.curvature) < self.least:
            left = {s: node for s, node in self.registry.online(grid).items() if s not in self.moments.curvature}
            news = self.moments.ask_curvature(grid, left, self.registry.examples, self.sites.bounds, self.timeout)
            self._report(news, done)
        return not self.curvature or len(self.moments.curvature) >= self.least

    def measured(self, grid: Grid, nodes: dict[str, int], done: int) -> list[str]:
        """Return the sites among these whose moments are known; those that came late are asked for theirs."""
        if not self.standardize:
            return list(nodes)
        late = {site: node for site, node in nodes.items() if site not in self.moments.of}
        if late:
            columns = self.sites.columns()
            width = None if columns is None else len(columns)
            self._report(self.moments.ask(grid, late, self.registry.examples, width, self.timeout), done)
            if self.moments.total is not None:  # those of the first sites are shown together
                self.events.add_all(done, [(site, what) for site, what in self.moments.odd(columns) if site in late])
        return [site for site in nodes if site in self.moments.of]

    def show(self, done: int, states: int) -> None:
        """Log what the sites have, before the first round, and report those that look unlike the others."""
        for site, left in sorted(self.registry.states_left.items()):
            if left < states:
                log.warning("%s answers %d more questions by its policy; all rounds would ask %d", site, left, states)
        self.events.add_all(done, self.moments.odd_curvatures())
        rows = ", ".join(f"{site} {count}" for site, count in sorted(self.registry.examples.items()))
        log.info("rows: %s; a round counts with %d of %d sites", rows, self.least, self.registry.size)
        table = self.sites.table()
        if table is None:
            return
        for line in table.head(MOST_LINES).to_string(index=False, float_format=lambda v: f"{v:.4g}").splitlines():
            log.info("%s", clean(line, 4 * LONGEST))
        if len(table) > MOST_LINES:
            log.info("and %d further columns; sites.csv has all of them", len(table) - MOST_LINES)
        self.events.add_all(done, self.moments.odd(self.sites.columns()))

    def _report(self, news: list[tuple[str, str]], done: int) -> None:
        self.events.add_all(done, news)
        for site, _ in news:
            self.registry.mark_unreachable(site)
