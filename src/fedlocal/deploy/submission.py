"""Submitting an app to the coordinator on this machine: show the run's log and how it ended."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import click
import httpx

from fedlocal.deploy.coordinator.nodes import HOME, read_connection
from fedlocal.deploy.folder import run_config
from fedlocal.flower._flwr import submission as flwr

INTERRUPTED = 130
FAILED = "ServerApp failed with exception: "  # how Flower begins the reason of a failed run
PAIR = r"""[A-Za-z0-9_-]+=('[^']*'|"[^"]*"|[^\s'"]+)"""  # what Flower cannot read it leaves out, without a word
Say = Callable[[str], None]


def start(folder: Path, changes: list[str], say: Say, show: Say) -> int:
    """Run the app with these changes of its configuration; return 0 if it completed, 1 if it failed, 130 if interrupted here."""
    connection, here = read_connection(Path.cwd()), Path.cwd()
    values = _changes(folder, changes)
    client = flwr.ControlHttpClient.from_server_address(
        server_address=connection.address,
        insecure=connection.root is None,
        root_certificates=None if connection.root is None else connection.root.read_bytes(),
        interceptors=[flwr.RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    try:
        fab = flwr.build_fab_from_disk(folder.resolve())
        proto = flwr.fab_to_proto(flwr.Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        run = client.StartRun(flwr.StartRunRequest(fab=proto, override_config=flwr.user_config_to_proto(values))).run_id
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
    try:
        if not all(re.fullmatch(rf"({PAIR}\s*)+", text.strip()) for text in changes):
            raise ValueError
        values = flwr.parse_config_args(changes)
    except (ValueError, click.ClickException):
        wanted = "'rounds=200 results=\"results-2\"'"
        raise ValueError(f"start: --run-config must be like {wanted}, got {' '.join(changes)!r}") from None
    known = run_config(folder)
    for name in values:
        if name not in known:
            raise ValueError(f"start: --run-config has {name!r}, and the app knows only {', '.join(known)}")
    return values


def _follow(client: flwr.ControlHttpClient, run: int, here: Path, say: Say, show: Say) -> int:
    """Show the run's log until it ends."""
    said = ""
    try:
        for part in client.StreamLogs(flwr.StreamLogsRequest(run_id=run)):
            said = (said + part.log_output)[-10_000:]
            show(part.log_output)
        status = _end(client, run)
    except KeyboardInterrupt:
        flower = f"FLWR_HOME={here / HOME} flwr"
        say(f"the run goes on; `{flower} log {run}` follows it, `{flower} stop {run}` ends it")
        return INTERRUPTED
    if status.sub_status == flwr.SubStatus.COMPLETED:
        return 0
    reason = status.details.removeprefix(FAILED)
    say(f"run {run} did not complete ({status.sub_status})" + ("" if reason in said else f": {reason}"))
    return 1


def _end(client: flwr.ControlHttpClient, run: int) -> flwr.RunStatus:
    while True:
        status = client.ListRuns(flwr.ListRunsRequest(run_id=run)).run_dict[run].status
        if status.status == flwr.Status.FINISHED:
            return status
        for _ in client.StreamLogs(flwr.StreamLogsRequest(run_id=run)):  # ends when the run has ended
            pass
