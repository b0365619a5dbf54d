"""fedlocal keys: certificates that TLS accepts, keys that Flower reads, secrets that are secret."""

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlocal.cli import app as cli
from fedlocal.deploy.keys import write_certificates, write_key


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in folder.iterdir()}


def test_only_private_keys_are_closed_to_others(tmp_path: Path):
    said = CliRunner().invoke(cli, ["keys", str(tmp_path / "k"), "--host", "here.org", "--sites", "a,b"])
    assert said.exit_code == 0, said.output
    closed = {name for name, others in modes(tmp_path / "k").items() if others == 0}
    assert closed == {"ca.key", "server.key", "a.key", "b.key"}
    assert set(modes(tmp_path / "k")) - closed == {"ca.pem", "server.pem", "a.pub", "b.pub"}


@pytest.mark.parametrize(("asked", "fine"), [("here.org", True), ("127.0.0.1", True), ("there.org", False)])
def test_the_certificate_is_good_for_its_hosts_only(tmp_path: Path, asked: str, fine: bool):
    """Also by the strict rules, which Python 3.13 applies by itself."""
    root, _, certificate, key = write_certificates(tmp_path, ["here.org", "127.0.0.1"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=str(root))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    left, right = socket.socketpair()
    thread = threading.Thread(target=_greet, args=(server, left))
    thread.start()
    if fine:
        with client.wrap_socket(right, server_hostname=asked) as line:
            assert line.recv(5) == b"hello"
    else:
        with right, pytest.raises(ssl.SSLCertVerificationError):
            client.wrap_socket(right, server_hostname=asked)
    thread.join()


def _greet(context: ssl.SSLContext, line: socket.socket) -> None:
    try:
        with context.wrap_socket(line, server_side=True) as safe:
            safe.sendall(b"hello")
    except OSError:
        line.close()


def test_a_key_pair_is_one_that_flower_reads(tmp_path: Path):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
    from flwr.cli.supernode.register import try_load_public_key

    private, public = write_key(tmp_path, "a")
    known = load_ssh_private_key(private.read_bytes(), None).public_key()
    assert try_load_public_key(public) == known.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("words", [["--sites", "a"], ["--host", "here.org"]])
def test_nothing_is_overwritten(tmp_path: Path, words: list[str]):
    command = ["keys", str(tmp_path), *words]
    assert CliRunner().invoke(cli, command).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    again = CliRunner().invoke(cli, command)
    assert again.exit_code == 2
    assert "exists; nothing is overwritten" in " ".join(again.output.split())
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_keys_of_what(tmp_path: Path):
    said = CliRunner().invoke(cli, ["keys", str(tmp_path)])
    assert said.exit_code == 2
    assert "give --host" in said.output


@pytest.mark.parametrize("host", ["here.org:8000", "127.0.0.1:8000", "[::1]", "https://here.org"])
def test_a_host_with_a_port_is_refused(tmp_path: Path, host: str):
    """A certificate for it would match nothing."""
    said = CliRunner().invoke(cli, ["keys", str(tmp_path / "k"), "--host", host])
    assert said.exit_code == 2
    assert f"without a port, got {host!r}" in " ".join(said.output.split())
    assert not (tmp_path / "k").exists()


def test_addresses_of_both_kinds_are_hosts(tmp_path: Path):
    assert len(write_certificates(tmp_path, ["::1", "127.0.0.1"])) == 4
