"""Weights & Biases: the calls of its package, and an offline run of a real one."""

import json
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedlocal as fl
from unit.callbacks.short_runs import interrupted_run, rows_of, short_run


class FakeRun:
    """Keeps what is logged. `step` is the first step that is not there yet."""

    def __init__(self, step: int, **arguments: Any):
        self.step, self.arguments = step, arguments
        self.rows: list[dict[str, float]] = []
        self.exit_codes: list[int] = []

    def log(self, row: dict[str, float], step: int) -> None:
        self.rows.append({"round": step, **row})

    def finish(self, exit_code: int) -> None:
        self.exit_codes.append(exit_code)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """The runs that are made while a fake package stands for wandb; one with an id goes on where the last one was."""
    made: list[FakeRun] = []

    def init(**arguments: Any) -> FakeRun:
        step = int(made[-1].rows[-1]["round"]) + 1 if made and "id" in arguments else 0
        made.append(FakeRun(step, **arguments))
        return made[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return made


def test_a_run_is_logged_with_its_configuration(runs: list[FakeRun]):
    result = short_run(fl.callbacks.WandB("mine", name="first", mode="offline"))
    (run,) = runs
    assert run.rows == rows_of(result)
    assert run.exit_codes == [0]
    settings = {"project": "mine", "name": "first", "mode": "offline"}
    assert run.arguments == {**settings, "config": result.provenance["configuration"]}


def test_a_resumed_run_logs_what_is_not_there_yet(runs: list[FakeRun], tmp_path: Path):
    interrupted_run(fl.callbacks.WandB(id="one"), tmp_path / "run.npz")
    again = short_run(fl.callbacks.WandB(id="one"), checkpoint=tmp_path / "run.npz")
    first, second = runs
    assert first.rows + second.rows == rows_of(again)
    assert (len(first.rows), first.exit_codes, second.exit_codes) == (2, [1], [0])


def test_a_resumed_run_of_its_own_logs_all_rows(runs: list[FakeRun], tmp_path: Path):
    interrupted_run(fl.callbacks.WandB(), tmp_path / "run.npz")
    again = short_run(fl.callbacks.WandB(), checkpoint=tmp_path / "run.npz")
    assert runs[1].rows == rows_of(again)


def test_bad_arguments_are_told(runs: list[FakeRun]):
    with pytest.raises(TypeError, match="WandB: project must be a str, got 3"):
        fl.callbacks.WandB(3)  # pyright: ignore[reportArgumentType]


def records(path: Path) -> list[Any]:
    """The records of a file of wandb: pieces in blocks of 32 KiB, each after a checksum, a length and a kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, whole, found = path.read_bytes(), 7, b"", []
    while place + 7 <= len(content):
        left = 2**15 - place % 2**15
        if left < 7:  # no place for another piece in this block
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", content[place : place + 7])
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # the only piece of a record, or its last one
            found.append(Record.FromString(whole))
            whole = b""
    return found


@pytest.mark.filterwarnings("ignore")  # of packages that wandb imports
def test_a_real_offline_run_holds_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = short_run(fl.callbacks.WandB("mine", mode="offline", dir=str(tmp_path)))
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kept = records(path)
    rows = []
    for record in kept:
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            rows.append({"round": items["_step"]} | {k: v for k, v in items.items() if not k.startswith("_")})
    assert rows == rows_of(result)
    assert [record.exit.exit_code for record in kept if record.HasField("exit")] == [0]
