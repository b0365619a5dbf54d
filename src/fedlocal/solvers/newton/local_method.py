"""Rounds of a local method on the sites' losses, until the certificate is good enough or the rounds are used up."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Params, Regularizer, static
from fedlocal.core.types import WeightsName
from fedlocal.data.federated_data import FederatedData
from fedlocal.losses import ScoreLoss
from fedlocal.methods.table import ROWS, MethodArguments, method_row
from fedlocal.problems.data_problem import DataProblem
from fedlocal.simulation.single_run import simulate
from fedlocal.solvers.newton.stopping import FitResult, PenalizedSums, Start
from fedlocal.solvers.newton.weighted_sums import WeightedSums
from fedlocal.util.linalg import krylov_top

METHODS = tuple(row.key for row in ROWS if row.largest_step is not None)
SMOOTH = tuple(row.key for row in ROWS if not row.composite)  # they take no regulariser
NEWTON = "prox_newton"
EVALUATIONS = 20  # of the certificate, in all rounds


class SiteLoss(DataProblem):
    """F_m(x) = mean_i weight_i loss(a_i'x + b, target_i) + l2/2 ||x||^2 over the examples of site m."""

    data: FederatedData  # features, targets, weights
    l2: float
    score_loss: ScoreLoss = static()
    shape: tuple[int, ...] = static()  # of the weights
    intercept: bool = static()

    def __init__(self, data: FederatedData, sums: WeightedSums, shape: tuple[int, ...], l2: float):
        self.data, self.l2, self.shape = data, l2, shape
        self.score_loss, self.intercept = sums.loss, sums.intercept

    def init(self, key: jax.Array) -> Params:
        x = {"weights": jnp.zeros(self.shape)}
        return {**x, "intercept": jnp.zeros(self.score_loss.outputs)} if self.intercept else x

    def losses(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        features, targets, weights = examples
        scores = features @ x["weights"].reshape(-1, self.score_loss.outputs)
        scores = scores + x["intercept"] if self.intercept else scores
        return weights * self.score_loss.value(scores[:, 0] if self.score_loss.outputs == 1 else scores, targets)

    def penalty(self, x: Params) -> jax.Array:
        return self.l2 / 2 * jnp.sum(x["weights"] ** 2)


@dataclass(frozen=True)
class FitOptions:
    """How a fit is done."""

    method: str  # NEWTON, or a local method that comes first
    weights: WeightsName  # of the sites
    steps: int  # full local gradients of a round
    rounds: int  # of the local method
    client_step_size: float | None  # None: the largest that the method's theorems allow, for the least smooth site
    server_step_size: float | None
    finish: bool  # True if Newton iterations follow the local method
    max_iter: int  # Newton iterations


def local_rounds(
    task: PenalizedSums, sites: np.ndarray, psi: Regularizer, shape: tuple[int, ...], start: Start, options: FitOptions
) -> FitResult:
    """Run rounds of a local method until the certificate is good enough or the rounds are used up.

    `sites` has the number (n,) of each example's site; `shape` is that of the weights, as the regulariser sees them.
    """
    sums = task.sums
    last = task.fit_at(*start, 0)

    def is_good_enough(row: dict[str, float], params: Params) -> bool:
        nonlocal last
        done = int(row["round"])
        for _ in range(done - last.iterations):
            sums.sent.exchange(numbers, numbers)
        x = np.asarray(params["weights"]).reshape(-1, sums.loss.outputs)
        with np.errstate(over="ignore", invalid="ignore"):  # it may have diverged
            last = task.fit_at(x, np.asarray(params.get("intercept", start[1])), done, "local")
        return last.converged

    order, sizes = np.argsort(sites, kind="stable"), np.bincount(sites)
    share = sizes / len(sites) if options.weights == "examples" else np.full(len(sizes), 1 / len(sizes))
    scale = sums.weights * (sizes / share)[sites]  # of a loss in the mean over its site's examples
    with jax.enable_x64(True):
        data = FederatedData((sums.features[order], sums.targets[order], scale[order]), np.cumsum(sizes) - sizes, sizes)
        l2 = float(psi.strong_convexity()) if options.method in SMOOTH else 0.0
        row, smoothness = method_row("local_rounds", options.method), _smoothness(sums, sites, scale / sizes[sites])
        client = options.client_step_size or row.largest_step_size(smoothness + l2)
        given: dict[str, Any] = {"local_steps": options.steps, "strong_convexity": l2, "regularizer": psi}
        method = row.make(MethodArguments(client, options.server_step_size or 1.0, **given))
        x0 = {"weights": jnp.asarray(start[0].reshape(shape))}
        x0 |= {"intercept": jnp.asarray(start[1])} if sums.intercept else {}
        numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(method.init(x0)))  # of the state that goes down, and up
        sums.sent.exchange(0, 1)  # smoothness
        site_loss, every = SiteLoss(data, sums, shape, l2), -(-options.rounds // EVALUATIONS)
        settings: dict[str, Any] = {"rounds": options.rounds, "local_steps": options.steps, "weights": options.weights}
        simulate(site_loss, method, x0=x0, eval_every=every, stop_when=is_good_enough, **settings)
    return last


def _smoothness(sums: WeightedSums, sites: np.ndarray, scale: np.ndarray) -> float:
    """The largest smoothness of a site's loss sum_i scale_i loss_i."""

    def top(rows: np.ndarray) -> float:
        features, h = sums.features[rows], scale[rows]

        def product(v: np.ndarray) -> np.ndarray:
            scores = h * (features @ v[: sums.width] + (v[-1] if sums.intercept else 0.0))
            g = features.T @ scores
            return np.append(g, scores.sum()) if sums.intercept else g

        return krylov_top(product, sums.width + sums.intercept)

    return sums.loss.curvature_bound * max(top(np.flatnonzero(sites == m)) for m in range(sites.max() + 1))
