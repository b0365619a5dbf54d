"""What the guard in front of Flower's application lets through, without a network."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    Metadata,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.superlink.main import create_app

from fedlocal.deploy.coordinator import guard
from fedlocal.deploy.coordinator.guard import FLEET, LARGEST_BODY, REMEMBERED, SitesOnly

PULL = "/v1/fleet/pull-messages"


class Flower:
    """Stands for Flower's application: notes what comes through, and gives node n the message "n" with an object "n-part"."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.trees = [lambda n: ObjectTree(object_id=f"{n}", children=[ObjectTree(object_id=f"{n}-part")])]
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        self.seen.append(scope)
        self.bodies.append(event["body"])
        content = b""
        if scope["path"] == PULL:
            node = PullMessagesRequest.FromString(event["body"]).node.node_id
            content = PullMessagesResponse(message_object_trees=[t(node) for t in self.trees]).SerializeToString()
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": content[:3], "more_body": True})
        await send({"type": "http.response.body", "body": content[3:], "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def ask(app: Any, path: str, *pieces: bytes, **scope: Any) -> int:
    """The status of the answer to a POST whose body comes in pieces; None of them: the sender goes away."""
    events = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if events:
        events[-1]["more_body"] = False
    sent: list[Any] = []

    async def receive() -> Any:
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    usual = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": []}
    asyncio.run(app({**usual, **scope}, receive, send))
    return sent[0].get("status", 0)


@pytest.fixture
def flower() -> Flower:
    return Flower()


@pytest.fixture
def app(flower: Flower) -> SitesOnly:
    return SitesOnly(flower)


def test_the_paths_are_those_that_a_supernode_uses():
    """Counted in Flower's documentation of its own application, beside which everything else is the operator's."""
    paths = create_app().openapi()["paths"]
    fleet = {path for path, methods in paths.items() if "Fleet" in methods.get("post", {}).get("tags", [])}
    assert set(FLEET) == fleet
    assert len(paths) > len(fleet) > 5
    assert not any("control" in path or "runtime" in path for path in FLEET)


@pytest.mark.parametrize("path", sorted(FLEET))
def test_an_empty_request_to_a_fleet_path_comes_through_unless_it_is_about_a_message(app, flower, path):
    about = path.removeprefix("/v1/fleet/") in (
        "push-messages",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
    assert ask(app, path, b"") == (403 if about else 200)
    assert len(flower.seen) == (0 if about else 1)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "post"])
def test_other_methods_are_not_found(app, flower, method):
    assert ask(app, PULL, b"", method=method) == 404
    assert not flower.seen


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        ("/v1/control/list-runs", b"/v1/control/list-runs"),
        (f"{PULL}/", f"{PULL}/".encode()),
        (PULL, b"/v1/%66leet/pull-messages"),
        (PULL, f"{PULL}?x".encode()),
        (PULL.upper(), PULL.upper().encode()),
        ("", b""),
    ],
)
def test_other_paths_are_not_found(app, flower, path, raw):
    assert ask(app, path, b"", raw_path=raw) == 404
    assert not flower.seen


def test_a_websocket_is_closed(app, flower):
    assert ask(app, PULL, type="websocket") == 0
    assert not flower.seen


def test_flower_sees_nothing_of_the_address_but_the_path(app, flower):
    headers = [(b"host", b"evil/v1/x?"), (b"flwr-signature", b"s"), (b"host", b"two")]
    assert ask(app, PULL, b"", headers=headers, query_string=b"a=b", root_path="/v1/control") == 200
    (scope,) = flower.seen
    assert (scope["query_string"], scope["root_path"]) == (b"", "")
    assert sorted(scope["headers"]) == [(b"flwr-signature", b"s"), (b"host", b"coordinator")]


def test_the_body_comes_through_whole_and_not_larger_than_allowed(app, flower):
    body = PushObjectRequest(session_id="s", object_content=bytes(LARGEST_BODY - 100)).SerializeToString()
    path = "/v1/fleet/push-object"
    assert len(body) <= LARGEST_BODY
    assert ask(app, path, body[:1000], body[1000:]) == 200
    assert flower.bodies == [body]
    assert ask(app, path, body, bytes(200)) == 413
    assert ask(app, path, b"", headers=[(b"content-length", str(LARGEST_BODY + 1).encode())]) == 413
    assert ask(app, path, b"", headers=[(b"content-length", b"-1")]) == 413
    assert len(flower.seen) == 1


def test_flowers_pieces_of_arrays_fit():
    from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

    assert FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE + 2**20 < LARGEST_BODY


def test_half_a_request_and_one_that_cannot_be_read_do_not_come_through(app, flower):
    assert ask(app, PULL) == 413  # the sender is gone
    assert ask(app, PULL, b"\xff") == 400
    assert not flower.seen


def reply(node: int, source: int, to: str, objects: str = "r") -> bytes:
    message = Message(metadata=Metadata(src_node_id=source, reply_to_message_id=to, message_id="r"))
    trees = [ObjectTree(object_id=objects)]
    request = PushMessagesRequest(node=Node(node_id=node), messages_list=[message], message_object_trees=trees)
    return request.SerializeToString()


def pull(app: SitesOnly, node: int) -> None:
    ask(app, PULL, PullMessagesRequest(node=Node(node_id=node)).SerializeToString())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (reply(3, 3, "3"), 200),
        (reply(3, 4, "4"), 403),  # in another's name
        (reply(3, 3, "4"), 403),  # to another's message
        (reply(3, 4, "3"), 403),
        (reply(3, 1, ""), 403),  # an order, in the coordinator's name
        (reply(3, 3, "3", objects="x"), 403),
        (reply(5, 5, "5"), 403),  # to a message that was not delivered yet
        (reply(3, 3, "3") + reply(3, 4, "4"), 403),  # protobuf joins them: two replies
        (PushMessagesRequest(node=Node(node_id=3)).SerializeToString(), 403),
    ],
)
def test_a_node_replies_in_its_own_name_to_its_own_messages(app, body, status):
    pull(app, 3)
    pull(app, 4)
    assert ask(app, "/v1/fleet/push-messages", body) == status


@pytest.mark.parametrize(("what", "status"), [("3", 200), ("3-part", 200), ("4", 403), ("4-part", 403), ("", 403)])
def test_a_node_fetches_its_own_objects(app, what, status):
    pull(app, 3)
    pull(app, 4)
    request = PullObjectRequest(node=Node(node_id=3), object_id=what)
    assert ask(app, "/v1/fleet/pull-object", request.SerializeToString()) == status


@pytest.mark.parametrize(("what", "status"), [("3", 200), ("3-part", 403), ("4", 403)])
def test_a_node_confirms_its_own_messages(app, what, status):
    pull(app, 3)
    pull(app, 4)
    request = ConfirmMessageReceivedRequest(node=Node(node_id=3), message_object_id=what)
    assert ask(app, "/v1/fleet/confirm-message-received", request.SerializeToString()) == status


def test_a_node_may_fetch_objects_as_soon_as_it_has_read_their_names(app):
    """Which is before the end of the response: its length is known."""
    request = PullObjectRequest(node=Node(node_id=3), object_id="3-part").SerializeToString()
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": PullMessagesRequest(node=Node(node_id=3)).SerializeToString()}

    async def send(event: Any) -> None:
        if event.get("body"):
            statuses.append(await asyncio.to_thread(ask, app, "/v1/fleet/pull-object", request))

    scope = {"type": "http", "method": "POST", "path": PULL, "raw_path": PULL.encode(), "headers": []}
    asyncio.run(app(scope, receive, send))
    assert statuses == [200, 200]


def test_what_flower_refuses_to_deliver_is_not_delivered(app, flower):
    flower.status = 401
    pull(app, 3)
    flower.status = 200
    assert ask(app, "/v1/fleet/push-messages", reply(3, 3, "3")) == 403


def test_only_so_many_messages_are_remembered(app, flower, monkeypatch):
    assert REMEMBERED > 2
    monkeypatch.setattr(guard, "REMEMBERED", 2)
    flower.trees = [lambda n, i=i: ObjectTree(object_id=f"{n}.{i}") for i in range(3)]
    pull(app, 3)
    assert [ask(app, "/v1/fleet/push-messages", reply(3, 3, f"3.{i}")) for i in range(3)] == [403, 200, 200]
