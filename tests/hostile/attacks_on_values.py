"""Attacks by the model that a site answers with."""

from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message

from hostile.attack import (
    Attack,
    always_left_out,
    arrays,
    each,
    in_round,
    on,
    training,
)
from hostile.attacked_run import ACCELERATED, HOSTILE, AttackedGrid, Fault


def _one_coordinate(value: float) -> Any:
    def change(sent: dict[str, np.ndarray], honest: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        weights = honest["y/weights"].copy()
        weights[1] = value
        return {**honest, "y/weights": weights}

    return arrays(change)


def _again(first: int, then: int) -> Any:
    """From round `then` on, the arrays answered in round `first`, under the labels of the round."""

    def attacker(grid: AttackedGrid) -> Fault:
        kept: dict[int, ArrayRecord] = {}

        def fault(site: str, question: Message, answer: Message) -> Message:
            if site == HOSTILE and in_round(question, first):
                kept[first] = answer.content.array_records["arrays"]
            if site == HOSTILE and training(question) and any(in_round(question, r) for r in range(then, 9)):
                answer.content["arrays"] = kept[first]
            return answer

        return fault

    return attacker


def _random_direction(sent: dict[str, np.ndarray], honest: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    norm = np.sqrt(sum(np.sum((honest[n] - sent[n]) ** 2) for n in honest))
    noise = {n: rng.standard_normal(a.shape) for n, a in honest.items()}
    size = np.sqrt(sum(np.sum(a**2) for a in noise.values()))
    return {n: sent[n] + noise[n] * norm / size for n in honest}


INF = float("inf")
FAR = r"moved .* times as far as its moments and the step sizes allow; left out"
SAME = "the same answer as before, though it was asked something else; left out"
LARGER = r"suspicious: its change is .* times the median of the other sites'"
NOTHING = "suspicious: its change is 0 times the median of the other sites'"
UNBOUNDED = {"loss_bounds": None}
VALUES = [
    always_left_out("values of 1e30", "answers 1e30 everywhere", each(lambda sent, a: a * 0 + 1e30), FAR),
    always_left_out(
        "values of 1.7e308", "answers almost the largest float", each(lambda s, a: a * 0 + 1.7e308), FAR, rounds=2
    ),
    always_left_out("values of -1.7e308", "the same, negative", each(lambda s, a: a * 0 - 1.7e308), FAR),
    always_left_out(
        "1.7e308, no bounds",
        "as above, where nothing is known of the loss",
        each(lambda s, a: a * 0 + 1.7e308),
        r"its change is inf times the median|its change is .*e\+\d+ times the median",
        settings={"loss_bounds": None},
        rounds=2,
    ),
    always_left_out(
        "nan",
        "answers nan",
        each(lambda sent, a: a * np.nan),
        "nan or inf in y/intercept, y/weights; left out",
        rounds=2,
    ),
    always_left_out(
        "inf", "answers inf", each(lambda sent, a: a * 0 + INF), "nan or inf in y/intercept, y/weights; left out"
    ),
    always_left_out(
        "nan in one number", "answers nan in one coordinate", _one_coordinate(np.nan), "nan or inf in y/weights"
    ),
    always_left_out("1e6 in one number", "answers 1e6 in one coordinate", _one_coordinate(1e6), FAR),
    always_left_out("change times -1e4", "turns and magnifies its change", each(lambda s, a: s - 1e4 * (a - s)), FAR),
    always_left_out("change times 100", "magnifies its change", each(lambda s, a: s + 100 * (a - s)), FAR, rounds=2),
    always_left_out("change times -10", "turns and magnifies its change", each(lambda s, a: s - 10 * (a - s)), FAR),
    Attack(
        "change times 100, no bounds",
        "as above, where nothing is known of the loss",
        on(training, each(lambda s, a: s + 100 * (a - s))),
        r"suspicious: its change is .* times the median of the other sites'",
        None,
        evaluated=None,
        settings={"loss_bounds": None},
        rounds=2,
    ),
    Attack(
        "change times -10, no bounds",
        "as above, where nothing is known of the loss",
        on(training, each(lambda s, a: s - 10 * (a - s))),
        r"suspicious: its change is .* times the median of the other sites'",
        None,
        evaluated=None,
        settings={"loss_bounds": None},
    ),
    Attack(
        "no work",
        "echoes the state",
        on(training, each(lambda sent, a: sent)),
        r"suspicious: its change is 0 times the median",
        None,
        evaluated=None,
        rounds=2,
    ),
    Attack(
        "no work, gradients",
        "echoes the state to gradient descent",
        on(training, each(lambda sent, a: sent)),
        r"suspicious: its change is 0 times the median",
        None,
        evaluated=None,
        settings={"method": ACCELERATED},
    ),
    Attack("last round's answer", "relabels its answer to the last round", _again(0, 1), SAME, range(1, 99), rounds=4),
    Attack(
        "first round's answer",
        "relabels its answer to round 1 from round 3 on",
        _again(0, 2),
        SAME,
        range(2, 99),
        rounds=4,
    ),
    Attack(
        "first round's gradient",
        "the same with gradient descent",
        _again(0, 2),
        SAME + "|" + FAR,
        range(2, 99),
        settings={"method": ACCELERATED},
        rounds=4,
    ),
]
OPEN = [
    Attack(
        "change turned",
        "answers with the opposite of its change",
        on(training, each(lambda s, a: 2 * s - a)),
        None,
        None,
        evaluated=None,
        rounds=3,
        open_because="a site whose labels are turned would answer so",
    ),
    Attack(
        "random direction",
        "a random change as long as its own",
        on(training, arrays(_random_direction)),
        None,
        None,
        evaluated=None,
        rounds=3,
        open_because="a site with other data would answer so",
    ),
    Attack(
        "change times 1.5",
        "magnifies its change a little",
        on(training, each(lambda s, a: s + 1.5 * (a - s))),
        None,
        None,
        evaluated=None,
        rounds=3,
        open_because="a site with more separable labels would answer so",
    ),
]
