"""The progress bar: silent when quick, shown while something long runs, even before its first step is done."""

import time

import pytest

from fedlocal.util import progress


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]):
    with progress.ProgressBar("rounds", 3) as bar:
        bar.advance_to(3, "done")
    assert "rounds" not in capsys.readouterr().err


def test_long_work_shows_a_bar_before_its_first_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "DELAY", 0.05)
    monkeypatch.setattr(progress.Console, "is_terminal", True)
    with progress.ProgressBar("rounds", 3) as bar:
        time.sleep(0.3)
        assert bar.progress.live.is_started
    assert not bar.progress.live.is_started


def test_disabled_means_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "DELAY", 0.01)
    with progress.ProgressBar("rounds", 3, enabled=False) as bar:
        time.sleep(0.1)
        bar.advance_to(1)
    assert capsys.readouterr().err == ""


def test_where_there_is_no_terminal_nothing_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "DELAY", 0.01)
    with progress.ProgressBar("rounds", 3) as bar:
        time.sleep(0.1)
        bar.advance_to(3)
    assert capsys.readouterr().err == ""
