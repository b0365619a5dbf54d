"""SitesOnly: the part of Flower's application that sites may use, and what each of them may ask there.

Flower serves sites (Fleet), the operator (Control) and its own programs (Runtime) in one application on one port, and the last
two without authentication. It checks who a site is, but not whose messages the site answers or fetches.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from google.protobuf.message import DecodeError

from fedlocal.flower._flwr import coordinator as flwr

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
LARGEST_BODY = 8 * 2**20  # bytes; Flower sends arrays in pieces of 5 MiB
REMEMBERED = 256  # messages to a site that it may still fetch or answer
FLEET = {  # the paths of the Fleet API, and what is posted there
    route.path: flwr.PROTOBUF_REQUEST_TYPES["POST", route.path]  # pyright: ignore[reportAttributeAccessIssue]
    for route in flwr.fleet_router.routes
}


class DeliveredMessages:
    """Which messages were delivered to which node, with the objects that belong to them. The oldest are forgotten."""

    def __init__(self) -> None:
        self._of: dict[int, OrderedDict[str, frozenset[str]]] = {}

    def note(self, node: int, response: flwr.PullMessagesResponse) -> None:
        """Remember what a node was given."""
        messages = self._of.setdefault(node, OrderedDict())
        for tree in response.message_object_trees:
            messages[tree.object_id] = frozenset(_objects(tree))
        while len(messages) > REMEMBERED:
            messages.popitem(last=False)

    def has_message(self, node: int, message: str) -> bool:
        """Return True if this message was delivered to the node."""
        return message in self._of.get(node, ())

    def has_object(self, node: int, object_id: str) -> bool:
        """Return True if this object belongs to a message that was delivered to the node."""
        return any(object_id in objects for objects in self._of.get(node, {}).values())


class SitesOnly:
    """An ASGI application that passes POST requests to Fleet paths on to `app`; everything else is not found."""

    def __init__(self, app: Application):
        self.app, self._delivered = app, DeliveredMessages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await send({"type": "websocket.close"})
        path = scope["path"]
        plain = scope.get("raw_path") in (None, path.encode())  # nothing in it is encoded
        if scope["method"] != "POST" or path not in FLEET or not plain:
            return await _refuse(send, 404, "Not Found")
        body = await _body(scope, receive)
        if body is None:
            return await _refuse(send, 413, f"a request may have {LARGEST_BODY} bytes")
        try:
            request = FLEET[path].FromString(body)
        except DecodeError:
            return await _refuse(send, 400, "the request cannot be read")
        if why := self._objection(request):
            return await _refuse(send, 403, why)
        if isinstance(request, flwr.PullMessagesRequest):
            send = self._noting(request.node.node_id, send)
        return await self.app(_plain_scope(scope), _again(body, receive), send)

    def _objection(self, request: Any) -> str | None:
        """Why a node may not ask this. That it is the node it says it is, Flower checks afterwards."""
        if isinstance(request, flwr.PushMessagesRequest):
            return self._objection_to_reply(request)
        if isinstance(request, flwr.PullObjectRequest):
            known = self._delivered.has_object(request.node.node_id, request.object_id)
            return None if known else "the object is not part of a message to this node"
        if isinstance(request, flwr.ConfirmMessageReceivedRequest):
            known = self._delivered.has_message(request.node.node_id, request.message_object_id)
            return None if known else "the message was not sent to this node"
        if isinstance(request, flwr.PushObjectRequest) and not request.session_id:
            return "an object must belong to a reply"
        return None

    def _objection_to_reply(self, request: flwr.PushMessagesRequest) -> str | None:
        """A node pushes one reply, in its own name, to a message that it was sent."""
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            return "a request must have one reply"
        reply, node = request.messages_list[0].metadata, request.node.node_id
        if reply.src_node_id != node:
            return "the reply is in another node's name"
        if not self._delivered.has_message(node, reply.reply_to_message_id):
            return "the reply is not to a message to this node"
        if request.message_object_trees[0].object_id != reply.message_id:
            return "the objects belong to another message"
        return None

    def _noting(self, node: int, send: Send) -> Send:
        """A `send` that passes a response on when it is whole, and its messages count as delivered to the node.

        Not earlier: the node may ask for their objects as soon as it has the bytes.
        """
        events: list[Event] = []

        async def note(event: Event) -> None:
            events.append(event)
            if event["type"] != "http.response.body" or event.get("more_body"):
                return
            if events[0].get("status") == 200:
                content = b"".join(held.get("body", b"") for held in events)
                self._delivered.note(node, flwr.PullMessagesResponse.FromString(content))
            for held in events:
                await send(held)

        return note


def _objects(tree: flwr.ObjectTree) -> Iterator[str]:
    yield tree.object_id
    for child in tree.children:
        yield from _objects(child)


def _plain_scope(scope: Scope) -> Scope:
    """Flower decides by the address whether it asks for a key: nothing of it but the path comes from the site."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {**scope, "query_string": b"", "root_path": "", "headers": [*headers, (b"host", b"coordinator")]}


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """The body of a request; None if it is too large, by what it says or by what has come, or if the sender is gone."""
    said = dict(scope["headers"]).get(b"content-length", b"0")
    if not said.isdigit() or int(said) > LARGEST_BODY:
        return None
    body, more = bytearray(), True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
        if len(body) > LARGEST_BODY or event["type"] == "http.disconnect":
            return None
    return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once more, in one piece."""
    pieces = [body]

    async def give() -> Event:
        return {"type": "http.request", "body": pieces.pop(), "more_body": False} if pieces else await receive()

    return give


async def _refuse(send: Send, status: int, why: str) -> None:
    content = why.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
