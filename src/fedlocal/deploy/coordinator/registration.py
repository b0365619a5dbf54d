"""Registration: the public keys of the sites in a folder become nodes that Flower lets in."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedlocal.deploy.coordinator.nodes import NodesFile
from fedlocal.flower._flwr import coordinator as flwr
from fedlocal.util.files import write_atomically

log = logging.getLogger("fedlocal")


class Registration:
    """Registers keys/SITE.pub of every site, also of those that come later, and writes down which node is whose."""

    def __init__(self, state: flwr.LinkState, keys: Path, sites: Sequence[str], file: Path):
        self.state, self.keys, self.sites, self.file = state, keys, tuple(sites), file
        self._missing: list[str] | None = None  # what was said last
        self._trouble = ""

    def update(self) -> None:
        """Register keys that are new; say whose are missing. ValueError for a key that cannot be taken."""
        keys, before = read_keys(self.keys, self.sites), dict(NodesFile(self.file))
        nodes = {site: self._node(site, key) for site, key in keys.items()}
        if nodes != before or not self.file.exists():
            write_atomically(self.file, json.dumps(nodes, indent=2).encode())
        for site in nodes:
            if nodes[site] != before.get(site):
                log.info("%s: its key is registered", site)
        for site in before.keys() & nodes.keys():
            if before[site] not in nodes.values():  # the site has a new key: its old one is worth nothing
                with suppress(ValueError):
                    self.state.delete_node(flwr.NOOP_FLWR_AID, before[site])
        missing = [site for site in self.sites if site not in nodes]
        if missing and missing != self._missing:
            log.info("no key yet of %s; SITE.pub goes to %s", ", ".join(missing), self.keys)
        self._missing = missing

    def look_again(self) -> None:
        """`update`, later: what is wrong with a key is said once, and the others stay registered."""
        try:
            self.update()
            self._trouble = ""
        except (ValueError, OSError) as error:
            if str(error) != self._trouble:
                log.warning("%s", error)
            self._trouble = str(error)

    def _node(self, site: str, key: bytes) -> int:
        node = self.state.get_node_id_by_public_key(key)
        if node is not None:
            return node
        try:
            account = (flwr.NOOP_FLWR_AID, flwr.NOOP_ACCOUNT_NAME)
            return self.state.create_node(*account, key, flwr.HEARTBEAT_DEFAULT_INTERVAL, name=site)
        except ValueError:
            old = f"the key in {self.keys / site}.pub was replaced by another one before"
            raise ValueError(f"coordinator: {old}; {site} needs a new pair (fedlocal keys)") from None


def read_keys(folder: Path, sites: Sequence[str]) -> dict[str, bytes]:
    """The public keys of the sites that have a file SITE.pub there, as Flower keeps them."""
    keys: dict[str, bytes] = {}
    for site in sites:
        path = folder / f"{site}.pub"
        if not path.is_file():
            continue
        key = _public_key(path)
        if twin := next((other for other in keys if keys[other] == key), None):
            raise ValueError(f"coordinator: {path} and {folder / twin}.pub are the same key; each site makes its own")
        keys[site] = key
    return keys


def _public_key(path: Path) -> bytes:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not flwr.uses_nist_ec_curve(key):
        raise ValueError(f"coordinator: {path} is not a public key of a site; `fedlocal keys` makes one (SITE.pub)")
    return flwr.public_key_to_bytes(key)
