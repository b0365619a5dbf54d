"""A study with TLS and keys: what the coordinator does for its sites, and what others get who reach its port for sites.

They have nothing but ca.pem, or the key of a site. One coordinator serves all tests; the last one ends it.
"""

import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import warnings
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
)
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

import fedlocal as fl
from fedlocal.deploy.coordinator.guard import LARGEST_BODY
from fedlocal.flower._flwr import submission
from flower_coordinator import Study, coordinator
from flower_keys import make_key
from flower_processes import Process, poll
from hostile.fleet import HandMadeNode

pytestmark = pytest.mark.xdist_group("flower")
SITES = ("north", "south")
ROUNDS = 2
HTTP = "HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A file per site, with columns in very different units, and a coordinator."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    for shift, (site, rows) in enumerate(zip(SITES, (40, 60), strict=True)):
        X = rng.standard_normal((rows, 3)) * [1, 10, 1000] + shift
        ill = (X[:, 0] - X[:, 1] / 10 + rng.logistic(size=rows) > 0).astype(int)
        frame = pd.DataFrame({"age": X[:, 0], "ill": ill, "chol": X[:, 1], "dose": X[:, 2]})
        frame.to_csv(folder / f"{site}.csv", index=False)
    (folder / "policy.toml").write_text("secret_draws = false\n")  # so that the simulator draws the same
    options = ["--target", "ill", "--l1", 0.02, "--rounds", ROUNDS, "--local-epochs", 2, "--batch-size", 20]
    options += ["--client-step-size", 0.5, "--server-step-size", 1.2, "--seed", 4]
    with coordinator(folder, SITES, options) as opened:
        yield opened


def simulated(folder):
    """The same on the rows of all sites, standardised by scikit-learn, through the simulator."""
    from sklearn.preprocessing import StandardScaler

    frames = [pd.read_csv(folder / f"{site}.csv") for site in SITES]
    scaler = StandardScaler().fit(pd.concat(frames).drop(columns="ill").to_numpy())
    clients = [(scaler.transform(f.drop(columns="ill").to_numpy()), f["ill"].to_numpy()) for f in frames]
    problem = fl.problems.Logistic(fl.FederatedData.from_clients(clients), intercept=True)
    method = fl.methods.FedDualAvg(0.5, 1.2, fl.regularizers.L1(0.02))
    return fl.simulate(problem, method, rounds=ROUNDS, local_epochs=2, batch_size=20, weights="examples", seed=4)


@pytest.fixture
def stack():
    """What is entered here is closed after the test."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def operator(study, stack):
    """The API that is on the coordinator's machine only, to see what came of an attack."""
    return control(study, study.control_port, stack)


def control(study: Study, port: int, stack: ExitStack) -> ControlHttpClient:
    """What Flower's commands use, of somebody who has nothing but ca.pem."""
    client = ControlHttpClient.from_server_address(
        server_address=f"127.0.0.1:{port}",
        insecure=False,
        root_certificates=(study.keys / "ca.pem").read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    stack.callback(client.close)
    return client


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


def test_two_sites_with_tls_and_keys_do_what_the_simulator_does(study):
    sites = {site: study.site(site, study.folder / f"{site}.csv") for site in SITES}
    run = study.start()
    assert run.exit_code() == 0, run.log()
    assert f"round {ROUNDS} of {ROUNDS}: objective" in run.log()
    assert "[ROUND" not in run.log()
    assert "south: local steps of round 2: " in sites["south"].log()
    for site in sites.values():
        interrupt(site)
    for site in sites.values():
        assert site.exit_code() == 130
        assert site.pids() == []
    results = study.place / "results"
    with np.load(results / "model.npz") as model:
        expected = simulated(study.folder)
        np.testing.assert_allclose(model["x/weights"], expected.x["weights"], atol=1e-6)
        np.testing.assert_allclose(model["x/intercept"], expected.x["intercept"], atol=1e-6)
    objective = pd.read_csv(results / "history.csv")["objective"].iloc[-1]
    assert objective == pytest.approx(expected.history["objective"].iloc[-1], abs=1e-6)
    assert f"the results are in {results}" in run.log()


def interrupt(site: Process) -> None:
    """Ctrl-C at a site."""
    os.kill(site.pids("fedlocal")[0], signal.SIGINT)


@pytest.mark.thorough
def test_the_same_run_again_needs_no_site(study):
    again = study.start()  # a run that has something to do would wait for sites
    assert again.exit_code() == 0, again.log()
    assert f"all {ROUNDS} rounds were done before; nothing is left to do" in again.log()
    assert f"the results are in {study.place / 'results'}" in again.log()


COMMANDS = {  # each starts a process of its own; what they ask is asked by hand, too
    "ls": pytest.param(["ls", "there"], marks=pytest.mark.thorough),
    "supernode ls": pytest.param(["supernode", "ls", "there"], marks=pytest.mark.thorough),
    "supernode register": ["supernode", "register", "mallory.pub", "there"],
    "run": pytest.param(["run", "study", "there"], marks=pytest.mark.thorough),
    "stop": pytest.param(["stop", "1", "there"], marks=pytest.mark.thorough),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_flowers_commands_are_refused(study, operator, command):
    before = known(operator)
    assert before[0] == len(SITES)
    mallory = make_key(study.folder / "mallory", "mallory")
    paths = {"mallory.pub": str(mallory.public), "study": str(study.app)}
    done = study.flwr(study.port, *(paths.get(word, word) for word in command))
    assert done.returncode != 0, (command, done.stdout)
    assert "404" in done.stdout + done.stderr or "Not Found" in done.stdout + done.stderr, done
    assert known(operator) == before


def test_flowers_commands_work_for_the_operator(study):
    """The same words at the other port: the attacks were proper ones."""
    listed = study.flwr(study.control_port, "ls", "there")
    assert listed.returncode == 0, listed


def test_what_flowers_commands_ask_is_refused(study, operator, stack):
    before, stranger = known(operator), control(study, study.port, stack)
    mallory = make_key(study.folder / "mallory by hand", "mallory")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of what Flower uses to find files
        fab = submission.build_fab_from_disk(study.app)
    proto = submission.fab_to_proto(submission.Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
    asked: list[tuple[Any, Any]] = [
        (stranger.ListRuns, ListRunsRequest()),
        (stranger.ListNodes, ListNodesRequest()),
        (stranger.RegisterNode, RegisterNodeRequest(public_key=mallory.public.read_bytes())),
        (stranger.StartRun, StartRunRequest(fab=proto)),
        (stranger.StopRun, StopRunRequest(run_id=1)),
    ]
    for ask, request in asked:
        with pytest.raises(httpx.HTTPStatusError) as caught:
            ask(request)
        assert caught.value.response.status_code == 404, request
    assert known(operator) == before


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
    interrupt(impostor)  # its key is free at once; that of a site that was killed counts as connected for a minute
    assert impostor.exit_code() == 130


def test_a_node_can_neither_answer_nor_read_what_was_sent_to_another(study, operator, stack):
    root = study.keys / "ca.pem"
    nodes = {site: stack.enter_context(HandMadeNode(study.address, root, study.keys / f"{site}.key")) for site in SITES}
    run = study.start('results="hand-made"')
    for node in nodes.values():
        poll(lambda node=node: node.activate() or None, "a node that is let in")
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


def test_ctrl_c_ends_the_coordinator(study):
    os.kill(study.process.pids("\0coordinator\0")[0], signal.SIGINT)
    assert study.process.exit_code() == 0
    poll(lambda: not study.process.pids() or None, "the end of Flower's own programs")  # it waits a second for them
