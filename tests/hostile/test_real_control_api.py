"""What somebody gets who reaches the coordinator's port for sites: with nothing but ca.pem, and with the key of a site."""

import json
import socket
import ssl
import subprocess
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, StopRunRequest
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    Metadata,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.date import now
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fedlocal.deploy.coordinator.guard import LARGEST_BODY
from flower_coordinator import Study, coordinator
from flower_keys import make_key
from flower_processes import poll
from hostile.fleet import HandMadeNode

pytestmark = pytest.mark.xdist_group("flower")
SITES = ("north", "south")
HTTP = "HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    for site in SITES:
        table = {"age": rng.standard_normal(12), "ill": rng.integers(0, 2, 12), "dose": rng.standard_normal(12)}
        pd.DataFrame(table).to_csv(folder / f"{site}.csv", index=False)
    with coordinator(folder, SITES, ["--target", "ill", "--rounds", 2]) as opened:
        yield opened


@pytest.fixture
def stack():
    """What is entered here is closed after the test."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def operator(study):
    """The API that is on the coordinator's machine only, to see what came of an attack."""
    client = ControlHttpClient.from_server_address(
        server_address=f"127.0.0.1:{study.control_port}",
        insecure=False,
        root_certificates=(study.keys / "ca.pem").read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    yield client
    client.close()


def known(operator) -> tuple[int, int]:
    """How many nodes and runs there are."""
    nodes = operator.ListNodes(ListNodesRequest()).nodes_info
    return len(nodes), len(operator.ListRuns(ListRunsRequest()).run_dict)


def raw(study: Study, request: str) -> str:
    """The status line and headers that answer these very bytes."""
    context = ssl.create_default_context(cafile=str(study.keys / "ca.pem"))
    plain = socket.create_connection(("127.0.0.1", study.port), timeout=60)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as line:
        line.sendall(request.encode())
        return line.recv(65536).decode()


def test_flowers_commands_work_for_the_operator_and_for_nobody_else(study, operator):
    before = known(operator)
    assert before[0] == len(SITES)
    mallory = make_key(study.folder / "mallory", "mallory")
    for command in (
        ["ls", "there"],
        ["supernode", "ls", "there"],
        ["supernode", "register", str(mallory.public), "there"],
        ["run", str(study.app), "there"],
        ["stop", "1", "there"],
    ):
        done = study.flwr(study.port, *command)
        assert done.returncode != 0, (command, done.stdout)
        assert "404" in done.stdout + done.stderr or "Not Found" in done.stdout + done.stderr, done
    assert known(operator) == before
    listed = study.flwr(
        study.control_port, "ls", "there"
    )  # the same words at the other port: the attacks were proper ones
    assert listed.returncode == 0, listed


@pytest.mark.parametrize(
    "start",
    [
        "GET /docs",
        "GET /openapi.json",
        "GET /health",
        "GET /v1/fleet/pull-messages",
        "POST /v1/control/list-runs",
        "POST /v1/runtime/acquire-task",
        "POST /v1/responses",
        "POST /v1/fleet/../control/list-runs",
        "POST /v1/fleet/pull-messages/../../control/list-runs",
        "POST //v1/control/list-runs",
        "POST /v1//control/list-runs",
        "POST /v1/fleet/%2e%2e/control/list-runs",
        "POST /v1/%66leet/pull-messages",
        "POST /v1/fleet/pull-messages/",
        "POST /v1/fleet/pull-messages%2f",
        "POST https://here/v1/control/list-runs",
        "OPTIONS /v1/fleet/pull-messages",
        "PUT /v1/control/list-runs",
    ],
)
def test_other_paths_and_methods_are_not_found(study, start):
    answer = raw(study, f"{start} {HTTP}Content-Type: application/protobuf\r\n\r\n")
    assert answer.startswith("HTTP/1.1 404 "), answer


def test_there_are_no_websockets(study):
    words = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    words += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    for path in ("/v1/control/stream-logs", "/v1/fleet/pull-messages", "/"):
        answer = raw(study, f"GET {path} {HTTP}{words}\r\n")
        assert answer.startswith("HTTP/1.1 404 "), answer


def test_a_request_without_a_signature_is_refused_whatever_host_it_names(study):
    for host in ("here", "here/x", "here/v1/control?"):
        request = f"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n"
        answer = raw(study, f"{request}Content-Type: application/protobuf\r\n\r\n")
        assert answer.startswith("HTTP/1.1 401 "), answer


def test_large_requests_are_refused(study):
    """By the length that they give, and by the bytes that come."""
    start, size = "POST /v1/fleet/push-object HTTP/1.1\r\nHost: here\r\n", LARGEST_BODY + 1
    said = raw(study, f"{start}Content-Length: {size}\r\n\r\n")
    unsaid = raw(study, f"{start}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{'x' * size}\r\n")
    assert [answer.split("\r\n")[0].split()[1] for answer in (said, unsaid)] == ["413", "413"]


def test_the_operators_port_is_open_on_this_machine_only(study):
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    own = [address for address in addresses if ":" not in address]
    if not own:
        pytest.skip("this machine has no address but the loopback")
    for address in own:
        with socket.create_connection((address, study.port), timeout=10):
            pass  # sites reach theirs
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, study.control_port), timeout=10)


def test_the_key_of_one_site_under_the_name_of_another_is_refused_and_named(study):
    nodes = json.loads((study.place / "nodes.json").read_text())
    assert sorted(nodes) == sorted(SITES)
    impostor = study.site("north", study.folder / "north.csv", key="south")
    impostor.wait_for("connected to")
    run = study.start('patience=10.0 results="impostor"')
    assert run.exit_code() == 1, run.log()
    assert "refused: south's key came under the name north" in run.log()
    assert "the run stopped: 0 of 2 sites take part" in run.log()
    assert "did not complete (failed)" in run.log()
    for trace in ("Traceback", "raised an exception", "Exit Code"):
        assert trace not in run.log() + study.process.log()
    impostor.kill9()


def test_a_node_can_neither_answer_nor_read_what_was_sent_to_another(study, operator, stack):
    root = study.keys / "ca.pem"
    nodes = {site: stack.enter_context(HandMadeNode(study.address, root, study.keys / f"{site}.key")) for site in SITES}
    run = study.start('results="hand-made"')
    for node in nodes.values():
        poll(lambda node=node: _active(node), "a node that is let in")
    north, south = nodes["north"], nodes["south"]
    theirs = poll(lambda: _message(north), "a message to north")
    own = poll(lambda: _message(south), "a message to south")
    me, run_id = Node(node_id=south.node_id), own[0].metadata.run_id

    def reply(to: Message, source: int, **changes: object) -> PushMessagesRequest:
        """A reply that Flower would take from the node that `to` was sent to."""
        at = {"run_id": run_id, "message_id": "a" * 64, "src_node_id": source, "dst_node_id": SUPERLINK_NODE_ID}
        at |= {"reply_to_message_id": to.metadata.message_id, "message_type": to.metadata.message_type, "ttl": 10.0}
        metadata = Metadata(**(at | {"created_at": now().timestamp()} | changes))  # type: ignore[arg-type]
        message = Message(metadata=metadata, content=to.content)
        return PushMessagesRequest(
            node=me, messages_list=[message], message_object_trees=[ObjectTree(object_id=metadata.message_id)]
        )

    order = {"reply_to_message_id": "", "dst_node_id": north.node_id}
    refused = {
        "a reply in north's name": ("push-messages", reply(theirs[0], north.node_id)),
        "a reply to north's message": ("push-messages", reply(theirs[0], south.node_id)),
        "an order to north": ("push-messages", reply(theirs[0], SUPERLINK_NODE_ID, **order)),
        "north's message": ("pull-object", PullObjectRequest(node=me, run_id=run_id, object_id=theirs[1])),
        "north's message, away": (
            "confirm-message-received",
            ConfirmMessageReceivedRequest(node=me, run_id=run_id, message_object_id=theirs[1]),
        ),
        "an object of nobody": ("push-object", PushObjectRequest(node=me, run_id=run_id, object_id="b" * 64)),
    }
    for what, (path, request) in refused.items():
        assert south.post(path, request).status_code == 403, what
    foreign = Node(node_id=north.node_id)
    unauthorized = {
        "pull-messages": PullMessagesRequest(node=foreign),
        "send-node-heartbeat": SendNodeHeartbeatRequest(node=foreign, heartbeat_interval=30),
        "deactivate-node": DeactivateNodeRequest(node_id=north.node_id),
        "activate-node": ActivateNodeRequest(public_key=north.public, heartbeat_interval=30),
        "get-fab": GetFabRequest(node=foreign, run_id=run_id, hash_str="c" * 64),
    }
    for path, request in unauthorized.items():
        assert south.post(path, request).status_code == 401, path
    for path, request in (
        ("register-node", RegisterNodeFleetRequest(public_key=south.public)),
        ("unregister-node", UnregisterNodeFleetRequest(node_id=south.node_id)),
    ):
        assert south.post(path, request).status_code in (400, 403, 409, 412), path
    assert known(operator)[0] == len(SITES)
    answer = north.post("pull-object", PullObjectRequest(node=foreign, run_id=run_id, object_id=theirs[1]))
    assert answer.status_code == 200  # what was refused to south is there, and north's
    answer = south.post("push-messages", reply(own[0], south.node_id))
    assert answer.status_code == 200, answer.text  # a reply like those that were refused, to its own message
    operator.StopRun(StopRunRequest(run_id=run_id))
    assert run.exit_code() == 1


def _active(node: HandMadeNode) -> bool | None:
    """A process with the same key may have been connected before, and count so for a while."""
    return node.activate() or None


def _message(node: HandMadeNode) -> tuple[Message, str] | None:
    pulled = node.pull()
    if not pulled.messages_list:
        return None
    return pulled.messages_list[0], pulled.message_object_trees[0].object_id


def test_a_key_that_comes_later_is_registered_and_one_that_is_none_is_named(study):
    before = json.loads((study.place / "nodes.json").read_text())
    path = study.keys / "north.pub"
    old, new = path.read_bytes(), make_key(study.folder / "new", "north").public.read_bytes()
    path.write_text("no key")
    study.process.wait_for("north.pub is not a public key of a site")
    path.write_bytes(new)
    poll(lambda: json.loads((study.place / "nodes.json").read_text())["north"] != before["north"] or None, "a new node")
    assert json.loads((study.place / "nodes.json").read_text())["south"] == before["south"]
    path.write_bytes(old)
    study.process.wait_for("north.pub was replaced by another one before")
