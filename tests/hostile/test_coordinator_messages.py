"""Messages that no coordinator of ours sends: what they hold is not executed, not printed as it is, and not echoed with data."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType, MetricRecord, RecordDict

from fedlocal.deploy.site import NodeOutput, shown
from fedlocal.flower.site import site_process
from hostile.hostile_coordinator import Coordinator, answered, patients, refusal, write_hospital

ZERO = np.zeros(5)
HIDDEN = "the log of the site says more"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\n23:59:59  all is well\u202e\x9b31m"
Change = Callable[[RecordDict], None]


def _array(name: str, array: Array) -> Change:
    def change(content: RecordDict) -> None:
        content.array_records["arrays"][name] = array

    return change


def _config(name: str, value: Any) -> Change:
    def change(content: RecordDict) -> None:
        content.config_records["config"][name] = value

    return change


def _record(name: str, record: Any) -> Change:
    def change(content: RecordDict) -> None:
        content[name] = record

    return change


def _without(name: str) -> Change:
    def change(content: RecordDict) -> None:
        del content[name]

    return change


MALFORMED: dict[str, Change] = {
    "nan in the model": _array("x/weights", Array(np.full(4, np.nan))),
    "inf in the point": _array("z/weights", Array(np.full(4, np.inf))),
    "nan in the intercept": _array("z/intercept", Array(np.full(1, np.nan))),
    "single precision in one part": _array("z/weights", Array(np.zeros(4, np.float32))),
    "half precision": _array("x/weights", Array(np.zeros(4, np.float16))),
    "whole numbers": _array("x/weights", Array(np.zeros(4, np.int64))),
    "complex numbers": _array("x/weights", Array(np.zeros(4, np.complex128))),
    "a column more": _array("x/weights", Array(np.zeros(5))),
    "an axis more": _array("x/weights", Array(np.zeros((1, 4)))),
    "an intercept without an axis": _array("x/intercept", Array(np.zeros(()))),
    "an array more": _array("data", Array(np.zeros(4))),
    "an enormous shape": _array("x/weights", Array("float64", (2**60,), "numpy.ndarray", b"")),
    "an enormous array": _array("x/weights", Array(np.zeros(1_000_000))),
    "pickle": _array("x/weights", Array("float64", (4,), "pickle", b"cos\nsystem\n(S'ls'\ntR.")),
    "objects": _array("x/weights", Array("object", (4,), "numpy.ndarray", b"\x80\x04N.")),
    "no bytes": _array("x/weights", Array("float64", (4,), "numpy.ndarray", b"")),
    "two records of arrays": _record("more", ArrayRecord({"x": Array(np.zeros(2))})),
    "two records of plain values": _record("more", ConfigRecord({"settings.round": 1})),
    "no arrays": _without("arrays"),
    "no plain values": _without("config"),
    "a round that is text": _config("settings.round", "0"),
    "a round that is half": _config("settings.round", 0.5),
    "a round beyond all": _config("settings.round", 2**31),
    "a negative seed": _config("settings.seed", -1),
    "steps in a list": _config("settings.local_steps", [1]),
    "a setting more": _config("settings.path", "/etc/passwd"),
    "a class of Python": _config("method", "os.system"),
    "an argument that is a class": _config("method.regularizer", "builtins.object"),
    "a number of a state that has none": _config("number.walked", 1.0),
    "a number that is text": _config("number.walked", "one"),
    "moments that are nan": _config("moments.mean", [float("nan")] * 4),
    "moments that are infinite": _config("moments.squares", [float("inf")] * 4),
    "moments of more columns": _config("moments.mean", [0.0] * 5),
    "moments that are text": _config("moments.present", ["sixty"] * 4),
    "moments that are one number": _config("moments.mean", 0.0),
}


@pytest.mark.parametrize("kind", [MessageType.TRAIN, MessageType.EVALUATE])
@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_question_is_refused(what: str, kind: str, coordinator: Coordinator):
    content = coordinator.content(ZERO, 0)
    MALFORMED[what](content)
    assert refusal(coordinator.ask(kind, content))


def test_the_question_itself_is_fine(coordinator: Coordinator):
    """So that the test above fails for the reason it gives, also with numbers that nobody reads."""
    content = coordinator.content(ZERO, 0)
    content["metrics"] = MetricRecord({"a": 1.0})
    answered(coordinator.ask(MessageType.TRAIN, content))
    answered(coordinator.ask(MessageType.EVALUATE, coordinator.content(ZERO, 0)))


def test_precision_is_that_of_the_question(coordinator: Coordinator):
    """Single precision is answered in single precision: never more digits than were asked for."""
    reply = answered(coordinator.train(ZERO, dtype=np.float32))
    assert {a.dtype for a in reply.content.array_records["arrays"].values()} == {"float32"}


@pytest.mark.parametrize("asked", [{"rows": True}, {"data": "all"}, {"policy": "open"}, {"moments": False}, {}])
def test_a_question_that_nobody_knows_gets_the_introduction(asked: dict[str, Any], coordinator: Coordinator):
    coordinator.moments = {}
    content = answered(coordinator.query(**asked)).content
    assert dict(content.metric_records["metrics"]) == {"num-examples": 60}
    names = {"site", "names", "shape.intercept", "shape.weights", "fingerprint", "columns", "states-left"}
    assert set(content.config_records["config"]) == names
    assert not content.array_records


@pytest.mark.parametrize("kind", ["query.rows", "train.secret", "evaluate.rows", "system"])
def test_a_kind_of_message_that_nobody_knows_has_no_answer(kind: str, coordinator: Coordinator):
    with pytest.raises(ValueError, match=r"(?i)message|function"):
        coordinator.ask(kind, coordinator.content(ZERO, 0))


TEXTS: dict[str, tuple[str, Change]] = {
    "a notice": (MessageType.QUERY, _config("notice", ESCAPES)),
    "a method": (MessageType.TRAIN, _config("method", ESCAPES)),
    "weights": (MessageType.TRAIN, _config("settings.weights", ESCAPES)),
    "a round": (MessageType.TRAIN, _config("settings.round", ESCAPES)),
    "a field of the settings": (MessageType.TRAIN, _config(f"settings.{ESCAPES}", 1)),
    "a number": (MessageType.TRAIN, _config(f"number.{ESCAPES}", 1.0)),
    "an argument": (MessageType.TRAIN, _config(f"method.{ESCAPES}", 1.0)),
    "the name of an array": (MessageType.TRAIN, _array(ESCAPES, Array(np.zeros(1)))),
    "the name of a bad array": (MessageType.TRAIN, _array(ESCAPES, Array("float64", (9,), "numpy.ndarray", b""))),
    "a type": (MessageType.TRAIN, _array("x/weights", Array(ESCAPES, (4,), "numpy.ndarray", b""))),
    "a serialisation": (MessageType.TRAIN, _array("x/weights", Array("float64", (4,), ESCAPES, b""))),
}


@pytest.mark.parametrize("what", TEXTS)
def test_terminal_escapes_do_not_reach_the_screen(
    what: str, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="fedlocal")
    kind, change = TEXTS[what]
    content = coordinator.content(ZERO, 0)
    if kind == MessageType.QUERY:
        content = RecordDict({"config": ConfigRecord({})})
    change(content)
    said: list[str] = []
    app = coordinator.app
    coordinator.app = shown(app, said.append)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        coordinator.ask(kind, content)
    finally:
        coordinator.app = app
    text = "\n".join([*said, *(record.getMessage() for record in caplog.records), caplog.text])
    assert caplog.records
    assert not set("\x1b\x07\r\x9b\u202e") & set(text)
    assert not any(line.startswith("23:59:59") for line in text.splitlines())


def test_an_error_that_quotes_a_patient_stays_at_the_site(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A label that is none: the error names it, in the site's log alone."""
    table = patients()
    table.loc[5, "sick"] = 471108154711
    coordinator = Coordinator(*write_hospital(tmp_path, table))
    for reply in (coordinator.query(), coordinator.query(moments=True), coordinator.train(ZERO)):
        assert refusal(reply) == f"ValueError; {HIDDEN}"
    assert not any(b"471108154711" in sent for sent in coordinator.sent)
    assert "471108154711" in caplog.text


def test_a_message_that_cannot_be_read_writes_no_lines_of_ours(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The error of a message that does not arrive whole may quote the coordinator."""

    def fail(client: Any) -> Any:
        raise ValueError(ESCAPES)

    monkeypatch.setattr(site_process.flwr, "pull_task_input", fail)
    site_process._answer(lambda message, context: message, "127.0.0.1:9", "token")
    assert "a message was lost" in caplog.text
    assert not set("\x1b\x07\r\x9b\u202e") & set(caplog.text)
    assert not any(line.startswith("23:59:59") for line in caplog.text.splitlines())


def test_the_output_of_flowers_node_is_cleaned():
    """Flower's node prints what the coordinator answers; its last lines are shown when it ends."""
    said: list[str] = []
    output = NodeOutput("coordinator:8000", said.append)
    output.add(f"ERROR {ESCAPES}")
    assert not set("\x1b\x07\r\n\x9b\u202e") & set("".join(output.lines))
    assert output.last_lines() == f"  | {output.lines[0]}"
