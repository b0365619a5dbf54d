"""Who is there: the registry, how long one waits, and how often one asks."""

import json
import re
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from fedlocal.data.moments import Moments
from fedlocal.flower.checks.site_moments import SiteMoments
from fedlocal.flower.coordinator import site_registry as roll_module
from fedlocal.flower.coordinator import waiting
from fedlocal.flower.coordinator.site_registry import SiteRegistry
from fedlocal.flower.coordinator.waiting import Deadline
from fedlocal.flower.messages.grids import PollingGrid
from fedlocal.flower.messages.model_signature import ModelSignature
from fedlocal.flower.messages.records import to_record
from fedlocal.util import serialization
from unit.flower.flower_sites import Sites, app_of, configuration, node


@pytest.mark.parametrize("sites", [[], "abc", ["a", "a"]])
def test_sites_are_a_number_or_different_names(sites: Any):
    with pytest.raises(ValueError, match="Strategy: sites must be a number, or a list of different names"):
        SiteRegistry("Strategy", sites)


@pytest.mark.parametrize("sites", [0, -1])
def test_there_is_at_least_one_site(sites: int):
    with pytest.raises(ValueError, match="Strategy: sites must be"):
        SiteRegistry("Strategy", sites)


def test_everyone_is_asked_once():
    registry, grid = SiteRegistry("Strategy", list("abc")), Sites()
    assert registry.update(grid) == [(name, "connected") for name in "abc"]
    assert registry.update(grid) == []
    assert len(grid.questions) == 3
    assert registry.online(grid) == {"a": 1, "b": 2, "c": 3}
    assert registry.examples == {"a": 6, "b": 6, "c": 6}
    assert registry.agree() == []
    assert registry.signature == ModelSignature({"weights": (2, 3), "intercept": ()}, None)
    x = registry.parameters(np.float32)
    assert {name: (a.shape, a.dtype) for name, a in x.items()} == {
        "weights": ((2, 3), np.float32),
        "intercept": ((), np.float32),
    }


def test_a_name_counts_with_its_own_key_only():
    """Nodes 1, 2 and 3 say that they are a, b and c."""
    registry, grid = SiteRegistry("Strategy", list("abc"), {"a": 1, "b": 3, "c": 2}), Sites()
    assert registry.update(grid) == [
        ("a", "connected"),
        ("b", "refused: b's key came under the name c"),
        ("c", "refused: c's key came under the name b"),
    ]
    assert registry.online(grid) == {"a": 1}


def test_a_key_that_is_registered_later_counts_then(monkeypatch: pytest.MonkeyPatch):
    nodes = {"a": 1, "c": 3}
    registry, grid = SiteRegistry("Strategy", list("abc"), nodes), Sites()
    refused = ("node 2", "refused: a key that is no site's came under the name b")
    assert registry.update(grid) == [("a", "connected"), ("c", "connected"), refused]
    nodes["b"] = 2
    monkeypatch.setattr(roll_module, "REFUSED_SECONDS", 0.0)
    assert registry.update(grid) == [("b", "connected")]


def test_who_did_not_answer_is_asked_again():
    registry, grid = SiteRegistry("Strategy", list("abc")), Sites()
    registry.update(grid)
    registry.mark_unreachable("b")
    assert registry.online(grid) == {"a": 1, "c": 3}
    assert registry.update(grid) == [("b", "connected")]


def test_a_slow_answer_is_heard_later():
    held: list[Message] = []

    def fault(site: str, question: Message, answer: Message) -> Message | None:
        if site == "b" and not held:
            held.append(answer)
            return None
        return answer

    registry, grid = SiteRegistry("Strategy", list("abc")), Sites(fault=fault)
    assert registry.update(grid) == [("a", "connected"), ("c", "connected")]
    assert registry.update(grid) == []  # it is not asked a second time
    grid.waiting[held[0].metadata.reply_to_message_id] = held[0]
    assert registry.update(grid) == [("b", "connected")]
    assert len(grid.questions) == 3


def test_a_node_that_was_away_is_asked_again():
    first = []

    def fault(site: str, question: Message, answer: Message) -> Message:
        if site == "b" and not first:
            first.append(site)
            return Message(Error(ErrorCode.NODE_UNAVAILABLE, "away"), reply_to=question)
        return answer

    registry, grid = SiteRegistry("Strategy", list("abc")), Sites(fault=fault)
    assert registry.update(grid) == [("a", "connected"), ("c", "connected")]
    assert registry.update(grid) == [("b", "connected")]


def _introduce(config: dict[str, Any], numbers: dict[str, Any]) -> RecordDict:
    return RecordDict({"config": ConfigRecord(config), "metrics": MetricRecord(numbers)})


PROPER = {"site": "b", "names": ["intercept", "weights"], "shape.intercept": [], "shape.weights": [2, 3]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (RecordDict(), "0 records"),
        (_introduce({}, {"num-examples": 6}), "its name must have 1 to 64 characters, got 'None'"),
        (_introduce({**PROPER, "site": 3}, {"num-examples": 6}), "its name must have 1 to 64 characters"),
        (_introduce({**PROPER, "site": "b" * 65}, {"num-examples": 6}), "its name must have 1 to 64 characters"),
        (_introduce(PROPER, {}), "b has None examples"),
        (_introduce(PROPER, {"num-examples": 6.0}), "b has 6.0 examples"),
        (_introduce({**PROPER, "names": "weights"}, {"num-examples": 6}), "b does not name its parameters"),
        (_introduce({**PROPER, "shape.weights": [-2, 3]}, {"num-examples": 6}), "without a proper shape"),
        (_introduce({**PROPER, "shape.weights": "2"}, {"num-examples": 6}), "without a proper shape"),
        (_introduce({**PROPER, "shape.weights": [10**7, 10**7]}, {"num-examples": 6}), "more than 1000000000"),
        (_introduce({**PROPER, "names": ["a", "a/b"]}, {"num-examples": 6}), "one is inside another"),
        (_introduce({**PROPER, "columns": [1, 2]}, {"num-examples": 6}), "does not name its columns"),
        (_introduce({**PROPER, "site": "z"}, {"num-examples": 6}), "z is not one of the 3 sites"),
        (_introduce(PROPER, {"num-examples": 0}), "b has 0 examples"),
    ],
)
def test_a_wrong_introduction_is_refused(content: RecordDict, words: str):
    def fault(site: str, question: Message, answer: Message) -> Message:
        return Message(content, reply_to=question) if site == "b" else answer

    registry, grid = SiteRegistry("Strategy", list("abc")), Sites(fault=fault)
    news = registry.update(grid)
    assert [name for name, _ in news] == ["a", "c", "node 2"]
    assert news[-1][1].startswith("refused: ")
    assert re.search(words, news[-1][1])
    assert "b" not in registry.online(grid)
    assert registry.update(grid) == []


def test_a_refused_node_may_come_back_in_order():
    registry, grid = SiteRegistry("Strategy", ["a", "b"]), Sites(sites={"a": {"m": 0}, "z": {"m": 1}})
    assert [name for name, _ in registry.update(grid)] == ["a", "node 2"]
    del grid.contexts[2]
    assert registry.online(grid) == {"a": 1}
    grid.contexts[2] = node(2, "b", 1)
    assert registry.update(grid) == [("b", "connected")]


def test_a_roll_is_kept_and_taken_up():
    registry, grid = SiteRegistry("Strategy", list("abc")), Sites()
    registry.update(grid)
    kept = json.loads(json.dumps(registry.to_json()))
    again = SiteRegistry("Strategy", 3)
    again.resume(kept)
    assert (again.names, again.examples) == (["a", "b", "c"], {"a": 6, "b": 6, "c": 6})


def test_most_sites_decide_on_the_form_of_the_model():
    """The first to answer may be the one that is wrong."""

    def fault(site: str, question: Message, answer: Message) -> Message:
        wrong = {**PROPER, "site": "a", "shape.weights": [2, 4]}
        return Message(_introduce(wrong, {"num-examples": 6}), reply_to=question) if site == "a" else answer

    registry, grid = SiteRegistry("Strategy", list("abc")), Sites(fault=fault)
    assert registry.update(grid) == [(name, "connected") for name in "abc"]
    ((who, why),) = registry.agree()
    assert who == "node 1"
    assert "a has parameters of shapes {'intercept': (), 'weights': (2, 4)}" in why
    assert sorted(registry.online(grid)) == ["b", "c"]
    assert sorted(registry.examples) == ["b", "c"]


def test_two_nodes_of_one_name_do_not_take_turns():
    registry, grid = SiteRegistry("Strategy", ["a", "b"]), Sites(sites={"a": {"m": 0}, "b": {"m": 1}})
    registry.update(grid)
    grid.contexts[7] = node(7, "b", 1)
    assert registry.update(grid) == [("node 7", "refused: b is connected from another node")]
    assert registry.update(grid) == []
    assert registry.online(grid) == {"a": 1, "b": 2}


def test_refused_nodes_and_lost_hellos_are_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch):
    now, silent = [1000.0], [True]
    monkeypatch.setattr(roll_module.time, "monotonic", lambda: now[0])

    def fault(site: str, question: Message, answer: Message) -> Message | None:
        return None if silent[0] and site == "b" else answer

    registry, grid = SiteRegistry("Strategy", ["a", "b"]), Sites(sites={"z": {"m": 0}, "b": {"m": 1}}, fault=fault)
    assert [name for name, _ in registry.update(grid)] == ["node 1"]
    grid.contexts[1], silent[0] = node(1, "a", 0), False
    assert registry.update(grid) == []
    now[0] += 31
    assert registry.update(grid) == [("a", "connected")]
    now[0] += 30
    assert registry.update(grid) == [("b", "connected")]


FINE = Moments(np.full(6, 6.0), np.zeros(6), np.ones(6))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (FINE._replace(mean=np.full(6, np.nan)), "they are not finite"),
        (FINE._replace(squares=-np.ones(6)), "they are negative"),
        (FINE._replace(present=np.zeros(3)), "arrays are called"),
        (Moments(*(a[:4] for a in FINE)), "moments of 4 columns"),
        (None, "no answer in time"),
    ],
)
def test_moments_that_cannot_be_are_left_out(answer: Moments | None, words: str):
    def fault(site: str, question: Message, reply: Message) -> Message | None:
        if site != "b" or not question.content["config"].get("moments"):
            return reply
        if answer is None:
            return None
        return Message(RecordDict({"arrays": to_record(serialization.to_arrays(answer))}), reply_to=question)

    registry, grid = (
        SiteRegistry("Strategy", list("abc")),
        Sites(app_of(moments_for_node=lambda context: FINE), fault=fault),
    )
    registry.update(grid)
    moments = SiteMoments()
    ((who, why),) = moments.ask(PollingGrid(grid), registry.online(grid), registry.examples, None, timeout=0.1)
    assert who == "b"
    assert words in why
    moments.add_up(least=3)
    assert moments.total is None
    moments.add_up(least=2)
    assert moments.total is not None
    np.testing.assert_array_equal(moments.total.present, np.full(6, 12.0))


def test_moments_of_all_sites_are_those_of_their_rows_together():
    rows = np.random.default_rng(0).standard_normal((18, 4))
    parts = {name: rows[m * 6 : m * 6 + 6] for m, name in enumerate("abc")}
    app = app_of(moments_for_node=lambda context: Moments.of(parts[str(context.node_config["site"])]))
    registry, grid = SiteRegistry("Strategy", list("abc")), Sites(app, configuration())
    registry.update(grid)
    moments = SiteMoments()
    assert moments.ask(PollingGrid(grid), registry.online(grid), registry.examples, None, timeout=1.0) == []
    moments.add_up(least=3)
    assert moments.total is not None
    np.testing.assert_allclose(moments.total.mean, rows.mean(axis=0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(moments.total.squares, 18 * rows.var(axis=0), rtol=1e-12)
    again = SiteMoments()
    again.resume(json.loads(json.dumps(moments.to_json())))
    assert again.total is not None
    for one, other in zip(moments.total, again.total, strict=True):
        np.testing.assert_array_equal(one, other)


# patience


def test_a_deadline_counts_from_the_first_failure_and_starts_anew(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    deadline = Deadline(5.0)
    now[0] = 1000.0
    assert not deadline.exceeded()  # the clock starts here
    now[0] = 1005.0
    assert not deadline.exceeded()
    now[0] = 1005.1
    assert deadline.exceeded()
    deadline.reset()
    assert not deadline.exceeded()


# polling


class Slow(Sites):
    """Answers are there after so many questions for them; None never."""

    def __init__(self, after: int | None):
        super().__init__()
        self.after, self.pulls = after, 0

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.pulls += 1
        return [] if self.after is None or self.pulls <= self.after else super().pull_messages(message_ids)


def _hellos(nodes: Iterable[int]) -> list[Message]:
    return [Message(RecordDict({"config": ConfigRecord({"x64": True})}), n, "query") for n in nodes]


@pytest.mark.parametrize("after", [0, 3])
def test_answers_are_collected_until_all_are_there(after: int):
    grid = Slow(after)
    replies = list(PollingGrid(grid).send_and_receive(_hellos([1, 2, 3]), timeout=30.0))
    assert sorted(str(reply.content["config"]["site"]) for reply in replies) == ["a", "b", "c"]
    assert (
        grid.pulls == after + 3
    )  # each reply is asked for on its own, so that one which cannot be read costs no other


def test_nobody_waits_longer_than_the_timeout():
    began = time.monotonic()
    assert list(PollingGrid(Slow(None)).send_and_receive(_hellos([1]), timeout=0.1)) == []
    assert 0.1 <= time.monotonic() - began < 5.0


def test_nothing_is_asked_where_there_is_nothing_to_ask():
    grid = Slow(None)
    assert list(PollingGrid(grid).send_and_receive([], timeout=30.0)) == []
    assert grid.pulls == 0


def test_an_unknown_node_is_not_available():
    (reply,) = PollingGrid(Sites()).send_and_receive(_hellos([77]), timeout=1.0)
    assert reply.error.code == ErrorCode.NODE_UNAVAILABLE


def test_a_grid_inside_another_is_asked_for_everything():
    grid = Sites()
    polling = PollingGrid(grid)
    assert list(polling.get_node_ids()) == [1, 2, 3]
    ids = list(polling.push_messages(_hellos([1])))
    assert len(list(polling.pull_messages(ids))) == 1
    polling.set_run(None)
    assert polling.run is None
    assert polling.create_message(RecordDict(), 1, "query").metadata.dst_node_id == 1
