"""A small logistic regression between four sites of which b is hostile, and what should come out, in plain NumPy."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

import fedlocal as fl
from fedlocal.data.moments import Moments, Scaling
from fedlocal.flower import InProcess, LossBounds, Policy, Strategy, client_app
from oracles import transcripts

SIZES = {"a": 40, "b": 60, "c": 30, "d": 50}
HOSTILE = "b"
HONEST = frozenset(SIZES) - {HOSTILE}
NODES = {site: number for number, site in enumerate(SIZES, start=1)}
COLUMNS = ["age", "weight", "dose", "pressure"]
STEPS, ETA, L1 = 2, 0.5, 0.02
DUAL_AVERAGING = fl.methods.FedDualAvg(ETA, regularizer=fl.regularizers.L1(L1))
ACCELERATED = fl.methods.AcceleratedProximalGradient(ETA, regularizer=fl.regularizers.L1(L1))
Fault = Callable[[str, Message, Message], Message | None]  # (site, question, answer) -> the answer that arrives
Attacker = Callable[["AttackedGrid"], Fault]


@cache
def rows_of(site: str) -> tuple[np.ndarray, np.ndarray]:
    """Features in units of their own, and labels of both kinds."""
    rng = np.random.default_rng([7, NODES[site]])
    features = rng.standard_normal((SIZES[site], len(COLUMNS)))
    labels = features @ np.array([1.5, -1.0, 0.5, 0.0]) + rng.standard_normal(SIZES[site]) > 0.2
    return features * np.array([1.0, 10.0, 0.1, 3.0]) + np.array([5.0, 0.0, -1.0, 30.0]), np.where(labels, 1.0, -1.0)


def _problem(context: Context, scaling: Scaling | None = None) -> fl.problems.Logistic:
    features, labels = rows_of(str(context.node_config["data"]))
    features = features if scaling is None else scaling.apply(features)
    data = fl.FederatedData.from_clients([(jnp.asarray(features), jnp.asarray(labels))])
    return fl.problems.Logistic(data, intercept=True)


APP = client_app(
    _problem,
    moments_for_node=lambda context: Moments.of(rows_of(str(context.node_config["data"]))[0]),
    columns_for_node=lambda context: COLUMNS,
    policy=Policy.open(),
)


class AttackedGrid(InProcess):
    """Sites in this process. `fault` sees every answer and says what arrives instead, None for nothing."""

    def __init__(self, attacker: Attacker):
        super().__init__(APP, {site: {"data": site} for site in SIZES})
        self.before: list[Message] = []  # replies beside the others, that come first
        self.after: list[Message] = []  # and that come last
        self.fault = attacker(self)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        ids = list(super().push_messages(messages))
        for i, message in zip(ids, messages, strict=True):
            answer = self.waiting.pop(i)
            context = self.contexts.get(message.metadata.dst_node_id)
            arriving = answer if context is None else self.fault(str(context.node_config["site"]), message, answer)
            if arriving is not None:
                self.waiting[i] = arriving
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        before, after = (
            [reply for reply in replies if reply.metadata.reply_to_message_id in wanted]
            for replies in (self.before, self.after)
        )
        return [*before, *super().pull_messages(wanted), *after]

    def connect(self, node: int, site: str, data: str) -> None:
        """A node appears, under this name and with this site's data."""
        run = next(iter(self.contexts.values())).run_id
        self.contexts[node] = Context(run, node, {"site": site, "data": data}, RecordDict(), {})


def attacked(attacker: Attacker, **settings: Any) -> Strategy:
    """A run of which b is hostile, to its end."""
    usual: dict[str, Any] = {"rounds": 1, "sites": list(SIZES), "nodes": NODES, "local_steps": STEPS}
    usual |= {"weights": "examples", "standardize": True, "loss_bounds": LossBounds(1.0, 0.25), "patience": 0.3}
    timeout = settings.pop("timeout", 30.0)
    strategy = Strategy(settings.pop("method", DUAL_AVERAGING), **(usual | settings))
    strategy.start(AttackedGrid(attacker), timeout=timeout)
    return strategy


# what should come out


@cache
def scaled(in_moments: frozenset[str]) -> dict[str, np.ndarray]:
    """[X 1] of every site, X standardised over the rows of these sites."""
    pooled = np.concatenate([rows_of(site)[0] for site in sorted(in_moments)])
    return {s: np.c_[(rows_of(s)[0] - pooled.mean(axis=0)) / pooled.std(axis=0), np.ones(SIZES[s])] for s in SIZES}


def gradient(site: str, x: np.ndarray, in_moments: frozenset[str]) -> np.ndarray:
    """The gradient of a site's logistic loss."""
    matrix, labels = scaled(in_moments)[site], rows_of(site)[1]
    return matrix.T @ (-labels / (1 + np.exp(labels * (matrix @ x)))) / len(labels)


def chosen_step_size(sites: Collection[str]) -> float:
    """1 / the largest curvature of these sites' losses, lambda_max([X 1]'[X 1] / n) / 4."""
    tables = [scaled(frozenset(SIZES))[site] for site in sites]
    return 4 / max(float(np.linalg.eigvalsh(a.T @ a / len(a)).max()) for a in tables)


def loss(x: np.ndarray, sites: Collection[str], in_moments: frozenset[str] = frozenset(SIZES)) -> float:
    """The mean logistic loss over the rows of these sites."""
    rows = [np.log1p(np.exp(-rows_of(s)[1] * (scaled(in_moments)[s] @ x))) for s in sorted(sites)]
    return float(np.concatenate(rows).mean())


def expected(
    present: Sequence[Collection[str]], in_moments: Collection[str] = SIZES, method: Any = None, eta: float = ETA
) -> np.ndarray:
    """The model where these sites' answers count in each round, by the transcripts of the papers."""
    moments = frozenset(in_moments)
    tables = []
    for sites in present:
        total = sum(SIZES[site] for site in sites)
        grads = {site: (lambda x, site=site: gradient(site, x, moments)) for site in sorted(sites)}
        tables.append([(SIZES[site] / total, [g] * STEPS) for site, g in grads.items()])
    x0, psi = np.zeros(len(COLUMNS) + 1), transcripts.l1(L1, np.arange(len(COLUMNS) + 1) < len(COLUMNS))
    if method is ACCELERATED:
        return transcripts.accelerated_proximal_gradient(x0, tables, eta, psi)[-1]
    return transcripts.fed_dual_avg(x0, tables, ETA, 1.0, psi)[-1]


def model_of(strategy: Strategy) -> np.ndarray:
    x = strategy.solution()
    return np.append(np.asarray(x["weights"]), np.asarray(x["intercept"]))


def config_of(message: Message) -> ConfigRecord:
    return next(iter(message.content.config_records.values()))
