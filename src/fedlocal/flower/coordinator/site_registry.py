"""SiteRegistry: which sites there are, the number of each, and the node on which each of them answers."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import Message
from flwr.serverapp import Grid

from fedlocal.flower.checks.site_moments import AWAY, LossBounds, News, SiteMoments
from fedlocal.flower.messages import records
from fedlocal.flower.messages.grids import comes_from
from fedlocal.flower.messages.model_signature import ModelSignature
from fedlocal.flower.messages.records import EXAMPLES
from fedlocal.flower.messages.text import clean
from fedlocal.util import checks

HELLO_SECONDS = 60.0  # after which a hello without answer is forgotten, and sent again
REFUSED_SECONDS = 30.0  # after which a node that was refused is asked again
LONGEST_NAME = 64
MOST_ROWS = 100.0  # of a site, as a multiple of the median of the others
MANY_ROWS = 10.0  # the same, above which an event says so


class SiteRegistry:
    """Sites by name. A site keeps its number for the whole run, whatever node it comes back on.

    Args:
        owner: who checks the arguments, for error messages.
        sites: how many sites there are, or their names.
        nodes: the node on which each site must answer, by name; None accepts any.
    """

    def __init__(self, owner: str, sites: int | Sequence[str], nodes: Mapping[str, int] | None = None):
        named = not isinstance(sites, (int, np.integer))
        if named and (isinstance(sites, str) or not sites or len(set(sites)) != len(sites)):
            raise ValueError(f"{owner}: sites must be a number, or a list of different names, got {sites!r}")
        self.size = len(sites) if named else checks.whole(owner, "sites", sites)  # pyright: ignore[reportArgumentType]
        self._named = named
        self.nodes = nodes  # on which node each site must answer; None: on any
        self.names: list[str] = [str(name) for name in sites] if named else []  # pyright: ignore
        self.examples: dict[str, int] = {}
        self.signature: ModelSignature | None = None  # of the model, when the sites have agreed
        self.node_of: dict[str, int] = {}  # who answered, and from where
        self.refused: dict[int, tuple[str, float]] = {}  # nodes that are not taken, why, and since when
        self.silent: set[int] = set()  # connected nodes that did not say yet who they are
        self.fingerprints: dict[str, str] = {}  # of the sites' data, which only they can make
        self.states_left: dict[str, int] = {}  # how many questions each of them still answers, by its policy
        self._signatures: dict[str, ModelSignature] = {}  # that sites gave
        self._notices: list[tuple[int, str]] = []  # for nodes that were refused
        self._asked: dict[str, tuple[int, float]] = {}  # hellos without an answer yet: to which node, and when

    def update(self, grid: Grid) -> News:
        """Ask new nodes who they are and read the answers that have come; return names of sites and what is new of them."""
        online, now = set(grid.get_node_ids()), time.monotonic()
        self._asked = {i: (node, when) for i, (node, when) in self._asked.items() if now - when < HELLO_SECONDS}
        waiting = {node for node, _ in self._asked.values()}
        turned_away = {node for node, (_, when) in self.refused.items() if now - when < REFUSED_SECONDS}
        new = sorted(online - {*self.node_of.values()} - waiting - turned_away)
        hellos = [records.query(node, {"moments": False}, HELLO_SECONDS) for node in new]
        if hellos:
            ids = grid.push_messages(hellos)
            self._asked |= {i: (m.metadata.dst_node_id, now) for i, m in zip(ids, hellos, strict=True) if i}
        news = []
        replies = list(grid.pull_messages(list(self._asked))) if self._asked else []
        for reply in sorted(replies, key=lambda r: self._asked.get(r.metadata.reply_to_message_id, (0, 0.0))):
            node, _ = self._asked.get(reply.metadata.reply_to_message_id, (None, 0.0))
            if node is not None and comes_from(reply, node):
                del self._asked[reply.metadata.reply_to_message_id]  # a second reply does not count
                news += self._register(reply, node, online)
        self.send_notices(grid)
        self.silent = {node for node, _ in self._asked.values()} & online
        return sorted(news)

    def _register(self, reply: Message, node: int, online: set[int]) -> News:
        if reply.has_error() and reply.error.code in AWAY:
            return []  # asked again when it is back
        try:
            if reply.has_error():
                raise ValueError(reply.error.reason or "it did not say who it is")
            name, examples, signature, fingerprint = _introduction(reply)
            self._check_key(name, node)
            if name not in self.names and len(self.names) == self.size:
                raise ValueError(f"{name} is not one of the {self.size} sites of this run: {', '.join(self.names)}")
            if self.node_of.get(name, node) in online - {node}:
                raise ValueError(f"{name} is connected from another node")
            self._check_data(name, examples, fingerprint)
            if self.signature is not None:
                signature.check(name, self.signature)
                self._check_rows(name, examples)
        except ValueError as error:
            return self._refuse(node, str(error))
        if name not in self.names:
            self.names.append(name)
        self.refused.pop(node, None)
        new = name not in self.fingerprints
        self.fingerprints[name] = fingerprint
        left = records.only_config(reply.content).get("states-left")
        self.states_left[name] = left if type(left) is int and left >= 0 else 0
        self._signatures[name], self.examples[name], self.node_of[name] = signature, examples, node
        return [(name, "connected"), *(self._many_rows(name) if new and self.signature is not None else [])]

    def _check_key(self, name: str, node: int) -> None:
        """Refuse a site that does not answer from the node registered with its key."""
        if self.nodes is None or self.nodes.get(name) == node:
            return
        owner = self._key_owner(node)
        whose = f"{owner}'s key" if owner is not None else "a key that is no site's"
        raise ValueError(f"{whose} came under the name {name}")

    def _key_owner(self, node: int) -> str | None:
        return next((site for site, own in (self.nodes or {}).items() if own == node), None)

    def _check_data(self, name: str, examples: int, fingerprint: str) -> None:
        """Refuse a site that came back with other data: a run is about the same rows from beginning to end."""
        known = self.fingerprints.get(name)
        if known is None:
            return
        if self.examples.get(name, examples) != examples:
            raise ValueError(f"{name} came back with {examples} rows; it began this run with {self.examples[name]}")
        if fingerprint != known:
            raise ValueError(f"{name} came back with other data than it began this run with; start a new run for them")

    def _refuse(self, node: int, why: str) -> News:
        """Leave a node out and tell it why; it is asked again after a while."""
        before, _ = self.refused.get(node, ("", 0.0))
        self.refused[node] = (clean(why), time.monotonic())
        if clean(why) == before:
            return []
        self._notices.append((node, f"refused: {why}"))
        return [(self._key_owner(node) or f"node {node}", f"refused: {why}")]

    def send_notices(self, grid: Grid) -> None:
        """Tell refused nodes why, without waiting for an answer."""
        notices, self._notices = self._notices, []
        if notices:
            grid.push_messages([records.query(node, {"notice": clean(text)}, HELLO_SECONDS) for node, text in notices])

    def agree(self) -> News:
        """Refuse sites whose model differs from that of most sites; number sites by name where no names were given."""
        if not self._named:
            self.names.sort()
        if self.signature is None and not self._signatures:
            return []
        if self.signature is None:
            signatures = [self._signatures[name] for name in self.names if name in self._signatures]
            self.signature = max(signatures, key=signatures.count)
        agreed, news = self.signature, []
        for check in (
            lambda name: self._signatures[name].check(name, agreed),
            lambda name: self._check_rows(name, self.examples[name]),
        ):
            for name, node in list(self.node_of.items()):
                try:
                    check(name)
                except ValueError as error:
                    del self.node_of[name], self.examples[name]
                    self.fingerprints.pop(name, None)
                    news += self._refuse(node, str(error))
        return news + [told for name in self.node_of for told in self._many_rows(name)]

    def _many_rows(self, name: str) -> News:
        times = self.examples[name] / self._usual_rows(name)
        said = f"look at its rows: {self.examples[name]}, {times:.3g} times the median of the other sites'"
        return [(name, said)] if times > MANY_ROWS else []

    def _check_rows(self, name: str, rows: int) -> None:
        """Refuse far more rows than the others have: rows are weights, and the coordinator cannot count them."""
        usual = self._usual_rows(name)
        if rows > MOST_ROWS * usual:
            limit = f"the others have {usual:g}, and at most {MOST_ROWS:g} times as many are believed"
            raise ValueError(f"{name} says that it has {rows} rows; {limit}")

    def _usual_rows(self, name: str) -> float:
        """Return the median of the rows of the other sites; inf where fewer than two are known."""
        others = [count for other, count in self.examples.items() if other != name]
        return float(np.median(others)) if len(others) > 1 else np.inf

    def names_of(self, clients: Iterable[int]) -> list[str]:
        """Return the names of clients, also of those that never connected."""
        return [self.names[m] if m < len(self.names) else f"site {m}" for m in clients]

    def mark_unreachable(self, name: str) -> None:
        """Leave out a site that did not answer until it introduces itself again."""
        self.node_of.pop(name, None)

    def online(self, grid: Grid) -> dict[str, int]:
        """Return the nodes of the sites that are connected now."""
        nodes = set(grid.get_node_ids())
        self.refused = {node: why for node, why in self.refused.items() if node in nodes}  # gone: asked when it is back
        return {name: node for name, node in self.node_of.items() if node in nodes}

    def parameters(self, dtype: Any) -> Any:
        """Return zeros of the shapes that all sites gave."""
        assert self.signature is not None
        shapes = self.signature.shapes
        if list(shapes) == ["value"]:
            return np.zeros(shapes["value"], dtype)
        tree: dict[str, Any] = {}
        for name, shape in shapes.items():
            *folders, last = name.split("/")
            place = tree
            for folder in folders:
                place = place.setdefault(folder, {})
            place[last] = np.zeros(shape, dtype)
        return tree

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        agreed = None if self.signature is None else self.signature._asdict()
        return {"names": self.names, "examples": self.examples, "signature": agreed, "fingerprints": self.fingerprints}

    def resume(self, kept: dict[str, Any]) -> None:
        """Restore names, numbers and signature of the sites from a checkpoint."""
        self.names, self.examples, self._named = kept["names"], kept["examples"], True
        self.fingerprints = kept["fingerprints"]
        if kept["signature"] is not None:
            shapes = {name: tuple(shape) for name, shape in kept["signature"]["shapes"].items()}
            self.signature = ModelSignature(shapes, kept["signature"]["columns"])


def _introduction(message: Message) -> tuple[str, int, ModelSignature, str]:
    config, numbers = records.only_config(message.content), records.only_metrics(message.content)
    site, examples = config.get("site"), numbers.get(EXAMPLES)
    if not isinstance(site, str) or not 0 < len(site) <= LONGEST_NAME:
        raise ValueError(f"its name must have 1 to {LONGEST_NAME} characters, got {str(site)[:LONGEST_NAME]!r}")
    if clean(site) != site:
        raise ValueError(f"its name must have no control characters, got {clean(site)!r}")
    if type(examples) is not int or not 0 < examples < 2**31:
        raise ValueError(f"{site} has {examples!r} examples")
    fingerprint = config.get("fingerprint", "")
    if not isinstance(fingerprint, str) or len(fingerprint) > LONGEST_NAME:
        raise ValueError(f"{site} gives no proper fingerprint of its data")
    return site, examples, ModelSignature.read(site, config), fingerprint


@dataclass(frozen=True)
class KnownSites:
    """The sites of a run, with what they said of their data before the first round and what is known of their losses."""

    registry: SiteRegistry
    moments: SiteMoments = field(default_factory=SiteMoments)
    bounds: LossBounds | None = None  # of the losses of rows

    def columns(self) -> list[str] | None:
        """Return the names of the columns, where sites give them."""
        return None if self.registry.signature is None else self.registry.signature.columns

    def table(self) -> pd.DataFrame | None:
        """Return means and missing values of the columns by site, where sites gave them."""
        return None if self.moments.total is None else self.moments.table(self.registry.examples, self.columns())

    def second_moments(self, site: str) -> np.ndarray | None:
        """Return (d,) mean squares of a site's scaled columns, or None where they are not known."""
        known = self.moments.total is not None and site in self.moments.of
        return self.moments.second_moments(site, self.registry.examples[site]) if known else None

    def mean_second_moments(self, sites: Sequence[str], weights: str) -> np.ndarray | None:
        """Return the mean of `second_moments` over these sites, by rows for "examples" and equally for "uniform"."""
        parts: list[Any] = [self.second_moments(site) for site in sites]
        if not parts or any(part is None for part in parts):
            return None
        rows = [self.registry.examples[site] if weights == "examples" else 1 for site in sites]
        return np.average(np.stack(parts), axis=0, weights=rows)
