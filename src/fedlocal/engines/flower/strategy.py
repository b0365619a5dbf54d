"""Strategy: any method of this library as a Flower strategy.

Flower averages what clients reply; what is done with the mean is the method's. Everything that Flower lets a wrapper see is as
wrappers expect it: `arrays` is what clients are sent, replies have its form, and their mean is Flower's own.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fedlocal import checks, recipes, wire
from fedlocal.core import LocalMethod, Params, Server
from fedlocal.data.moments import Scaling
from fedlocal.engines.checkpoint import Checkpoint, fingerprint
from fedlocal.engines.flower import records
from fedlocal.engines.flower.client import NUMBER, SCALING
from fedlocal.engines.flower.events import Event, Events
from fedlocal.engines.flower.jobs import Job
from fedlocal.engines.flower.letters import Letter, Letters
from fedlocal.engines.flower.patience import Patience, TooFewSites
from fedlocal.engines.flower.records import ARRAYS, CONFIG, WEIGHT
from fedlocal.engines.flower.replies import Expected, Sorted
from fedlocal.engines.flower.roll import Roll
from fedlocal.engines.plan import COHORT_BLOCK, WEIGHTS, cohort_table

log = logging.getLogger("fedlocal")


class Strategy(FedAvg):
    """A Flower strategy that runs a method as `simulate` does, between machines.

    Args:
        method: the algorithm, e.g. `fl.methods.FedDualAvg(...)`.
        rounds: communication rounds.
        sites: how many sites there are, or their names; a site is called by `site` of its node's configuration.
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
        owner = "Strategy"
        super().__init__(weighted_by_key=WEIGHT, train_metrics_aggr_fn=self._mean_numbers)
        self.method = checks.instance(owner, "method", method, LocalMethod)
        self.description = recipes.describe(method)
        self.digest = recipes.digest(self.description)
        self.rounds = checks.whole(owner, "rounds", rounds)
        self.roll = Roll(owner, sites)
        if (local_steps is None) == (local_epochs is None):
            raise ValueError(f"{owner}: give either local_steps or local_epochs")
        self.steps = None if local_steps is None else _steps(owner, local_steps, self.roll.size)
        self.epochs = None if local_epochs is None else checks.whole(owner, "local_epochs", local_epochs)
        self.batch_size = None if batch_size is None else checks.whole(owner, "batch_size", batch_size)
        per_round = self.roll.size if clients_per_round is None else clients_per_round
        self.per_round = checks.whole(owner, "clients_per_round", per_round, at_most=self.roll.size)
        self.weights = checks.choice(owner, "weights", weights, WEIGHTS)
        self.seed = checks.whole(owner, "seed", seed, at_least=0, at_most=2**31 - 1)
        least = self.per_round if min_clients is None else min_clients
        self.min_clients = checks.whole(owner, "min_clients", least, at_most=self.per_round)
        self.patience = Patience(checks.number(owner, "patience", patience, at_least=0))
        self.eval_every = checks.whole(owner, "eval_every", eval_every)
        self.standardize, self.x0, self.checkpoint_path = bool(standardize), x0, checkpoint
        self.timeout = 3600.0
        self.done = 0  # rounds
        self.events = Events()
        self.history: list[dict[str, float]] = []
        self.server: Server = None
        self.saved: Checkpoint | None = None
        self.accountant: Any = None  # of a wrapper that keeps account of privacy; `start` sets it
        self._asked: list[tuple[Message, str]] = []  # messages of this round and the sites they went to
        self._numbers: dict[str, float] | None = None  # means of this round's replies, until the server's step is done
        self._unseen = False  # whether clients were asked to train and no reply was looked at yet

    # what Flower calls

    def summary(self) -> None:
        """Log what will be run."""
        log.info("fedlocal: %s, %d of %d rounds done, %d sites", self.method, self.done, self.rounds, self.roll.size)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages for the clients of the next round. `arrays` becomes what they are sent."""
        self._take_step(arrays)
        if self.done == self.rounds:
            return []
        online = self._wait_for_sites(grid)
        for site in self._cohort():
            if site not in online:
                self.events.add(self.done, site, "not connected; left out")
        self._write(arrays, self.letter.arrays)
        present = [site for site in self._cohort() if site in online]
        self._asked = [(self._message(arrays, config, site, online[site]), site) for site in present]
        self._unseen = True
        return [message for message, _ in self._asked]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The server's step of the round; then questions for the loss, when they are due."""
        self._take_step(arrays)
        self._notice_lost_round()
        due = self.done % self.eval_every == 0 or self.done == self.rounds
        if not due or self.done == 0 or (self.history and self.history[-1]["round"] == self.done):
            self._asked = []
            return []
        x = records.to_record(wire.to_arrays(self.solution()))
        values = ConfigRecord({**config, "weights": self.weights, **self._scaling()})
        content = RecordDict({ARRAYS: x, CONFIG: values})
        online = self.roll.online(grid)
        self._asked = [
            (Message(content, node, MessageType.EVALUATE, ttl=self.timeout + 60), site)
            for site, node in sorted(online.items())
        ]
        return [message for message, _ in self._asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean loss over the sites that answered, and the objective."""
        asked = bool(self._asked)
        mean = super().aggregate_evaluate(server_round, replies)
        if not asked or mean is None:
            return None
        psi = getattr(self.method, "regularizer", None)
        with self._precision():
            penalty = 0.0 if psi is None else float(psi.value(jax.tree.map(jnp.asarray, self.solution())))
        mean["objective"] = float(mean["loss"]) + penalty  # pyright: ignore[reportArgumentType]
        self.history.append({"round": self.done, **{n: v for n, v in mean.items() if not isinstance(v, list)}})
        self._save()
        return mean

    def start(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, grid: Grid, *, timeout: float = 3600.0
    ) -> Result:
        """Run all rounds that are left. `Result.arrays` is the solution; `timeout` is how long a round may take."""
        from fedlocal.engines.flower.server import start

        return start(self, grid, timeout=timeout)

    # what a user reads

    def solution(self) -> Params:
        """The model after the rounds that are done, as NumPy arrays."""
        with self._precision():
            return jax.tree.map(np.asarray, self.method.solution(jax.tree.map(jnp.asarray, self.server)))

    def configuration(self) -> dict[str, Any]:
        """What is run, ready for JSON."""
        return {
            "method": str(self.method),
            "rounds": self.rounds,
            "sites": self.roll.size,
            "examples": self.roll.examples,
            "local_steps": self.steps,
            "local_epochs": self.epochs,
            "batch_size": self.batch_size,
            "clients_per_round": self.per_round,
            "weights": self.weights,
            "seed": self.seed,
            "standardize": self.standardize,
        }

    # the parts of a round

    def prepare(self, grid: Grid, timeout: float) -> None:
        """Meet the sites, learn shapes and moments, and begin: at the starting point or at the checkpoint."""
        if self.server is not None:
            return
        self.timeout = timeout
        kept = _peek(self.checkpoint_path)
        if kept is not None:
            self.roll.resume(kept["roll"])
        self._meet(grid, everyone=kept is None)
        if self.standardize and self.roll.moments is None:
            self.roll.ask_moments(grid, timeout)
        dtype = jnp.result_type(float)
        x0 = self.roll.parameters(dtype) if self.x0 is None else self.x0
        self.x0 = jax.tree.map(lambda a: np.asarray(a, a.dtype if hasattr(a, "dtype") else dtype), x0)
        with self._precision():
            self.server = jax.tree.map(np.asarray, self.method.init(jax.tree.map(jnp.asarray, self.x0)))
            self.letters = Letters(self.method, self.x0)
        self.saved = None if self.checkpoint_path is None else Checkpoint(self.checkpoint_path, self._identity())
        previous = None if self.saved is None else self.saved.load(self.server)
        if previous is not None:
            self.done, self.server, extra = previous
            self.history = extra["history"]
            if self.accountant is not None and "privacy" in extra:
                self.accountant.load_state_dict(extra["privacy"])
            self.events[:0] = [Event(**event) for event in extra["events"]]
            self.events.add(self.done, "", f"continued from {self.checkpoint_path} after {self.done} rounds")
        self.letter = self._letter()

    def arrays(self) -> ArrayRecord:
        """What goes to the clients in the next round; the solution when there is none."""
        return records.to_record(self._outgoing())

    def _letter(self) -> Letter:
        with self._precision():
            sent = self.method.broadcast(jax.tree.map(jnp.asarray, self.server))
            return self.letters.down(jax.tree.map(np.asarray, sent))

    def _outgoing(self) -> dict[str, np.ndarray]:
        return wire.to_arrays(self.solution()) if self.done == self.rounds else self.letter.arrays

    def _take_step(self, arrays: ArrayRecord) -> None:
        """The server's step with the mean in `arrays`, once; what clients get next is written there."""
        if self._numbers is None:
            return
        mean = Letter(records.from_record(arrays), self._numbers)
        self._numbers = None
        with self._precision():
            message = jax.tree.map(jnp.asarray, self.letters.read_up(self.letter, mean))
            server = self.method.update(jax.tree.map(jnp.asarray, self.server), message)
            server = jax.tree.map(np.asarray, server)
        if not all(np.isfinite(a).all() for a in jax.tree.leaves(server)):
            raise FloatingPointError(f"diverged in round {self.done + 1}; try smaller step sizes")
        self.server, self.done = server, self.done + 1
        self.letter = self._letter()
        self._save()
        self._write(arrays, self._outgoing())

    def _message(self, arrays: ArrayRecord, config: ConfigRecord, site: str, node: int) -> Message:
        m = self.roll.names.index(site)
        job = Job(
            round=self.done,
            client=m,
            seed=self.seed,
            weights=self.weights,
            local_steps=None if self.steps is None else self.steps[m],
            local_epochs=self.epochs,
            batch_size=self.batch_size,
            largest=None if self.epochs is None else max(self.roll.examples.values()),
        )
        numbers = {f"{NUMBER}{name}": value for name, value in self.letter.numbers.items()}
        values = {**config, **self.description, **numbers, **self._scaling(), **job.to_config()}
        content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(values)})
        return Message(content, node, MessageType.TRAIN, ttl=self.timeout + 60, group_id=str(self.done))

    def _scaling(self) -> dict[str, list[float]]:
        if self.roll.moments is None:
            return {}
        return {f"{SCALING}{name}": a.tolist() for name, a in self.scaling()._asdict().items()}

    def scaling(self) -> Scaling:
        """How features were brought to common units, where `standardize` asks for it."""
        assert self.roll.moments is not None
        return self.roll.moments.scaling()

    def _check_and_log_replies(
        self, replies: Iterable[Message], is_train: bool, validate: bool = True
    ) -> tuple[list[Message], list[Message]]:
        """Replies that count, in the order of the clients; everything else is reported and left out."""
        self._unseen = False
        asked = {message.metadata.message_id: site for message, site in self._asked}
        expected = Expected(self.done, self.digest, self.weights, self.letters)
        answers = Sorted.of(replies, asked, expected, is_train)
        for site, why in answers.bad.items():
            self.events.add(self.done, site, f"{why}; left out")
        for site in answers.silent:
            self.events.add(self.done, site, "no answer in time; left out")
            self.roll.doubt(site)
        if is_train and len(answers.good) < self.min_clients:
            self._lose_round(len(answers.good))
            return [], []
        if is_train:
            self.patience.calm()
        return answers.good, []

    def _mean_numbers(self, replies: list[RecordDict], weighted_by: str) -> MetricRecord:
        """Flower's mean of the numbers in replies; noted, for the server's step needs those of the method's."""
        mean = aggregate_metricrecords(replies, weighted_by)
        self._numbers = {name: float(mean[name]) for name in self.letters.numbers}  # pyright: ignore
        return mean

    # waiting

    def _cohort(self) -> list[str]:
        """The sites of this round, those that never came included."""
        block, i = divmod(self.done, COHORT_BLOCK)
        clients = cohort_table(self.seed, self.roll.size, self.per_round, block)[i].tolist()
        return [self.roll.names[m] if m < len(self.roll.names) else f"site {m}" for m in clients]

    def _online(self, grid: Grid) -> dict[str, int]:
        for site, what in self.roll.call(grid, self._x64()):
            self.events.add(self.done, site, what)
        return self.roll.online(grid)

    def _meet(self, grid: Grid, everyone: bool) -> None:
        """Wait until all sites are there; when patience is over, or on the way already, until enough of them are."""
        while len(online := self._online(grid)) < self.roll.size:
            enough, late = len(online) >= self.min_clients, self.patience.lost()
            if enough and (late or not everyone):
                break
            if late:
                raise TooFewSites(self._complaint(len(online)))
            self.patience.wait()
        self.patience.calm()

    def _wait_for_sites(self, grid: Grid) -> dict[str, int]:
        """The nodes of the sites that are there, once there are enough of them for this round."""
        while True:
            online = self._online(grid)
            there = sum(site in online for site in self._cohort())
            if there >= self.min_clients:
                return online
            self._be_patient(there)

    def _notice_lost_round(self) -> None:
        """A wrapper may have dropped a round's replies without showing them."""
        if self._unseen:
            self._lose_round(0)
        self._unseen = False

    def _lose_round(self, answers: int) -> None:
        self.events.add(self.done, "", f"{answers} answers, {self.min_clients} needed; the round is repeated")
        self._be_patient(answers)

    def _be_patient(self, there: int) -> None:
        if self.patience.lost():
            self._save()
            raise TooFewSites(self._complaint(there))
        self.patience.wait()

    def _complaint(self, there: int) -> str:
        kept = "" if self.saved is None else f"; {self.done} rounds are kept in {self.saved.path}, start again to go on"
        refused = "".join(f"; refused: {why}" for why in self.roll.refused.values())
        return (
            f"Strategy: {there} of {self.roll.size} sites answered, {self.min_clients} are needed, and after "
            f"{self.patience.seconds:g} s patience is over{refused}{kept}"
        )

    # keeping

    def _identity(self) -> dict[str, Any]:
        return {
            "numbers of the method": fingerprint(self.method),
            "x0": fingerprint(self.x0),
            **{name: value for name, value in self.configuration().items() if name not in ("rounds", "examples")},
        }

    def _save(self) -> None:
        if self.saved is not None:
            extra = {"roll": self.roll.to_json(), "history": self.history, "events": self.events.to_json()}
            if self.accountant is not None:
                extra["privacy"] = self.accountant.state_dict()
            self.saved.save(self.done, self.server, extra)

    def _x64(self) -> bool:
        leaves = jax.tree.leaves(self.x0)
        return (
            any(np.asarray(a).dtype == np.float64 for a in leaves) if leaves else jnp.result_type(float) == np.float64
        )

    def _precision(self) -> Any:
        return jax.enable_x64(self._x64())

    @staticmethod
    def _write(arrays: ArrayRecord, values: dict[str, np.ndarray]) -> None:
        """In place, so that whoever holds `arrays` (a wrapper that clips, the result) sees them."""
        record = records.to_record(values)
        arrays.clear()
        arrays.update(record)


def _steps(owner: str, local_steps: Any, sites: int) -> list[int]:
    steps = [local_steps] * sites if np.ndim(local_steps) == 0 else list(local_steps)
    if len(steps) != sites:
        raise ValueError(f"{owner}: local_steps must be one number or one per site ({sites}), got {len(steps)}")
    return [checks.whole(owner, "local_steps", k) for k in steps]


def _peek(path: str | None) -> dict[str, Any] | None:
    """What a checkpoint keeps besides the state; None when there is none yet."""
    read = None if path is None else Checkpoint(path, {}).read()
    return None if read is None else read[0]["extra"]
