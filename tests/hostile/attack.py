"""What an attack is, and how answers of the hostile site are changed."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType

from fedlocal.flower.messages.records import from_record
from hostile.attacked_run import HONEST, HOSTILE, SIZES, AttackedGrid, Attacker, Fault, config_of

EVERYONE = frozenset(SIZES)
ALWAYS = range(99)
Change = Callable[[Message, Message], Message | None]  # (question, answer) -> the answer that arrives


@dataclass(frozen=True)
class Attack:
    """One site's attack. Resisted: the model is that of the transcripts. Detected: an event names the site."""

    name: str
    does: str  # what the site does
    attacker: Attacker
    words: str | None = None  # an event of the hostile site says this
    left_out: Collection[int] | None = ()  # rounds in which its answer does not count; None: the model is another one
    in_moments: bool = True  # whether columns are standardised with its moments
    evaluated: Collection[str] | None = EVERYONE  # the sites of the last evaluation; None: its loss is not compared
    no_gap: bool = False  # whether there is no duality gap because of it
    rounds: int = 1
    chosen_without: bool = False  # whether the step size is chosen without its curvature
    settings: Mapping[str, Any] = field(default_factory=dict)
    open_because: str | None = None  # why it is neither resisted nor detected

    @property
    def outcome(self) -> str:
        if self.open_because is not None:
            return "open"
        return "detected" if self.left_out is None else "resisted"


def refused(name: str, does: str, attacker: Attacker, words: str, **more: Any) -> Attack:
    """The hostile site never takes part."""
    return Attack(name, does, attacker, words, ALWAYS, in_moments=False, evaluated=HONEST, **more)


def always_left_out(name: str, does: str, change: Change, words: str, **more: Any) -> Attack:
    """Every answer to a round is wrong, and left out."""
    return Attack(name, does, on(training, change), words, ALWAYS, **more)


def on(which: Callable[[Message], bool], change: Change) -> Attacker:
    """The hostile site changes its answers to these questions."""

    def attacker(grid: AttackedGrid) -> Fault:
        def fault(site: str, question: Message, answer: Message) -> Message | None:
            return change(question, answer) if site == HOSTILE and which(question) else answer

        return fault

    return attacker


# questions


def training(question: Message) -> bool:
    return question.metadata.message_type == MessageType.TRAIN


def in_round(question: Message, r: int) -> bool:
    """Whether a question is of this round, counted from 0."""
    return training(question) and config_of(question)["settings.round"] == r


def evaluation(question: Message) -> bool:
    return question.metadata.message_type == MessageType.EVALUATE and "certificate" in config_of(question)


def hello(question: Message) -> bool:
    return question.metadata.message_type == MessageType.QUERY and config_of(question).get("moments") is False


def about_moments(question: Message) -> bool:
    return question.metadata.message_type == MessageType.QUERY and config_of(question).get("moments") is True


def about_curvature(question: Message) -> bool:
    return question.metadata.message_type == MessageType.QUERY and "curvature" in config_of(question)


# changes


def arrays_of(message: Message) -> dict[str, np.ndarray]:
    return from_record(next(iter(message.content.array_records.values())))


def arrays(change: Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], Mapping[str, Any]]) -> Change:
    """Other arrays, from what was sent and what an honest site would answer; Flower's own Array goes as it is."""

    def changed(question: Message, answer: Message) -> Message:
        sent = arrays_of(question) if question.content.array_records else {}
        new = change(sent, arrays_of(answer))
        as_arrays = {name: a if isinstance(a, Array) else Array(np.asarray(a)) for name, a in new.items()}
        answer.content["arrays"] = ArrayRecord(as_arrays)
        return answer

    return changed


def each(change: Callable[[np.ndarray, np.ndarray], Any]) -> Change:
    """Every array changed, from what was sent and what an honest site would answer."""
    return arrays(lambda sent, honest: {name: change(sent.get(name, a * 0), a) for name, a in honest.items()})


def numbers(**changes: Any) -> Change:
    """Other numbers; a function changes an honest one, None takes it away. `num_examples` is num-examples."""

    def changed(question: Message, answer: Message) -> Message:
        record: Any = next(iter(answer.content.metric_records.values()))
        for name, value in ((name.replace("_", "-"), value) for name, value in changes.items()):
            if value is None:
                del record[name]
            else:
                record[name] = value(record[name]) if callable(value) else value
        return answer

    return changed


def values(**changes: Any) -> Change:
    """Other plain values; None takes one away."""

    def changed(question: Message, answer: Message) -> Message:
        for name, value in changes.items():
            config_of(answer)[name] = value
        return answer

    return changed


def both(*changes: Change) -> Change:
    """Several changes, one after another."""

    def changed(question: Message, answer: Message) -> Message | None:
        for change in changes:
            answer = change(question, answer)  # pyright: ignore[reportAssignmentType]
        return answer

    return changed
