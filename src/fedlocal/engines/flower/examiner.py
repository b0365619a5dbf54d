"""Examiner: holds every reply against what is known of the site that sent it, and against the others' replies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Message

from fedlocal.engines.flower import records
from fedlocal.engines.flower.assessment import Assessment, unlike_the_others
from fedlocal.engines.flower.coordinator import Coordinator
from fedlocal.engines.flower.events import Events
from fedlocal.engines.flower.letters import Letter
from fedlocal.engines.flower.limits import Limits
from fedlocal.engines.flower.loss_bounds import LossBounds
from fedlocal.engines.flower.replies import BEYOND, IDLE, SUSPICIOUS, Expected, Sorted, compared
from fedlocal.engines.flower.roll import Roll
from fedlocal.engines.flower.schedule import Schedule
from fedlocal.engines.flower.site import state_of
from fedlocal.engines.flower.site_moments import SiteMoments

Check = Callable[[str, Message], None]


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
        self._answered: dict[str, dict[str, str]] = {}  # every site's answers, each with the state it was to
        self._said: set[tuple[str, str]] = set()  # of which sites something was said, and about what
        self._assessments: dict[str, Assessment] = {}  # what sites said of the model in the last evaluation

    def sort(
        self, replies: Iterable[Message], asked: Sequence[tuple[Message, str]], done: int, digest: str, is_train: bool
    ) -> Sorted:
        """The replies to these messages, sorted; `asked` has the messages and their sites in the order of the clients."""
        sites = {message.metadata.message_id: site for message, site in asked}
        steps = {site: self._steps(site) for site in sites.values()} if is_train else {}
        of_steps = {count: self.limits.numbers(count) for count in set(steps.values())}
        numbers = {site: of_steps[count] for site, count in steps.items()}
        expected = self._expected(done, digest, self._check_answer if is_train else self._check_assessment, numbers)
        answers = Sorted.of(replies, sites, expected, is_train)
        for site, why in answers.bad.items():
            self.events.add(done, site, f"{why}; left out")
        for site in answers.silent:
            self.events.add(done, site, "no answer in time; left out")
        good = self._compared(answers.good, done) if is_train else self._believed(answers.good, done)
        return replace(answers, good=good)

    def conjugates(
        self,
        replies: Iterable[Message],
        asked: Sequence[tuple[Message, str]],
        done: int,
        digest: str,
        factors: Mapping[str, float],
    ) -> dict[str, float]:
        """The mean conjugates in the replies to the second question of an evaluation, as far as they can be true."""

        def check(site: str, reply: Message) -> None:
            found = records.only_metrics(reply.content)["conjugate"]
            x, moments = self.coordinator.solution(), self._second_moments_of(site)
            self._assessments[site].check_conjugate(x, moments, factors, found)

        sites = {message.metadata.message_id: site for message, site in asked}
        answers = Sorted.of(replies, sites, self._expected(done, digest, check, {}, "conjugate"), False)
        for site, why in {**answers.bad, **dict.fromkeys(answers.silent, "no answer in time")}.items():
            self.events.add(done, site, f"no duality gap, for {why}")
        return {site: records.only_metrics(reply.content)["conjugate"] for site, reply in answers.good.items()}

    def _expected(
        self, done: int, digest: str, check: Check, numbers: Mapping[str, Mapping[str, float]], wanted: str = "loss"
    ) -> Expected:
        weights, letters = self.schedule.weights, self.coordinator.letters
        return Expected(done, digest, weights, letters, self.roll.examples, check, numbers, wanted)

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
        if self._answered.setdefault(site, {}).setdefault(answer, sent) != sent:
            raise ValueError("the same answer as before, though it was asked something else")
        self.limits.check(Letter(arrays, {}), self._steps(site), self._of_any_batch(site))

    def _check_assessment(self, site: str, reply: Message) -> None:
        x, moments = self.coordinator.solution(), self._second_moments_of(site)
        said = Assessment.read(reply, x)
        if said.gradient is not None:
            self.limits.check_gradient(said.gradient, moments)
        said.check(x, moments)

    def _believed(self, replies: dict[str, Message], done: int) -> dict[str, Message]:
        """Without what sites cannot truly say of the model, given what the others say."""
        said = {site: Assessment.read(reply, self.coordinator.solution()) for site, reply in replies.items()}
        wrong = unlike_the_others(said)
        for site, why in wrong.items():
            self.events.add(done, site, f"{why}; left out")
        self._assessments = {site: own for site, own in said.items() if site not in wrong}
        for site, own in self._assessments.items():
            if own.gradient is None:
                self._say_once(done, site, "gradient", "gives no gradient, so that there is no certificate")
        return {site: replies[site] for site in self._assessments}

    def _compared(self, replies: dict[str, Message], done: int) -> dict[str, Message]:
        """Without changes that are beyond comparison; sites whose changes are unlike the others' are named."""
        good = dict(replies)
        for site, times in compared(replies, self.coordinator.letter).items():
            if times > BEYOND:
                self.events.add(done, site, f"{_times(times)}; left out")
                del good[site]
        for site, times in compared(good, self.coordinator.letter).items():
            if times > SUSPICIOUS or times < IDLE:
                self._say_once(done, site, "change", f"suspicious: {_times(times)}")
        return good

    def _say_once(self, done: int, site: str, about: str, what: str) -> None:
        """The first time that there is something to say of a site's change or gradient."""
        if (site, about) not in self._said:
            self._said.add((site, about))
            self.events.add(done, site, what)


def _times(times: float) -> str:
    return f"its change is {times:.3g} times the median of the other sites'"
