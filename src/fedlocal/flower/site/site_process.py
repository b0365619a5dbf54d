"""A site's own process: it answers messages with the app that the site has, for as long as the site takes part.

Flower's default is a new process per message that loads the code which the coordinator sent along. Here the process stays (its
data are read and its programs compiled once), and code that comes with a message is not even unpacked.
"""

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Message, MessageType

from fedlocal.flower._flwr import site as flwr
from fedlocal.flower.messages.records import error_reply
from fedlocal.flower.messages.text import traceback_of

POLL_SECONDS = 0.2
# A SuperNode whose site is gone must not go on taking messages that are never answered: Linux ends it (prctl's PR_SET_PDEATHSIG).
# By a program of its own and not between fork and exec, for JAX has threads by then.
ENDING_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.execvp(sys.argv[1], sys.argv[1:])
"""
ONE_AT_A_TIME = threading.Lock()  # one message is worked on at a time; introductions are answered beside it
Answer = Callable[[Message, Context], Message]  # a ClientApp, for example
log = logging.getLogger("fedlocal")


def run_site(app: Answer, arguments: list[str], on_output: Callable[[str], None] | None = None) -> int:
    """Run a SuperNode with these arguments and answer its messages with `app` until it ends; return its exit code.

    The SuperNode's output goes to the screen, or line by line to `on_output`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    beside = Path(sys.executable).with_name("flower-supernode")  # of this Python's environment
    program = str(beside) if beside.exists() else shutil.which(beside.name) or beside.name
    command = [program, "--isolation", "process", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0"}
    if sys.platform == "linux":
        command = [sys.executable, "-c", ENDING_WITH_PARENT, *command]
    out, errors = (None, None) if on_output is None else (subprocess.PIPE, subprocess.STDOUT)
    node = subprocess.Popen([*command, *arguments], env=environment, stdout=out, stderr=errors)
    reader = threading.Thread(target=_read_output, args=(node, on_output), daemon=True)
    reader.start()
    try:
        if _wait_until_open(port, node):
            serve(app, f"127.0.0.1:{port}", lambda: node.poll() is None)
        return node.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        node.terminate()
        node.wait()
        reader.join()


def serve(app: Answer, address: str, going: Callable[[], bool]) -> None:
    """Answer the messages that the SuperNode at this address receives, while it is going."""
    tasks = _client(address, tries=1)
    while going():
        try:
            task = tasks.AcquireTask(flwr.AcquireTaskRequest(supported_task_types=[flwr.TaskType.CLIENT_APP]))
        except Exception:  # the SuperNode is busy, or ending: `going` tells
            time.sleep(POLL_SECONDS)
            continue
        if task.HasField("task") and task.token:
            threading.Thread(target=_answer, args=(app, address, task.token), daemon=True).start()
        else:
            time.sleep(POLL_SECONDS)
    tasks.close()


def _answer(app: Answer, address: str, token: str) -> None:
    """Fetch one message, answer it, and report that it is done.

    In a thread of its own, for a message of a run that was killed may never arrive whole, and Flower waits for it for hours.
    """
    client = _client(address, 5, flwr.RuntimeTokenHttpInterceptor(token))
    heartbeat = flwr.HeartbeatSender(lambda: _send_heartbeat(client))
    heartbeat.start()
    try:
        message, context, _, _ = flwr.pull_task_input(client)
        try:
            is_short = message.metadata.message_type.startswith(MessageType.QUERY)  # a site at work stays answerable
            with nullcontext() if is_short else ONE_AT_A_TIME:
                reply = app(message, context)
        except Exception as error:
            log.error("the message was not answered\n%s", traceback_of(error))
            reply = error_reply(message, error)
        flwr.push_message(client, reply, context)
        flwr.push_task_output(client, context, flwr.SubStatus.COMPLETED, "")
    except Exception as error:  # it may quote the coordinator, which goes on without this message
        log.error("a message was lost\n%s", traceback_of(error))
    finally:
        heartbeat.stop()
        client.close()


def _send_heartbeat(client: flwr.RuntimeHttpClient) -> bool:
    """Report that a message is being worked on. (Flower's own function ends the process when the coordinator's run has ended.)"""
    with suppress(httpx.HTTPError):
        client.SendTaskHeartbeat(flwr.SendTaskHeartbeatRequest())
    return True


def _client(address: str, tries: int, *more: Any) -> flwr.RuntimeHttpClient:
    interceptors = [flwr.RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), *more]
    retries = flwr.RetryInvoker(lambda: flwr.exponential(max_delay=2), httpx.TransportError, tries, None)
    return flwr.RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # it does not leave this machine
        root_certificates=None,
        interceptors=interceptors,
        retry_invoker=retries,
    )


def _read_output(node: subprocess.Popen[bytes], on_output: Callable[[str], None] | None) -> None:
    if on_output is not None and node.stdout is not None:
        for line in node.stdout:
            on_output(line.decode(errors="replace"))


def _wait_until_open(port: int, node: subprocess.Popen[bytes]) -> bool:
    """Wait until the SuperNode listens. Return False if it ended instead."""
    while node.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(POLL_SECONDS)
    return False
