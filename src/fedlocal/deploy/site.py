"""A site's process: it stays connected, answers with the site's own copy of the app, and shows what it is asked."""

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, MessageType, RecordDict

from fedlocal.deploy.folder import component, run_config
from fedlocal.deploy.logging import configure_logging
from fedlocal.deploy.preflight import check_address, check_files
from fedlocal.flower.messages.round_settings import PREFIX
from fedlocal.flower.messages.text import clean
from fedlocal.flower.site.app import SiteApp
from fedlocal.flower.site.policy import FILE as POLICY_FILE
from fedlocal.flower.site.policy import Refused
from fedlocal.flower.site.site import site_name
from fedlocal.flower.site.site_process import Answer, run_site

log = logging.getLogger("fedlocal")
Say = Callable[..., None]
PAUSE = 10.0  # seconds before a site that was refused tries again
INTERRUPTED = 130
MARGIN = 2.0  # effective rows at the start, as a multiple of fewest_rows, below which the site is warned
REFUSED = "Failed to activate SuperNode"
HOPELESS = {  # what Flower says, and what it means
    "CERTIFICATE_VERIFY_FAILED": "the coordinator's certificate is not one of --root-certificates, or for another host",
    "[code: 2001]": "the coordinator asks sites for a key; give --key",
    "WRONG_VERSION_NUMBER": "the coordinator does not speak TLS; both sides need certificates, or --insecure on both",
}


@dataclass(frozen=True)
class Connection:
    """How a site reaches the coordinator."""

    superlink: str  # HOST:PORT
    root_certificates: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def arguments(self) -> list[str]:
        """Return the arguments of flower-supernode."""
        if not re.fullmatch(r"\S+:[0-9]{1,5}", self.superlink):
            raise ValueError(f"site: --superlink must be HOST:PORT, got {self.superlink!r}")
        if self.insecure and (self.root_certificates or self.key):
            raise ValueError("site: give --insecure or certificates and a key, not both")
        if not self.insecure and self.root_certificates is None:
            where = "where nobody can listen (this machine alone)"
            raise ValueError(f"site: give --root-certificates, or --insecure {where}")
        check_files(self.root_certificates, self.key)
        safe = ["--insecure"] if self.insecure else ["--root-certificates", str(self.root_certificates)]
        key = ["--auth-supernode-private-key", str(self.key)] if self.key else []
        return ["--superlink", self.superlink, *safe, *key]


def node_config(values: dict[str, str | int]) -> str:
    """Values as --node-config takes them.

    >>> node_config({"site": "a", "data": "/a folder/x.csv", "partition-id": 3})
    'site="a" data="/a folder/x.csv" partition-id=3'
    """
    return " ".join(f"{name}={_quoted(name, value)}" for name, value in values.items())


def _quoted(name: str, value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    literal = '"' in value or "\\" in value
    if literal and "'" in value:
        both = "both kinds of quotation marks, or one and a backslash"
        raise ValueError(f"site: {name} may not have {both}, got {value!r}")
    return f"'{value}'" if literal else f'"{value}"'


def node_values(
    name: str | None, data: Path | None, partition: int | None, policy: Path | None = None, record: Path | None = None
) -> dict[str, str | int]:
    """Return the node's configuration of this site. The policy is policy.toml beside the data, unless another is given."""
    if name is None and partition is None:
        raise ValueError("site: say which one with --site NAME, or with --partition NUMBER for an experiment's app")
    if data is not None and not data.is_file():
        raise ValueError(f"site: --data: there is no file {data}")
    values: dict[str, str | int | None] = {"site": name, "partition-id": partition}
    if data is not None:
        record = data.with_name(f"{data.name}.record.jsonl") if record is None else record
        values["data"] = str(data.resolve())
        policy = policy_beside(data) if policy is None else policy
    for kind, path in (("policy", policy), ("record", record)):
        if path is not None:
            values[kind] = str(path.resolve())
    return {name: value for name, value in values.items() if value is not None}


def policy_beside(data: Path) -> Path | None:
    """Return the policy file beside a site's data, if there is one."""
    beside = data.resolve().with_name(POLICY_FILE)
    return beside if beside.is_file() else None


def check_place(folder: Path, node: dict[str, str | int]) -> None:
    """Raise ValueError if the app's pyproject.toml does not name this site, or if the app reads a file and none is given."""
    sites = run_config(folder).get("sites")
    if not isinstance(sites, str):
        return
    if node.get("site") not in sites.split(","):
        raise ValueError(f"site: --site must be one of {sites.replace(',', ', ')}, got {node.get('site')!r}")
    if "data" not in node:
        raise ValueError("site: this app reads a file; give --data")


def run(folder: Path, node: dict[str, str | int], connection: Connection, say: Say = log.info) -> int:
    """Take part until the site is stopped; return an exit code.

    A site that is refused tries again: the coordinator may not know its key yet, and a site that died counts as connected for
    up to a minute.
    """
    arguments = [*connection.arguments(), "--node-config", node_config(node)]
    check_place(folder, node)
    configure_logging()
    own = component(folder, "clientapp")
    show_site(own, node, say)
    if waits := check_address(connection.superlink, connection.root_certificates):
        say(waits)
    app = shown(own, say)
    while True:
        output = NodeOutput(connection.superlink, say)
        say(f"connecting to {connection.superlink}")
        code = run_site(app, arguments, output.add)
        if code == INTERRUPTED:
            say("stopped")
            return INTERRUPTED
        if hopeless := output.hopeless():
            say(f"the connection cannot work: {hopeless}")
            return 1
        if not (output.refused or output.connected):
            say("Flower's node ended; its last lines:\n" + output.last_lines())
            return 1
        say(
            "refused: the coordinator has not registered this site's key, or another process is connected with the same key, or "
            f"this site died and still counts as connected for up to a minute; trying again in {PAUSE:g} s"
            if output.refused
            else f"the connection ended; trying again in {PAUSE:g} s"
        )
        try:
            time.sleep(PAUSE)
        except KeyboardInterrupt:
            say("stopped")
            return INTERRUPTED


def show_site(app: Any, node: dict[str, str | int], say: Say) -> None:
    """Read the site's data, check them against its policy, and show both before anything is sent."""
    if not isinstance(app, SiteApp):
        return
    try:
        found = app.check(Context(0, 0, dict(node), RecordDict(), {}))
    except Refused as error:
        raise ValueError(f"site: its policy does not allow these data to take part: {error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"site: the data cannot be used: {error}") from None
    columns = "" if found["columns"] is None else f", {len(found['columns'])} columns: {', '.join(found['columns'])}"
    say(f"{found['rows']} rows{columns}")
    if found["moments"] is not None:
        missing = found["rows"] - found["moments"].present.astype(int)
        for name, count in zip(found["columns"] or (), missing, strict=False):
            if count and name not in found["left out"]:
                say(f"{name}: {count} of {found['rows']} values are missing, and count as the mean of all sites")
    if (effective := found["effective rows"]) < MARGIN * found["policy"].fewest_rows:
        say(
            f"in effect {effective:.3g} rows make up the gradient at the zero model; the policy refuses models at which fewer "
            f"than {found['policy'].fewest_rows} do (fewest_rows), so that this site may have to leave a run that it began"
        )
    if found["left out"]:
        say(f"left out, for too few rows differ in them: {', '.join(found['left out'])}")
    usual = "the usual one; a file policy.toml beside the data changes it"
    say(f"the policy of this site ({node.get('policy', usual)}):")
    for line in found["policy"].describe():
        say(f"  {line}")
    if "record" in node:
        say(f"what is asked and answered is written to {node['record']}")


def shown(app: Answer, say: Say) -> Answer:
    """Return an app that answers as this one and shows each question and how it ended."""

    def answer(message: Message, context: Context) -> Message:
        began, what = time.monotonic(), f"{site_name(context)}: {question(message)}"
        say(f"{what} ...")
        reply = app(message, context)
        took = f"{time.monotonic() - began:.1f} s"
        said = f"not answered: {clean(reply.error.reason)}" if reply.has_error() else took
        say(f"{what}: {said}")
        return reply

    return answer


def question(message: Message) -> str:
    """Return what a message asks for, in words."""
    config = {name: value for record in message.content.config_records.values() for name, value in record.items()}
    if message.metadata.message_type.startswith(MessageType.TRAIN):
        round_ = config.get(f"{PREFIX}round")
        return f"local steps of round {round_ + 1}" if isinstance(round_, int) else "local steps"
    if message.metadata.message_type.startswith(MessageType.EVALUATE):
        return "loss and gradient of the model"
    kinds = {"moments": "moments of the columns", "curvature": "curvature of the loss", "notice": "a notice"}
    asked = (what for name, what in kinds.items() if config.get(name))
    return next(asked, "who is there, with how many rows and columns")


@dataclass
class NodeOutput:
    """The output of Flower's node, of which the site is told what it should know."""

    superlink: str
    say: Say
    connected: bool = False
    refused: bool = False
    waiting: bool = False
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=12))

    def add(self, line: str) -> None:
        """Read a line."""
        line = clean(re.sub(r"\x1b\[\d*m", "", line).rstrip())  # Flower may quote the coordinator
        self.lines.append(line)
        self.refused |= REFUSED in line
        if "SuperNode ID" in line:
            self.connected = True
            self.say(f"connected to {self.superlink}; waiting for questions (Ctrl-C ends)")
        elif "Connection attempt failed, retrying" in line and not self.waiting:
            self.waiting = True
            self.say(f"{self.superlink} does not answer; trying until it does")
        elif "Connection successful" in line:
            self.waiting = False
            self.say(f"{self.superlink} answers again")

    def last_lines(self) -> str:
        """Return the last lines, marked, so that none looks like one of ours."""
        return "\n".join(f"  | {line}" for line in self.lines)

    def hopeless(self) -> str | None:
        """Return why trying again cannot help, if that is known."""
        return next((why for word, why in HOPELESS.items() if any(word in line for line in self.lines)), None)
