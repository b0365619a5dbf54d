"""Which replies count. A site that answers wrongly is left out of the round, and an event says why."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict

from fedlocal.flower._flwr.messages import aggregate_metricrecords
from fedlocal.flower.checks.aggregation import change_norms
from fedlocal.flower.checks.site_moments import AWAY
from fedlocal.flower.messages import records
from fedlocal.flower.messages.records import METRICS, WEIGHT
from fedlocal.flower.messages.serialization import Payload

SUSPICIOUS, BEYOND = 5.0, 1000.0  # a change as a multiple of the median of the other sites' changes
IDLE = 1e-3  # a change so much smaller than the others' is named, too
SMALL = 1e-6  # relative to the state; changes of this size are not compared
Asked = Sequence[tuple[Message, str]]  # messages and the sites they went to, in the order of the clients
Check = Callable[[str, Message], None]  # of a site's reply; raises ValueError


class SortedReplies(NamedTuple):
    """The replies of a round."""

    good: dict[str, Message]  # by site, in the order of the clients
    bad: dict[str, str]  # sites that are left out, and why
    silent: list[str]  # sites that did not answer

    @classmethod
    def of(cls, replies: Iterable[Message], asked: Asked, check: Check) -> "SortedReplies":
        """Sort replies by what `check` says of them."""
        sites = {message.metadata.message_id: site for message, site in asked}
        good: dict[str, Message] = {}
        bad: dict[str, str] = {}
        for reply in replies:
            site = sites.get(reply.metadata.reply_to_message_id)
            if site is None or (reply.has_error() and reply.error.code in AWAY):
                continue
            try:
                check(site, reply)
                good[site] = reply
            except Exception as error:  # whatever is wrong with what another machine sent
                bad[site] = str(error)
        ordered = {site: good[site] for site in sites.values() if site in good}
        return cls(ordered, bad, [site for site in sites.values() if site not in good and site not in bad])


def compared(replies: Mapping[str, Message], sent: Payload) -> dict[str, float]:
    """Return the size of each site's change, as a multiple of the median of the others' changes."""
    if len(replies) < 2:
        return {}
    stacks, _ = stacked(replies.values())
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
