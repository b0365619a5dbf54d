"""CSV: whole lines at any time, and the same lines after a resumption."""

import csv
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedlocal as fl
from unit.callbacks.short_runs import interrupted_run, short_run


def lines(path: Path) -> list[list[str]]:
    """The cells of a file but for the seconds, which are in the last column."""
    return [line.split(",")[:-1] for line in path.read_text().splitlines()]


def check_same(path: Path, history: pd.DataFrame) -> None:
    """Compare the numbers of a file with those of a history, to the last digit; the order of the columns may differ."""
    with path.open(newline="") as file:
        read = [{name: float(cell or "nan") for name, cell in row.items()} for row in csv.DictReader(file)]
    found: Any = pd.DataFrame(read)
    assert set(found) == set(history)
    pd.testing.assert_frame_equal(found[list(history)], history, check_exact=True, check_dtype=False)


@pytest.mark.parametrize("run", [fl.simulate, fl.loop])
def test_the_file_is_the_history(run: Any, tmp_path: Path):
    path = tmp_path / "new folder" / "history.csv"
    result = short_run(fl.callbacks.CSV(path), run=run, metrics=[fl.metrics.ClientLosses()])
    check_same(path, result.history)
    assert path.read_text() == result.history.to_csv(index=False)


def test_nan_and_infinity_are_read_back(tmp_path: Path):
    path = tmp_path / "history.csv"
    odd = {0: float("nan"), 2: float("inf"), 4: float("-inf"), 6: 0.1}
    result = short_run(fl.callbacks.CSV(str(path)), metrics=[lambda x, round: {"odd": odd[round]}])
    check_same(path, result.history)


def test_after_every_evaluation_the_file_has_one_whole_line_more(tmp_path: Path):
    """Another reader, who opened the file at the first line as `tail -f` does, is told every line."""
    path, found, reader = tmp_path / "history.csv", [], []

    def look(round: int, row: dict[str, float], x: Any) -> None:
        found.append(path.read_text())
        reader.append(path.open() if not reader else reader[0])

    short_run(fl.callbacks.CSV(path), look)
    assert [text.count("\n") for text in found] == [2, 3, 4, 5]
    assert all(text.endswith("\n") for text in found)
    assert all(later.startswith(text) for text, later in pairwise(found))
    with reader[0] as file:
        assert file.read() == path.read_text()


def test_a_resumed_run_writes_the_file_of_a_whole_one(tmp_path: Path):
    """Also if the file has lines that the checkpoint does not know, and if it is not there any more."""
    whole, path = tmp_path / "whole.csv", tmp_path / "history.csv"
    short_run(fl.callbacks.CSV(whole))
    for name in ("as_it_was", "longer", "gone"):
        interrupted_run(fl.callbacks.CSV(path), tmp_path / name)
        assert lines(path) == lines(whole)[:3]
        if name == "longer":
            path.write_text(path.read_text() + "4,1.0,1.0,8,8,0.1\n6,1.")
        if name == "gone":
            path.unlink()
        short_run(fl.callbacks.CSV(path), checkpoint=tmp_path / name)
        assert lines(path) == lines(whole)


def test_a_finished_run_that_is_called_again_leaves_the_same_file(tmp_path: Path):
    path, arguments = tmp_path / "history.csv", {"checkpoint": tmp_path / "run.npz"}
    short_run(fl.callbacks.CSV(path), **arguments)
    before = path.read_bytes()
    short_run(fl.callbacks.CSV(path), **arguments)
    assert path.read_bytes() == before


def test_one_object_may_follow_several_runs_one_after_the_other(tmp_path: Path):
    callback = fl.callbacks.CSV(tmp_path / "history.csv")
    short_run(callback, metrics=[lambda x: {"first": 1.0}])
    result = short_run(callback)
    assert callback.path.read_text() == result.history.to_csv(index=False)


def test_columns_that_come_and_go_have_their_places(tmp_path: Path):
    path = tmp_path / "history.csv"
    columns = {0: {"a": 1.0}, 2: {"b": 2.0}, 4: {}, 6: {"a": 3.0}}
    result = short_run(fl.callbacks.CSV(path), metrics=[lambda x, round: columns[round]])
    check_same(path, result.history)


def test_a_file_that_cannot_be_written_is_told_before_the_run(tmp_path: Path):
    (tmp_path / "file").write_text("")
    measured: list[Any] = []
    for path in (tmp_path / "file" / "history.csv", tmp_path):
        with pytest.raises(OSError, match="cannot write ") as told:
            short_run(fl.callbacks.CSV(path), metrics=[lambda x: measured.append(x) or 0.0])
        assert str(path) in str(told.value)
    assert measured == []
    with pytest.raises(TypeError, match="CSV: path must be the path of a file, got 3"):
        fl.callbacks.CSV(3)  # pyright: ignore[reportArgumentType]
