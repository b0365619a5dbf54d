"""Attacks by when a site is there, how often it answers, and for whom."""

from typing import Any

from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from hostile.attack import (
    ALWAYS,
    Attack,
    about_moments,
    arrays,
    arrays_of,
    hello,
    in_round,
    numbers,
    on,
    refused,
    training,
    values,
)
from hostile.attacked_run import HONEST, HOSTILE, NODES, AttackedGrid, Fault
from hostile.attacks_on_introductions import other_columns


def _nameless(grid: AttackedGrid) -> Fault:
    """A second node under the name of the hostile site."""
    grid.connect(9, HOSTILE, "a")
    return lambda site, question, answer: answer


def _first_with_other_columns(grid: AttackedGrid) -> Fault:
    """Is there before all others, and claims another column."""
    later = {node: grid.contexts.pop(node) for site, node in NODES.items() if site != HOSTILE}

    def fault(site: str, question: Message, answer: Message) -> Message:
        grid.contexts.update(later)
        return other_columns(question, answer) if site == HOSTILE and hello(question) else answer

    return fault


def _returns(change: Any) -> Any:
    """Leaves after round 1 and comes back with another introduction."""

    def attacker(grid: AttackedGrid) -> Fault:
        gone = []

        def fault(site: str, question: Message, answer: Message) -> Message | None:
            if site == HOSTILE and in_round(question, 1) and not gone:
                gone.append(site)
                return None
            return change(question, answer) if site == HOSTILE and gone and hello(question) else answer

        return fault

    return attacker


def _comes_and_goes(grid: AttackedGrid) -> Fault:
    """Is away when the answers of a round are collected, and back before the next."""

    def fault(site: str, question: Message, answer: Message) -> Message:
        away = Error(ErrorCode.NODE_UNAVAILABLE, "node not available")
        return Message(away, reply_to=question) if site == HOSTILE and training(question) else answer

    return fault


def _disconnects(grid: AttackedGrid) -> Fault:
    """Is not connected when a round begins, from the second on."""
    context = grid.contexts[NODES[HOSTILE]]

    def fault(site: str, question: Message, answer: Message) -> Message:
        if in_round(question, 0):
            grid.contexts.pop(NODES[HOSTILE], None)
        if in_round(question, 1):
            grid.contexts[NODES[HOSTILE]] = context
        return answer

    return fault


def _late_with_other_moments(grid: AttackedGrid) -> Fault:
    """Comes when the first round is asked, with deviations that would allow for any gradient."""
    context = grid.contexts.pop(NODES[HOSTILE])
    wide = arrays(lambda sent, honest: {**honest, "squares": honest["squares"] * 1e30})

    def fault(site: str, question: Message, answer: Message) -> Message:
        if in_round(question, 0):
            grid.contexts[NODES[HOSTILE]] = context
        return wide(question, answer) if site == HOSTILE and about_moments(question) else answer  # pyright: ignore

    return fault


def _late(grid: AttackedGrid) -> Fault:
    """Its answer to a round comes when the next has begun."""
    held: list[Message] = []

    def fault(site: str, question: Message, answer: Message) -> Message | None:
        if site != HOSTILE or not training(question):
            return answer
        grid.after += held
        held[:] = [answer]
        return None

    return fault


def _again(grid: AttackedGrid) -> Fault:
    """Introduces itself twice."""

    def fault(site: str, question: Message, answer: Message) -> Message:
        if site == HOSTILE and hello(question):
            grid.after.append(answer)
        return answer

    return fault


def _introduces_another(grid: AttackedGrid) -> Fault:
    """Introduces a, before a does, with too many rows."""

    def fault(site: str, question: Message, answer: Message) -> Message:
        if site == "a" and hello(question):
            forged = Message(answer.content, reply_to=question)
            forged.metadata.__dict__["_src_node_id"] = NODES[HOSTILE]
            grid.before.append(forged)
            return Message(answer.content, reply_to=question)
        return answer

    return fault


def _twice(same: bool) -> Any:
    def attacker(grid: AttackedGrid) -> Fault:
        def fault(site: str, question: Message, answer: Message) -> Message:
            if site == HOSTILE and training(question):
                again = Message(RecordDict(dict(answer.content.items())), reply_to=question)
                if not same:
                    again.content["arrays"] = ArrayRecord({n: Array(0.9 * a) for n, a in arrays_of(answer).items()})
                grid.after.append(again)
            return answer

        return fault

    return attacker


def _answers_for_another(grid: AttackedGrid) -> Fault:
    """Answers the messages to a before a does, with a's labels."""

    def fault(site: str, question: Message, answer: Message) -> Message:
        if site == "a" and training(question):
            forged = Message(RecordDict(dict(answer.content.items())), reply_to=question)
            forged.content["arrays"] = ArrayRecord({n: Array(0.9 * a) for n, a in arrays_of(answer).items()})
            forged.metadata.__dict__["_src_node_id"] = 2
            grid.before.append(forged)
        return answer

    return fault


PRESENCE = [
    refused(
        "first with other columns",
        "is the first to connect, with another column",
        _first_with_other_columns,
        "refused: b has other columns than the others: column 4 is 'salary'",
    ),
    Attack("two introductions", "introduces itself twice", _again),
    Attack("introduction of another", "introduces a, before a does", _introduces_another),
    Attack("second node", "connects a second node under its name", _nameless),
    Attack(
        "other rows on return",
        "comes back with other rows",
        _returns(numbers(num_examples=61)),
        "refused: b came back with 61 rows; it began this run with 60",
        range(1, 99),
        evaluated=HONEST,
        rounds=3,
        settings={"timeout": 0.1},
    ),
    Attack(
        "other data on return",
        "comes back with another fingerprint",
        _returns(values(fingerprint="0" * 16)),
        "refused: b came back with other data",
        range(1, 99),
        evaluated=HONEST,
        rounds=3,
        settings={"timeout": 0.1},
    ),
    Attack(
        "other columns on return",
        "comes back with another column",
        _returns(other_columns),
        "refused: b has other columns",
        range(1, 99),
        evaluated=HONEST,
        rounds=3,
        settings={"timeout": 0.1},
    ),
    Attack(
        "goes in every round",
        "is gone when answers are collected",
        _comes_and_goes,
        "no answer in time; left out",
        ALWAYS,
        settings={"timeout": 0.1},
        rounds=3,
    ),
    Attack(
        "disconnects",
        "is not connected when the second round begins",
        _disconnects,
        "not connected; left out",
        {1},
        settings={"timeout": 0.1},
        rounds=3,
    ),
    Attack(
        "late with other moments",
        "is there from the second round on, with moments that allow for anything",
        _late_with_other_moments,
        "look at age: mean .* and deviation .* here",
        {0},
        in_moments=False,
        rounds=2,
        settings={"timeout": 0.1},
    ),
    Attack(
        "late answers",
        "answers a round when the next has begun",
        _late,
        "no answer in time; left out",
        ALWAYS,
        settings={"timeout": 0.1},
        rounds=3,
    ),
    refused(
        "no hello",
        "is connected and never says who it is",
        on(hello, lambda q, a: None),
        "not connected; left out",
        settings={"timeout": 0.1},
    ),
    Attack(
        "silence",
        "never answers a round",
        on(training, lambda question, answer: None),
        "not asked, for it did not answer again and again",
        ALWAYS,
        rounds=3,
        settings={"timeout": 0.1},
    ),
    Attack("two equal answers", "answers every round twice", _twice(True), rounds=2),
    Attack("two different answers", "answers every round twice, differently", _twice(False), rounds=2),
    Attack("answers for another", "answers what a was asked, before a does", _answers_for_another, rounds=2),
]
