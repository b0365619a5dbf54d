"""Tables on narrow terminals."""

import pandas as pd
import pytest
from rich import get_console
from rich.console import Console

from fedlocal.report.tables import table


def test_numbers_are_never_broken_over_two_lines(monkeypatch: pytest.MonkeyPatch):
    """Seven columns of long names at 80 characters, as in the tables of studies."""
    monkeypatch.setattr(get_console(), "width", 80)
    columns = [f"{name} step size" for name in ("client", "server", "best", "last", "first")]
    numbers = [0.00031, 12345.678, -1.234e-10, 99999.0, 1e120]
    frame = pd.DataFrame([["FedDualAvg-OSP", *numbers, 12]], columns=["method", *columns, "diverged in round"])
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table(frame, "title"))
    said = captured.get()
    for number in [*(f"{value:.4g}" for value in numbers), "12"]:
        assert f" {number}" in said, (number, said)
    assert max(map(len, said.splitlines())) <= 80


def test_words_of_headers_are_folded_no_more_than_they_must(monkeypatch: pytest.MonkeyPatch):
    """Eight columns that have room for all words but two letters: no word has more than two lines."""
    monkeypatch.setattr(get_console(), "width", 80)
    columns = ["diverged", "objective", "density", "precision", "recall", "f1"]
    frame = pd.DataFrame([["FedDualAvg-OSP", "0.001, 0.1", 3, 11.08, 0.007812, 1, 1, 1]])
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table(frame.set_axis(["method", "step_sizes", *columns], axis=1), "title"))
    head = captured.get().split("───")[0]
    assert len([line for line in head.splitlines() if line.strip()]) <= 3  # the title, and two lines of headers
    assert max(map(len, captured.get().splitlines())) <= 80


def test_headers_stand_on_one_line_where_there_is_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(get_console(), "width", 120)
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table(pd.DataFrame({"client_step_size": [0.1], "rounds": [3]}), "title"))
    assert "client step size  rounds" in captured.get()
