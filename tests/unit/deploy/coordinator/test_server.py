"""fedlocal coordinator and start, short of a network: options, keys that are registered, what a run is told."""

import json
import logging
import socket
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from flwr.proto.control_pb2 import ListRunsRequest, ListRunsResponse, StreamLogsRequest, StreamLogsResponse
from flwr.proto.run_pb2 import Run as FlowerRun
from flwr.proto.run_pb2 import RunStatus
from flwr.superlink.main import create_app
from typer.testing import CliRunner

from fedlocal.cli import app as cli
from fedlocal.deploy import configure_logging, site_nodes
from fedlocal.deploy.app import write_app
from fedlocal.deploy.coordinator.nodes import HOME, NodesFile, read_connection, write_connection
from fedlocal.deploy.coordinator.registration import Registration
from fedlocal.deploy.coordinator.server import Listeners, _listen
from fedlocal.deploy.files import files_app
from fedlocal.deploy.folder import app_port, site_names_of
from fedlocal.deploy.keys import write_certificates, write_key
from fedlocal.deploy.options import DeployOptions
from fedlocal.deploy.submission import _follow
from fedlocal.flower import TooFewSites
from unit.deploy.logs_as_before import logs_as_before  # noqa: F401


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_app(tmp_path / "study", files_app(DeployOptions(sites=("a", "b"), target="y", address="here.org:8123")))
    return tmp_path / "study"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    write_certificates(tmp_path / "keys", ["here.org"])
    return tmp_path / "keys"


def listeners(folder: Path, keys: Path | None, insecure: bool = False, host: str | None = None) -> Listeners:
    return Listeners.of(folder, keys, insecure, host, None, 9093)


def test_sites_may_come_from_everywhere_with_keys_and_from_here_without(folder: Path, keys: Path):
    assert (listeners(folder, keys).host, listeners(folder, keys).port) == ("0.0.0.0", 8123)
    assert (listeners(folder, None, insecure=True).host, listeners(folder, None, True, "127.0.0.1").host) == (
        "127.0.0.1",
        "127.0.0.1",
    )
    assert listeners(folder, keys, host="10.0.0.1").host == "10.0.0.1"
    assert (site_names_of(folder), app_port(folder)) == (("a", "b"), 8123)


def test_an_app_without_an_address_has_the_usual_port(folder: Path):
    path = folder / "pyproject.toml"
    path.write_text(path.read_text().replace("[tool.fedlocal]", "[tool.other]"))
    assert app_port(folder) == 8000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either --keys FOLDER or, for sites on this machine alone, --insecure"),
        (["--keys", "keys", "--insecure"], "give either --keys FOLDER or"),
        (["--insecure", "--host", "0.0.0.0"], "with --insecure --host must be 127.0.0.1, got '0.0.0.0'"),
        (["--insecure", "--port", "9093"], "--port and --control-port must be different, got 9093 for both"),
        (["--keys", "nothing"], "nothing/ca.pem; `fedlocal keys` makes it"),
    ],
)
def test_options_that_cannot_be_are_refused(folder: Path, keys: Path, words: list[str], said: str, monkeypatch):
    monkeypatch.chdir(folder.parent)
    result = CliRunner().invoke(cli, ["coordinator", "study", *words])
    assert result.exit_code == 2
    assert said in result.output


def test_a_certificate_for_other_machines_alone_is_refused(folder: Path, keys: Path, monkeypatch):
    monkeypatch.setattr("fedlocal.deploy.keys.OWN_HOSTS", ())
    write_certificates(keys / "other", ["here.org"])
    with pytest.raises(ValueError, match=r"server.pem must also be for 127.0.0.1"):
        listeners(folder, keys / "other")


def test_the_authoritys_key_does_not_belong_there(folder: Path, keys: Path, caplog):
    listeners(folder, keys)
    assert "ca.key can be read here" in caplog.text
    caplog.clear()
    (keys / "ca.key").unlink()
    listeners(folder, keys)
    assert not caplog.text


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"cannot listen at 127.0.0.1, --port {port}: Address already in use"):
            _listen("--port", "127.0.0.1", port)


@pytest.fixture
def registration(tmp_path: Path) -> Registration:
    """With Flower's own book of nodes."""
    state = create_app().state.linkstate_factory.state()
    (tmp_path / "pub").mkdir()
    return Registration(state, tmp_path / "pub", ("a", "b"), tmp_path / "nodes.json")


def new_key(registration: Registration, site: str) -> None:
    (registration.keys / f"{site}.pub").unlink(missing_ok=True)
    (registration.keys / f"{site}.key").unlink(missing_ok=True)
    write_key(registration.keys, site)


def nodes(registration: Registration) -> dict[str, int]:
    return json.loads(registration.file.read_text())


def test_keys_are_registered_once_and_as_they_come(registration: Registration, caplog):
    caplog.set_level(logging.INFO, "fedlocal")
    registration.update()
    assert nodes(registration) == {}
    assert "no key yet of a, b; SITE.pub goes to" in caplog.text
    new_key(registration, "b")
    new_key(registration, "stranger")
    registration.update()
    before = nodes(registration)
    assert list(before) == ["b"]
    new_key(registration, "a")
    registration.update()
    registration.update()
    assert nodes(registration)["b"] == before["b"]
    ids = {info.node_id for info in registration.state.get_node_info()}
    assert ids == set(nodes(registration).values())
    assert len(ids) == 2
    again = Registration(registration.state, registration.keys, ("a", "b"), registration.file)
    again.update()
    assert {info.node_id for info in registration.state.get_node_info()} == ids
    said = [line for line in caplog.messages if "its key is registered" in line]
    assert said == ["b: its key is registered", "a: its key is registered"]


def test_a_new_key_replaces_the_old_one_for_good(registration: Registration):
    new_key(registration, "a")
    old = (registration.keys / "a.pub").read_bytes()
    registration.update()
    before = nodes(registration)["a"]
    new_key(registration, "a")
    registration.update()
    assert nodes(registration)["a"] != before
    (registration.keys / "a.pub").write_bytes(old)
    with pytest.raises(ValueError, match=r"a.pub was replaced by another one before; a needs a new pair"):
        registration.update()


def test_keys_that_were_mixed_up_can_be_exchanged(registration: Registration):
    new_key(registration, "a")
    new_key(registration, "b")
    registration.update()
    before = nodes(registration)
    a, b = registration.keys / "a.pub", registration.keys / "b.pub"
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    registration.update()
    assert nodes(registration) == {"a": before["b"], "b": before["a"]}


def test_what_is_no_key_is_refused_and_said_once(registration: Registration, caplog):
    rsa_key = rsa.generate_private_key(65537, 2048).public_key()
    ssh = rsa_key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    for content in (b"", b"no key", ssh):
        (registration.keys / "a.pub").write_bytes(content)
        with pytest.raises(ValueError, match=r"a.pub is not a public key of a site; `fedlocal keys` makes one"):
            registration.update()
    registration.look_again()
    registration.look_again()
    assert len(caplog.messages) == 1


def test_one_key_is_not_two_sites(registration: Registration):
    new_key(registration, "a")
    (registration.keys / "b.pub").write_bytes((registration.keys / "a.pub").read_bytes())
    with pytest.raises(ValueError, match=r"b.pub and .*a.pub are the same key; each site makes its own"):
        registration.update()
    assert not registration.file.exists()


def test_a_run_learns_of_keys_as_they_come(tmp_path: Path, monkeypatch, caplog):
    file = tmp_path / "nodes.json"
    monkeypatch.setenv("FEDLOCAL_NODES", str(file))
    found = site_nodes()
    assert found == {}
    file.write_text('{"a": 18446744073709551615}')
    assert found == {"a": 2**64 - 1}
    assert isinstance(found, NodesFile)
    monkeypatch.setenv("FEDLOCAL_NODES", "")
    assert not caplog.text
    assert site_nodes() is None
    assert "sites have no keys" in caplog.text
    monkeypatch.delenv("FEDLOCAL_NODES")
    assert site_nodes() is None


def test_the_operator_finds_the_connection(tmp_path: Path, monkeypatch):
    from flwr.cli.flower_config import read_superlink_connection

    monkeypatch.setenv("FLWR_HOME", str(tmp_path / HOME))
    for root in (tmp_path / 'a "quoted" folder' / "ca.pem", None):
        write_connection(tmp_path, "127.0.0.1:1234", root)
        assert read_connection(tmp_path) == ("127.0.0.1:1234", root)
        flowers = read_superlink_connection()
        assert (flowers.address, flowers.insecure) == ("127.0.0.1:1234", root is None)
        assert flowers.root_certificates == (None if root is None else str(root))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run-config", "round=3"], "--run-config has 'round', and the app knows only sites, rounds,"),
        (["--run-config", "rounds"], "--run-config must be like 'rounds=200 results=\"results-2\"', got 'rounds'"),
        (["--run-config", "rounds=3 seed 4"], "got 'rounds=3 seed 4'"),
        (["--run-config", "rounds=3 results=there"], "got 'rounds=3 results=there'"),
        (["--run-config", "more.toml"], "got 'more.toml'"),
    ],
)
def test_changes_that_cannot_be_are_refused(folder: Path, words: list[str], said: str, monkeypatch):
    monkeypatch.chdir(folder.parent)
    write_connection(folder.parent, "127.0.0.1:9", None)
    result = CliRunner().invoke(cli, ["start", "study", *words])
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # Flower's
def test_start_says_where_there_is_no_coordinator(folder: Path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    result = CliRunner().invoke(cli, ["start", "study"])
    assert (result.exit_code, "no coordinator was started in" in result.output) == (2, True)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        write_connection(folder.parent, f"127.0.0.1:{closed.getsockname()[1]}", None)
        result = CliRunner().invoke(cli, ["start", "study"])
    assert (result.exit_code, "does not answer" in result.output) == (1, True)


def raised_by_the_library(error: Exception) -> Exception:
    """As if a module of this library had raised it."""
    code = compile("def go(error):\n    raise error\n", "<fedlocal>", "exec")
    import linecache

    linecache.cache["<fedlocal>"] = (1, None, ["def go(error):\n", "    raise error\n"], "<fedlocal>")
    space = {"__name__": "fedlocal.simulation.example"}
    exec(code, space)
    return caught(lambda: space["go"](error))  # type: ignore[operator]


def caught(fail) -> Exception:
    try:
        fail()
    except Exception as error:
        return error
    raise AssertionError


def test_a_run_that_stops_early_says_why_in_one_sentence(capsys):
    configure_logging()
    flower = logging.getLogger("flwr")
    error = raised_by_the_library(TooFewSites("1 of 2 sites answered"))
    flower.error("ServerApp raised an exception", exc_info=error)
    flower.error("Exit Code: 200\nmore")
    flower.error("something else")
    said = capsys.readouterr()
    assert said.out.split("  ", 1)[1] == "the run stopped: 1 of 2 sites answered\n"
    assert "Traceback" not in said.err
    assert "Exit Code" not in said.out + said.err


def test_an_error_that_nobody_foresaw_keeps_its_traceback(monkeypatch):
    flower = logging.getLogger("flwr")
    monkeypatch.setattr(flower, "filters", [])  # one that has seen a run stop, in another test, is silent afterwards
    configure_logging()
    for fail in (lambda: int("x"), lambda: {}["x"]):
        record = flower.makeRecord("flwr", 40, "f", 1, "raised", (), (type, caught(fail), None))  # type: ignore
        assert flower.filter(record)
    record = flower.makeRecord("flwr", 40, "f", 1, "Exit Code: 200", (), None)
    assert flower.filter(record)


class Run:
    """Stands for the operator's API: a run that says a line and ends like this, or is interrupted."""

    def __init__(self, sub_status: str, details: str = "", interrupted: bool = False):
        self.status, self.interrupted = (
            RunStatus(status="finished", sub_status=sub_status, details=details),
            interrupted,
        )

    def StreamLogs(self, request: StreamLogsRequest):
        yield StreamLogsResponse(log_output="the run stopped: too few\n")
        if self.interrupted:
            raise KeyboardInterrupt

    def ListRuns(self, request: ListRunsRequest) -> ListRunsResponse:
        return ListRunsResponse(run_dict={request.run_id: FlowerRun(run_id=request.run_id, status=self.status)})


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        (Run("completed"), 0, []),
        (Run("failed", "ServerApp failed with exception: too few"), 1, ["run 7 did not complete (failed)"]),
        (Run("failed", "out of memory"), 1, ["run 7 did not complete (failed): out of memory"]),
        (Run("stopped", "by user"), 1, ["run 7 did not complete (stopped): by user"]),
    ],
)
def test_the_exit_code_says_how_a_run_ended(tmp_path: Path, run: Run, code: int, words: list[str]):
    said: list[str] = []
    shown: list[str] = []
    assert _follow(run, 7, tmp_path, said.append, shown.append) == code  # type: ignore[arg-type]
    assert (said, shown) == (words, ["the run stopped: too few\n"])


def test_an_interrupt_ends_what_is_shown_and_says_how_to_stop_the_run(tmp_path: Path):
    said: list[str] = []
    assert _follow(Run("", interrupted=True), 7, tmp_path, said.append, len) == 130  # type: ignore[arg-type]
    assert f"`FLWR_HOME={tmp_path}/.flower flwr stop 7` ends it" in said[0]
