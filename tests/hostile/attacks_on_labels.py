"""Attacks by the numbers, labels and form of an answer to a round."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from hostile.attack import (
    Attack,
    always_left_out,
    arrays,
    each,
    numbers,
    on,
    training,
    values,
)


def _weights(change: Any) -> Any:
    return arrays(lambda sent, honest: {**honest, "y/weights": change(honest["y/weights"])})


def _raw(dtype: str, shape: tuple[int, ...], content: bytes, kind: str = "numpy.ndarray") -> Any:
    return _weights(lambda weights: Array(dtype, shape, kind, content))


def _npy(array: np.ndarray) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _with_record(name: str, record: Any) -> Any:
    def change(question: Message, answer: Message) -> Message:
        answer.content[name] = record
        return answer

    return change


def _without_record(name: str) -> Any:
    def change(question: Message, answer: Message) -> Message:
        del answer.content[name]
        return answer

    return change


def _fails(question: Message, answer: Message) -> Message:
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, FORGED), reply_to=question)


FORGED = 'x\nround 2: a: left out\r\n9,d,"forged"\x1b[2J\u2028\u202e' + "y" * 9999  # looks like events of other sites
LABELS = [
    always_left_out(
        "rows times 10",
        "answers with ten times its rows",
        numbers(num_examples=600, weight=600.0),
        "num-examples is 600; it connected with 60",
    ),
    always_left_out(
        "rows of 1e15",
        "answers with 1e15 rows",
        numbers(num_examples=10**15, weight=1e15),
        "num-examples is 10+; it connected with 60",
    ),
    always_left_out("no rows", "answers with zero rows", numbers(num_examples=0, weight=0.0), "num-examples is 0; it"),
    always_left_out(
        "negative rows", "answers with -60 rows", numbers(num_examples=-60, weight=-60.0), "num-examples is -60; it"
    ),
    always_left_out(
        "rows as a float", "answers with 60.0 rows", numbers(num_examples=60.0), "num-examples is 60.0; it"
    ),
    always_left_out(
        "half a row", "answers with 60.5 rows", numbers(num_examples=60.5, weight=60.5), "num-examples is 60.5; it"
    ),
    always_left_out(
        "weight of another", "answers with weight 1e6", numbers(weight=1e6), r"weight is 1000000\.0; left out"
    ),
    always_left_out("weight nan", "answers with weight nan", numbers(weight=float("nan")), "weight is nan; left out"),
    always_left_out("negative weight", "answers with weight -60", numbers(weight=-60.0), "weight is -60.0; left out"),
    always_left_out("no weight", "answers without a weight", numbers(weight=None), "weight is None; left out"),
    always_left_out(
        "weight as a list", "answers with a list of weights", numbers(weight=[60.0, 60.0]), "weight is a list"
    ),
    always_left_out(
        "walked times 1e6",
        "says that it walked a million times as far",
        numbers(walked=lambda v: v * 1e6),
        "walked is .*follows from its steps",
    ),
    always_left_out("walked nan", "says that it walked nan", numbers(walked=float("nan")), "nan or inf in walked"),
    always_left_out(
        "walked back",
        "says that it walked backwards",
        numbers(walked=lambda v: -v),
        "walked is -.*follows from its steps",
    ),
    always_left_out("no walked", "does not say how far it walked", numbers(walked=None), "numbers are called"),
    always_left_out(
        "number of a wrong kind", "says how far it walked as a list", numbers(walked=[1.0]), "walked is a list"
    ),
    always_left_out(
        "another round's label",
        "labels its answer with another round",
        values(round=7),
        "answered for round 7 instead of 0",
        rounds=2,
    ),
    always_left_out(
        "another method's label",
        "labels its answer with another method",
        values(method="0" * 16),
        "answered for method '0000000000000000'",
    ),
    always_left_out(
        "another site's label",
        "labels its answer with a's name",
        values(site="a"),
        "answered for site 'a' instead of 'b'",
    ),
    always_left_out(
        "forged label",
        "puts lines of an event file into a label",
        values(method=FORGED),
        r"answered for method 'x\\nround",
    ),
    always_left_out("single precision", "answers in float32", each(lambda s, a: a.astype(np.float32)), "is float32"),
    always_left_out("whole numbers", "answers in int64", each(lambda s, a: a.astype(np.int64)), "is int64"),
    always_left_out(
        "another shape", "answers a matrix", _weights(lambda w: w.reshape(2, 2)), r"y/weights is float64\(2, 2\)"
    ),
    always_left_out(
        "broadcastable shape",
        "answers one number for all weights",
        _weights(lambda w: w[:1]),
        r"y/weights is float64\(1,\)",
    ),
    always_left_out(
        "other names",
        "calls its arrays otherwise",
        arrays(lambda s, a: {f"{n}s": v for n, v in a.items()}),
        "arrays are called",
    ),
    always_left_out(
        "one array more",
        "answers with an array more",
        arrays(lambda s, a: {**a, "more": np.zeros(9)}),
        "arrays are called",
    ),
    always_left_out(
        "one array less",
        "answers without intercept",
        arrays(lambda s, a: {"y/weights": a["y/weights"]}),
        "arrays are called",
    ),
    always_left_out(
        "huge shape", "declares an array of 2^40 numbers", _raw("float64", (2**20, 2**20), b"0" * 100), "y/weights says"
    ),
    always_left_out(
        "objects",
        "sends an array of Python objects",
        _raw("object", (4,), _npy(np.array([{}, 1, 2, 3], object))),
        "y/weights has the type 'object'",
    ),
    always_left_out(
        "pickle under another type",
        "sends pickled objects as float64",
        _raw("float64", (4,), _npy(np.array([{}, 1, 2, 3], object))),
        "y/weights cannot be read",
    ),
    always_left_out(
        "pickle",
        "says that its array is a pickle",
        _raw("float64", (4,), b"cos\nsystem\n(S'true'\ntR.", kind="pickle"),
        "y/weights cannot be read",
    ),
    always_left_out(
        "garbage", "sends random bytes", _raw("float64", (4,), bytes(range(100))), "y/weights cannot be read"
    ),
    always_left_out(
        "two records of arrays",
        "sends two models",
        _with_record("more", ArrayRecord({"x": Array(np.zeros(4))})),
        "2 records of arrays",
    ),
    always_left_out(
        "two records of numbers",
        "sends two weights",
        _with_record("more", MetricRecord({"weight": 1e9})),
        "2 records of numbers",
    ),
    always_left_out(
        "two records of labels",
        "sends two labels",
        _with_record("more", ConfigRecord({"site": "a"})),
        "2 records of plain values",
    ),
    always_left_out("no arrays", "sends labels only", _without_record("arrays"), "0 records of arrays"),
    always_left_out(
        "empty answer", "sends nothing", lambda question, answer: Message(RecordDict(), reply_to=question), "0 records"
    ),
    always_left_out(
        "forged error",
        "fails with a text that looks like events of other sites",
        _fails,
        r"failed: x\?round 2: a: left out\?",
        rounds=2,
    ),
    Attack("further numbers", "adds numbers that nobody asked for", on(training, numbers(loss=1e300, more=-1e300))),
]
