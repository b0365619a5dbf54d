"""A hostile coordinator cannot ask without end: not in one run, not in many, not over restarts, and not for ever."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlocal as fl
from fedlocal.flower.messages import records
from fedlocal.flower.site import site
from hostile.hostile_coordinator import (
    COLUMNS,
    TARGET,
    Coordinator,
    answered,
    patients,
    refusal,
    with_policy,
    write_hospital,
)

ZERO = np.zeros(5)
HIDDEN = "the log of the site says more"


def states(number: int) -> list[np.ndarray]:
    return [np.eye(5)[0] * (k + 1) * 1e-3 for k in range(number)]


def test_rounds_are_counted_over_runs_and_restarts(tmp_path: Path):
    app, node = write_hospital(tmp_path, patients())
    first = Coordinator(with_policy(app, most_rounds=3), node)
    for r, state in enumerate(states(3)):
        answered(first.train(state, r, run=r))
    assert refusal(first.train(ZERO, 3)) == "most_rounds"
    assert refusal(first.train(ZERO, 0, run=99)) == "most_rounds"
    answered(first.train(states(3)[1], 1, run=1))  # what was answered before costs nothing and tells nothing
    first.end()
    again = Coordinator(with_policy(app, most_rounds=3), node)
    assert refusal(again.train(ZERO, 0, run=100)) == "most_rounds"


def test_evaluations_and_answers_have_budgets(tmp_path: Path):
    app, node = write_hospital(tmp_path, patients())
    coordinator = Coordinator(with_policy(app, most_evaluations=2, most_answers=5), node)
    for r, state in enumerate(states(2)):
        answered(coordinator.evaluate(state, r))
    assert refusal(coordinator.evaluate(ZERO, 2)) == "most_evaluations"
    answered(coordinator.train(ZERO, 2))
    answered(coordinator.query(moments=True))
    for question in ({"moments": True}, {"curvature": True}, {}):
        assert refusal(coordinator.query(**question)) == "most_answers"
    assert refusal(coordinator.train(ZERO, 2)) == "most_answers"


def test_moments_are_the_same_however_often_they_are_asked(tmp_path: Path):
    app, node = write_hospital(tmp_path, patients())
    coordinator = Coordinator(with_policy(app, most_answers=100), node)
    contents = [coordinator.query(run, moments=True) for run in range(101)]
    assert refusal(contents.pop()) == "most_answers"
    arrays = [records.only_arrays(answered(message).content) for message in contents]
    assert all((a[name] == arrays[0][name]).all() for a in arrays for name in a)


def test_questions_side_by_side_share_one_budget(tmp_path: Path):
    """Short questions are answered in threads of their own."""
    app, node = write_hospital(tmp_path, patients())
    coordinator = Coordinator(with_policy(app, most_answers=20), node)
    coordinator.query()
    replies: list[Any] = []
    threads = [threading.Thread(target=lambda: replies.append(coordinator.query(moments=True))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not reply.has_error() for reply in replies) <= 19


def spent(tmp_path: Path) -> tuple[Any, dict[str, Any], Path]:
    """A site that has answered one of one rounds, and has ended."""
    app, node = write_hospital(tmp_path, patients())
    coordinator = Coordinator(with_policy(app, most_rounds=1), node)
    answered(coordinator.train(ZERO))
    coordinator.end()
    return app, node, Path(node["record"])


def test_a_record_that_was_cut_off_in_its_last_line_still_counts(tmp_path: Path):
    app, node, record = spent(tmp_path)
    record.write_bytes(record.read_bytes() + b'{"time": "2026-01-01T00:00:00+00:00", "ques')
    coordinator = Coordinator(with_policy(app, most_rounds=1), node)
    assert refusal(coordinator.train(states(1)[0])) == "most_rounds"
    coordinator.end()
    again = Coordinator(with_policy(app, most_rounds=1), node)  # the rest of the line stays in the file
    assert refusal(again.train(states(1)[0])) == "most_rounds"


def test_a_damaged_record_answers_nothing(tmp_path: Path):
    app, node, record = spent(tmp_path)
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines[:1], b"nonsense\n", *lines[2:]]))
    asked = with_policy(app, most_rounds=5)
    coordinator = Coordinator(asked, node)
    for reply in (coordinator.train(ZERO), coordinator.query(), coordinator.query(moments=True)):
        assert refusal(reply) == f"ValueError; {HIDDEN}"
    record.unlink()


def test_two_processes_do_not_share_a_record(tmp_path: Path):
    app, node = write_hospital(tmp_path, patients())
    first = Coordinator(with_policy(app), node)
    answered(first.query())
    second = Coordinator(with_policy(app), node)
    assert refusal(second.query()) == f"ValueError; {HIDDEN}"
    assert refusal(second.train(ZERO)) == f"ValueError; {HIDDEN}"
    first.end()


def test_runs_without_end_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Their rounds are remembered although the budget is spent."""
    monkeypatch.setattr(site, "MOST_PLACES", 20)
    app, node = write_hospital(tmp_path, patients())
    coordinator = Coordinator(with_policy(app, most_rounds=1), node)
    coordinator.claim(coordinator.own_moments())
    for run in range(30):
        coordinator.train(ZERO, run=run)
        coordinator.train(states(1)[0], 1, run=run)
    assert len(coordinator.app.site_of(coordinator.context())._states) <= 20


# --- time


def endless(tmp_path: Path, **work: int) -> Coordinator:
    """A site whose policy allows any number of local steps or epochs for two seconds."""
    app, node = write_hospital(tmp_path, patients(), method="FedAvg", **work)
    allow = {"local_steps": (1.0, 2.0**31), "local_epochs": (1.0, 2.0**31), "batch_size": (1.0, 2.0**31)}
    asked = with_policy(app, most_seconds=2.0, allow=allow)
    return Coordinator(asked, node, fl.methods.FedAvg(1e-6), **{"local_steps": None, **work})


def test_steps_without_end_end_and_the_site_says_hello_meanwhile(tmp_path: Path):
    coordinator = endless(tmp_path, local_steps=1)
    answered(coordinator.query())
    replies: list[Any] = []
    worker = threading.Thread(target=lambda: replies.append(coordinator.train(ZERO, settings__local_steps=2**31 - 1)))
    began = time.monotonic()
    worker.start()
    time.sleep(0.5)
    asked = time.monotonic()
    answered(coordinator.query())
    hello = time.monotonic() - asked
    assert worker.is_alive()
    worker.join(timeout=60)
    assert refusal(replies[0]) == "most_seconds"
    assert time.monotonic() - began < 20  # compiling is not counted
    assert hello < 5


@pytest.mark.parametrize(
    ("work", "change"),
    [
        ("local_epochs", {"settings__local_epochs": 2**31 - 1}),
        ("local_epochs", {"settings__batch_size": 20, "settings__largest": 2**31 - 1}),
        ("local_steps", {"settings__local_steps": 2**31 - 1, "settings__batch_size": 20}),
        ("local_steps", {"settings__batch_size": 2**31 - 1}),
    ],
)
def test_work_that_no_memory_holds_is_refused_at_once(work: str, change: dict[str, Any], tmp_path: Path):
    coordinator, began = endless(tmp_path, **{work: 1}), time.monotonic()
    assert "rows in a round; at most" in refusal(coordinator.train(ZERO, **change))
    assert time.monotonic() - began < 10


# --- sites and columns that are too small


def test_a_value_that_one_patient_has_is_in_no_answer(tmp_path: Path):
    """A pacemaker, and a test that four patients had: neither moments nor gradients depend on them."""
    answers = []
    for carrier in (3, 4):
        folder = tmp_path / str(carrier)
        folder.mkdir()
        table = patients().assign(zz_pacemaker=0, zz_test=np.nan)
        table.loc[carrier, "zz_pacemaker"] = 1
        table.loc[carrier : carrier + 3, "zz_test"] = 7.5 + carrier
        app, node = write_hospital(folder, table)
        coordinator = Coordinator(app, node)
        moments = coordinator.own_moments()
        coordinator.claim(moments)
        assert moments.present.tolist() == [60.0] * 4 + [0.0, 0.0]
        state = np.array([0.3, -0.2, 0.1, 0.4, 1.5, -1.5, 0.1])
        gradient = coordinator.gradient(state, 1)
        numbers = records.only_metrics(answered(coordinator.evaluate(state, 2)).content)
        curvature = records.only_metrics(answered(coordinator.query(curvature=True)).content)
        answers.append([*np.r_[tuple(moments)], *gradient, *numbers.values(), *curvature.values()])
        assert gradient[4:6].tolist() == [0.0, 0.0]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("rows", "columns", "code"), [(9, COLUMNS[:1], "fewest_rows"), (12, COLUMNS, "most_parameters_per_row")]
)
def test_a_site_that_is_too_small_answers_nothing(rows: int, columns: list[str], code: str, tmp_path: Path):
    table: Any = patients(rows)[[*columns, TARGET]]
    coordinator = Coordinator(*write_hospital(tmp_path, table))
    state = np.zeros(len(columns) + 1)
    for reply in (coordinator.query(), coordinator.query(moments=True), coordinator.query(curvature=True)):
        assert refusal(reply) == code
    assert refusal(coordinator.train(state)) == code
    assert refusal(coordinator.evaluate(state)) == code
