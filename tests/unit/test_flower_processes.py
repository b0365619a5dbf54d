"""The harness itself: nothing survives it, its keys are keys, its settings arrive as they were meant."""

import socket
import ssl
import threading

import pytest

from flower_keys import make_certificates, make_key
from flower_processes import Process, _marked, _toml, poll, superlink

BREED = """
import subprocess, sys, time
child = [sys.executable, "-c", "print('child', flush=True); import time; time.sleep(600)"]
subprocess.Popen(child, start_new_session=True)
time.sleep(600)
"""


def test_kill9_reaches_descendants_in_other_sessions(tmp_path):
    process = Process(tmp_path / "parent", ["python", "-c", BREED])
    process.wait_for("child")
    assert len(process.pids()) == 2
    process.kill9()
    assert process.pids() == []
    assert process.exit_code() == -9


def test_wait_for_says_what_a_process_wrote_before_it_ended(tmp_path):
    process = Process(tmp_path / "short", ["python", "-c", "print('\\033[92mnot it\\033[0m')"])
    with pytest.raises(RuntimeError, match="short ended before it wrote 'hello':\nnot it\n"):
        process.wait_for("hello")
    assert process.exit_code() == 0


def test_poll_names_what_it_waited_for():
    with pytest.raises(TimeoutError, match=r"after 0.1 s still waiting for Godot"):
        poll(lambda: None, "Godot", 0.1)


def test_settings_arrive_as_flower_reads_them():
    from flwr.common.config import parse_config_args

    settings = {"site": "a", "data": "/a folder/x=1.npz", "rounds": 3, "step": 1e-5, "sparse": True, "name": ""}
    assert parse_config_args([_toml(settings)]) == settings


@pytest.mark.parametrize("other", [False, True])
def test_the_server_certificate_is_good_for_its_own_root_only(tmp_path, other):
    ours = make_certificates(tmp_path / "ours")
    root = make_certificates(tmp_path / "other").root if other else ours.root
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(ours.certificate, ours.key)
    left, right = socket.socketpair()
    thread = threading.Thread(target=_greet, args=(server, left))
    thread.start()
    client = ssl.create_default_context(cafile=str(root))
    if other:
        with right, pytest.raises(ssl.SSLCertVerificationError):
            client.wrap_socket(right, server_hostname="127.0.0.1")
    else:
        with client.wrap_socket(right, server_hostname="127.0.0.1") as line:
            assert line.recv(5) == b"hello"
    thread.join()


def _greet(context, line):
    try:
        with context.wrap_socket(line, server_side=True) as safe:
            safe.sendall(b"hello")
    except OSError:
        line.close()


def test_a_node_key_is_one_that_flower_reads(tmp_path):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
    from flwr.cli.supernode.register import try_load_public_key

    key = make_key(tmp_path, "a")
    private = load_ssh_private_key(key.private.read_bytes(), None)
    known = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert try_load_public_key(key.public) == known


@pytest.mark.thorough
def test_a_superlink_and_its_node_are_gone_after_the_block(tmp_path, capsys):
    with pytest.raises(ZeroDivisionError):
        _fail_while_all_run(tmp_path)
    assert _marked(tmp_path / "link") == _marked(tmp_path / "site a") == []
    assert "SuperNode ID" in capsys.readouterr().out


def _fail_while_all_run(folder):
    with superlink(folder) as link:
        node = link.node("site a")
        assert node.node_id() > 0
        assert _marked(folder / "link")
        assert _marked(folder / "site a") == node.pids() != []
        raise ZeroDivisionError
