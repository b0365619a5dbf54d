"""The operator's connection to the coordinator on this machine, in the form and place where Flower's commands read it."""

import json
import tomllib
from pathlib import Path
from typing import NamedTuple

from fedlocal.util.files import write_atomically

HOME = ".flower"  # FLWR_HOME of the coordinator, in its working folder
NAME = "coordinator"


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
        raise ValueError(
            f"start: no coordinator was started in {folder}; start one (fedlocal coordinator), or go to its folder"
        )
    values = tomllib.loads(path.read_text())["superlink"][NAME]
    root = values.get("root-certificates")
    return LocalConnection(values["address"], None if root is None else Path(root))
