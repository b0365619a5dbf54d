"""Which node is which site's: the coordinator writes it to a file, and a run reads it there."""

import json
import logging
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fedlocal.util.files import write_atomically

VARIABLE = "FEDLOCAL_NODES"  # where the coordinator says to its runs which file it is; empty where there are no keys
log = logging.getLogger("fedlocal")
HOME = ".flower"  # FLWR_HOME of the coordinator, in its working folder
NAME = "coordinator"


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


class LocalConnection(NamedTuple):
    """Where the coordinator listens for its operator, and the certificate by which it is known; None without encryption."""

    address: str
    root: Path | None


def write_connection(folder: Path, address: str, root: Path | None) -> None:
    """Make this connection the default of `flwr` for FLWR_HOME=folder/.flower."""
    safety = "insecure = true" if root is None else f"root-certificates = {json.dumps(str(root))}"
    text = f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "{address}"\n{safety}\n'
    write_atomically(folder / HOME / "config.toml", text.encode())


def read_connection(folder: Path) -> LocalConnection:
    """The connection of the coordinator that was started in this folder."""
    path = folder / HOME / "config.toml"
    if not path.is_file():
        instead = "start one (fedlocal coordinator), or go to its folder"
        raise ValueError(f"start: no coordinator was started in {folder}; {instead}")
    values = tomllib.loads(path.read_text())["superlink"][NAME]
    root = values.get("root-certificates")
    return LocalConnection(values["address"], None if root is None else Path(root))
