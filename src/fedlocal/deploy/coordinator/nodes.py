"""Which node is which site's: the coordinator writes it to a file, and a run reads it there."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLE = "FEDLOCAL_NODES"  # where the coordinator says to its runs which file it is; empty where there are no keys
log = logging.getLogger("fedlocal")


class NodesFile(Mapping[str, int]):
    """Node ids by site, read anew at every use: keys are registered while a run goes on. Without the file there are none."""

    def __init__(self, path: Path):
        self.path = path

    def _read(self) -> dict[str, int]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def __getitem__(self, site: str) -> int:
        return self._read()[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def site_nodes() -> NodesFile | None:
    """Return which node each site must come from, or None if sites have no keys."""
    path = os.environ.get(VARIABLE)
    if path:
        return NodesFile(Path(path))
    if path is not None:
        log.warning("sites have no keys: a site is taken to be the one that it says it is")
    return None
