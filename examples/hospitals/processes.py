"""A SuperLink, a process per hospital and a run, all on this machine. Whatever was started is gone afterwards."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

BIN = Path(sys.executable).parent
PATIENCE = 120.0  # seconds, for something to come up


class Processes:
    """`with Processes(folder) as machine:` every process has a home and a log of its own in the folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.started: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            process.wait()

    def start(self, name: str, *command: str) -> None:
        """In the background, writing to NAME/log.txt."""
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        with (home / "log.txt").open("wb") as log:
            self.started.append(
                subprocess.Popen(
                    [str(BIN / command[0]), *command[1:]],
                    cwd=self.folder,
                    env=_environment(home),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def superlink(self) -> str:
        """Start a SuperLink; its address, as soon as it answers."""
        port = _free_port()
        self.start(
            *("superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)),
            "--disable-runtime-dependency-installation",
        )
        end = time.monotonic() + PATIENCE
        while not _is_open(port):
            if self.started[-1].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the SuperLink did not start; see {self.folder / 'superlink' / 'log.txt'}")
            time.sleep(0.1)
        return f"127.0.0.1:{port}"

    def run(self, app: Path, address: str, config: str) -> None:
        """`flwr run`, on the screen, until the run has ended."""
        home = self.folder / "coordinator"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(f'[superlink.here]\naddress = "{address}"\ninsecure = true\n')
        command = [str(BIN / "flwr"), "run", str(app), "here", "--stream", "--run-config", config]
        subprocess.run(command, cwd=self.folder, env=_environment(home), check=True)


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
