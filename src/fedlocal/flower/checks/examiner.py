"""Examiner: checks every reply against what is known of the site that sent it, and against the others' replies."""

from collections.abc import Iterable

import numpy as np
from flwr.app import Message

from fedlocal.core import Params
from fedlocal.flower.checks.assessment import Assessment, unlike_the_others
from fedlocal.flower.checks.limits import Limits
from fedlocal.flower.checks.repetitions import Repetitions
from fedlocal.flower.checks.replies import BEYOND, IDLE, SUSPICIOUS, Asked, SortedReplies, compared
from fedlocal.flower.coordinator.run_log import EventLog
from fedlocal.flower.coordinator.schedule import Schedule
from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.coordinator.site_registry import KnownSites
from fedlocal.flower.messages import records
from fedlocal.flower.messages.records import EXAMPLES, WEIGHT
from fedlocal.flower.messages.serialization import Payload

SAME = 1e-9  # relative; between a number that a site computed and the same number computed here
LARGEST = 1e100  # of a number in an evaluation


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
        self._earlier: dict[str, tuple[Params, Assessment]] = {}  # the last that was believed, and of which model
        self._numbers: dict[int, dict[str, float]] = {}  # that follow from a number of steps at the present state
        self._said: set[tuple[str, str]] = set()  # of which sites something was said, and about what

    def sort(self, replies: Iterable[Message], asked: Asked, is_train: bool) -> SortedReplies:
        """Sort the replies to the messages of a round (`is_train`) or of an evaluation."""
        if is_train:
            self.repetitions.follow_state()
            self._numbers = {count: self.limits.numbers(count) for count in {self._steps(site) for _, site in asked}}
        else:
            self.assessments = {}
        answers = SortedReplies.of(replies, asked, self._check_answer if is_train else self._check_assessment)
        for site, why in {**answers.bad, **dict.fromkeys(answers.silent, "no answer in time")}.items():
            self._report(site, f"{why}; left out")
        return answers._replace(good=self._compared(answers.good) if is_train else self._believed(answers.good))

    def _sent_numbers(self, site: str, reply: Message) -> dict[str, float]:
        """Return the numbers of a reply that has no error, and the rows and the weight that the site connected with."""
        if reply.has_error():
            raise ValueError(f"failed: {reply.error.reason}")
        numbers = records.only_metrics(reply.content)
        examples, weight = numbers.pop(EXAMPLES, None), numbers.pop(WEIGHT, None)
        rows = self.sites.registry.examples.get(site)
        if type(examples) is not int or examples != rows:
            raise ValueError(f"{EXAMPLES} is {examples!r}; it connected with {rows}")
        if weight != (examples if self.schedule.weights == "examples" else 1):
            raise ValueError(f"{WEIGHT} is {weight!r}")
        return numbers

    def _check_numbers(self, site: str, reply: Message) -> None:
        """Refuse an evaluation without a loss, or with numbers that are not finite or too large."""
        numbers = self._sent_numbers(site, reply)
        wrong = [name for name, value in numbers.items() if not np.isfinite(value)]
        if wrong:
            raise ValueError(f"its {wrong[0]} is {numbers[wrong[0]]}")
        if "loss" not in numbers:
            raise ValueError("it gives no loss")
        large = [name for name, value in numbers.items() if abs(value) > LARGEST]
        if large:
            raise ValueError(f"its {large[0]} is {numbers[large[0]]:g}")

    def _steps(self, site: str) -> int:
        return self.schedule.steps(self.sites.registry.names.index(site), self.sites.registry.examples[site])

    def _check_answer(self, site: str, reply: Message) -> None:
        """Refuse an answer to another question, an old one under a new label, and one beyond what the site's data allow."""
        server, numbers, config = self.coordinator, self._sent_numbers(site, reply), records.only_config(reply.content)
        for name, wanted in {"round": server.done, "method": server.digest, "site": site}.items():
            if config.get(name) != wanted:
                raise ValueError(f"answered for {name} {config.get(name)!r} instead of {wanted!r}")
        arrays = records.only_arrays(reply.content)
        given = {name: value for name, value in numbers.items() if name in server.serializer.numbers}
        server.serializer.check(Payload(arrays, given))
        for name, wanted in self._numbers[self._steps(site)].items():
            if abs(given[name] - wanted) > SAME * max(abs(wanted), 1e-300):
                raise ValueError(f"{name} is {given[name]!r}; {wanted!r} follows from its steps")
            next(iter(reply.content.metric_records.values()))[name] = wanted
        if self.repetitions.is_repeated(site, arrays):
            if self.repetitions.are_impossible(self._steps(site)):
                raise ValueError("the same answer as before, though it was asked something else")
            self._report_once(site, "repetition", "the same answer to another state, as its local steps may end twice")
        moments, rows = self.sites.second_moments(site), self.sites.registry.examples[site]
        if moments is not None:  # in any minibatch at most this: a few rows may make up the sum over all
            moments = moments * rows / self.schedule.smallest_batch(rows)
        self.limits.check(Payload(arrays, {}), self._steps(site), moments)

    def _check_assessment(self, site: str, reply: Message) -> None:
        """Refuse what cannot be true of the site's data, and remember what it says."""
        self._check_numbers(site, reply)
        x, moments = self.coordinator.solution(), self.sites.second_moments(site)
        said = Assessment.read(reply, x)
        if said.gradient is not None:
            self.limits.check_gradient(said.gradient, moments)
        said.check(x, moments)
        if site in self._earlier and said.gradient is not None:
            z, before = self._earlier[site]
            said.check_against(before, x, z, moments)
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
            else:
                self._earlier[site] = self.coordinator.solution(), own
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
