"""Submitting an app to the coordinator on this machine: show the run's log and how it ended."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import click
import httpx

from fedlocal.deploy.coordinator.connection import HOME, LocalConnection, read_connection
from fedlocal.deploy.folder import run_config
from fedlocal.flower._flwr import (
    ControlHttpClient,
    Fab,
    ListRunsRequest,
    RunStatus,
    RuntimeVersionHttpInterceptor,
    StartRunRequest,
    Status,
    StreamLogsRequest,
    SubStatus,
    build_fab_from_disk,
    fab_to_proto,
    parse_config_args,
    user_config_to_proto,
)

INTERRUPTED = 130
FAILED = "ServerApp failed with exception: "  # how Flower begins the reason of a failed run
PAIR = r"""[A-Za-z0-9_-]+=('[^']*'|"[^"]*"|[^\s'"]+)"""  # what Flower cannot read it leaves out, without a word
Say = Callable[[str], None]


def start(folder: Path, changes: list[str], say: Say, show: Say) -> int:
    """Run the app with these changes of its configuration; return 0 if it completed, 1 if it failed, 130 if interrupted here."""
    connection, here = read_connection(Path.cwd()), Path.cwd()
    values = _changes(folder, changes)
    client = _client(connection)
    try:
        fab = build_fab_from_disk(folder.resolve())
        proto = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        run = client.StartRun(StartRunRequest(fab=proto, override_config=user_config_to_proto(values))).run_id
        say(f"run {run} is submitted")
        return _follow(client, run, here, say, show)
    except httpx.HTTPStatusError as error:
        raise ValueError(f"start: the coordinator refused the run: {error.response.text}") from None
    except httpx.HTTPError as error:
        say(f"the coordinator at {connection.address} does not answer ({error}); start it, then the same command again")
        return 1
    finally:
        client.close()


def _changes(folder: Path, changes: list[str]) -> dict[str, str | int | float | bool]:
    """The changes of an app's configuration, by name."""
    try:
        if not all(re.fullmatch(rf"({PAIR}\s*)+", text.strip()) for text in changes):
            raise ValueError
        values = parse_config_args(changes)
    except (ValueError, click.ClickException):
        wanted = "'rounds=200 results=\"results-2\"'"
        raise ValueError(f"start: --run-config must be like {wanted}, got {' '.join(changes)!r}") from None
    known = run_config(folder)
    for name in values:
        if name not in known:
            raise ValueError(f"start: --run-config has {name!r}, and the app knows only {', '.join(known)}")
    return values


def _follow(client: ControlHttpClient, run: int, here: Path, say: Say, show: Say) -> int:
    """Show the run's log until it ends."""
    said = ""
    try:
        for part in client.StreamLogs(StreamLogsRequest(run_id=run)):
            said = (said + part.log_output)[-10_000:]
            show(part.log_output)
        status = _end(client, run)
    except KeyboardInterrupt:
        flower = f"FLWR_HOME={here / HOME} flwr"
        say(f"the run goes on; `{flower} log {run}` follows it, `{flower} stop {run}` ends it")
        return INTERRUPTED
    if status.sub_status == SubStatus.COMPLETED:
        return 0
    reason = status.details.removeprefix(FAILED)
    say(f"run {run} did not complete ({status.sub_status})" + ("" if reason in said else f": {reason}"))
    return 1


def _end(client: ControlHttpClient, run: int) -> RunStatus:
    """Return how the run ended."""
    while True:
        status = client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        if status.status == Status.FINISHED:
            return status
        for _ in client.StreamLogs(StreamLogsRequest(run_id=run)):  # ends when the run has ended
            pass


def _client(connection: LocalConnection) -> ControlHttpClient:
    return ControlHttpClient.from_server_address(
        server_address=connection.address,
        insecure=connection.root is None,
        root_certificates=None if connection.root is None else connection.root.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
