"""`fedlocal coordinator`, sites and runs as real processes on the loopback, with TLS and keys, as a README has it.

with coordinator(tmp_path, ["north", "south"], ["--target", "ill"]) as study:
    sites = [study.site(name, tmp_path / f"{name}.csv") for name in ("north", "south")]
    assert study.start().exit_code() == 0
"""

import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from fedlocal.cli import app as cli
from flower_processes import PATIENCE, Process, environment, free_port


class Study:
    """The files of a study, its coordinator, and what was started. Made by `coordinator`."""

    def __init__(self, folder: Path, options: Sequence[object], sites: Sequence[str]):
        self.folder, self.app, self.keys = folder, folder / "study", folder / "keys"
        self.place = folder / "coordinator"  # where the coordinator is started
        self.port, self.control_port = free_port(), free_port()
        self._started: list[Process] = []
        self._numbers = itertools.count()
        invoke("deploy", self.app, "--sites", ",".join(sites), "--address", f"127.0.0.1:{self.port}", *options)
        invoke("keys", self.keys, "--host", "127.0.0.1", "--sites", ",".join(sites))

    @property
    def address(self) -> str:
        """Where sites reach the coordinator."""
        return f"127.0.0.1:{self.port}"

    def open(self) -> None:
        """Start the coordinator and wait until it listens."""
        command = ["fedlocal", "coordinator", str(self.app), "--keys", str(self.keys)]
        self.process = self._start(Process(self.place, [*command, "--control-port", str(self.control_port)]))
        self.process.wait_for("runs are started on this machine")

    def hold_back(self, site: str) -> None:
        """Take the public key of a site out of the folder, as if it had not been sent yet."""
        (self.keys / f"{site}.pub").rename(self.folder / f"{site}.pub")

    def hand_in(self, site: str) -> None:
        """Put it there."""
        (self.folder / f"{site}.pub").rename(self.keys / f"{site}.pub")

    def site(self, name: str, data: Path, key: str | None = None) -> Process:
        """Start a site, with its own key or with another's."""
        command = ["fedlocal", "site", str(self.app), "--site", name, "--data", str(data), "--superlink", self.address]
        command += ["--root-certificates", str(self.keys / "ca.pem"), "--key", str(self.keys / f"{key or name}.key")]
        return self._start(Process(self.folder / f"site{next(self._numbers)}", command))

    def start(self, changes: str = "") -> Process:
        """Submit the app."""
        command = ["fedlocal", "start", str(self.app), *(["--run-config", changes] if changes else [])]
        return self._start(Process(self.folder / f"start{next(self._numbers)}", command, cwd=self.place))

    def flwr(self, port: int, *command: str) -> subprocess.CompletedProcess[str]:
        """A `flwr` command of somebody who has nothing but ca.pem, with the connection `there` to this port."""
        home = self.folder / "stranger" / "home"
        home.mkdir(parents=True, exist_ok=True)
        connection = f'address = "127.0.0.1:{port}"\nroot-certificates = "{self.keys / "ca.pem"}"\n'
        (home / "config.toml").write_text(f"[superlink.there]\n{connection}")
        return subprocess.run(
            [str(Path(sys.executable).parent / "flwr"), *command],
            cwd=home.parent,
            env=environment(home.parent),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def close(self) -> None:
        """End everything that was started."""
        for process in reversed(self._started):
            process.kill9()

    def logs(self) -> str:
        """All logs, the last lines of each."""
        return "\n".join(f"--- {p.log_file}\n" + "\n".join(p.log().splitlines()[-60:]) for p in self._started)

    def _start(self, process: Process) -> Process:
        self._started.append(process)
        return process


def invoke(*words: object) -> None:
    """Run a command of fedlocal in this process; it must go well."""
    said = CliRunner().invoke(cli, [str(word) for word in words])
    assert said.exit_code == 0, said.output


@contextmanager
def coordinator(
    folder: Path, sites: Sequence[str], options: Sequence[object], late: Sequence[str] = ()
) -> Iterator[Study]:
    """A coordinator that listens, without the keys of `late` sites; afterwards all processes are gone.

    Shows the logs when the block raises.
    """
    study = Study(folder.resolve(), options, sites)
    for site in late:
        study.hold_back(site)
    try:
        study.open()
        yield study
    except BaseException:
        print(study.logs())
        raise
    finally:
        study.close()
