"""Two grids: one that asks often for replies, and one whose nodes live in this process."""

import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from flwr.app import Context, Error, Message, MessageType, Metadata, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

from fedlocal.flower._flwr import messages as flwr
from fedlocal.flower.messages.records import error_reply

log = logging.getLogger("fedlocal")
FIRST_WAIT, LONGEST_WAIT = 0.01, 0.5  # seconds between two questions for replies
# what Flower has against bytes from another machine, and not against the connection
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, AssertionError, DecodeError)
LATE_SECONDS, LATE_FACTOR = 120.0, 10.0  # to wait after enough others have answered


class PollingGrid(Grid):
    """Asks another grid for replies a few milliseconds after sending, and then less and less often."""

    def __init__(self, grid: Grid):
        self.grid = grid

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return self.grid.create_message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have come. One that cannot be read is an error of its site, not of the run."""
        replies: list[Message] = []
        for message_id in message_ids:  # Flower reads replies that are asked for together all or none
            try:
                replies += self.grid.pull_messages([message_id])
            except UNREADABLE as error:
                log.warning("a reply cannot be read: %s", type(error).__name__)
                replies.append(_unreadable(message_id))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return all replies, or those that came in time."""
        return self.receive(messages, timeout, None)

    def receive(self, messages: Iterable[Message], timeout: float | None, enough: int | None) -> list[Message]:
        """Return the replies. Once `enough` have come, the others get a multiple of the time that those took, not all of it."""
        messages = list(messages)
        ids = list(self.grid.push_messages(messages)) if messages else []
        waiting = {i: m.metadata.dst_node_id for i, m in zip(ids, messages, strict=True) if i}
        began, wait = time.monotonic(), FIRST_WAIT
        replies: list[Message] = []
        while waiting and (timeout is None or time.monotonic() - began < timeout):
            for reply in self.pull_messages(list(waiting)):
                message_id = reply.metadata.reply_to_message_id
                if message_id in waiting and comes_from(reply, waiting[message_id]):
                    del waiting[message_id]  # a second reply does not count
                    replies.append(reply)
            if enough is not None and len(replies) >= enough:
                took, enough = time.monotonic() - began, None
                late = took + max(LATE_SECONDS, LATE_FACTOR * took)
                timeout = late if timeout is None else min(timeout, late)
            if waiting:
                time.sleep(wait)
                wait = min(1.5 * wait, LONGEST_WAIT)
        return replies


def _unreadable(message_id: str) -> Message:
    """Return a reply to this message, in Flower's name, that there is none which can be read."""
    node = flwr.SUPERLINK_NODE_ID
    metadata = Metadata(0, "", node, node, message_id, "", time.time(), 0.0, MessageType.QUERY)
    return flwr.make_message(metadata, error=Error(flwr.ErrorCode.UNKNOWN, "its answer cannot be read"))


def comes_from(reply: Message, node: int) -> bool:
    """Return True if a reply is this node's, or says in Flower's name that there is none."""
    source = reply.metadata.src_node_id
    return source == node or (source == flwr.SUPERLINK_NODE_ID and reply.has_error())


class InProcess(Grid):
    """Sites in this process: to rehearse a deployment, or to test one. All that is sent goes through bytes, which `sent` keeps.

    Args:
        app: the sites' app, which `client_app` makes.
        sites: names of the sites and the node configuration of each.
        run_config: the run's configuration, the same for all sites; None: an empty one.

    >>> from fedlocal.flower import InProcess
    >>> grid = InProcess(app, {"north": {"data": "north.csv"}, "south": {"data": "south.csv"}})  # doctest: +SKIP
    """

    def __init__(
        self, app: ClientApp, sites: Mapping[str, Mapping[str, Any]], run_config: Mapping[str, Any] | None = None
    ):
        self.app = app
        run = secrets.randbits(31)  # every run is another one to the sites
        self.contexts = {
            node: Context(run, node, {"site": name, **config}, RecordDict(), dict(run_config or {}))
            for node, (name, config) in enumerate(sites.items(), start=1)
        }
        sender = flwr.TaskIdentity  # of what is sent
        sender.run_id, sender.node_id, sender.task_id = run, flwr.SUPERLINK_NODE_ID, 0
        self.waiting: dict[str, Message] = {}
        self.sent: list[bytes] = []  # everything that left a site

    def set_run(self, run: Any) -> None:
        """There is one run."""

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return Message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages; sites answer at once."""
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            ids.append(message.metadata.message_id)
            reply, contents = _through_bytes(self._answer(_through_bytes(message)[0]))
            self.sent += contents
            self.waiting[message.metadata.message_id] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.waiting.pop(i) for i in list(message_ids) if i in self.waiting]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        context = self.contexts.get(message.metadata.dst_node_id)
        if context is None:
            return Message(Error(flwr.ErrorCode.NODE_UNAVAILABLE, "node not available"), reply_to=message)
        try:
            return self.app(message, context)
        except Exception as error:  # of a modifier: as between machines, the server hears of it
            log.exception("%s: the message was not answered", context.node_config["site"])
            return error_reply(message, error)


def _through_bytes(message: Message) -> tuple[Message, list[bytes]]:
    """Return a message as it arrives on the other side, and the bytes that were sent."""
    with flwr.no_object_id_recompute():
        contents = {name: thing.deflate() for name, thing in flwr.get_all_nested_objects(message).items()}
        copy = cast(Message, flwr.inflate_object_from_contents(message.object_id, dict(contents)))
        copy.metadata.__dict__["_message_id"] = message.metadata.message_id or message.object_id
    return copy, list(contents.values())
