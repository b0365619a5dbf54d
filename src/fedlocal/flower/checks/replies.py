"""Which replies count. A site that answers wrongly is left out of the round, and an event says why."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict

from fedlocal.flower._flwr.messages import aggregate_metricrecords
from fedlocal.flower.checks.aggregation import change_norms
from fedlocal.flower.checks.site_moments import AWAY
from fedlocal.flower.messages import records
from fedlocal.flower.messages.records import EXAMPLES, METRICS, WEIGHT
from fedlocal.flower.messages.serialization import Payload, StateSerializer

SAME = 1e-9  # relative; between a number that a site computed and the same number computed here
SUSPICIOUS, BEYOND = 5.0, 1000.0  # a change as a multiple of the median of the other sites' changes
IDLE = 1e-3  # a change so much smaller than the others' is named, too
SMALL = 1e-6  # relative to the state; changes of this size are not compared
LARGEST = 1e100  # of a number in an evaluation
Check = Callable[[str, Message], None]  # of a site's reply; raises ValueError


@dataclass(frozen=True)
class ExpectedReply:
    """What a reply has to agree with."""

    round: int
    method: str  # digest of its description
    weights: str
    serializer: StateSerializer
    rows: Mapping[str, int]  # of every site, as it said when it connected
    check: Check | None = None  # of a site's reply against what else is known of it
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # of every site, where they are computed
    wanted: str = "loss"  # the number that an evaluation asks for

    def examine(self, reply: Message, site: str, train: bool) -> None:
        """Raise ValueError if the reply does not count."""
        if reply.has_error():
            raise ValueError(f"failed: {reply.error.reason}")
        numbers = records.only_metrics(reply.content)
        examples, weight = numbers.pop(EXAMPLES, None), numbers.pop(WEIGHT, None)
        rows = self.rows.get(site)
        if type(examples) is not int or examples != rows:
            raise ValueError(f"{EXAMPLES} is {examples!r}; it connected with {rows}")
        if weight != (examples if self.weights == "examples" else 1):
            raise ValueError(f"{WEIGHT} is {weight!r}")
        if not train:
            self._examine_numbers(numbers)
            self._examine_further(site, reply)
            return
        config = records.only_config(reply.content)
        for name, wanted in {"round": self.round, "method": self.method, "site": site}.items():
            if config.get(name) != wanted:
                raise ValueError(f"answered for {name} {config.get(name)!r} instead of {wanted!r}")
        given = {name: value for name, value in numbers.items() if name in self.serializer.numbers}
        payload = Payload(records.only_arrays(reply.content), given)
        self.serializer.check(payload)
        for name, wanted in self.numbers.get(site, {}).items():
            if abs(given[name] - wanted) > SAME * max(abs(wanted), 1e-300):
                raise ValueError(f"{name} is {given[name]!r}; {wanted!r} follows from its steps")
            next(iter(reply.content.metric_records.values()))[name] = wanted
        self._examine_further(site, reply)

    def _examine_further(self, site: str, reply: Message) -> None:
        if self.check is not None:
            self.check(site, reply)

    def _examine_numbers(self, numbers: dict[str, float]) -> None:
        wrong = [name for name, value in numbers.items() if not np.isfinite(value)]
        if wrong:
            raise ValueError(f"its {wrong[0]} is {numbers[wrong[0]]}")
        if self.wanted not in numbers:
            raise ValueError(f"it gives no {self.wanted}")
        large = [name for name, value in numbers.items() if abs(value) > LARGEST]
        if large:
            raise ValueError(f"its {large[0]} is {numbers[large[0]]:g}")


@dataclass(frozen=True)
class SortedReplies:
    """The replies of a round."""

    good: dict[str, Message]  # by site, in the order of the clients
    bad: dict[str, str]  # sites that are left out, and why
    silent: list[str]  # sites that did not answer

    @classmethod
    def of(
        cls, replies: Iterable[Message], asked: dict[str, str], expected: ExpectedReply, train: bool
    ) -> "SortedReplies":
        """Sort replies. `asked` has the sites, in the order of the clients, by the ids of the messages that they were sent."""
        good: dict[str, Message] = {}
        bad: dict[str, str] = {}
        for reply in replies:
            message = reply.metadata.reply_to_message_id
            if message not in asked or (reply.has_error() and reply.error.code in AWAY):
                continue
            try:
                expected.examine(reply, asked[message], train)
                good[message] = reply
            except Exception as error:  # whatever is wrong with what another machine sent
                bad[asked[message]] = str(error)
        silent = [site for message, site in asked.items() if message not in good and site not in bad]
        return cls({site: good[message] for message, site in asked.items() if message in good}, bad, silent)


def compared(replies: Mapping[str, Message], sent: Payload) -> dict[str, float]:
    """Return the size of each site's change, as a multiple of the median of the others' changes."""
    if len(replies) < 2:
        return {}
    arrays = [records.only_arrays(reply.content) for reply in replies.values()]
    stacks = {name: np.stack([a[name] for a in arrays]) for name in arrays[0]}
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.nan_to_num(change_norms(stacks, sent.arrays), nan=np.inf)
    size = 1 + max(float(np.max(np.abs(a), initial=0.0)) for a in sent.arrays.values())
    found = {}
    for i, (site, norm) in enumerate(zip(replies, norms.tolist(), strict=True)):
        usual = float(np.median(np.delete(norms, i)))
        small = max(norm, usual) <= SMALL * size
        found[site] = 1.0 if small or norm == usual else norm / max(usual, SMALL * size)
    return found


def mean_of_common(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    """Return Flower's mean of the numbers that all sites gave."""
    numbers = [records.only_metrics(reply) for reply in replies]
    common = set.intersection(*map(set, numbers))
    kept = [RecordDict({METRICS: MetricRecord({n: v for n, v in some.items() if n in common})}) for some in numbers]
    return aggregate_metricrecords(kept, weighted_by)


def stacked(replies: Iterable[Message]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the arrays of replies, (S, ...) each, and the weights of the replies."""
    contents: list[Any] = [reply.content for reply in replies]
    arrays = [records.only_arrays(content) for content in contents]
    weights = np.array([float(records.only_metrics(content)[WEIGHT]) for content in contents])
    return {name: np.stack([a[name] for a in arrays]) for name in arrays[0]}, weights
