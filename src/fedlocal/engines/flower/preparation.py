"""Preparation: what is asked of sites before they take part: moments of their columns, curvature of their losses."""

import logging
from collections.abc import Sequence

from flwr.serverapp import Grid

from fedlocal.engines.flower.events import Events
from fedlocal.engines.flower.loss_bounds import LossBounds
from fedlocal.engines.flower.roll import Roll
from fedlocal.engines.flower.site_moments import SiteMoments
from fedlocal.engines.flower.text import LONGEST, clean

MOST_LINES = 60  # of the table of columns on the screen
log = logging.getLogger("fedlocal")


class Preparation:
    """Asks until enough sites have answered. A site that comes later gives its moments before its first round."""

    def __init__(
        self,
        roll: Roll,
        moments: SiteMoments,
        events: Events,
        least: int,
        standardize: bool,
        curvature: bool,
        bounds: LossBounds | None,
    ):
        self.roll, self.moments, self.events, self.least = roll, moments, events, least
        self.standardize, self.curvature, self.bounds = standardize, curvature, bounds
        self.timeout = 3600.0

    def ask(self, grid: Grid, done: int) -> bool:
        """Ask the sites that are there for moments and curvature; whether enough of them gave both."""
        if self.standardize:
            known = self.moments.of
            self._ask_moments(grid, {s: node for s, node in self.roll.online(grid).items() if s not in known}, done)
            self.moments.add_up(self.least)
            if self.moments.total is None:
                return False
        if self.curvature and len(self.moments.curvature) < self.least:
            left = {s: node for s, node in self.roll.online(grid).items() if s not in self.moments.curvature}
            news = self.moments.ask_curvature(grid, left, self.roll.examples, self.bounds, self.timeout)
            self._tell(news, done)
        return not self.curvature or len(self.moments.curvature) >= self.least

    def measured(self, grid: Grid, nodes: dict[str, int], done: int) -> list[str]:
        """The sites among these whose moments are known; those that came late are asked for theirs."""
        if not self.standardize:
            return list(nodes)
        late = {site: node for site, node in nodes.items() if site not in self.moments.of}
        if late:
            self._ask_moments(grid, late, done)
        return [site for site in nodes if site in self.moments.of]

    def show(self, columns: Sequence[str] | None, done: int, states: int) -> None:
        """Say what the sites have, before the first round, and where one of them looks unlike the others."""
        for site, left in sorted(self.roll.states_left.items()):
            if left < states:
                log.warning("%s answers %d more questions by its policy; all rounds would ask %d", site, left, states)
        for site, what in self.moments.odd_curvatures():
            self.events.add(done, site, what)
        rows = ", ".join(f"{site} {count}" for site, count in sorted(self.roll.examples.items()))
        log.info("rows: %s; a round counts with %d of %d sites", rows, self.least, self.roll.size)
        if self.moments.total is None:
            return
        table = self.moments.table(self.roll.examples, columns)
        for line in table.head(MOST_LINES).to_string(index=False, float_format=lambda v: f"{v:.4g}").splitlines():
            log.info("%s", clean(line, 4 * LONGEST))
        if len(table) > MOST_LINES:
            log.info("and %d further columns; sites.csv has all of them", len(table) - MOST_LINES)
        for site, what in self.moments.odd(columns):
            self.events.add(done, site, what)

    def _ask_moments(self, grid: Grid, nodes: dict[str, int], done: int) -> None:
        columns = None if self.roll.form is None else self.roll.form.columns
        width = None if columns is None else len(columns)
        self._tell(self.moments.ask(grid, nodes, self.roll.examples, width, self.timeout), done)

    def _tell(self, news: list[tuple[str, str]], done: int) -> None:
        for site, what in news:
            self.events.add(done, site, what)
            self.roll.doubt(site)
