"""Flower between real processes on the loopback: a SuperLink, its SuperNodes and runs.

Every process writes into its own folder only, reaches nothing but the loopback, and is gone when the `with` block ends:

    with superlink(tmp_path) as link:
        nodes = [link.node(site, {"site": site}) for site in "abc"]
        run = link.run(app_folder, {"rounds": 2})
        assert run.wait() == "finished:completed", run.log()

All waiting is polling with generous limits, for machines that are busy. Linux only: processes are found in /proc.
"""

import hashlib
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from fedlocal.flower._flwr import submission as flwr
from flower_keys import Certificates, Key

PATIENCE = 180.0  # seconds; what takes longer is taken to be stuck
MARK = "FLOWER_PROCESSES_OF"  # environment variable by which a process and all its descendants are known
Settings = Mapping[str, str | int | float | bool]
T = TypeVar("T")
P = TypeVar("P", bound="Process")


def poll(look: Callable[[], T | None], what: str, timeout: float = PATIENCE, pause: float = 0.05) -> T:
    """The first answer of look() that is not None; TimeoutError with what we waited for if there is none in time."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        answer = look()
        if answer is not None:
            return answer
        time.sleep(pause)
    raise TimeoutError(f"after {timeout:g} s still waiting for {what}")


class Process:
    """A Flower command with all that it starts: one folder (its working directory, unless it is given), one log, one mark."""

    def __init__(self, folder: Path, command: list[str], cwd: Path | None = None):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.log_file = folder, folder / "log.txt"
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._popen = subprocess.Popen(
                [_bin(command[0]), *command[1:]],
                cwd=cwd or folder,
                env=environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self) -> str:
        """What the process and its descendants have written so far."""
        text = self.log_file.read_bytes()[self._log_start :].decode(errors="replace")
        return re.sub(r"\x1b\[\d*m", "", text)  # without Flower's colours

    def wait_for(self, pattern: str, timeout: float = PATIENCE) -> str:
        """The first group (or all) of a regular expression as soon as the log has it; RuntimeError if the process ends first."""

        def look() -> str | None:
            ended = self.ended()  # asked before the log is read: nothing is written after
            found = re.search(pattern, self.log())
            if found:
                return found.group(found.lastindex or 0)
            if ended:
                raise RuntimeError(f"{self.folder.name} ended before it wrote {pattern!r}:\n{self.log()}")
            return None

        return poll(look, f"{pattern!r} in {self.log_file}", timeout)

    def ended(self) -> bool:
        """Whether the command itself has ended."""
        return self._popen.poll() is not None

    def exit_code(self, timeout: float = PATIENCE) -> int:
        """The exit code, when the process has ended by itself."""
        return poll(self._popen.poll, f"the end of {self.folder.name}", timeout)

    def pids(self, command: str = "") -> list[int]:
        """The living processes of this mark, or those of them whose command line has this word."""
        return [pid for pid in _marked(self.folder) if command in _read(pid, "cmdline")]

    def kill9(self) -> None:
        """SIGKILL to the process and to everything that it started, as when its machine is switched off."""
        poll(lambda: _kill_marked(self.folder) or None, f"the death of {self.folder.name}")
        self._popen.wait()  # a zombie counts as alive for those who watch their parent


class Node(Process):
    """A SuperNode."""

    def node_id(self, timeout: float = PATIENCE) -> int:
        """The id that the SuperLink gave, as soon as the node is connected."""
        return int(self.wait_for(r"SuperNode ID: (\d+)", timeout))

    def client_app_pid(self, timeout: float = PATIENCE) -> int:
        """The process that works on the present message."""
        return poll(lambda: next(iter(self.pids("flwr-clientapp")), None), "a ClientApp", timeout)


class Run:
    """A run, submitted and watched as `fedlocal start` does it. Its log is the ServerApp's output."""

    def __init__(self, client: flwr.ControlHttpClient, app: Path, config: Settings):
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of what Flower uses to find files
            fab = flwr.build_fab_from_disk(app)
        proto = flwr.fab_to_proto(flwr.Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        request = flwr.StartRunRequest(fab=proto, override_config=flwr.user_config_to_proto(dict(config)))
        self._client, self.run_id = client, client.StartRun(request).run_id

    def wait(self, timeout: float = PATIENCE) -> str:
        """The final status: "finished:completed", "finished:failed"."""
        return poll(self._end, f"the end of run {self.run_id}", timeout, 0.5)

    def log(self) -> str:
        """What the ServerApp wrote, when the run has ended."""
        return "".join(part.log_output for part in self._client.StreamLogs(flwr.StreamLogsRequest(run_id=self.run_id)))

    def _end(self) -> str | None:
        status = self._client.ListRuns(flwr.ListRunsRequest(run_id=self.run_id)).run_dict[self.run_id].status
        return f"{status.status}:{status.sub_status}" if status.status == flwr.Status.FINISHED else None


class SuperLink:
    """A SuperLink and what was started on it. Made by `superlink`."""

    def __init__(self, folder: Path, tls: Certificates | None, auth: bool, database: bool):
        self.folder, self.tls, self.address = folder.resolve(), tls, f"127.0.0.1:{free_port()}"
        self._auth, self._database = auth, ["--database", str(folder.resolve() / "link.db")] if database else []
        self._started: list[Process] = []
        self._clients: list[flwr.ControlHttpClient] = []

    def start(self) -> None:
        """Start the SuperLink, also again after kill9: same address, same database if it has one."""
        host, port = self.address.split(":")
        command = ["flower-superlink", "--host", host, "--port", port, *self._database]
        command += ["--disable-runtime-dependency-installation", *(["--enable-supernode-auth"] if self._auth else [])]
        command += self.tls.server_arguments() if self.tls else ["--insecure"]
        self.process = self._start(Process(self.folder / "link", command))
        self.process.wait_for("Uvicorn running on")

    def node(self, name: str, config: Settings | None = None, key: Key | None = None, root: Path | None = None) -> Node:
        """Start a SuperNode (also again under the same name); relative paths in config are relative to folder/name."""
        command = ["flower-supernode", "--host", "127.0.0.1", "--port", str(free_port())]
        return self._start(Node(self.folder / name, [*command, *self._membership(config, key, root)]))

    def site(
        self, name: str, script: Path, config: Settings | None = None, key: Key | None = None, root: Path | None = None
    ) -> Node:
        """Start a site's own process: a script that hands its arguments to `fedlocal.flower.site.site_process.run_site`."""
        return self._start(Node(self.folder / name, ["python", str(script), *self._membership(config, key, root)]))

    def _membership(self, config: Settings | None, key: Key | None, root: Path | None) -> list[str]:
        """The arguments that make a SuperNode one of this SuperLink."""
        root = root or (self.tls.root if self.tls else None)
        arguments = ["--superlink", self.address, *(["--root-certificates", str(root)] if root else ["--insecure"])]
        arguments += ["--auth-supernode-private-key", str(key.private)] if key else []
        return arguments + (["--node-config", _toml(config)] if config else [])

    def rejoin(self, name: str, config: Settings | None, key: Key) -> Node:
        """Start a SuperNode again after kill9, same key: the SuperLink refuses it while the dead one counts as online (60 s)."""

        def look() -> Node | None:
            node = self.node(name, config, key)
            try:
                node.node_id()
            except RuntimeError as error:
                if "Failed to activate SuperNode" in str(error):
                    return None
                raise
            return node

        return poll(look, f"the return of {name}")

    def register(self, key: Key) -> int:
        """Make a node's public key known to the SuperLink, as its operator does; the node's id."""
        answer = self.ask("supernode", "register", str(key.public), "link", "--format", "json")
        return int(json.loads(answer)["node-id"])

    def run(self, app: Path, config: Settings | None = None) -> Run:
        """Submit the app in this folder."""
        return Run(self._control(), app, config or {})

    def _control(self) -> flwr.ControlHttpClient:
        client = flwr.ControlHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.tls is None,
            root_certificates=None if self.tls is None else self.tls.root.read_bytes(),
            interceptors=[flwr.RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        self._clients.append(client)
        return client

    def ask(self, *command: str) -> str:
        """The output of another `flwr` command; the connection's name is `link`."""
        folder = self.folder / "operator"
        self._write_connection(folder)
        done = subprocess.run(
            [_bin("flwr"), *command],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def pids(self, command: str = "") -> list[int]:
        """The living processes of the SuperLink: itself, its SuperExec, ServerApps."""
        return self.process.pids(command)

    def kill9(self) -> None:
        """SIGKILL to the SuperLink, its SuperExec and its ServerApps."""
        self.process.kill9()

    def close(self) -> None:
        """End everything that was started."""
        for client in self._clients:
            client.close()
        for process in reversed(self._started):
            process.kill9()

    def logs(self) -> str:
        """All logs, the last lines of each."""
        return "\n".join(f"--- {p.log_file}\n" + "\n".join(p.log().splitlines()[-60:]) for p in self._started)

    def _start(self, process: P) -> P:
        self._started.append(process)
        return process

    def _write_connection(self, folder: Path) -> None:
        safety = f'root-certificates = "{self.tls.root}"' if self.tls else "insecure = true"
        text = f'[superlink]\ndefault = "link"\n[superlink.link]\naddress = "{self.address}"\n{safety}\n'
        (folder / "home").mkdir(parents=True, exist_ok=True)
        (folder / "home" / "config.toml").write_text(text)


@contextmanager
def superlink(
    folder: Path, tls: Certificates | None = None, auth: bool = False, database: bool = True
) -> Iterator[SuperLink]:
    """A SuperLink that answers; afterwards all its processes are gone. Shows the logs when the block raises.

    What it knows survives its death in a database; without one it needs a fraction of the time per message.
    """
    link = SuperLink(folder, tls, auth, database)
    try:
        link.start()
        yield link
    except BaseException:
        print(link.logs())
        raise
    finally:
        link.close()


def environment(folder: Path) -> dict[str, str]:
    """The caller's environment, cut off from the user's home, from proxies and from the internet.

    FLWR_HOME is shared with nobody: two processes that install the same app there disturb each other. Flower starts
    its helpers by name, hence PATH.
    """
    ours = {name: value for name, value in os.environ.items() if not re.match("FLWR_|.*_proxy$", name, re.IGNORECASE)}
    return ours | {
        MARK: str(folder),
        "HOME": str(folder),
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }


def _bin(command: str) -> str:
    return str(Path(sys.executable).parent / command)


def _toml(config: Settings) -> str:
    """Key-value pairs as --node-config and --run-config want them: TOML values, separated by blanks."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())


_ports = itertools.count(random.SystemRandom().randrange(20_000, 31_000))  # below those of outgoing connections


def free_port() -> int:
    """A port that nobody has, never the same twice."""
    for port in _ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("the count has no end")


def _read(pid: int | str, name: str) -> str:
    """A file of /proc/pid, empty if the process is gone, a zombie or another user's."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _marked(folder: Path) -> list[int]:
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [int(pid) for pid in pids if f"{MARK}={folder}" in _read(pid, "environ").split("\0")]


def _kill_marked(folder: Path) -> bool:
    """Send SIGKILL; True when nobody was left to receive it."""
    pids = _marked(folder)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not pids
