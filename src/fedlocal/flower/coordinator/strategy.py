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

from fedlocal.core import LocalMethod, Params
from fedlocal.core.types import WeightsName
from fedlocal.data.moments import Scaling
from fedlocal.flower._flwr.messages import aggregate_metricrecords
from fedlocal.flower.checks.aggregation import AGGREGATES, AggregateName
from fedlocal.flower.checks.examiner import Examiner
from fedlocal.flower.checks.replies import mean_of_common, stacked
from fedlocal.flower.checks.site_moments import LossBounds
from fedlocal.flower.coordinator.evaluation import Convergence, Evaluator
from fedlocal.flower.coordinator.preparation import Preparation
from fedlocal.flower.coordinator.run_log import RunLog
from fedlocal.flower.coordinator.schedule import Schedule
from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.coordinator.site_registry import KnownSites, SiteRegistry
from fedlocal.flower.coordinator.waiting import Quorum, SlowSites, TooFewSites
from fedlocal.flower.messages import records
from fedlocal.flower.messages.records import EXAMPLES, WEIGHT
from fedlocal.flower.messages.serialization import Payload
from fedlocal.flower.site.app import CERTIFICATE
from fedlocal.methods import method_spec
from fedlocal.methods.contract import StepsOfRun, check_local_steps
from fedlocal.methods.table import with_step_size
from fedlocal.simulation.plan import Sampling
from fedlocal.util import checks, serialization
from fedlocal.util.hashing import fingerprint

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
        tol: stop when two evaluations in a row (the second one in the next round) find the duality gap below this share of
            the objective, or the KKT residual below it; None runs all rounds.
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
        weights: WeightsName = "uniform",
        seed: int = 0,
        min_clients: int | None = None,
        patience: float = 600.0,
        eval_every: int = 10,
        tol: float | None = None,
        aggregate: AggregateName = "mean",
        choose_step_size: bool = False,
        loss_bounds: LossBounds | None = None,
        standardize: bool = False,
        checkpoint: str | None = None,
    ):
        super().__init__(
            weighted_by_key=WEIGHT, train_metrics_aggr_fn=self._mean_numbers, evaluate_metrics_aggr_fn=mean_of_common
        )
        self.use(checks.instance(OWNER, "method", method, LocalMethod))
        self.sites = KnownSites(SiteRegistry(OWNER, sites, nodes), bounds=loss_bounds)
        sampling = Sampling(local_steps, local_epochs, batch_size, clients_per_round, weights, seed)
        self.schedule = Schedule.make(OWNER, rounds, self.sites.registry.size, sampling)
        if (steps := self.schedule.local_steps) is not None:  # else they follow from rows that only the sites know
            check_local_steps(OWNER, [StepsOfRun(self.method, min(steps), max(steps))])
        per_round = self.schedule.clients_per_round
        self.min_clients_given = min_clients is not None
        least = max(1, per_round - 1) if min_clients is None else min_clients
        self.min_clients = checks.whole(OWNER, "min_clients", least, at_most=per_round)
        seconds = checks.number(OWNER, "patience", patience, at_least=0)
        self.run_log = RunLog(checkpoint, self.sites)
        self.events, self.history = self.run_log.events, self.run_log.history
        self.convergence = Convergence(self.history, None if tol is None else checks.number(OWNER, "tol", tol, above=0))
        self.quorum = Quorum(self.sites.registry, self.min_clients, seconds, self.events)
        self.eval_every = checks.whole(OWNER, "eval_every", eval_every)
        self.aggregate = checks.choice(OWNER, "aggregate", aggregate, AGGREGATES)
        self.choose_step_size, self.standardize = bool(choose_step_size), bool(standardize)
        self.x0, self.checkpoint = x0, checkpoint
        self.preparation = Preparation(
            self.sites, self.events, self.min_clients, self.standardize, self.choose_step_size
        )
        self.wrapper: dict[str, Any] | None = None  # what `start` finds around this strategy
        self.began = False  # True once this run, and no other, may write its results
        self.train_metrics: dict[int, MetricRecord] = {}  # by round
        self._evaluator: Evaluator | None = None  # once the sites have been met, as all that depends on their model
        self._asked: list[tuple[Message, str]] = []  # messages of this round and the sites they went to
        self._numbers: dict[str, float] | None = None  # means of this round's replies, until the server's step is done
        self._participation = 1.0  # the share of all sites whose replies are in these means
        self._combined: dict[str, np.ndarray] | None = None  # this round's answers, combined other than by their mean
        self._unseen = False  # True if clients were asked to train and no reply was looked at yet
        self._slow = SlowSites()

    # what Flower calls

    def summary(self) -> None:
        """Log what will be run."""
        method, size = " ".join(str(self.method).split()), self.sites.registry.size
        log.info("%s, %d of %d rounds done, %d sites", method, self.done, self.schedule.rounds, size)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages for the clients of the next round. `arrays` becomes what they are sent."""
        self._take_step(arrays)
        self._asked = []
        if self.finished:
            return []
        clients = self.schedule.cohort(self.done)
        online, names = self.quorum.wait(grid, self.done, clients), self.sites.registry.names_of(clients)
        present = [site for site in names if site in online]
        asked = self._slow.without(present, self.done, self.min_clients)
        news = [(site, "not connected; left out") for site in names if site not in online]
        slow = "not asked, for it did not answer again and again; left out"
        self.events.add_all(self.done, [*news, *((site, slow) for site in present if site not in asked)])
        records.overwrite(arrays, records.to_record(self.coordinator.payload.arrays))
        present = self.preparation.measured(grid, {site: online[site] for site in asked}, self.done)
        self._slow.note([site for site in asked if site not in present], [], self.done)
        nodes = {site: online[site] for site in present}
        self._asked, self._unseen = self.evaluator.questions(MessageType.TRAIN, arrays, config, nodes), True
        return [message for message, _ in self._asked]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Take the server's step of the round; return questions for the loss, when they are due."""
        self._take_step(arrays)
        if self._unseen:  # a wrapper may have dropped a round's replies without showing them
            self._unseen = False
            self.quorum.enough(self.done, 0)
        due = self.done % self.eval_every == 0 or self.done == self.schedule.rounds
        due = due or self.convergence.reached(self.done - 1)  # to confirm it
        if not due or self.done == 0 or (self.history and self.history[-1]["round"] == self.done):
            self._asked = []
            return []
        state = records.to_record(self.coordinator.payload.arrays)
        online = self.sites.registry.online(grid)
        ready = [site for site in sorted(online) if not self.standardize or site in self.sites.moments.of]
        ready = self._slow.without(ready, self.done, self.min_clients)
        nodes, named = {site: online[site] for site in ready}, {**config, CERTIFICATE: True}
        self._asked = self.evaluator.questions(MessageType.EVALUATE, state, named, nodes)
        return [message for message, _ in self._asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return loss, objective and certificate of the model, over the sites that answered."""
        replies = list(replies)
        mean = super().aggregate_evaluate(server_round, replies)
        if not self._asked or mean is None:
            return None
        means = {n: float(v) for n, v in mean.items() if n not in (EXAMPLES, "round", "sites")}  # pyright: ignore
        found = self.evaluator.evaluate(means)
        self.convergence.no_gap_because = found.no_gap_because
        self.history.append({"round": self.done, "sites": len(replies), **found.numbers})
        self.run_log.save(self.coordinator)
        return MetricRecord({EXAMPLES: mean[EXAMPLES], **found.numbers})

    def start(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, grid: Grid, *, timeout: float = 3600.0
    ) -> Result:
        """Run all rounds that are left. `Result.arrays` is the solution; `timeout` is how long a round may take."""
        from fedlocal.flower.coordinator.server import start

        return start(self, grid, timeout=timeout)

    # what a user reads

    @property
    def evaluator(self) -> Evaluator:
        """What asks and examines the sites; RuntimeError before they have been met."""
        if self._evaluator is None:
            raise RuntimeError(f"{OWNER}: no site has been met yet; call start")
        return self._evaluator

    @property
    def coordinator(self) -> Coordinator:
        """The method's server."""
        return self.evaluator.examiner.coordinator

    @property
    def met(self) -> bool:
        """True if the sites have been met, so that there is a model."""
        return self._evaluator is not None

    @property
    def done(self) -> int:
        """Rounds that count so far."""
        return self.coordinator.done if self.met else self.run_log.before

    @property
    def converged(self) -> bool:
        """True if the present model was found to be within `tol` of the optimum."""
        return self.convergence.reached(self.done)

    @property
    def no_gap_because(self) -> str | None:
        """Why the last evaluation has no duality gap; None if it has one."""
        return self.convergence.no_gap_because

    @property
    def finished(self) -> bool:
        """True if nothing is left to do."""
        return self.done >= self.schedule.rounds or self.convergence.confirmed(self.done)

    def solution(self) -> Params:
        """Return the model after the rounds that are done, as NumPy arrays."""
        return self.coordinator.solution()

    def scaling(self) -> Scaling | None:
        """Return how features were brought to common units, where `standardize` asks for it."""
        return self.sites.moments.scaling()

    def configuration(self) -> dict[str, Any]:
        """Return what is run, ready for JSON."""
        named = {"method": str(self.method), "standardize": self.standardize, "examples": self.sites.registry.examples}
        columns = {} if self.sites.registry.signature is None else {"columns": self.columns()}
        chosen = {"choose_step_size": self.choose_step_size, "aggregate": self.aggregate, "tol": self.convergence.tol}
        return {**named, **asdict(self.schedule), **columns, **chosen, "wrapper": self.wrapper}

    def columns(self) -> list[str] | None:
        """Return the names of the columns, where sites give them."""
        return self.sites.columns()

    # the parts of a round

    def prepare(self, grid: Grid, timeout: float) -> None:
        """Meet the sites, learn shapes and moments, and begin: at the starting point or at the checkpoint."""
        if self._evaluator is not None:
            return
        self.preparation.timeout = timeout
        again = self.run_log.resume(self._identity())
        self.began = True
        if self.finished and self.history and self.history[-1]["round"] == self.done:
            what = f"all {self.done} rounds were done" if self.done >= self.schedule.rounds else "the run had converged"
            log.info("%s before; nothing is left to do", what)
        else:
            self.quorum.meet(grid, self.done, timeout, again)
            cohort = self.schedule.cohort(self.done)
            self.quorum.measure(grid, self.done, cohort, lambda: self.preparation.ask(grid, self.done))
        if self.choose_step_size:
            self.use(with_step_size(self.method, 1 / max(self.sites.moments.curvature.values())))
        dtype = jnp.result_type(float)
        x0 = self.sites.registry.parameters(dtype) if self.x0 is None else self.x0
        x0 = jax.tree.map(lambda a: np.asarray(a, getattr(a, "dtype", dtype)), x0)
        coordinator = Coordinator(self.method, x0)
        self.run_log.begin(self._identity(), coordinator)
        examiner = Examiner(coordinator, self.schedule, self.sites, self.events)
        self._evaluator = Evaluator(timeout, examiner)

    def use(self, method: LocalMethod) -> None:
        """Run this method; ValueError if it cannot be described to sites."""
        self.method = method
        method_spec.describe(method)

    def arrays(self) -> ArrayRecord:
        """Return what goes to the clients in the next round; the solution when there is none."""
        state = serialization.to_arrays(self.solution()) if self.finished else self.coordinator.payload.arrays
        return records.to_record(state)

    def _take_step(self, arrays: ArrayRecord) -> None:
        """Take the server's step with the mean in `arrays`, once, and write there what clients get next."""
        if self._numbers is None:
            return
        mean = Payload(self._combined or records.from_record(arrays), self._numbers)
        self._numbers = self._combined = None
        self.coordinator.step(mean, self._participation)
        self.run_log.save(self.coordinator)
        records.overwrite(arrays, self.arrays())

    def examined(self, replies: Iterable[Message]) -> list[Message]:
        """Return the replies that count, in the order of the clients, before wrappers see them; report the others."""
        is_train = any(message.metadata.message_type == MessageType.TRAIN for message, _ in self._asked)
        answers = self.evaluator.examiner.sort(replies, self._asked, is_train)
        for site in answers.silent:
            self.sites.registry.mark_unreachable(site)
        self._slow.note(answers.silent, list(answers.good), self.done)
        return list(answers.good.values())

    def _check_and_log_replies(
        self, replies: Iterable[Message], is_train: bool, validate: bool = True
    ) -> tuple[list[Message], list[Message]]:
        """Return all replies, for they were examined; none of a round that has too few."""
        self._unseen, good = False, list(replies)
        combine = AGGREGATES[self.aggregate]
        if is_train and good and combine is not None:
            states, weights = stacked(good)
            self._combined = combine(states, weights, self.coordinator.payload.arrays)
        return (good if not is_train or self.quorum.enough(self.done, len(good)) else []), []

    def _mean_numbers(self, replies: list[RecordDict], weighted_by: str) -> MetricRecord:
        """Return Flower's mean of the numbers in replies; keep those that the server's step needs."""
        mean = aggregate_metricrecords(replies, weighted_by)
        self._numbers = {name: float(mean[name]) for name in self.coordinator.serializer.numbers}  # pyright: ignore
        self._participation = len(replies) / self.sites.registry.size
        self.train_metrics[self.done + 1] = mean
        return mean

    # keeping

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Save the checkpoint when too few sites are left, and say in the error where it is."""
        try:
            yield
        except TooFewSites as error:
            if self.met:
                self.run_log.save(self.coordinator)
            if self.checkpoint is None or self.done == 0:
                raise
            kept = f"{self.done} rounds are kept in {self.checkpoint}, start again to go on"
            raise TooFewSites(f"{error}; {kept}") from None

    def _identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: all but the number of rounds and what is known only later."""
        later = ("rounds", "examples", "columns", "tol")
        method = with_step_size(self.method, 1.0) if self.choose_step_size else self.method
        configuration = {name: value for name, value in self.configuration().items() if name not in later}
        own = {"method": " ".join(str(method).split()), "numbers of the method": fingerprint(method)}
        return {**configuration, **own, "deployed": True}
