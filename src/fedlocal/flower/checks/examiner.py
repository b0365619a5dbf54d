"""Examiner: checks every reply against what is known of the site that sent it, and against the others' replies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from flwr.app import Message

from fedlocal.flower.checks.assessment import Assessment, unlike_the_others
from fedlocal.flower.checks.limits import Limits
from fedlocal.flower.checks.repetitions import Repetitions
from fedlocal.flower.checks.replies import BEYOND, IDLE, SUSPICIOUS, Check, ExpectedReply, SortedReplies, compared
from fedlocal.flower.coordinator.run_log import EventLog
from fedlocal.flower.coordinator.schedule import Schedule
from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.coordinator.site_registry import KnownSites
from fedlocal.flower.messages import records
from fedlocal.flower.messages.serialization import Payload

Asked = Sequence[tuple[Message, str]]  # messages and the sites they went to, in the order of the clients


class Examiner:
    """Sorts replies into those that count and those that do not; an event says what is wrong with one.

    Args:
        coordinator: the method's server, whose present state the replies answer.
        schedule: who does how many local steps.
        sites: what is known of the sites.
        events: where wrong and suspicious replies are reported.
    """

    def __init__(self, coordinator: Coordinator, schedule: Schedule, sites: KnownSites, events: EventLog):
        self.coordinator, self.schedule, self.sites, self.events = coordinator, schedule, sites, events
        self.limits, self.repetitions = Limits(coordinator, sites.bounds), Repetitions(coordinator)
        self.assessments: dict[str, Assessment] = {}  # what sites said of the model in the last evaluation
        self._said: set[tuple[str, str]] = set()  # of which sites something was said, and about what

    def sort(self, replies: Iterable[Message], asked: Asked, is_train: bool) -> SortedReplies:
        """Sort the replies to the messages of a round (`is_train`) or of an evaluation."""
        sites = {message.metadata.message_id: site for message, site in asked}
        if is_train:
            self.repetitions.follow_state()
            of_steps = {count: self.limits.numbers(count) for count in {self._steps(site) for site in sites.values()}}
            numbers = {site: of_steps[self._steps(site)] for site in sites.values()}
            expected = self._expected(self._check_answer, numbers)
        else:
            self.assessments = {}
            expected = self._expected(self._check_assessment, {})
        answers = SortedReplies.of(replies, sites, expected, is_train)
        for site, why in answers.bad.items():
            self._report(site, f"{why}; left out")
        for site in answers.silent:
            self._report(site, "no answer in time; left out")
        return replace(answers, good=self._compared(answers.good) if is_train else self._believed(answers.good))

    def conjugates(self, replies: Iterable[Message], asked: Asked, factors: Mapping[str, float]) -> dict[str, float]:
        """Return the mean conjugates in the replies to the second question of an evaluation, as far as they can be true."""

        def check(site: str, reply: Message) -> None:
            found = records.only_metrics(reply.content)["conjugate"]
            x, moments = self.coordinator.solution(), self.sites.second_moments(site)
            self.assessments[site].check_conjugate(x, moments, factors, found)

        sites = {message.metadata.message_id: site for message, site in asked}
        answers = SortedReplies.of(replies, sites, self._expected(check, {}, "conjugate"), False)
        for site, why in {**answers.bad, **dict.fromkeys(answers.silent, "no answer in time")}.items():
            self._report(site, f"no duality gap, for {why}")
        return {site: records.only_metrics(reply.content)["conjugate"] for site, reply in answers.good.items()}

    def _expected(
        self, check: Check, numbers: Mapping[str, Mapping[str, float]], wanted: str = "loss"
    ) -> ExpectedReply:
        server, weights, rows = self.coordinator, self.schedule.weights, self.sites.registry.examples
        return ExpectedReply(server.done, server.digest, weights, server.serializer, rows, check, numbers, wanted)

    def _steps(self, site: str) -> int:
        return self.schedule.steps(self.sites.registry.names.index(site), self.sites.rows(site))

    def _check_answer(self, site: str, reply: Message) -> None:
        """Refuse an old answer under a new label, and one beyond what the site's data allow."""
        arrays = records.only_arrays(reply.content)
        if self.repetitions.is_repeated(site, arrays):
            if self.repetitions.are_impossible(self._steps(site)):
                raise ValueError("the same answer as before, though it was asked something else")
            self._report_once(site, "repetition", "the same answer to another state, as its local steps may end twice")
        self.limits.check(Payload(arrays, {}), self._steps(site), self._moments_of_any_batch(site))

    def _moments_of_any_batch(self, site: str) -> np.ndarray | None:
        """At least the mean squares of the scaled columns in any minibatch: a few rows may make up the sum over all."""
        moments, rows = self.sites.second_moments(site), self.sites.rows(site)
        return None if moments is None else moments * rows / self.schedule.smallest_batch(rows)

    def _check_assessment(self, site: str, reply: Message) -> None:
        """Refuse what cannot be true of the site's data, and remember what it says."""
        x, moments = self.coordinator.solution(), self.sites.second_moments(site)
        said = Assessment.read(reply, x)
        if said.gradient is not None:
            self.limits.check_gradient(said.gradient, moments)
        said.check(x, moments)
        self.assessments[site] = said

    def _believed(self, replies: dict[str, Message]) -> dict[str, Message]:
        """Leave out what cannot be true of the model, given what the other sites say."""
        wrong = unlike_the_others({site: self.assessments[site] for site in replies})
        for site, why in wrong.items():
            self._report(site, f"{why}; left out")
        self.assessments = {site: self.assessments[site] for site in replies if site not in wrong}
        for site, own in self.assessments.items():
            if own.gradient is None:
                self._report_once(site, "gradient", "gives no gradient, so that there is no certificate")
        return {site: replies[site] for site in self.assessments}

    def _compared(self, replies: dict[str, Message]) -> dict[str, Message]:
        """Leave out changes that are beyond comparison; report sites whose changes are unlike the others'."""
        good = dict(replies)
        for site, times in compared(replies, self.coordinator.payload).items():
            if times > BEYOND:
                self._report(site, f"{_times(times)}; left out")
                del good[site]
        for site, times in compared(good, self.coordinator.payload).items():
            if times > SUSPICIOUS or times < IDLE:
                self._report_once(site, "change", f"suspicious: {_times(times)}")
        return good

    def _report(self, site: str, what: str) -> None:
        self.events.add(self.coordinator.done, site, what)

    def _report_once(self, site: str, about: str, what: str) -> None:
        """Report the first time that there is something to say of a site's change, gradient or repetition."""
        if (site, about) not in self._said:
            self._said.add((site, about))
            self._report(site, what)


def _times(times: float) -> str:
    return f"its change is {times:.3g} times the median of the other sites'"
