"""A site that answers wrongly, or not at all, is left out of that round; with too few answers a round is repeated."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

import fedlocal as fl
from conformance.cases import CASES
from fedlocal.flower import Policy, TooFewSites, client_app
from fedlocal.flower.coordinator.server import only_writer
from unit.flower.flower_sites import (
    EPOCHS,
    FULL,
    NAMES,
    PROBLEM,
    X0,
    Sites,
    app_of,
    configuration,
    distance,
    events_of,
    expected,
    node,
    problem_of,
    strategy,
    training,
)

CASE = CASES["fed_mid_l1"]  # what is sent has arrays and a number
ROUNDS = 4


def _array(values: Any) -> ArrayRecord:
    """The two arrays of a reply, the weights replaced."""
    return ArrayRecord({"x/intercept": Array(np.zeros(1)), "x/weights": Array(np.asarray(values))})


def _raw(shape: tuple[int, ...], content: bytes, dtype: str = "float64", kind: str = "numpy.ndarray") -> ArrayRecord:
    return ArrayRecord({"x/intercept": Array(np.zeros(1)), "x/weights": Array(dtype, shape, kind, content)})


FINE = np.zeros((2, 3))
WRONG: dict[
    str, tuple[dict[str, Any], str]
] = {  # records of the reply that are replaced or added, and what is said of it
    "nan": ({"arrays": _array(np.full((2, 3), np.nan))}, "nan or inf in x/weights"),
    "inf": ({"arrays": _array(np.full((2, 3), np.inf))}, "nan or inf in x/weights"),
    "shape": ({"arrays": _array(np.zeros((3, 2)))}, r"x/weights is float64\(3, 2\)"),
    "broadcastable shape": ({"arrays": _array(np.zeros((1, 3)))}, r"x/weights is float64\(1, 3\)"),
    "type": ({"arrays": _array(FINE.astype(np.float32))}, "x/weights is float32"),
    "text": ({"arrays": _raw((2, 3), b"", "<U9")}, "x/weights has the type"),
    "type that cannot be read": ({"arrays": _raw((2, 3), b"", "(1,2")}, "x/weights has the type"),
    "objects": ({"arrays": _raw((2, 3), b"", "object")}, "x/weights has the type 'object'"),
    "no type": ({"arrays": _raw((2, 3), b"", "nonsense")}, "x/weights has the type 'nonsense'"),
    "too many bytes": ({"arrays": _raw((2, 3), b"0" * 10_000)}, "and has 10000 bytes"),
    "a huge shape": ({"arrays": _raw((2**20, 2**20), b"0" * 100)}, "x/weights says"),
    "garbage": ({"arrays": _raw((2, 3), b"0" * 100)}, "left out"),
    "another serialisation": ({"arrays": _raw((2, 3), b"0" * 100, kind="pickle")}, "left out"),
    "names": ({"arrays": ArrayRecord({"y": Array(FINE)})}, r"arrays are called \['y'\]"),
    "one more array": (
        {"arrays": ArrayRecord({**_array(FINE), "more": Array(FINE)})},
        "arrays are called",
    ),
    "two records of arrays": ({"more": _array(FINE)}, "2 records of arrays"),
    "two records of numbers": ({"more": MetricRecord({"num-examples": 6})}, "2 records of numbers"),
    "two records of values": ({"more": ConfigRecord({"round": 1})}, "2 records of plain values"),
    "another method": ({"config": {"method": "0" * 16}}, "answered for method '0000000000000000'"),
    "another round": ({"config": {"round": 0}}, "answered for round 0 instead of 1"),
    "another site": ({"config": {"site": "c"}}, "answered for site 'c' instead of 'b'"),
    "weight": ({"metrics": {"weight": 100.0}}, "weight is 100.0"),
    "weight nan": ({"metrics": {"weight": float("nan")}}, "weight is nan"),
    "weight as a list": ({"metrics": {"weight": [1.0, 1.0]}}, "weight is a list"),
    "no examples": ({"metrics": {"num-examples": 0}}, "num-examples is 0"),
    "examples of no whole number": ({"metrics": {"num-examples": 6.5}}, "num-examples is 6.5"),
    "a list for a number": ({"metrics": {"walked": [0.1, 0.2]}}, "walked is a list"),
    "a number that is nan": ({"metrics": {"walked": float("nan")}}, "nan or inf in walked"),
    "one more list": ({"metrics": {"more": [0.1]}}, "more is a list"),
}


def _spoilt(answer: Message, changes: dict[str, Any]) -> Message:
    """The answer with these records: those of a dict are changed in place."""
    for name, change in changes.items():
        if isinstance(change, dict):
            answer.content[name].update(change)
        else:
            answer.content[name] = change
    return answer


def _run(fault: Any, rounds: int = ROUNDS, **more: Any) -> Any:
    run = strategy(CASE, rounds, **({"min_clients": 2, **FULL} | more))
    run.start(Sites(fault=fault), timeout=0.2)
    return run


def _left_out(run: Any, why: str) -> None:
    """b was left out of the second round, for this reason, and of nothing else."""
    said = [event for event in events_of(run.events, "b") if event[1] != "connected"]
    assert len(said) == 1
    assert said[0][0] == 1
    assert re.search(why, said[0][1])
    assert said[0][1].endswith("left out")
    assert not any(event.round > 1 for event in run.events if event.site != "b")
    assert distance(run.solution(), expected(CASE, ROUNDS, {(1, 1)}, **FULL)) < 1e-12


ATTACKS_TOO = {  # of hostile/site_attacks.py, most of them under the same names, against the same checks
    *("shape", "type", "objects", "a huge shape", "garbage", "another serialisation", "names", "one more array"),
    *("two records of arrays", "two records of numbers", "two records of values"),
    *("another method", "another round", "another site", "weight nan", "weight as a list", "a number that is nan"),
}


@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=pytest.mark.thorough) if w in ATTACKS_TOO else w for w in WRONG]
)
def test_a_wrong_answer_is_left_out_of_the_mean(what: str):
    changes, why = WRONG[what]
    _left_out(_run(lambda site, question, answer: _spoilt(answer, changes) if _at_b(site, question) else answer), why)


def _at_b(site: str, question: Message) -> bool:
    return site == "b" and training(question, {1})


@pytest.mark.parametrize("record", ["arrays", "metrics", "config"])
def test_an_answer_without_one_of_its_records_is_left_out(record: str):
    def fault(site: str, question: Message, answer: Message) -> Message:
        if _at_b(site, question):
            del answer.content[record]
        return answer

    _left_out(_run(fault), "0 records")


def test_a_number_too_many_changes_nothing():
    """Modifiers may add numbers, such as Flower's norm_bit."""

    def fault(site: str, question: Message, answer: Message) -> Message:
        return _spoilt(answer, {"metrics": {"norm_bit": 1}}) if training(question, range(9)) else answer

    run = _run(fault)
    assert distance(run.solution(), expected(CASE, ROUNDS, **FULL)) < 1e-12


def test_a_site_that_fails_is_left_out():
    def fault(site: str, question: Message, answer: Message) -> Message:
        error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "KeyError; the log of the site says more")
        return Message(error, reply_to=question) if _at_b(site, question) else answer

    _left_out(_run(fault), "failed: KeyError; the log of the site says more")


def test_a_site_that_does_not_answer_is_left_out_and_asked_again():
    def fault(site: str, question: Message, answer: Message) -> Message | None:
        return None if _at_b(site, question) else answer

    run = _run(fault)
    assert events_of(run.events, "b") == [
        (0, "connected"),
        (1, "no answer in time; left out"),
        (2, "connected"),
    ]
    assert distance(run.solution(), expected(CASE, ROUNDS, {(1, 1)}, **FULL)) < 1e-12


def test_an_answer_to_another_question_is_no_answer():
    def fault(site: str, question: Message, answer: Message) -> Message:
        if _at_b(site, question):
            answer.metadata.__dict__["_reply_to_message_id"] = "f" * 64
        return answer

    run = _run(fault)
    assert (1, "no answer in time; left out") in events_of(run.events, "b")
    assert distance(run.solution(), expected(CASE, ROUNDS, {(1, 1)}, **FULL)) < 1e-12


def test_several_rounds_without_several_sites():
    """A different site fails in every round; in the third, two."""
    absent = {(0, 2), (1, 0), (2, 1), (3, 0)}

    def fault(site: str, question: Message, answer: Message) -> Message:
        hit = any(training(question, {r}) and site == NAMES[m] for r, m in absent)
        return _spoilt(answer, {"arrays": _array(FINE * np.nan)}) if hit else answer

    run = _run(fault, min_clients=1)
    assert distance(run.solution(), expected(CASE, ROUNDS, absent, **FULL)) < 1e-12


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), None])
def test_a_wrong_loss_is_left_out_of_the_history_only(loss: float | None):
    def fault(site: str, question: Message, answer: Message) -> Message | None:
        if site != "b" or question.metadata.message_type != MessageType.EVALUATE:
            return answer
        return None if loss is None else _spoilt(answer, {"metrics": {"loss": loss}})

    run = _run(fault)
    x = run.solution()
    losses = [float(np.mean(_residuals(m, x) ** 2)) for m in (0, 2)]
    np.testing.assert_allclose(run.history[-1]["loss"], np.mean(losses), rtol=1e-12)
    assert distance(x, expected(CASE, ROUNDS, **FULL)) < 1e-12


def _residuals(m: int, x: Any) -> np.ndarray:
    features, targets = (np.asarray(a)[6 * m : 6 * m + 6] for a in PROBLEM.data.arrays)
    return np.tensordot(features, x["weights"], 2) + x["intercept"] - targets


# too few answers


@pytest.mark.parametrize("sampling", [FULL, EPOCHS])
def test_a_round_with_too_few_answers_is_repeated_and_counts_once(sampling: dict[str, Any]):
    failures = []

    def fault(site: str, question: Message, answer: Message) -> Message | None:
        if site == "b" and training(question, {1, 3}) and len(failures) < 4:
            failures.append(site)
            return None if len(failures) == 1 else _spoilt(answer, {"arrays": _array(FINE * np.nan)})
        return answer

    run = _run(fault, min_clients=3, **sampling)
    assert len(failures) == 4
    lost = [event.round for event in run.events if event.what == "2 answers, 3 needed; the round is repeated"]
    assert lost == [2, 2, 2, 2]
    assert distance(run.solution(), expected(CASE, ROUNDS, **sampling)) < 1e-12


def test_a_second_run_may_not_write_the_same_checkpoint(tmp_path: Path):
    path = str(tmp_path / "run.npz")
    with (
        only_writer(path),
        pytest.raises(ValueError, match=r"another run is writing .*run.npz; wait for it, or stop it"),
    ):
        _run(lambda site, question, answer: answer, checkpoint=path)
    _run(lambda site, question, answer: answer, checkpoint=path)


@pytest.mark.parametrize("sampling", [FULL, EPOCHS])
def test_when_patience_is_over_a_new_run_continues_from_the_checkpoint(sampling: dict[str, Any], tmp_path: Path):
    def fault(site: str, question: Message, answer: Message) -> Message | None:
        return _spoilt(answer, {"metrics": {"weight": 99.0}}) if site == "b" and training(question, {2, 3}) else answer

    arguments = {"checkpoint": str(tmp_path / "run"), "patience": 0.05, **sampling}
    words = r"2 of 3 sites take part, 3 are needed; gave up after waiting 0 s.*2 rounds are kept in .*run"
    with pytest.raises(TooFewSites, match=words):
        strategy(CASE, ROUNDS, **arguments).start(Sites(fault=fault), timeout=0.2)
    again = strategy(CASE, ROUNDS, **arguments)
    again.start(Sites(), timeout=5.0)
    assert distance(again.solution(), expected(CASE, ROUNDS, **sampling)) < 1e-12
    assert any("weight is 99.0" in what for _, what in events_of(again.events, "b"))  # what was said before is kept
    assert any("continued" in what for _, what in events_of(again.events, ""))


def test_a_run_that_is_done_needs_no_site_to_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "fedlocal")
    arguments = {"checkpoint": str(tmp_path / "run"), "patience": 0.05, **FULL}
    strategy(CASE, ROUNDS, **arguments).start(Sites(), timeout=5.0)
    again = strategy(CASE, ROUNDS, **arguments)
    again.start(Sites(sites={}), timeout=0.2)
    assert f"all {ROUNDS} rounds were done before; nothing is left to do" in caplog.messages
    assert distance(again.solution(), expected(CASE, ROUNDS, **FULL)) < 1e-12
    with pytest.raises(TooFewSites):
        strategy(CASE, ROUNDS + 1, **arguments).start(Sites(sites={}), timeout=0.2)


def test_nobody_there_from_the_start():
    with pytest.raises(TooFewSites, match="0 of 3 sites take part, 3 are needed"):
        strategy(CASE, ROUNDS, patience=0.05, **FULL).start(Sites(sites={}), timeout=0.2)


def test_a_diverging_run_says_so():
    """Sites stay finite, the server's step does not."""
    run = strategy(CASE._replace(method=fl.methods.FedAvg(1e200, 1e200)), 400, **FULL | {"local_steps": 1})
    with pytest.raises(FloatingPointError, match="diverged in round 1"):
        run.start(Sites(), timeout=0.2)


# who is there


def test_a_site_that_joins_late_counts_from_then_on():
    grid = Sites(sites={name: configuration()[name] for name in "ab"})

    def fault(site: str, question: Message, answer: Message) -> Message:
        if training(question, {1}):
            grid.contexts[9] = node(9, "c", 2)
        return answer

    grid.fault = fault
    run = strategy(CASE, ROUNDS, min_clients=2, patience=0.05, **FULL)
    run.start(grid, timeout=0.2)
    assert distance(run.solution(), expected(CASE, ROUNDS, {(0, 2), (1, 2)}, **FULL)) < 1e-12
    assert events_of(run.events, "c") == [
        (0, "not connected; left out"),
        (1, "not connected; left out"),
        (2, "connected"),
    ]


def test_a_site_that_comes_back_on_another_node_is_the_same_site():
    grid = Sites()

    def fault(site: str, question: Message, answer: Message) -> Message:
        if site == "c" and training(question, {1}):
            del grid.contexts[2]
            grid.contexts[9] = node(9, "b", 1)
        return answer

    grid.fault = fault
    run = strategy(CASE, ROUNDS, **EPOCHS)
    run.start(grid, timeout=0.2)
    assert distance(run.solution(), expected(CASE, ROUNDS, **EPOCHS)) < 1e-12
    assert events_of(run.events, "b") == [(0, "connected"), (2, "connected")]


def test_a_site_that_leaves_is_left_out_until_it_is_back():
    grid = Sites()
    gone = grid.contexts[2]

    def fault(site: str, question: Message, answer: Message) -> Message:
        if site == "c" and training(question, {0}):
            del grid.contexts[2]
        if site == "c" and training(question, {2}):
            grid.contexts[2] = gone
        return answer

    grid.fault = fault
    run = strategy(CASE, ROUNDS, min_clients=2, **FULL)
    run.start(grid, timeout=0.2)
    assert distance(run.solution(), expected(CASE, ROUNDS, {(1, 1), (2, 1)}, **FULL)) < 1e-12
    assert events_of(run.events, "b")[1:3] == [(1, "not connected; left out"), (2, "not connected; left out")]


def test_a_site_that_leaves_while_it_works_is_left_out():
    """The server knows of it only when it asks for the answer."""
    grid = Sites()

    def fault(site: str, question: Message, answer: Message) -> Message:
        away = Error(ErrorCode.NODE_UNAVAILABLE, "node not available")
        return Message(away, reply_to=question) if _at_b(site, question) else answer

    grid.fault = fault
    run = strategy(CASE, ROUNDS, min_clients=2, **FULL)
    run.start(grid, timeout=0.2)
    assert (1, "no answer in time; left out") in events_of(run.events, "b")
    assert distance(run.solution(), expected(CASE, ROUNDS, {(1, 1)}, **FULL)) < 1e-12


def test_a_stranger_is_refused_and_the_run_goes_on():
    grid = Sites(sites={**configuration(), "mallory": {"m": 0}})
    run = strategy(CASE, ROUNDS, **FULL)
    run.start(grid, timeout=0.2)
    refusal = [what for _, what in events_of(run.events, "node 4")]
    assert refusal == ["refused: mallory is not one of the 3 sites of this run: a, b, c"]
    assert {message.metadata.dst_node_id for message in grid.asked(MessageType.TRAIN)} == {1, 2, 3}
    assert distance(run.solution(), expected(CASE, ROUNDS, **FULL)) < 1e-12


def test_a_site_with_other_columns_is_refused():
    other = problem_of(shape=(2, 2))

    def problem_for_node(context: Any) -> Any:
        site = context.node_config["site"]
        return fl.problems.only(other if site == "c" else PROBLEM, int(context.node_config["m"]))

    run = strategy(CASE, ROUNDS, min_clients=2, patience=0.05, **FULL)
    run.start(Sites(client_app(problem_for_node, policy=Policy.open())), timeout=0.2)
    refusal = [what for _, what in events_of(run.events, "node 3")]
    assert len(refusal) == 1
    assert "c has parameters of shapes" in refusal[0]
    absent = {(r, 2) for r in range(ROUNDS)}
    assert distance(run.solution(), expected(CASE, ROUNDS, absent, **FULL)) < 1e-12


def test_all_sites_with_other_columns_than_the_starting_point_are_refused():
    other = app_of(problem_of(shape=(2, 2)))
    with pytest.raises(TooFewSites, match="gave up after waiting"):
        strategy(CASE, ROUNDS, patience=0.05, **FULL).start(Sites(other), timeout=0.2)


def test_sites_without_names_are_numbered_by_their_names():
    """Whoever connects first: the same run."""
    turned = {name: configuration()[name] for name in "cba"}
    run = strategy(CASE, ROUNDS, sites=3, **EPOCHS)
    run.start(Sites(sites=turned), timeout=0.2)
    assert distance(run.solution(), expected(CASE, ROUNDS, **EPOCHS)) < 1e-12


def test_two_nodes_that_call_themselves_the_same_do_not_count_twice():
    grid = Sites()
    grid.contexts[9] = node(9, "b", 1)
    run = strategy(CASE, ROUNDS, **FULL)
    run.start(grid, timeout=0.2)
    assert distance(run.solution(), expected(CASE, ROUNDS, **FULL)) < 1e-12


def test_the_starting_point_is_not_touched():
    before = {name: a.copy() for name, a in X0.items()}
    _run(None)
    for name, a in before.items():
        np.testing.assert_array_equal(a, X0[name])


def test_an_empty_answer_is_left_out():
    def fault(site: str, question: Message, answer: Message) -> Message:
        return Message(RecordDict(), reply_to=question) if _at_b(site, question) else answer

    _left_out(_run(fault), "0 records")
