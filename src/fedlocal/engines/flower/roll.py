"""The roll: which sites there are, under which number, and on which node each of them answers."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import jax
import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedlocal import checks
from fedlocal.data.moments import Moments
from fedlocal.engines.flower import records
from fedlocal.engines.flower.records import CONFIG, EXAMPLES

AWAY = (ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)


class Roll:
    """Sites by name. A site keeps its number for the whole run, whatever node it comes back on."""

    def __init__(self, owner: str, sites: int | Sequence[str]):
        named = not isinstance(sites, (int, np.integer))
        if named and (isinstance(sites, str) or not sites or len(set(sites)) != len(sites)):
            raise ValueError(f"{owner}: sites must be a number, or a list of different names, got {sites!r}")
        self.size = len(sites) if named else checks.whole(owner, "sites", sites)  # pyright: ignore[reportArgumentType]
        self._named = named
        self.names: list[str] = [str(name) for name in sites] if named else []  # pyright: ignore
        self.examples: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] | None = None  # of the parameters, by name
        self.columns: list[str] | None = None  # names of the features, where sites give them
        self.node_of: dict[str, int] = {}  # who answered, and from where
        self.moments: Moments | None = None
        self.refused: dict[int, str] = {}  # nodes that are not taken, and why
        self._asked: dict[str, int] = {}  # messages that ask nodes who they are, while there is no answer

    def call(self, grid: Grid) -> list[tuple[str, str]]:
        """Ask nodes that are new who they are, without waiting for answers; what was learnt: names of sites and what of them."""
        online = set(grid.get_node_ids())
        known = {*self.node_of.values(), *self.refused, *self._asked.values()}
        hellos = [_question(node, {"moments": False}) for node in sorted(online - known)]
        if hellos:
            ids = grid.push_messages(hellos)
            self._asked |= {i: m.metadata.dst_node_id for i, m in zip(ids, hellos, strict=True) if i}
        news = []
        replies = list(grid.pull_messages(list(self._asked))) if self._asked else []
        for reply in sorted(replies, key=lambda r: self._asked[r.metadata.reply_to_message_id]):
            node = self._asked.pop(reply.metadata.reply_to_message_id)
            news += self._hear(reply, node)
        return sorted(news)

    def _hear(self, reply: Message, node: int) -> list[tuple[str, str]]:
        """Take a node that answers as one of the sites, or say why not."""
        if reply.has_error() and reply.error.code in AWAY:
            return []  # asked again when it is back
        try:
            if reply.has_error():
                raise ValueError(reply.error.reason or "it did not say who it is")
            name, examples, shapes, columns = _introduction(reply)
            if name not in self.names and len(self.names) == self.size:
                raise ValueError(f"{name} is not one of the {self.size} sites of this run: {', '.join(self.names)}")
            if self.shapes is not None and shapes != self.shapes:
                raise ValueError(f"{name} has parameters of shapes {shapes}, the others {self.shapes}")
            if self.examples and columns != self.columns:
                raise ValueError(f"{name} has other columns than the others: {_difference(columns, self.columns)}")
        except ValueError as error:
            self.refused[node] = str(error)
            return [(f"node {node}", f"refused: {error}")]
        if name not in self.names:
            self.names.append(name)
        self.shapes, self.columns, self.examples[name], self.node_of[name] = shapes, columns, examples, node
        return [(name, "connected")]

    def number(self) -> None:
        """Number sites whose names were not given: by name, so that it does not matter who came first."""
        if not self._named:
            self.names.sort()

    def doubt(self, name: str) -> None:
        """A site did not answer: it is left out until it says who it is again."""
        self.node_of.pop(name, None)

    def online(self, grid: Grid) -> dict[str, int]:
        """The nodes of the sites that are connected now."""
        nodes = set(grid.get_node_ids())
        self.refused = {node: why for node, why in self.refused.items() if node in nodes}
        return {name: node for name, node in self.node_of.items() if node in nodes}

    def ask_moments(self, grid: Grid, timeout: float) -> None:
        """The moments of the features of all sites that are there, together."""
        nodes = {node: name for name, node in self.online(grid).items()}
        questions = [_question(node, {"moments": True}) for node in sorted(nodes)]
        replies: dict[str, Moments] = {}
        for reply in grid.send_and_receive(questions, timeout=timeout):
            asked = [q for q in questions if q.metadata.message_id == reply.metadata.reply_to_message_id]
            name = nodes[asked[0].metadata.dst_node_id]
            if reply.has_error():
                raise ValueError(f"site {name} gave no moments: {reply.error.reason}")
            replies[name] = _moments(name, reply)
        missing = sorted(set(nodes.values()) - set(replies))
        if missing:
            raise ValueError(f"no moments from {', '.join(missing)} within {timeout:g} s")
        self.moments = Moments.merged([replies[name] for name in sorted(replies)])

    def parameters(self, dtype: Any) -> Any:
        """Zeros of the shape that all sites gave."""
        assert self.shapes is not None
        if list(self.shapes) == ["value"]:
            return np.zeros(self.shapes["value"], dtype)
        tree: dict[str, Any] = {}
        for name, shape in self.shapes.items():
            *folders, last = name.split("/")
            place = tree
            for folder in folders:
                place = place.setdefault(folder, {})
            place[last] = np.zeros(shape, dtype)
        return tree

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        moments = None if self.moments is None else jax.tree.map(np.ndarray.tolist, self.moments._asdict())
        return {"names": self.names, "examples": self.examples, "columns": self.columns, "moments": moments}

    def resume(self, kept: dict[str, Any]) -> None:
        """Take the numbers of the sites from a checkpoint."""
        self.names, self.columns = kept["names"], kept["columns"]
        self.examples = {**kept["examples"], **self.examples}
        self._named = True
        if kept["moments"] is not None:
            self.moments = Moments(**{name: np.asarray(a) for name, a in kept["moments"].items()})


def _question(node: int, question: dict[str, Any]) -> Message:
    return Message(RecordDict({CONFIG: ConfigRecord(question)}), node, MessageType.QUERY)


def _moments(name: str, reply: Message) -> Moments:
    arrays = records.only_arrays(reply.content)
    if set(arrays) != set(Moments._fields) or len({a.shape for a in arrays.values()}) != 1:
        raise ValueError(f"site {name} gave no proper moments: {sorted(arrays)}")
    moments = Moments(**arrays)
    if not all(np.isfinite(a).all() for a in moments) or (moments.present < 0).any() or (moments.squares < 0).any():
        raise ValueError(f"site {name} gave moments that cannot be")
    return moments


def _introduction(message: Message) -> tuple[str, int, dict[str, tuple[int, ...]], list[str] | None]:
    config, numbers = records.only_config(message.content), records.only_metrics(message.content)
    names, examples = config.get("names"), numbers.get(EXAMPLES)
    if not isinstance(config.get("site"), str) or not isinstance(names, list) or type(examples) is not int:
        raise ValueError(f"no proper introduction: {config} {numbers}")
    if examples < 1:
        raise ValueError(f"{config['site']} has {examples} examples")
    shapes = {str(name): config.get(f"shape.{name}", []) for name in names}
    if not all(isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape) for shape in shapes.values()):
        raise ValueError(f"no proper shapes: {shapes}")
    columns = config.get("columns")
    if columns is not None and not (isinstance(columns, list) and all(isinstance(c, str) for c in columns)):
        raise ValueError(f"no proper columns: {columns}")
    return config["site"], examples, {name: tuple(shape) for name, shape in shapes.items()}, columns


def _difference(columns: list[str] | None, others: list[str] | None) -> str:
    """The first place where two lists of columns differ, in words."""
    for place, (column, other) in enumerate(zip_longest(columns or [], others or []), start=1):
        if column != other:
            return f"column {place} is {column!r} and not {other!r}"
    return f"{columns} and not {others}"
