"""Several strategies that travel together: what they send to a node at about the same time goes in one message.

A message costs seconds with real nodes, whatever is in it. Each strategy has a grid of its own and knows nothing of the others.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

LONGEST_WAIT = 5.0  # seconds for those that have nothing to send yet
PULL_SECONDS = 0.5  # between two questions for replies


def pack(messages: list[Message]) -> RecordDict:
    """Messages as the content of one."""
    parts: dict[str, Any] = {}
    for i, message in enumerate(messages):
        objects = [thing.deflate() for thing in get_all_nested_objects(message).values()]
        parts |= {f"{i}.objects": objects, f"{i}.root": message.object_id, f"{i}.id": message.metadata.message_id}
    return RecordDict({"together": ConfigRecord(parts)})


def unpack(content: RecordDict) -> list[Message]:
    """The messages in a content."""
    parts: Any = content.config_records["together"]
    messages = []
    for i in range(len(parts) // 3):
        contents = {get_object_id(thing): thing for thing in parts[f"{i}.objects"]}
        message = cast(Message, inflate_object_from_contents(parts[f"{i}.root"], contents))
        message.metadata.__dict__["_message_id"] = parts[f"{i}.id"]
        messages.append(message)
    return messages


class Unpacking(ClientApp):
    """Another app that answers each of the messages in a message; one that comes alone goes to it as it is."""

    def __init__(self, app: ClientApp):
        super().__init__()
        self.app = app

    def __call__(self, message: Message, context: Context) -> Message:
        if "together" not in message.content:
            return self.app(message, context)
        return Message(pack([self.app(part, context) for part in unpack(message.content)]), reply_to=message)


class Together:
    """The strategies' common side of a grid.

    Each has a thread, and one thread works at a time while the others wait for replies: in Python 3.11 `ast.parse`, with which
    NumPy reads an array's header, fails now and then when two threads are in it.
    """

    def __init__(self, grid: Grid, strategies: int):
        self.grid, self.turn, self.running = grid, threading.Condition(), strategies
        self.outbox: dict[int, list[Message]] = {}  # by the strategy that sends
        self.since = self.pulled = 0.0  # when the oldest message came into the outbox; when replies were last asked for
        self.under_way: dict[str, list[Message]] = {}  # what is in the messages that were sent
        self.inbox: dict[str, Message] = {}  # replies, by the messages that they answer

    def post(self, sender: int, messages: list[Message]) -> list[str]:
        """Put messages into the outbox; their ids."""
        self.since = self.since if self.outbox else time.monotonic()
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            self.outbox.setdefault(sender, []).append(message)
        return [message.metadata.message_id for message in messages]

    def collect(self, ids: list[str]) -> list[Message]:
        """The replies to these messages, when all of them are there."""
        while any(i not in self.inbox for i in ids):
            if self.outbox and (len(self.outbox) >= self.running or time.monotonic() > self.since + LONGEST_WAIT):
                self._send()
            if self.under_way and time.monotonic() > self.pulled + PULL_SECONDS:
                for reply in self.grid.pull_messages(list(self.under_way)):
                    self._receive(reply)
                self.pulled = time.monotonic()
                self.turn.notify_all()
            else:
                self.turn.wait(PULL_SECONDS)
        return [self.inbox.pop(i) for i in ids]

    def _send(self) -> None:
        everything = [message for messages in self.outbox.values() for message in messages]
        nodes = sorted({message.metadata.dst_node_id for message in everything})
        parts = [[m for m in everything if m.metadata.dst_node_id == node] for node in nodes]
        carriers = [Message(pack(p), node, MessageType.TRAIN) for node, p in zip(nodes, parts, strict=True)]
        self.under_way |= dict(zip(self.grid.push_messages(carriers), parts, strict=True))
        self.outbox = {}

    def _receive(self, carrier: Message) -> None:
        parts = self.under_way.pop(carrier.metadata.reply_to_message_id)
        if carrier.has_error():
            reason = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, carrier.error.reason)
            self.inbox |= {part.metadata.message_id: Message(reason, reply_to=part) for part in parts}
        else:
            self.inbox |= {reply.metadata.reply_to_message_id: reply for reply in unpack(carrier.content)}

    def run(self, jobs: dict[str, Callable[[Grid], None]]) -> dict[str, BaseException]:
        """Give each job a grid and a thread; what was raised, by their names."""
        raised: dict[str, BaseException] = {}

        def work(sender: int, name: str) -> None:
            with self.turn:
                try:
                    jobs[name](Share(self, sender))
                except BaseException as error:
                    raised[name] = error
                finally:
                    self.running -= 1

        threads = [threading.Thread(target=work, args=item) for item in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return raised


class Share(Grid):
    """The grid of one of the strategies."""

    def __init__(self, together: Together, sender: int):
        self.together, self.sender = together, sender

    def set_run(self, run: Any) -> None:
        """It is that of the common grid."""

    @property
    def run(self) -> Any:
        return self.together.grid.run

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return Message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        return self.together.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.together.post(self.sender, list(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.together.collect(list(message_ids))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError("strategies of fedlocal push and pull")
