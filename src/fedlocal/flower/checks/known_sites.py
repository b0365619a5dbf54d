"""KnownSites: what the coordinator knows of the sites: who they are, how many rows they have, moments of their columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedlocal.flower.checks.loss_bounds import LossBounds
from fedlocal.flower.checks.site_moments import SiteMoments
from fedlocal.flower.coordinator.site_registry import SiteRegistry


@dataclass(frozen=True)
class KnownSites:
    """The sites of a run, with what they said of their data before the first round and what is known of their losses."""

    registry: SiteRegistry
    moments: SiteMoments = field(default_factory=SiteMoments)
    bounds: LossBounds | None = None  # of the losses of rows

    def rows(self, site: str) -> int:
        """Return the number of rows that a site connected with."""
        return self.registry.examples[site]

    def columns(self) -> list[str] | None:
        """Return the names of the columns, where sites give them."""
        return None if self.registry.signature is None else self.registry.signature.columns

    def second_moments(self, site: str) -> np.ndarray | None:
        """Return (d,) mean squares of a site's scaled columns, or None where they are not known."""
        known = self.moments.total is not None and site in self.moments.of
        return self.moments.second_moments(site, self.rows(site)) if known else None

    def mean_second_moments(self, sites: Sequence[str], weights: str) -> np.ndarray | None:
        """Return the mean of `second_moments` over these sites, by rows for "examples" and equally for "uniform"."""
        parts: list[Any] = [self.second_moments(site) for site in sites]
        if not parts or any(part is None for part in parts):
            return None
        rows = [self.rows(site) if weights == "examples" else 1 for site in sites]
        return np.average(np.stack(parts), axis=0, weights=rows)
