"""Rounds of a local method on the sites' losses, until the certificate is good enough or the rounds are used up."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod, Params, Regularizer, static
from fedlocal.engines import simulate
from fedlocal.estimators.fits import Fit, Goal, Watch
from fedlocal.estimators.gaps import certified
from fedlocal.estimators.penalties import Penalty
from fedlocal.estimators.pool import Pool
from fedlocal.federated_data import FederatedData
from fedlocal.methods import FedAc, FedAvg, FedDualAvg, FedMiD
from fedlocal.problems.data_problem import DataProblem
from fedlocal.problems.linear import cross_entropy
from fedlocal.regularizers import SquaredL2
from fedlocal.theory.linear_model import krylov_top
from fedlocal.theory.step_sizes import largest_step_size

METHODS = ("fed_dual_avg", "fed_mid", "fed_avg", "fed_ac")
SMOOTH = ("fed_avg", "fed_ac")  # those without a regulariser
LOOKS = 20  # at the certificate, in all rounds


class SiteLoss(DataProblem):
    """F_m(x) = mean_i weight_i loss(a_i'x + b, target_i) + l2/2 ||x||^2 over the examples of site m."""

    data: FederatedData  # features, targets, weights
    l2: float
    kind: str = static()  # of loss
    shape: tuple[int, ...] = static()  # of the weights
    outputs: int = static()
    intercept: bool = static()

    def __init__(self, data: FederatedData, pool: Pool, shape: tuple[int, ...], l2: float):
        self.data, self.l2, self.shape = data, l2, shape
        self.kind, self.outputs, self.intercept = type(pool.loss).__name__, pool.loss.outputs, pool.intercept

    def init(self, key: jax.Array) -> Params:
        x = {"weights": jnp.zeros(self.shape)}
        return {**x, "intercept": jnp.zeros(self.outputs)} if self.intercept else x

    def losses(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        features, targets, weights = examples
        scores = features @ x["weights"].reshape(-1, self.outputs)
        scores = scores + x["intercept"] if self.intercept else scores
        if self.kind == "Squares":
            return weights * (scores[:, 0] - targets) ** 2 / 2
        if self.kind == "Logistic":
            return weights * jax.nn.softplus(-targets * scores[:, 0])
        return weights * cross_entropy(scores, targets)

    def penalty(self, x: Params) -> jax.Array:
        return self.l2 / 2 * jnp.sum(x["weights"] ** 2)


@dataclass(frozen=True)
class LocalWork:
    """Which method the sites run, and how."""

    method: str
    weights: str  # of the sites: "examples" or "sites"
    steps: int  # full local gradients of a round
    rounds: int
    client_step_size: float | None  # None: the largest that the method's theorems allow, for the least smooth site
    server_step_size: float | None

    def build(self, smoothness: float, l2: float, regularizer: Regularizer) -> LocalMethod:
        """The method; `smoothness` is that of the losses without l2."""
        client = self.client_step_size or largest_step_size(self.method, smoothness + l2)
        if self.method == "fed_ac":
            return FedAc.one(step_size=client, strong_convexity=l2, local_steps=self.steps)
        server = 1.0 if self.server_step_size is None else self.server_step_size
        if self.method == "fed_avg":
            return FedAvg(client, server)
        return (FedDualAvg if self.method == "fed_dual_avg" else FedMiD)(client, server, regularizer)


class _Enough(Exception):
    """The certificate is good enough."""


def local_rounds(
    pool: Pool,
    penalty: Penalty,
    regularizer: Regularizer,
    shape: tuple[int, ...],
    sites: np.ndarray,
    start: tuple[np.ndarray, np.ndarray],
    work: LocalWork,
    *,
    goal: Goal,
    watch: Watch,
) -> Fit:
    """Rounds of a local method from the weights and intercepts `start`; `sites` has the number of each example's site."""
    every, last = -(-work.rounds // LOOKS), certified(pool, penalty, *start, goal, 0)

    def look(params: Params) -> dict[str, float]:
        nonlocal last
        done = min(last.iterations + every, work.rounds) if looks else 0
        for _ in range(done - last.iterations):
            pool.sent.exchange(numbers, numbers)
        x = np.asarray(params["weights"]).reshape(-1, pool.loss.outputs)
        with np.errstate(over="ignore", invalid="ignore"):  # it may have diverged
            last = certified(pool, penalty, x, np.asarray(params.get("intercept", start[1])), goal, done)
        looks.append(done)
        watch("local", last.certificate, x)
        if last.converged:
            raise _Enough
        return {}

    looks: list[int] = []
    order, sizes = np.argsort(sites, kind="stable"), np.bincount(sites)
    share = sizes / len(sites) if work.weights == "examples" else np.full(len(sizes), 1 / len(sizes))
    scale = pool.weights * (sizes / share)[sites]  # of a loss in the mean over its site's examples
    with jax.enable_x64(True):
        data = FederatedData((pool.features[order], pool.targets[order], scale[order]), np.cumsum(sizes) - sizes, sizes)
        l2 = float(regularizer.strength) if work.method in SMOOTH and isinstance(regularizer, SquaredL2) else 0.0
        problem = SiteLoss(data, pool, shape, l2)
        method = work.build(_smoothness(pool, sites, scale / sizes[sites]), l2, regularizer)
        x0 = {"weights": jnp.asarray(start[0].reshape(shape))}
        x0 |= {"intercept": jnp.asarray(start[1])} if pool.intercept else {}
        numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(method.init(x0)))  # of the state that goes down, and up
        pool.sent.exchange(0, 1)  # smoothness
        options: dict[str, Any] = {"rounds": work.rounds, "local_steps": work.steps, "eval_every": every}
        weights = "examples" if work.weights == "examples" else "uniform"
        with suppress(_Enough):
            simulate(problem, method, x0=x0, weights=weights, metrics=[look], **options)
    return last


def _smoothness(pool: Pool, sites: np.ndarray, scale: np.ndarray) -> float:
    """The largest smoothness of a site's loss sum_i scale_i loss_i."""

    def top(rows: np.ndarray) -> float:
        features, h = pool.features[rows], scale[rows]

        def product(v: np.ndarray) -> np.ndarray:
            scores = h * (features @ v[: pool.width] + (v[-1] if pool.intercept else 0.0))
            g = features.T @ scores
            return np.append(g, scores.sum()) if pool.intercept else g

        return krylov_top(product, pool.width + pool.intercept)

    return pool.loss.smoothness * max(top(np.flatnonzero(sites == m)) for m in range(sites.max() + 1))
