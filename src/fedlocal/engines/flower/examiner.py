"""Examiner: holds every reply against what is known of the site that sent it, and against the others' replies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Message

from fedlocal.engines.flower import records
from fedlocal.engines.flower.coordinator import Coordinator
from fedlocal.engines.flower.evaluation import gradient_of
from fedlocal.engines.flower.events import Events
from fedlocal.engines.flower.letters import Letter
from fedlocal.engines.flower.limits import Limits
from fedlocal.engines.flower.loss_bounds import LossBounds
from fedlocal.engines.flower.replies import BEYOND, SUSPICIOUS, Expected, Sorted, compared
from fedlocal.engines.flower.roll import Roll
from fedlocal.engines.flower.schedule import Schedule
from fedlocal.engines.flower.site import state_of
from fedlocal.engines.flower.site_moments import SiteMoments


class Examiner:
    """Sorts replies. What is wrong with one, and who is suspicious, becomes an event."""

    def __init__(
        self,
        schedule: Schedule,
        roll: Roll,
        moments: SiteMoments,
        events: Events,
        coordinator: Coordinator,
        bounds: LossBounds | None,
    ):
        self.schedule, self.roll, self.moments, self.events = schedule, roll, moments, events
        self.coordinator, self.limits = coordinator, Limits(coordinator, bounds)
        self._answered: dict[str, tuple[str, str]] = {}  # every site's last answer and the state it was to
        self._suspected: set[str] = set()

    def sort(
        self, replies: Iterable[Message], asked: Sequence[tuple[Message, str]], done: int, digest: str, is_train: bool
    ) -> Sorted:
        """The replies to these messages, sorted; `asked` has the messages and their sites in the order of the clients."""
        sites = {message.metadata.message_id: site for message, site in asked}
        numbers = {site: self.limits.numbers(self._steps(site)) for site in sites.values()} if is_train else {}
        check = self._check_answer if is_train else self._check_assessment
        weights, letters = self.schedule.weights, self.coordinator.letters
        expected = Expected(done, digest, weights, letters, self.roll.examples, check, numbers)
        answers = Sorted.of(replies, sites, expected, is_train)
        for site, why in answers.bad.items():
            self.events.add(done, site, f"{why}; left out")
        for site in answers.silent:
            self.events.add(done, site, "no answer in time; left out")
        return replace(answers, good=self._compared(answers.good, done)) if is_train else answers

    def second_moments(self, sites: Sequence[str]) -> np.ndarray | None:
        """Mean squares of the scaled columns over these sites, with the weights of the objective."""
        parts: list[Any] = [self._second_moments_of(site) for site in sites]
        if not parts or any(part is None for part in parts):
            return None
        rows = [self.roll.examples[site] if self.schedule.weights == "examples" else 1 for site in sites]
        return np.average(np.stack(parts), axis=0, weights=rows)

    def _steps(self, site: str) -> int:
        return self.schedule.steps(self.roll.names.index(site), self.roll.examples[site])

    def _second_moments_of(self, site: str) -> np.ndarray | None:
        known = self.moments.total is not None and site in self.moments.of
        return self.moments.second_moments(site, self.roll.examples[site]) if known else None

    def _of_any_batch(self, site: str) -> np.ndarray | None:
        """At least the mean squares of the scaled columns in any minibatch: a few rows may make up the sum over all."""
        moments, rows = self._second_moments_of(site), self.roll.examples[site]
        return None if moments is None else moments * rows / self.schedule.smallest_batch(rows)

    def _check_answer(self, site: str, reply: Message) -> None:
        """A reply to a state: not an old one under a new label, and not beyond what the site's data allow."""
        arrays = records.only_arrays(reply.content)
        sent, answer = state_of(self.coordinator.letter.arrays), state_of(arrays)
        before = self._answered.get(site)
        if before is not None and before[1] == answer and before[0] != sent:
            raise ValueError("the same answer as before, though it was asked something else")
        self.limits.check(Letter(arrays, {}), self._steps(site), self._of_any_batch(site))
        self._answered[site] = (sent, answer)

    def _check_assessment(self, site: str, reply: Message) -> None:
        if reply.content.array_records:
            gradient = gradient_of(reply, self.coordinator.solution())
            self.limits.check_gradient(gradient, self._second_moments_of(site))

    def _compared(self, replies: dict[str, Message], done: int) -> dict[str, Message]:
        """Without changes that are beyond comparison; sites whose changes are much larger than the others' are named."""
        good = dict(replies)
        for site, times in compared(replies, self.coordinator.letter).items():
            said = f"its change is {times:.3g} times the median of the other sites'"
            if times > BEYOND:
                self.events.add(done, site, f"{said}; left out")
                del good[site]
            elif times > SUSPICIOUS and site not in self._suspected:
                self._suspected.add(site)
                self.events.add(done, site, f"suspicious: {said}")
        return good
