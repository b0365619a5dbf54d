"""Three sites in this process, what may go wrong between them and the server, and what should come out, in plain NumPy."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

import fedlocal as fl
from conformance.cases import ETA, SERVER_ETA, Case
from conformance.federation import MASK, SHAPE, flat, rounds_of, start
from fedlocal.flower import Event, InProcess, Policy, Strategy, client_app
from oracles import transcripts

NAMES = ("a", "b", "c")
FULL: dict[str, Any] = {"local_steps": 2, "weights": "uniform"}
EPOCHS: dict[str, Any] = {"local_steps": None, "local_epochs": 1, "batch_size": 4, "weights": "examples"}
Fault = Callable[[str, Message, Message], Message | None]  # (site, question, answer) -> the answer that arrives


def problem_of(sizes: tuple[int, ...] = (6, 6, 6), shape: tuple[int, int] = SHAPE) -> fl.problems.MatrixSensing:
    """A client with so many examples for each size; equal sizes compile once."""
    rng = np.random.default_rng(5)
    clients = [(rng.standard_normal((n, *shape)) + rng.standard_normal(shape), rng.standard_normal(n)) for n in sizes]
    return fl.problems.MatrixSensing(fl.FederatedData.from_clients(clients))


PROBLEM = problem_of()
X0 = start(False)
FED_AVG = Case(
    fl.methods.FedAvg(ETA, SERVER_ETA), lambda x0, rounds, mask: transcripts.fed_avg(x0, rounds, ETA, SERVER_ETA)
)


def app_of(problem: fl.problems.MatrixSensing = PROBLEM, **more: Any) -> ClientApp:
    """Every node finds its number in its configuration and has that client's data."""
    more.setdefault("policy", Policy.open())
    return client_app(lambda context: fl.problems.only(problem, int(context.node_config["m"])), **more)


def configuration(names: Iterable[str] = NAMES) -> dict[str, dict[str, Any]]:
    return {name: {"m": m} for m, name in enumerate(names)}


def node(number: int, site: str, m: int) -> Context:
    """A node as it is when it has just connected."""
    return Context(0, number, {"site": site, "m": m}, RecordDict(), {})


class Sites(InProcess):
    """Sites that may misbehave: `fault` sees every answer and says what arrives instead, None for nothing."""

    def __init__(
        self,
        app: ClientApp | None = None,
        sites: Mapping[str, Mapping[str, Any]] | None = None,
        fault: Fault | None = None,
    ):
        super().__init__(app_of() if app is None else app, configuration() if sites is None else sites)
        self.fault = fault
        self.questions: list[Message] = []
        self.answers: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        ids = list(super().push_messages(messages))
        for i, message in zip(ids, messages, strict=True):
            answer: Message | None = self.waiting.pop(i)
            self.questions.append(message)
            self.answers.append(answer)
            context = self.contexts.get(message.metadata.dst_node_id)
            if self.fault is not None and context is not None:
                answer = self.fault(str(context.node_config["site"]), message, answer)
            if answer is not None:
                self.waiting[i] = answer
        return ids

    def asked(self, kind: str) -> list[Message]:
        """The questions of one kind that were sent."""
        return [message for message in self.questions if message.metadata.message_type == kind]


def config_of(message: Message) -> ConfigRecord:
    return next(iter(message.content.config_records.values()))


def training(message: Message, rounds: Collection[int]) -> bool:
    """Whether a question asks to train in one of these rounds, counted from 0."""
    return message.metadata.message_type == MessageType.TRAIN and config_of(message)["settings.round"] in rounds


def expected(
    case: Case,
    rounds: int,
    absent: Collection[tuple[int, int]] = (),
    problem: fl.problems.MatrixSensing = PROBLEM,
    x0: Any = X0,
    **sampling: Any,
) -> np.ndarray:
    """The transcript's solution, where clients are left out of rounds: (round, client), counted from 0."""
    tables = rounds_of(problem, rounds, **sampling)
    for r, clients in enumerate(tables):
        there = [client for m, client in enumerate(clients) if (r, m) not in absent]
        total = sum(weight for weight, _ in there)
        tables[r] = [(weight / total, grads) for weight, grads in there]
    return case.transcript(flat(x0), tables, MASK)[-1]


def strategy(case: Case, rounds: int, **more: Any) -> Strategy:
    return Strategy(
        case.method, **({"rounds": rounds, "sites": NAMES, "x0": X0, "patience": 5.0, "min_clients": len(NAMES)} | more)
    )


def distance(found: Any, wanted: np.ndarray) -> float:
    """Largest difference between a model and the transcript's."""
    return float(np.abs(flat(jax.tree.map(np.asarray, found)) - wanted).max())


def events_of(events: Iterable[Event], site: str) -> list[tuple[int, str]]:
    return [(event.round - 1, event.what) for event in events if event.site == site]
