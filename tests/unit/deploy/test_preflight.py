"""What a site is told before its node starts: files that are none, hosts that are none, and the wrong kind of connection."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from typer.testing import CliRunner

from fedlocal.cli import app as cli
from fedlocal.deploy import preflight, site
from fedlocal.deploy.app import write_app
from fedlocal.deploy.files import files_app
from fedlocal.deploy.keys import write_certificates, write_key
from fedlocal.deploy.options import DeployOptions
from fedlocal.deploy.preflight import check_address, check_files
from unit.deploy.logs_as_before import logs_as_before  # noqa: F401


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of a coordinator on this machine, that of another, and a site's key."""
    folder = tmp_path_factory.mktemp("keys")
    write_certificates(folder, ["127.0.0.1", "localhost"])
    write_certificates(folder / "other", ["elsewhere.example.org"])
    write_key(folder, "north")
    return folder


@contextmanager
def coordinator(folder: Path | None, host: str = "127.0.0.1") -> Iterator[str]:
    """What listens at a coordinator, gRPC with these certificates or without; its address."""
    listening = grpc.server(ThreadPoolExecutor(1))
    if folder is None:
        port = listening.add_insecure_port(f"{host}:0")
    else:
        pair = (folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes()
        port = listening.add_secure_port(f"{host}:0", grpc.ssl_server_credentials([pair]))
    listening.start()
    try:
        yield f"{host}:{port}"
    finally:
        listening.stop(0).wait()


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A loopback server that does this with every connection; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def test_both_sides_with_tls_and_both_without_are_fine(keys: Path):
    with coordinator(keys) as address:
        assert check_address(address, keys / "ca.pem") is None
    with coordinator(None) as address:
        assert check_address(address, None) is None


def test_insecure_against_tls_is_refused(keys: Path):
    with (
        coordinator(keys) as address,
        pytest.raises(ValueError, match="coordinator speaks TLS; give --root-certificates"),
    ):
        check_address(address, None)


def test_tls_against_plain_is_refused(keys: Path):
    with (
        coordinator(None) as address,
        pytest.raises(ValueError, match="the coordinator does not speak TLS; both sides"),
    ):
        check_address(address, keys / "ca.pem")


def test_a_certificate_of_somebody_else_is_refused(keys: Path):
    said = r"the coordinator's certificate is not one of .*ca.pem, or is for another host: "
    with coordinator(keys) as address, pytest.raises(ValueError, match=said):
        check_address(address, keys / "other" / "ca.pem")
    with coordinator(keys, "127.0.0.2") as address, pytest.raises(ValueError, match=said):  # it is for 127.0.0.1
        check_address(address, keys / "ca.pem")


def test_a_host_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch):
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(preflight.socket, "getaddrinfo", unknown)
    with pytest.raises(
        ValueError, match=r"--superlink: the host coordinatr.example.org is not known here .*check its name"
    ):
        check_address("coordinatr.example.org:8000", None)


def test_a_coordinator_that_is_not_there_yet_is_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = check_address(f"127.0.0.1:{port}", None)
    assert said == f"127.0.0.1:{port} does not answer yet (Connection refused)"


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_says_nothing_is_waited_for(tls: bool, keys: Path, monkeypatch: pytest.MonkeyPatch):
    """A coordinator that is stuck, and a port whose owner is gone: nothing is known of them."""
    monkeypatch.setattr(preflight, "SECONDS", 0.2)
    done = threading.Event()
    with server(lambda connection: done.wait(5)) as address:
        try:
            said = check_address(address, keys / "ca.pem" if tls else None)
        finally:
            done.set()
    assert f"{address} does not answer yet" in str(said)
    with server(lambda connection: connection.recv(1000)) as address:  # and hangs up
        assert f"{address} does not answer yet" in str(check_address(address, keys / "ca.pem" if tls else None))


def test_files_that_are_not_what_they_should_be_are_refused(keys: Path, tmp_path: Path):
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("hello")
    other = tmp_path / "other.key"
    private = ed25519.Ed25519PrivateKey.generate()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    other.write_bytes(private.private_bytes(encoding, form, serialization.NoEncryption()))
    check_files(keys / "ca.pem", keys / "north.key")
    for certificate, key, message in [
        (tmp_path / "none.pem", None, "--root-certificates: there is no file"),
        (nonsense, None, "is not a certificate; the coordinator's ca.pem is wanted"),
        (keys / "north.key", None, "is not a certificate; the coordinator's ca.pem is wanted"),
        (keys / "ca.pem", nonsense, "is not a private key of `fedlocal keys`"),
        (keys / "ca.pem", keys / "north.pub", "is not a private key of `fedlocal keys`"),
        (keys / "ca.pem", other, "is a key of another kind; `fedlocal keys` makes the right one"),
    ]:
        with pytest.raises(ValueError, match=r"^site: ") as caught:
            check_files(certificate, key)
        assert message in str(caught.value)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preflight") / "checked"
    write_app(folder, files_app(DeployOptions(sites=("a", "b"), target="ill")))
    return folder


def table(rows: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.standard_normal((rows, 2)), columns=["age", "chol"]).assign(ill=np.arange(rows) % 2)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (table().assign(age="old"), "age"),
        (table().drop(columns="ill"), "ill"),
        (
            table(9),
            "site: its policy does not allow these data to take part: there are 9 rows; fewest_rows of the policy is 10",
        ),
        (table().assign(ill=np.arange(30) % 3), "labels must be -1/+1 or 0/1, got [0.0, 1.0, 2.0]"),
        (table().assign(ill="yes"), "ill"),
        (table().iloc[:0], "rows"),
    ],
    ids=["text", "no target", "few", "three kinds", "words", "empty"],
)
def test_a_bad_file_ends_before_anybody_connects(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: pd.DataFrame, message: str
):
    def connected(*_: object) -> None:
        raise AssertionError("it connected")

    monkeypatch.setattr(site, "check_address", connected)
    monkeypatch.setattr(site, "run_site", connected)
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["site", str(study), "--superlink", "127.0.0.1:1", "--insecure", "--site", "a"]
    said = CliRunner().invoke(cli, [*words, "--data", str(tmp_path / "a.csv")])
    assert said.exit_code == 2, said.output
    assert said.output.startswith("site: ")
    assert len(said.output.strip().splitlines()) == 1
    assert message in said.output
