"""Strategy: any method of this library as a Flower strategy.

Flower averages what clients reply; what is done with the mean is the method's. Everything that Flower lets a wrapper see is as
wrappers expect it: `arrays` is what clients are sent, replies have its form, and their mean is Flower's own.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fedlocal import checks, recipes, wire
from fedlocal.core import LocalMethod, Params
from fedlocal.data.moments import Scaling
from fedlocal.engines.checkpoint import fingerprint
from fedlocal.engines.flower import records
from fedlocal.engines.flower.attendance import Attendance
from fedlocal.engines.flower.client import NUMBER, SCALING
from fedlocal.engines.flower.coordinator import Coordinator
from fedlocal.engines.flower.diary import Diary
from fedlocal.engines.flower.letters import Letter
from fedlocal.engines.flower.patience import TooFewSites
from fedlocal.engines.flower.records import ARRAYS, CONFIG, EXAMPLES, WEIGHT
from fedlocal.engines.flower.replies import Expected, Sorted, mean_of_common
from fedlocal.engines.flower.roll import Roll
from fedlocal.engines.flower.schedule import Schedule

OWNER = "Strategy"
log = logging.getLogger("fedlocal")


class Strategy(FedAvg):
    """A Flower strategy that runs a method as `simulate` does, between machines.

    Args:
        method: the algorithm, e.g. `fl.methods.FedDualAvg(...)`.
        rounds: communication rounds.
        sites: how many sites there are, or their names; a site is called by `site` of its node's configuration.
        nodes: the id of the node that each site must answer from, by name; None takes a site's word for its name.
        x0: starting point; None takes zeros of the shape that the sites report.
        local_steps, local_epochs, batch_size, clients_per_round, weights, seed: as for `simulate`.
        min_clients: with fewer replies a round does not count and is repeated; None means all that it asks.
        patience: seconds to wait for sites that are missing before the run stops.
        eval_every: ask for the loss of the model after every so many rounds and after the last.
        standardize: bring features to mean zero and variance one over all sites, from sums that each of them gives.
        checkpoint: a file to save the state to after every round; a run that finds it continues from it.
    """

    def __init__(
        self,
        method: LocalMethod,
        *,
        rounds: int,
        sites: int | Sequence[str],
        nodes: Mapping[str, int] | None = None,
        x0: Params | None = None,
        local_steps: int | Sequence[int] | None = None,
        local_epochs: int | None = None,
        batch_size: int | None = None,
        clients_per_round: int | None = None,
        weights: str = "uniform",
        seed: int = 0,
        min_clients: int | None = None,
        patience: float = 600.0,
        eval_every: int = 10,
        standardize: bool = False,
        checkpoint: str | None = None,
    ):
        super().__init__(
            weighted_by_key=WEIGHT, train_metrics_aggr_fn=self._mean_numbers, evaluate_metrics_aggr_fn=mean_of_common
        )
        self.method = checks.instance(OWNER, "method", method, LocalMethod)
        self.description = recipes.describe(method)
        self.digest = recipes.digest(self.description)
        self.roll = Roll(OWNER, sites, nodes)
        self.schedule = Schedule.make(
            OWNER,
            rounds=rounds,
            sites=self.roll.size,
            local_steps=local_steps,
            local_epochs=local_epochs,
            batch_size=batch_size,
            clients_per_round=clients_per_round,
            weights=weights,
            seed=seed,
        )
        per_round = self.schedule.clients_per_round
        least = per_round if min_clients is None else min_clients
        self.min_clients = checks.whole(OWNER, "min_clients", least, at_most=per_round)
        seconds = checks.number(OWNER, "patience", patience, at_least=0)
        self.diary = Diary(checkpoint, self.roll)
        self.events, self.history = self.diary.events, self.diary.history
        self.attendance = Attendance(self.roll, self.min_clients, seconds, self.events)
        self.eval_every = checks.whole(OWNER, "eval_every", eval_every)
        self.standardize, self.x0, self.checkpoint = bool(standardize), x0, checkpoint
        self.timeout = 3600.0
        self.wrapper: dict[str, Any] | None = None  # what `start` finds around this strategy
        self._coordinator: Coordinator | None = None  # once the sites have been met
        self._asked: list[tuple[Message, str]] = []  # messages of this round and the sites they went to
        self._numbers: dict[str, float] | None = None  # means of this round's replies, until the server's step is done
        self._unseen = False  # whether clients were asked to train and no reply was looked at yet

    # what Flower calls

    def summary(self) -> None:
        """Log what will be run."""
        method = " ".join(str(self.method).split())
        log.info("%s, %d of %d rounds done, %d sites", method, self.done, self.schedule.rounds, self.roll.size)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages for the clients of the next round. `arrays` becomes what they are sent."""
        self._take_step(arrays)
        self._asked = []
        if self.done == self.schedule.rounds:
            return []
        clients = self.schedule.cohort(self.done)
        online = self.attendance.wait(grid, self.done, clients)
        for site in self.roll.called(clients):
            if site not in online:
                self.events.add(self.done, site, "not connected; left out")
        records.overwrite(arrays, self.coordinator.letter.arrays)
        present = [site for site in self.roll.called(clients) if site in online]
        self._asked = [(self._message(arrays, config, site, online[site]), site) for site in present]
        self._unseen = True
        return [message for message, _ in self._asked]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The server's step of the round; then questions for the loss, when they are due."""
        self._take_step(arrays)
        if self._unseen:  # a wrapper may have dropped a round's replies without showing them
            self._unseen = False
            self.attendance.enough(self.done, 0)
        due = self.done % self.eval_every == 0 or self.done == self.schedule.rounds
        if not due or self.done == 0 or (self.history and self.history[-1]["round"] == self.done):
            self._asked = []
            return []
        x = records.to_record(wire.to_arrays(self.solution()))
        values = ConfigRecord({**config, "weights": self.schedule.weights, **self._scaling()})
        content = RecordDict({ARRAYS: x, CONFIG: values})
        online = self.roll.online(grid)
        self._asked = [
            (Message(content, node, MessageType.EVALUATE, ttl=self.timeout + 60), site)
            for site, node in sorted(online.items())
        ]
        return [message for message, _ in self._asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean loss over the sites that answered, and the objective."""
        replies = list(replies)
        mean = super().aggregate_evaluate(server_round, replies)
        if not self._asked or mean is None:
            return None
        mean["objective"] = float(mean["loss"]) + self.coordinator.penalty()  # pyright: ignore[reportArgumentType]
        numbers = {n: v for n, v in mean.items() if n not in (EXAMPLES, "round", "sites") and not isinstance(v, list)}
        self.history.append({"round": self.done, "sites": len(replies), **numbers})
        self.diary.save(self.coordinator)
        return mean

    def start(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, grid: Grid, *, timeout: float = 3600.0
    ) -> Result:
        """Run all rounds that are left. `Result.arrays` is the solution; `timeout` is how long a round may take."""
        from fedlocal.engines.flower.server import start

        return start(self, grid, timeout=timeout)

    # what a user reads

    @property
    def coordinator(self) -> Coordinator:
        """The method's server."""
        if self._coordinator is None:
            raise RuntimeError(f"{OWNER}: no site has been met yet; call start")
        return self._coordinator

    @property
    def done(self) -> int:
        """Rounds that count so far."""
        return self.diary.before if self._coordinator is None else self._coordinator.done

    def solution(self) -> Params:
        """The model after the rounds that are done, as NumPy arrays."""
        return self.coordinator.solution()

    def scaling(self) -> Scaling | None:
        """How features were brought to common units, where `standardize` asks for it."""
        return None if self.roll.moments is None else self.roll.moments.scaling()

    def configuration(self) -> dict[str, Any]:
        """What is run, ready for JSON."""
        named = {"method": str(self.method), "standardize": self.standardize, "examples": self.roll.examples}
        columns = {} if self.roll.form is None else {"columns": self.roll.form.columns}
        return {**named, **asdict(self.schedule), **columns, "wrapper": self.wrapper}

    # the parts of a round

    def prepare(self, grid: Grid, timeout: float) -> None:
        """Meet the sites, learn shapes and moments, and begin: at the starting point or at the checkpoint."""
        if self._coordinator is not None:
            return
        self.timeout = timeout
        again = self.diary.take_up(self._identity())
        if self.done == self.schedule.rounds and self.history and self.history[-1]["round"] == self.done:
            log.info("all %d rounds were done before; nothing is left to do", self.done)
        else:
            self.attendance.meet(grid, self.done, timeout, again)
            if self.standardize:
                self.attendance.measure(grid, self.done, self.schedule.cohort(self.done), timeout)
        coordinator = Coordinator(self.method, self._starting_point())
        self.diary.begin(self._identity(), coordinator)
        self._coordinator = coordinator

    def arrays(self) -> ArrayRecord:
        """What goes to the clients in the next round; the solution when there is none."""
        return records.to_record(self._outgoing())

    def _outgoing(self) -> dict[str, np.ndarray]:
        last = self.done == self.schedule.rounds
        return wire.to_arrays(self.solution()) if last else self.coordinator.letter.arrays

    def _take_step(self, arrays: ArrayRecord) -> None:
        """The server's step with the mean in `arrays`, once; what clients get next is written there."""
        if self._numbers is None:
            return
        mean = Letter(records.from_record(arrays), self._numbers)
        self._numbers = None
        self.coordinator.step(mean)
        self.diary.save(self.coordinator)
        records.overwrite(arrays, self._outgoing())

    def _message(self, arrays: ArrayRecord, config: ConfigRecord, site: str, node: int) -> Message:
        job = self.schedule.job(self.done, self.roll.names.index(site), max(self.roll.examples.values()))
        numbers = {f"{NUMBER}{name}": value for name, value in self.coordinator.letter.numbers.items()}
        values = {**config, **self.description, **numbers, **self._scaling(), **job.to_config()}
        content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(values)})
        return Message(content, node, MessageType.TRAIN, ttl=self.timeout + 60, group_id=str(self.done))

    def _scaling(self) -> dict[str, list[float]]:
        scaling = self.scaling()
        return {} if scaling is None else {f"{SCALING}{name}": a.tolist() for name, a in scaling._asdict().items()}

    def examined(self, replies: Iterable[Message]) -> list[Message]:
        """Replies that count, in the order of the clients; everything else is reported and left out. Before wrappers see them."""
        asked = {message.metadata.message_id: site for message, site in self._asked}
        is_train = any(message.metadata.message_type == MessageType.TRAIN for message, _ in self._asked)
        expected = Expected(self.done, self.digest, self.schedule.weights, self.coordinator.letters)
        answers = Sorted.of(replies, asked, expected, is_train)
        for site, why in answers.bad.items():
            self.events.add(self.done, site, f"{why}; left out")
        for site in answers.silent:
            self.events.add(self.done, site, "no answer in time; left out")
            self.roll.doubt(site)
        return answers.good

    def _check_and_log_replies(
        self, replies: Iterable[Message], is_train: bool, validate: bool = True
    ) -> tuple[list[Message], list[Message]]:
        """All of them, for they were examined; none of a round that has too few."""
        self._unseen, good = False, list(replies)
        return (good if not is_train or self.attendance.enough(self.done, len(good)) else []), []

    def _mean_numbers(self, replies: list[RecordDict], weighted_by: str) -> MetricRecord:
        """Flower's mean of the numbers in replies; noted, for the server's step needs those of the method's."""
        mean = aggregate_metricrecords(replies, weighted_by)
        self._numbers = {name: float(mean[name]) for name in self.coordinator.letters.numbers}  # pyright: ignore
        return mean

    # keeping

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """When too few sites are left, what was done and said is kept, and the error says where."""
        try:
            yield
        except TooFewSites as error:
            if self._coordinator is not None:
                self.diary.save(self._coordinator)
            if self.checkpoint is None or self.done == 0:
                raise
            kept = f"{self.done} rounds are kept in {self.checkpoint}, start again to go on"
            raise TooFewSites(f"{error}; {kept}") from None

    def _starting_point(self) -> Params:
        dtype = jnp.result_type(float)
        x0 = self.roll.parameters(dtype) if self.x0 is None else self.x0
        return jax.tree.map(lambda a: np.asarray(a, getattr(a, "dtype", dtype)), x0)

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with: all but the number of rounds and what is known only later."""
        later = ("rounds", "examples", "columns")
        configuration = {name: value for name, value in self.configuration().items() if name not in later}
        return {**configuration, "deployed": True, "numbers of the method": fingerprint(self.method)}
