"""Attacks by what a site says of itself when it connects."""

from typing import Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from hostile.attack import (
    Attack,
    hello,
    numbers,
    on,
    refused,
    training,
    values,
)
from hostile.attacked_run import config_of
from hostile.attacks_on_labels import FORGED


def introduces(name: str, does: str, change: Any, words: str, **more: Any) -> Attack:
    return refused(name, does, on(hello, change), words, **more)


def other_columns(question: Message, answer: Message) -> Message:
    config_of(answer)["columns"] = ["age", "weight", "dose", "salary"]
    return answer


def fails_with(text: str) -> Any:
    return lambda question, answer: Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, text), reply_to=question)


INTRODUCTIONS = [
    introduces("1e15 rows", "claims 1e15 rows", numbers(num_examples=10**15), "refused: b has 10+ examples"),
    introduces(
        "2e9 rows", "claims 2e9 rows", numbers(num_examples=2 * 10**9), "refused: b says that it has 2000000000 rows"
    ),
    introduces(
        "101 times the rows",
        "claims a little too many rows",
        numbers(num_examples=4100),
        "refused: b says that it has 4100 rows",
    ),
    Attack(
        "50 times the rows",
        "claims as many rows as are believed, also in its answers",
        on(
            lambda q: hello(q) or training(q),
            lambda q, a: numbers(num_examples=2000, **({"weight": 2000.0} if training(q) else {}))(q, a),
        ),
        r"look at its rows: 2000, 50 times the median of the other sites.",
        None,
        evaluated=None,
    ),
    introduces("no rows at hello", "claims zero rows", numbers(num_examples=0), "refused: b has 0 examples"),
    introduces("negative rows at hello", "claims -60 rows", numbers(num_examples=-60), "refused: b has -60 examples"),
    introduces(
        "rows as a float at hello", "claims 60.5 rows", numbers(num_examples=60.5), "refused: b has 60.5 examples"
    ),
    introduces(
        "rows as a list at hello",
        "claims a list of rows",
        numbers(num_examples=[60, 60]),
        "refused: num-examples is a list",
    ),
    introduces("name of another", "calls itself a", values(site="a"), "refused: b's key came under the name a"),
    introduces("name of nobody", "calls itself z", values(site="z"), "refused: b's key came under the name z"),
    introduces(
        "name of many lines",
        "has a name with line ends and terminal escapes",
        values(site="b\nround 2: a: left out\x1b[2J"),
        "refused: its name must have no control characters",
    ),
    introduces(
        "name of 10,000 characters",
        "has a long name",
        values(site="b" * 10_000),
        "refused: its name must have 1 to 64 characters",
    ),
    introduces(
        "name that is a number",
        "has a name of another kind",
        values(site=7),
        "refused: its name must have 1 to 64 characters",
    ),
    introduces(
        "fingerprint of 1 MB",
        "has a long fingerprint",
        values(fingerprint="f" * 2**20),
        "refused: b gives no proper fingerprint",
    ),
    introduces(
        "fingerprint that is a number",
        "has a fingerprint of another kind",
        values(fingerprint=3.5),
        "refused: b gives no proper fingerprint",
    ),
    introduces(
        "other columns",
        "has another column",
        other_columns,
        "refused: b has other columns than the others: column 4 is 'salary'",
    ),
    introduces(
        "no columns",
        "does not name its columns",
        values(columns=[1, 2, 3, 4]),
        "refused: b does not name its columns properly",
    ),
    introduces(
        "another shape of the model",
        "has a larger model",
        values(**{"shape.weights": [5]}),
        "refused: b has parameters of shapes",
    ),
    introduces(
        "huge model",
        "has a model of 2^60 numbers",
        values(**{"shape.weights": [2**30, 2**30]}),
        "refused: b has more than",
    ),
    introduces(
        "model of many axes",
        "has a model of 100,000 axes",
        values(**{"shape.weights": [2**40] * 100_000}),
        "refused: b has ",
    ),
    introduces(
        "model of many parts",
        "has a model of 100,000 parts",
        values(names=[f"part{i}" for i in range(100_000)]),
        "refused: b has ",
    ),
    introduces(
        "parts inside parts",
        "has a part inside another",
        values(names=["weights", "weights/0", "intercept"]),
        "refused: b has ",
    ),
    introduces(
        "forged error at hello",
        "fails with a text that looks like events",
        fails_with(FORGED),
        r"refused: x\?round 2: a: left out\?",
    ),
    introduces("empty introduction", "says nothing", lambda q, a: (a.content.clear(), a)[1], "refused: 0 records"),
    introduces(
        "fewer columns", "has a column less", values(columns=["age"]), "refused: b has other columns than the others"
    ),
]
