"""How long a run waits for sites, by a clock that moves when somebody sleeps."""

import time
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message, MessageType

from fedlocal.flower import TooFewSites
from fedlocal.flower.coordinator import waiting
from fedlocal.flower.coordinator.run_log import EventLog
from fedlocal.flower.coordinator.site_registry import SiteRegistry
from fedlocal.flower.coordinator.waiting import Quorum
from unit.flower.flower_sites import FED_AVG, FULL, Sites, configuration, distance, events_of, expected, strategy

over = pytest.mark.parametrize


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


class LateB(Sites):
    """b is connected from and to these seconds, and does not say who it is until `answers`."""

    def __init__(self, clock: Clock, joins: float = 0.0, leaves: float = 1e9, answers: float = 0.0):
        super().__init__()
        self.clock, self.joins, self.leaves, self.answers_from = clock, joins, leaves, answers

    def get_node_ids(self) -> list[int]:
        return [n for n in self.contexts if n != 2 or self.joins <= self.clock.now < self.leaves]

    def pull_messages(self, message_ids: Any) -> list[Message]:
        slow = self.clock.now < self.answers_from
        ready = [i for i in message_ids if i in self.waiting and not (slow and self._of_b(i))]
        return list(super().pull_messages(ready))

    def _of_b(self, message_id: str) -> bool:
        return any(q.metadata.message_id == message_id and q.metadata.dst_node_id == 2 for q in self.questions)


def _meet(grid: Sites, *, again: bool, seconds: float = 600.0, timeout: float = 20.0, least: int = 2) -> list[str]:
    """The sites that are there when the waiting ends."""
    registry = SiteRegistry("Strategy", list("abc"))
    Quorum(registry, least, seconds, EventLog()).meet(grid, 4, timeout, again)
    return sorted(registry.online(grid))


@over(("answers", "timeout"), [(3.0, 20.0), (40.0, 20.0), (59.0, 1.0), (100.0, 120.0)])
def test_a_run_that_continues_waits_for_a_connected_site_that_is_slow(clock: Clock, answers: float, timeout: float):
    assert _meet(LateB(clock, answers=answers), again=True, timeout=timeout) == ["a", "b", "c"]
    assert answers <= clock.now <= answers + 1


@over(("timeout", "longest"), [(20.0, 60.0), (200.0, 200.0), (3600.0, 600.0)])
def test_it_does_not_wait_for_ever_for_one_that_never_answers(clock: Clock, timeout: float, longest: float):
    """As long as for a round, at least as long as Flower takes a dead site to be connected, at most as patience lasts."""
    assert _meet(LateB(clock, answers=1e9), again=True, timeout=timeout) == ["a", "c"]
    assert longest <= clock.now <= longest + 1


def test_it_does_not_wait_for_one_that_turns_out_to_be_dead(clock: Clock):
    assert _meet(LateB(clock, leaves=40.0, answers=1e9), again=True, timeout=3600.0) == ["a", "c"]
    assert 40 <= clock.now <= 41


@over(("joins", "found"), [(10.0, ["a", "b", "c"]), (20.0, ["a", "c"])])
def test_it_waits_a_little_for_one_that_is_not_connected(clock: Clock, joins: float, found: list[str]):
    assert _meet(LateB(clock, joins=joins), again=True, timeout=3600.0) == found
    assert clock.now == pytest.approx(min(joins, 15.0), abs=1)


@over("late", [{"joins": 500.0}, {"answers": 500.0}])
def test_a_run_that_begins_is_as_patient_as_it_was_told(clock: Clock, late: dict[str, float]):
    assert _meet(LateB(clock, **late), again=False) == ["a", "b", "c"]
    assert 500 <= clock.now <= 501


@over("again", [False, True])
def test_when_a_site_is_needed_patience_decides(clock: Clock, again: bool):
    with pytest.raises(TooFewSites, match="2 of 3 sites take part, 3 are needed; gave up after waiting 3"):
        _meet(LateB(clock, answers=1e9), again=again, seconds=30.0, least=3)
    assert 30 <= clock.now <= 31


def test_everyone_who_is_connected_takes_part_from_the_round_that_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "RETURN_SECONDS", 0.0)

    def stop(site: str, question: Message, answer: Message) -> Message:
        if question.metadata.message_type == MessageType.TRAIN and run.done == 2:
            raise KeyboardInterrupt
        return answer

    class SlowHello(Sites):
        """b says who it is after a while, and is quick from then on."""

        asked_for_b = 0

        def pull_messages(self, message_ids: Any) -> list[Message]:
            self.asked_for_b += 1
            late = {q.metadata.message_id for q in self.asked(MessageType.QUERY) if q.metadata.dst_node_id == 2}
            ready = [i for i in message_ids if self.asked_for_b > 20 or i not in late]
            return list(super().pull_messages(ready))

    arguments = {"min_clients": 2, "checkpoint": str(tmp_path / "run"), **FULL}
    run = strategy(FED_AVG, 4, **arguments)
    with pytest.raises(KeyboardInterrupt):
        run.start(Sites(sites=configuration(), fault=stop), timeout=5.0)
    again, grid = strategy(FED_AVG, 4, **arguments), SlowHello()
    again.start(grid, timeout=0.2)
    assert grid.asked_for_b > 20
    assert [what for _, what in events_of(again.events, "b")] == ["connected", "connected"]
    assert distance(again.solution(), expected(FED_AVG, 4, **FULL)) < 1e-12
