"""Replies: which of them count. A site that answers wrongly is left out of the round, and everyone is told why."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fedlocal.engines.flower import records
from fedlocal.engines.flower.letters import Letter, Letters
from fedlocal.engines.flower.records import EXAMPLES, METRICS, WEIGHT
from fedlocal.engines.flower.roll import AWAY


@dataclass(frozen=True)
class Expected:
    """What a reply has to agree with."""

    round: int
    method: str  # digest of its description
    weights: str
    letters: Letters

    def examine(self, reply: Message, site: str, train: bool) -> None:
        """Say what is wrong with a reply; nothing when it counts."""
        if reply.has_error():
            raise ValueError(f"failed: {reply.error.reason}")
        numbers = records.only_metrics(reply.content)
        examples, weight = numbers.pop(EXAMPLES, None), numbers.pop(WEIGHT, None)
        if type(examples) is not int or examples < 1:
            raise ValueError(f"{EXAMPLES} is {examples!r}")
        if weight != (examples if self.weights == "examples" else 1):
            raise ValueError(f"{WEIGHT} is {weight!r}")
        if not train:
            if not np.isfinite(numbers.get("loss", np.nan)):
                raise ValueError(f"its loss is {numbers.get('loss')}")
            return
        config = records.only_config(reply.content)
        for name, wanted in {"round": self.round, "method": self.method, "site": site}.items():
            if config.get(name) != wanted:
                raise ValueError(f"answered for {name} {config.get(name)!r} instead of {wanted!r}")
        numbers = {name: value for name, value in numbers.items() if name in self.letters.numbers}
        self.letters.check(Letter(records.only_arrays(reply.content), numbers))


@dataclass(frozen=True)
class Sorted:
    """The replies of a round."""

    good: list[Message]  # in the order of the clients
    bad: dict[str, str]  # sites that are left out, and why
    silent: list[str]  # sites that did not answer

    @classmethod
    def of(cls, replies: Iterable[Message], asked: dict[str, str], expected: Expected, train: bool) -> "Sorted":
        """`asked` has the sites, in the order of the clients, by the ids of the messages that they were sent."""
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
        return cls([good[message] for message in asked if message in good], bad, silent)


def mean_of_common(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    """Flower's mean of the numbers that all sites gave."""
    numbers = [records.only_metrics(reply) for reply in replies]
    common = set.intersection(*map(set, numbers))
    kept = [RecordDict({METRICS: MetricRecord({n: v for n, v in some.items() if n in common})}) for some in numbers]
    return aggregate_metricrecords(kept, weighted_by)
