"""Attacks by what a site says of the model: losses, gradients and what a certificate is made of."""

from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message

from hostile.attack import Attack, arrays, both, each, evaluation, numbers, on, values
from hostile.attacked_run import ACCELERATED, HONEST, config_of


def left_out(name: str, does: str, change: Any, words: str, **more: Any) -> Attack:
    """What the site says of the model does not count."""
    return Attack(name, does, on(evaluation, change), words, evaluated=HONEST, settings={"method": ACCELERATED}, **more)


def no_gap(name: str, does: str, attacker: Any, words: str, **settings: Any) -> Attack:
    """The loss counts; there is no duality gap, and everybody is told because of whom."""
    return Attack(name, does, attacker, words, no_gap=True, settings={"method": ACCELERATED, **settings})


def _without(record: str) -> Any:
    def change(question: Message, answer: Message) -> Message:
        del answer.content[record]
        return answer

    return change


def _with_config(question: Message, answer: Message) -> Message:
    answer.content["more"] = ConfigRecord({"kind": "squares"})
    return answer


def later_evaluation(question: Message) -> bool:
    return evaluation(question) and int(str(config_of(question)["settings.round"])) > 1


NOT_ITS = "its loss is .*left out"
EVALUATIONS = [
    left_out("loss nan", "says that its loss is nan", numbers(loss=float("nan")), "its loss is nan; left out"),
    left_out("loss inf", "says that its loss is inf", numbers(loss=float("inf")), "its loss is inf; left out"),
    left_out("loss of 1e300", "says that its loss is 1e300", numbers(loss=1e300), NOT_ITS),
    left_out("loss of 1e30", "says that its loss is 1e30", numbers(loss=1e30), NOT_ITS),
    left_out("loss of -1e30", "says that its loss is -1e30", numbers(loss=-1e30), NOT_ITS),
    left_out("no loss", "does not say its loss", numbers(loss=None), "it gives no loss; left out"),
    left_out("loss as a list", "says a list of losses", numbers(loss=[0.1]), "loss is a list"),
    left_out(
        "rows in an evaluation",
        "has other rows",
        numbers(num_examples=61, weight=61.0),
        "num-examples is 61; it connected with 60",
    ),
    left_out(
        "gradient of 1e30",
        "has a gradient of 1e30",
        each(lambda s, g: g * 0 + 1e30),
        "its gradient is .* times as large as its moments allow",
    ),
    left_out("gradient nan", "has a gradient of nan", each(lambda s, g: g * np.nan), "its gradient is not finite"),
    left_out(
        "gradient of another shape",
        "has a gradient of a matrix",
        arrays(lambda s, g: {**g, "weights": g["weights"].reshape(2, 2)}),
        "array 'weights' must be",
    ),
    left_out(
        "gradient in single precision",
        "has a gradient in float32",
        each(lambda s, g: g.astype(np.float32)),
        "must be float64",
    ),
    left_out(
        "gradient of other names",
        "has a gradient of other arrays",
        arrays(lambda s, g: {"x": g["weights"]}),
        "arrays do not match",
    ),
    left_out("no kind", "does not say what its losses are", _without("config"), "0 records of plain values"),
    left_out("two kinds", "says twice what its losses are", _with_config, "2 records of plain values"),
    left_out(
        "another kind", "says that its losses are squares", values(kind="squares"), "its loss is of kind .*left out"
    ),
    left_out("unknown kind", "says that its losses are unknown", values(kind="other"), "kind .*left out"),
    left_out("another l2", "says that it has a small l2 penalty", numbers(l2=0.01), "with l2 = 0.01.*left out"),
    left_out(
        "large l2", "says that it has a large l2 penalty", numbers(l2=0.5), "an entropy, from 0 to log 2; left out"
    ),
    left_out("l2 of nan", "says that its l2 penalty is nan", numbers(l2=float("nan")), "its l2 is nan"),
    left_out("no l2", "does not say its l2 penalty", numbers(l2=None), "l2.*left out"),
    no_gap(
        "no gradient",
        "keeps its gradient back",
        on(evaluation, both(_without("arrays"), _without("config"), numbers(l2=None))),
        "gives no gradient",
    ),
    left_out(
        "an evaluation of zeros",
        "says that its loss and its gradient are zero, which agree with each other",
        both(each(lambda s, g: g * 0), numbers(loss=0.0)),
        "its loss is 0, and its moments allow for .*left out",
    ),
    left_out("loss of zero", "says that its loss is zero", numbers(loss=0.0), NOT_ITS),
    Attack(
        "loss less by 0.01, later",
        "says that its loss is a little less, from the second evaluation on",
        on(later_evaluation, numbers(loss=lambda value: value - 0.01)),
        "not of the same data as at the model before.*left out",
        evaluated=HONEST,
        settings={"method": ACCELERATED, "eval_every": 1},
        rounds=2,
    ),
]
