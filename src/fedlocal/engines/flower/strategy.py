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
from fedlocal.engines.flower.aggregation import AGGREGATES
from fedlocal.engines.flower.attendance import Attendance
from fedlocal.engines.flower.client import CERTIFICATE
from fedlocal.engines.flower.coordinator import Coordinator
from fedlocal.engines.flower.diary import Diary
from fedlocal.engines.flower.evaluation import distance, in_words, measure
from fedlocal.engines.flower.examiner import Examiner
from fedlocal.engines.flower.grids import Polling
from fedlocal.engines.flower.late import LateSites
from fedlocal.engines.flower.letters import Letter
from fedlocal.engines.flower.loss_bounds import LossBounds
from fedlocal.engines.flower.optimality import CONJUGATE
from fedlocal.engines.flower.patience import TooFewSites
from fedlocal.engines.flower.preparation import Preparation
from fedlocal.engines.flower.question import NUMBER
from fedlocal.engines.flower.records import ARRAYS, CONFIG, EXAMPLES, WEIGHT
from fedlocal.engines.flower.replies import mean_of_common, stacked
from fedlocal.engines.flower.roll import Roll
from fedlocal.engines.flower.schedule import Schedule
from fedlocal.engines.flower.site_moments import SiteMoments
from fedlocal.engines.flower.step_size import with_step_size

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
        min_clients: with fewer replies a round does not count and is repeated; None means all that it asks but one, so that
            no site can stop a run alone, unless a round asks a single one.
        patience: seconds to wait for sites that are missing before the run stops.
        eval_every: ask for loss and certificate of the model after every so many rounds and after the last.
        tol: stop when the duality gap is below this share of the objective (the KKT residual below it, where there is no
            gap); None runs all rounds.
        aggregate: "mean" of the answers; or "median", "trimmed", "norm-bounded", which one false answer cannot move far,
            at the price that they are not the mean which the objective asks for.
        choose_step_size: replace the method's step size by 1 / the largest curvature that a site finds in its loss.
        loss_bounds: what is known of the losses, with which answers are checked against a site's moments.
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
        tol: float | None = None,
        aggregate: str = "mean",
        choose_step_size: bool = False,
        loss_bounds: LossBounds | None = None,
        standardize: bool = False,
        checkpoint: str | None = None,
    ):
        super().__init__(
            weighted_by_key=WEIGHT, train_metrics_aggr_fn=self._mean_numbers, evaluate_metrics_aggr_fn=mean_of_common
        )
        self.use(checks.instance(OWNER, "method", method, LocalMethod))
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
        self.min_clients_given = min_clients is not None
        least = max(1, per_round - 1) if min_clients is None else min_clients
        self.min_clients = checks.whole(OWNER, "min_clients", least, at_most=per_round)
        seconds = checks.number(OWNER, "patience", patience, at_least=0)
        self.moments = SiteMoments()
        self.diary = Diary(checkpoint, self.roll, self.moments)
        self.events, self.history = self.diary.events, self.diary.history
        self.attendance = Attendance(self.roll, self.min_clients, seconds, self.events)
        self.eval_every = checks.whole(OWNER, "eval_every", eval_every)
        self.tol = None if tol is None else checks.number(OWNER, "tol", tol, above=0)
        self.aggregate = checks.choice(OWNER, "aggregate", aggregate, AGGREGATES)
        self.choose_step_size, self.loss_bounds = bool(choose_step_size), loss_bounds
        self.standardize, self.x0, self.checkpoint = bool(standardize), x0, checkpoint
        self.preparation = Preparation(
            self.roll, self.moments, self.events, self.min_clients, self.standardize, self.choose_step_size, loss_bounds
        )
        self.timeout = 3600.0
        self.wrapper: dict[str, Any] | None = None  # what `start` finds around this strategy
        self._coordinator: Coordinator | None = None  # once the sites have been met
        self._asked: list[tuple[Message, str]] = []  # messages of this round and the sites they went to
        self._numbers: dict[str, float] | None = None  # means of this round's replies, until the server's step is done
        self._combined: dict[str, np.ndarray] | None = (
            None  # this round's answers put together otherwise than by a mean
        )
        self._unseen = False  # whether clients were asked to train and no reply was looked at yet
        self._late = LateSites()
        self._grid: Polling | None = None  # whose replies nobody has examined
        self._assessed: dict[str, Message] = {}  # the replies to the last evaluation
        self.no_gap_because: str | None = None
        self.began = False  # whether this run, and no other, may write its results
        self.train_metrics: dict[int, MetricRecord] = {}  # by round

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
        if self.finished:
            return []
        clients = self.schedule.cohort(self.done)
        online = self.attendance.wait(grid, self.done, clients)
        for site in self.roll.called(clients):
            if site not in online:
                self.events.add(self.done, site, "not connected; left out")
        records.overwrite(arrays, self.coordinator.letter.arrays)
        present = [site for site in self.roll.called(clients) if site in online]
        asked = self._late.without(present, self.done, self.min_clients)
        for site in [site for site in present if site not in asked]:
            self.events.add(self.done, site, "not asked, for it did not answer again and again; left out")
        present = self.preparation.measured(grid, {site: online[site] for site in asked}, self.done)
        self._late.note([site for site in asked if site not in present], [], self.done)
        self._asked = [(self._message(arrays, config, site, online[site], MessageType.TRAIN), site) for site in present]
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
        state = records.to_record(self.coordinator.letter.arrays)
        online = self.roll.online(grid)
        ready = [site for site in sorted(online) if not self.standardize or site in self.moments.of]
        ready = self._late.without(ready, self.done, self.min_clients)
        named = ConfigRecord({**config, CERTIFICATE: True})
        self._asked = [(self._message(state, named, site, online[site], MessageType.EVALUATE), site) for site in ready]
        return [message for message, _ in self._asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Loss, objective and certificate of the model, over the sites that answered."""
        replies = list(replies)
        mean = super().aggregate_evaluate(server_round, replies)
        if not self._asked or mean is None:
            return None
        means = {n: float(v) for n, v in mean.items() if n not in (EXAMPLES, "round", "sites")}  # pyright: ignore
        psi = getattr(self.method, "regularizer", None)
        second_moments = self.examiner.second_moments(list(self._assessed))
        found = measure(psi, self.solution(), means, self._assessed, second_moments, self._conjugates)
        self.no_gap_because = found.no_gap_because
        self.history.append({"round": self.done, "sites": len(replies), **found.numbers})
        self.diary.save(self.coordinator)
        return MetricRecord({EXAMPLES: mean[EXAMPLES], **found.numbers})

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
    def met(self) -> bool:
        """Whether the sites have been met, so that there is a model."""
        return self._coordinator is not None

    @property
    def done(self) -> int:
        """Rounds that count so far."""
        return self.diary.before if self._coordinator is None else self._coordinator.done

    @property
    def converged(self) -> bool:
        """Whether the model as it is was found to be within `tol` of the optimum."""
        last = self.history[-1] if self.history else None
        return self.tol is not None and last is not None and last["round"] == self.done and distance(last) <= self.tol

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.done >= self.schedule.rounds or self.converged

    def solution(self) -> Params:
        """The model after the rounds that are done, as NumPy arrays."""
        return self.coordinator.solution()

    def scaling(self) -> Scaling | None:
        """How features were brought to common units, where `standardize` asks for it."""
        return self.moments.scaling()

    def configuration(self) -> dict[str, Any]:
        """What is run, ready for JSON."""
        named = {"method": str(self.method), "standardize": self.standardize, "examples": self.roll.examples}
        columns = {} if self.roll.form is None else {"columns": self.roll.form.columns}
        chosen = {"choose_step_size": self.choose_step_size, "aggregate": self.aggregate, "tol": self.tol}
        return {**named, **asdict(self.schedule), **columns, **chosen, "wrapper": self.wrapper}

    def say_how_far(self) -> None:
        """Say whether the run has converged."""
        if not self.history:
            return
        words = in_words(self.history[-1])
        why = f" (no duality gap: {self.no_gap_because})" if self.no_gap_because else ""
        if self.converged:
            log.info("converged after %d rounds: %s%s", self.done, words, why)
        elif self.tol is not None:
            log.warning(
                "not converged after %d rounds: %s%s; tol is %g. More rounds may help", self.done, words, why, self.tol
            )
        else:
            log.info("after %d rounds: %s%s", self.done, words, why)

    def columns(self) -> list[str] | None:
        """The names of the columns, where sites give them."""
        return None if self.roll.form is None else self.roll.form.columns

    # the parts of a round

    def prepare(self, grid: Grid, timeout: float) -> None:
        """Meet the sites, learn shapes and moments, and begin: at the starting point or at the checkpoint."""
        self._grid = Polling(grid)
        if self._coordinator is not None:
            return
        self.timeout = self.preparation.timeout = timeout
        again = self.diary.take_up(self._identity())
        self.began = True
        if self.finished and self.history and self.history[-1]["round"] == self.done:
            what = f"all {self.done} rounds were done" if self.done >= self.schedule.rounds else "the run had converged"
            log.info("%s before; nothing is left to do", what)
        else:
            self.attendance.meet(grid, self.done, timeout, again)
            cohort = self.schedule.cohort(self.done)
            self.attendance.measure(grid, self.done, cohort, lambda: self.preparation.ask(grid, self.done))
        if self.choose_step_size:
            self.use(with_step_size(self.method, 1 / max(self.moments.curvature.values())))
        coordinator = Coordinator(self.method, self._starting_point())
        self.diary.begin(self._identity(), coordinator)
        self._coordinator = coordinator
        self.examiner = Examiner(self.schedule, self.roll, self.moments, self.events, coordinator, self.loss_bounds)

    def use(self, method: LocalMethod) -> None:
        """Run this method."""
        self.method, self.description = method, recipes.describe(method)
        self.digest = recipes.digest(self.description)

    def arrays(self) -> ArrayRecord:
        """What goes to the clients in the next round; the solution when there is none."""
        return records.to_record(self._outgoing())

    def _outgoing(self) -> dict[str, np.ndarray]:
        last = self.finished
        return wire.to_arrays(self.solution()) if last else self.coordinator.letter.arrays

    def _take_step(self, arrays: ArrayRecord) -> None:
        """The server's step with the mean in `arrays`, once; what clients get next is written there."""
        if self._numbers is None:
            return
        mean = Letter(self._combined or records.from_record(arrays), self._numbers)
        self._numbers = self._combined = None
        self.coordinator.step(mean)
        self.diary.save(self.coordinator)
        records.overwrite(arrays, self._outgoing())

    def _message(self, arrays: ArrayRecord, config: ConfigRecord, site: str, node: int, kind: str) -> Message:
        job = self.schedule.job(self.done, self.roll.names.index(site), max(self.roll.examples.values()))
        numbers = {f"{NUMBER}{name}": value for name, value in self.coordinator.letter.numbers.items()}
        values = {**config, **self.description, **numbers, **self.moments.to_config(site), **job.to_config()}
        content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(values)})
        return Message(content, node, kind, ttl=self.timeout + 60, group_id=str(self.done))

    def examined(self, replies: Iterable[Message]) -> list[Message]:
        """Replies that count, in the order of the clients; everything else is reported and left out. Before wrappers see them."""
        is_train = any(message.metadata.message_type == MessageType.TRAIN for message, _ in self._asked)
        answers = self.examiner.sort(replies, self._asked, self.done, self.digest, is_train)
        if not is_train:
            self._assessed = answers.good
        for site in answers.silent:
            self.roll.doubt(site)
        self._late.note(answers.silent, list(answers.good), self.done)
        return list(answers.good.values())

    def _conjugates(self, factors: dict[str, float]) -> dict[str, float] | None:
        """The mean conjugates of the sites that answered the last evaluation, by a second question at the same state."""
        if self._grid is None:
            return None
        state = records.to_record(self.coordinator.letter.arrays)
        named = ConfigRecord({f"{CONJUGATE}{name}": value for name, value in factors.items()})
        online = self.roll.online(self._grid)
        messages = {
            site: self._message(state, named, site, online[site], MessageType.EVALUATE)
            for site in self._assessed
            if site in online
        }
        replies = self._grid.receive(list(messages.values()), self.timeout, self.min_clients)
        asked = [(message, site) for site, message in messages.items()]
        return self.examiner.conjugates(replies, asked, self.done, self.digest, factors)

    def _check_and_log_replies(
        self, replies: Iterable[Message], is_train: bool, validate: bool = True
    ) -> tuple[list[Message], list[Message]]:
        """All of them, for they were examined; none of a round that has too few."""
        self._unseen, good = False, list(replies)
        combine = AGGREGATES[self.aggregate]
        if is_train and good and combine is not None:
            states, weights = stacked(good)
            self._combined = combine(states, weights, self.coordinator.letter.arrays)
        return (good if not is_train or self.attendance.enough(self.done, len(good)) else []), []

    def _mean_numbers(self, replies: list[RecordDict], weighted_by: str) -> MetricRecord:
        """Flower's mean of the numbers in replies; noted, for the server's step needs those of the method's."""
        mean = aggregate_metricrecords(replies, weighted_by)
        self._numbers = {name: float(mean[name]) for name in self.coordinator.letters.numbers}  # pyright: ignore
        self.train_metrics[self.done + 1] = mean
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
        later = ("rounds", "examples", "columns", "tol")
        method = with_step_size(self.method, 1.0) if self.choose_step_size else self.method
        configuration = {name: value for name, value in self.configuration().items() if name not in later}
        own = {"method": " ".join(str(method).split()), "numbers of the method": fingerprint(method)}
        return {**configuration, **own, "deployed": True}
