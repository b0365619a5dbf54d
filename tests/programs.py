"""Programs from pages of documentation, run one after the other in one process: what takes long is to start it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

RUN = """
import contextlib, io, json, runpy, sys, traceback

told = {}
for path in sys.argv[1:]:
    said, error = io.StringIO(), ""
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            error = traceback.format_exc()
    told[path] = (error, said.getvalue())
print(json.dumps(told))
"""


class Told(NamedTuple):
    error: str  # the traceback; empty where it went well
    output: str


def run_programs(programs: Mapping[str, str], folder: Path, *options: str) -> dict[str, Told]:
    """What came of programs, by their names; each has variables of its own."""
    paths = {name: folder / f"{name}.py" for name in programs}
    for name, path in paths.items():
        path.write_text(programs[name])
    command = [sys.executable, *options, "-c", RUN, *map(str, paths.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: Told(*told[str(path)]) for name, path in paths.items()}
