"""One hostile site: no attack ruins or stops a run unseen, and no honest site is blamed for it."""

import csv
import io
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedlocal.flower import Outcome, Strategy
from fedlocal.flower.coordinator import waiting
from hostile.attack import (
    EVERYONE,
    Attack,
    about_moments,
    arrays,
    arrays_of,
    evaluation,
    hello,
    on,
    training,
    values,
)
from hostile.attacked_run import (
    ACCELERATED,
    DUAL_AVERAGING,
    ETA,
    HONEST,
    HOSTILE,
    L1,
    NODES,
    SIZES,
    STEPS,
    AttackedGrid,
    Fault,
    attacked,
    chosen_step_size,
    expected,
    gradient,
    loss,
    model_of,
)
from hostile.site_attacks import ALL, ATTACKS, OPEN
from quiet_flower import _quiet_and_quick  # noqa: F401  (around every test)


@pytest.fixture(autouse=True)
def _no_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites that are gone are hardly waited for."""
    monkeypatch.setattr(waiting, "RETURN_SECONDS", 0.05)


OTHER_NUMBERS = {  # attacks that meet the same check as another one of the list, with another number
    *("101 times the rows", "negative rows at hello", "name of nobody", "moments inf", "negative count"),
    *("squares of 1e302", "means of 1e140", "few values wide apart", "curvature inf", "values of 1e30"),
    *("values of -1.7e308", "inf", "nan in one number", "change times -1e4", "change times -10", "rows of 1e15"),
    *("no rows", "negative rows", "half a row", "negative weight", "walked back", "whole numbers"),
    *("broadcastable shape", "one array less", "loss inf", "loss of 1e300", "first round's answer"),
}
CHOSEN = [pytest.param(name, marks=pytest.mark.thorough) if name in OTHER_NUMBERS else name for name in ATTACKS]


@pytest.mark.parametrize("name", CHOSEN)
def test_an_attack_is_resisted_or_detected(name: str, tmp_path: Path):
    attack = ATTACKS[name]
    run = attacked(attack.attacker, rounds=attack.rounds, **attack.settings)
    assert run.done == attack.rounds
    said = [event.what for event in run.events if event.site == HOSTILE]
    assert {event.what for event in run.events if event.site in HONEST} == {"connected"}
    if attack.words is not None:
        assert any(re.search(attack.words, what) for what in said), said
    if attack.left_out is not None:
        moments = EVERYONE if attack.in_moments else HONEST
        present = [HONEST if r in attack.left_out else EVERYONE for r in range(attack.rounds)]
        eta = chosen_step_size(HONEST) if attack.chosen_without else ETA
        wanted = expected(present, moments, attack.settings.get("method"), eta)
        np.testing.assert_allclose(model_of(run), wanted, rtol=0, atol=1e-9)
        if attack.evaluated is not None:
            of_sites = loss(model_of(run), attack.evaluated, moments)
            np.testing.assert_allclose(run.history[-1]["loss"], of_sites, rtol=1e-9)
    if attack.no_gap:
        assert "duality_gap" not in run.history[-1]
    assert np.isfinite(model_of(run)).all()
    _check_files(run, tmp_path)


def _check_files(run: Strategy, folder: Path) -> None:
    """A line of events.csv for each event, and nothing that a terminal would obey."""
    Outcome.of(run).save(folder)
    text = (folder / "events.csv").read_bytes().decode()
    lines = list(csv.reader(io.StringIO(text, newline="")))
    assert len(lines) == len(text.splitlines()) == len(run.events) + 1
    assert all(int(line[0]) <= run.done + 1 and line[1] in {"", *SIZES, "node 9"} for line in lines[1:])
    assert all(character.isprintable() for line in text.splitlines() for character in line)


@pytest.mark.parametrize("name", ["name of many lines", "forged error at hello", "forged error", "forged label"])
def test_nobody_writes_lines_on_the_screen(name: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "fedlocal")
    attacked(ATTACKS[name].attacker)
    assert any("round 2: a: left out" in message for message in caplog.messages)  # inside a line of b's
    assert all(message.isprintable() and len(message) < 2500 for message in caplog.messages)
    assert not any(message.startswith("round 2: a") for message in caplog.messages)


def _looks_optimal(question: Message, answer: Message) -> Message | None:
    """The gradient with which that of all sites is what the l1 penalty balances, so that there is no gap."""
    sent = arrays_of(question)
    x = np.append(sent["x/weights"], sent["x/intercept"])
    others = sum(SIZES[site] * gradient(site, x, frozenset(SIZES)) for site in HONEST)
    balanced = -L1 * np.append(np.sign(sent["x/weights"]), 0.0)
    own = (sum(SIZES.values()) * balanced - others) / SIZES[HOSTILE]
    return arrays(lambda s, a: {"weights": own[:-1], "intercept": own[-1:].reshape(a["intercept"].shape)})(
        question, answer
    )


def test_a_false_certificate_does_not_end_a_run():
    """One false gradient makes the first model look optimal; the next one contradicts it, and the site is named."""
    attacker = on(evaluation, _looks_optimal)
    run = attacked(attacker, rounds=4, eval_every=1, tol=1e-6, method=ACCELERATED)
    assert run.history[0]["duality_gap"] < 1e-6
    assert (run.done, run.converged) == (4, False)
    assert any("not of the same data" in event.what for event in run.events if event.site == HOSTILE)


LOUD = ["change times 100, no bounds", "change times -10, no bounds"]
SHARE = {"median": 0.7, "trimmed": 0.7, "norm-bounded": 0.3}  # of what the loss falls without the attack


FALSE_CHANGES = [*OPEN, *(ATTACKS[name] for name in LOUD)]
CASES = [  # each attack with one rule in the ordinary run, and each rule with two attacks at least
    pytest.param(attack, rule, id=f"{attack.name}-{rule}", marks=() if (i + j) % 3 == 0 else pytest.mark.thorough)
    for i, attack in enumerate(FALSE_CHANGES)
    for j, rule in enumerate(SHARE)
]


@pytest.mark.parametrize(("attack", "aggregate"), CASES)
def test_robust_means_bound_what_a_false_change_does(attack: Attack, aggregate: str):
    run = attacked(attack.attacker, rounds=3, aggregate=aggregate, **attack.settings)
    falls = np.log(2) - loss(expected([HONEST] * 3), HONEST)
    assert np.log(2) - loss(model_of(run), HONEST) > SHARE[aggregate] * falls


def test_the_mean_is_not_robust():
    """What the tests above would not let pass."""
    run = attacked(ATTACKS["change times -10, no bounds"].attacker, rounds=3, loss_bounds=None)
    assert loss(model_of(run), HONEST) > np.log(2)


def test_names_of_columns_are_cleaned_where_they_decide(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Of two sites the first names the columns, for there is no majority."""
    caplog.set_level(logging.INFO, "fedlocal")
    forged = values(columns=["age\n9,d,forged\x1b[2J", "weight", "dose", "pressure"])

    def attacker(grid: AttackedGrid) -> Fault:
        grid.contexts = {node: context for node, context in grid.contexts.items() if node in (1, 2)}
        return lambda site, question, answer: forged(question, answer) if hello(question) and site == "a" else answer

    run = attacked(attacker, sites=["a", "b"], nodes={"a": 1, "b": 2})
    Outcome.of(run).save(tmp_path)
    for file in tmp_path.glob("*.csv"):
        assert all(line.isprintable() and not line.startswith("9,d") for line in file.read_text().splitlines())
    assert all(message.isprintable() for message in caplog.messages)


class UnreadableGrid(AttackedGrid):
    """Reads replies when they are asked for, as Flower's own grid does: from the bytes that a site has pushed."""

    def __init__(self, broken: bytes, kind: Callable[[Message], bool]):
        super().__init__(lambda grid: lambda site, question, answer: answer)
        self.broken, self.kind, self.unread = broken, kind, set[str]()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        ids = list(super().push_messages(messages))
        to_hostile = (m.metadata.dst_node_id == NODES[HOSTILE] and self.kind(m) for m in messages)
        self.unread |= {i for i, is_broken in zip(ids, to_hostile, strict=True) if is_broken}
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        if wanted & self.unread:
            self.unread -= wanted  # Flower has confirmed it by then, and gives none of these replies again
            for i in wanted:
                self.waiting.pop(i, None)
            inflate_object_from_contents("reply", {"reply": self.broken})
        return super().pull_messages(wanted)


@pytest.mark.parametrize("kind", [hello, about_moments, training, evaluation])
@pytest.mark.parametrize("broken", [b"ConfigRecord  3\0\xff\xff\xff", b"Message  3\0\xff\xff\xff"])
def test_a_reply_that_cannot_be_read_does_not_stop_a_run(broken: bytes, kind: Callable[[Message], bool]):
    """Flower's coordinator checks the head of what a site pushes, and its grid fails when it reads the rest."""
    settings: dict[str, Any] = {"local_steps": STEPS, "patience": 0.3, "standardize": True}
    strategy = Strategy(DUAL_AVERAGING, rounds=2, sites=list(SIZES), nodes=NODES, **settings)
    strategy.start(UnreadableGrid(broken, kind), timeout=1.0)
    assert strategy.done == 2
    said = {event.what for event in strategy.events if event.site == HOSTILE}
    assert any("its answer cannot be read" in what for what in said)
    assert {event.what for event in strategy.events if event.site in HONEST} == {"connected"}


def test_names_are_different():
    assert len(ATTACKS) == len(ALL)
    assert ATTACKS.keys() > OTHER_NUMBERS
