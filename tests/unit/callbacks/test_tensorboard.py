"""TensorBoard: the calls of its package, and the event files that a real one writes."""

import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedlocal as fl
from unit.callbacks.short_runs import interrupted_run, rows_of, short_run


class FakeWriter:
    """What tensorboardX's SummaryWriter is asked for."""

    made: list["FakeWriter"]

    def __init__(self, **arguments: Any):
        self.arguments, self.calls, self.flushed = arguments, [], 0
        self.texts: list[Any] = []
        self.made.append(self)

    def add_text(self, *arguments: Any) -> None:
        self.texts.append(arguments)

    def add_scalar(self, *arguments: Any) -> None:
        self.calls.append(arguments)

    def flush(self) -> None:
        self.flushed = len(self.calls)

    def close(self) -> None:
        self.calls.append("closed")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeWriter]:
    """The writers that are made while a fake package stands for tensorboardX."""
    FakeWriter.made = []
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=FakeWriter))
    return FakeWriter.made


def scalars(rows: list[dict[str, float]]) -> list[tuple[str, float, int]]:
    return [(name, row[name], int(row["round"])) for row in rows for name in row if name != "round"]


def test_every_column_of_every_row_is_a_scalar(made: list[FakeWriter], tmp_path: Path):
    flushed: list[int] = []
    result = short_run(fl.callbacks.TensorBoard(tmp_path / "a"), lambda *_: flushed.append(made[0].flushed))
    (writer,) = made
    assert writer.arguments == {"logdir": str(tmp_path / "a"), "purge_step": 0}
    assert writer.calls == [*scalars(rows_of(result)), "closed"]
    columns = len(result.history.columns) - 1
    assert flushed == [columns, 2 * columns, 3 * columns, 4 * columns]
    ((title, text, step),) = writer.texts
    assert (title, step) == ("configuration", 0)
    assert "    rounds = 6" in text.splitlines()


def test_a_resumed_run_writes_all_rows(made: list[FakeWriter], tmp_path: Path):
    interrupted_run(fl.callbacks.TensorBoard(tmp_path), tmp_path / "run.npz")
    result = short_run(fl.callbacks.TensorBoard(tmp_path), checkpoint=tmp_path / "run.npz")
    first, second = made
    assert first.calls == [*scalars(rows_of(result)[:2]), "closed"]
    assert second.calls == [*scalars(rows_of(result)), "closed"]


def test_a_folder_that_cannot_be_written_is_told(made: list[FakeWriter], tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write .*; give TensorBoard a folder that can be written"):
        short_run(fl.callbacks.TensorBoard(tmp_path / "file"))
    assert made == []
    with pytest.raises(TypeError, match="TensorBoard: folder must be the path of a folder, got 3"):
        fl.callbacks.TensorBoard(3)  # pyright: ignore[reportArgumentType]


def events(path: Path) -> list[Any]:
    """The events of a file: records of a length, its checksum, the bytes, their checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2", reason="tensorboardX is not installed")
    content, found = path.read_bytes(), []
    while content:
        (size,) = struct.unpack("<Q", content[:8])
        found.append(event_pb2.Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    return found


def test_a_real_event_file_holds_the_history(tmp_path: Path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    interrupted_run(fl.callbacks.TensorBoard(tmp_path / "a"), tmp_path / "run.npz")
    (old,) = (tmp_path / "a").iterdir()
    folder = tmp_path / "b"
    result = short_run(fl.callbacks.TensorBoard(folder), checkpoint=tmp_path / "run.npz")
    (path,) = folder.iterdir()
    read = [
        (v.tag, v.simple_value, e.step) for e in events(path) for v in e.summary.value if v.HasField("simple_value")
    ]
    want = scalars(rows_of(result))
    assert [(tag, step) for tag, _, step in read] == [(tag, step) for tag, _, step in want]
    np.testing.assert_allclose([v for _, v, _ in read], [v for _, v, _ in want], rtol=1e-6)  # kept in float32
    starts = [e.step for e in events(path) if e.HasField("session_log")]
    assert starts == [0]  # which hides what the folder had before
    assert len({e.step for e in events(old) if e.HasField("summary")}) == 2
