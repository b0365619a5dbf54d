"""How clients differ: in their losses, in what they send, and those that have taken part from those that have not."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Params
from fedlocal.core.types import WEIGHTS, WeightsName
from fedlocal.data.federated_data import FederatedData
from fedlocal.metrics.base import Evaluation, Metric
from fedlocal.metrics.loss import losses_in_float64, problem_on, stacked_points
from fedlocal.problems.data_problem import DataProblem, cast_like, rows_of_block
from fedlocal.problems.smooth_part import client_weights
from fedlocal.util import checks


class ClientDiscrepancy(Metric):
    """mean_m ||x_m - mean x||^2 at the end of a round, in the space that the method averages (the dual for FedDualAvg)."""

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return evaluation.discrepancy


class ClientLosses(Metric):
    """F_m at the point: the loss of every client, whether it has taken part or not.

    With data it takes up to twice as long as the loss; other problems evaluate the loss once per client.

    Args:
        summary: False gives the columns `loss_0`, `loss_1`, ..., one per client; True, for many clients, the columns
            `loss_smallest`, `loss_median` and `loss_largest`, in which all clients count the same.
    """

    def __init__(self, summary: bool = False):
        self.summary = checks.instance("ClientLosses", "summary", summary, bool)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        losses = client_losses(evaluations[0].problem, stacked_points(evaluations))
        if not self.summary:
            return [{f"loss_{m}": float(loss) for m, loss in enumerate(each)} for each in losses]
        columns = (np.min(losses, axis=1), np.median(losses, axis=1), np.max(losses, axis=1))
        names = ("loss_smallest", "loss_median", "loss_largest")
        return [dict(zip(names, map(float, each), strict=True)) for each in zip(*columns, strict=True)]


class ParticipationGap(Metric):
    """The loss on clients that have not taken part so far, minus that on clients that have.

    The columns are `loss_seen`, the mean of F_m over the clients that have taken part, by their weights in the run,
    `loss_unseen`, the same over those that have not, and `participation_gap`, the difference. A mean over no clients is nan:
    nobody is seen before the first round, and nobody is unseen when all have taken part.

    Args:
        unseen: data of clients that never take part, on which the problem of the run is taken; or another problem. None takes
            the clients of the run that have not taken part so far.
        weights: of the clients of `unseen`: "uniform" or "examples".
    """

    def __init__(self, unseen: FederatedData | AbstractProblem | None = None, weights: WeightsName = "uniform"):
        if unseen is not None and not isinstance(unseen, (FederatedData, AbstractProblem)):
            raise TypeError(f"ParticipationGap: unseen must be FederatedData or a problem, got {type(unseen).__name__}")
        self.unseen = unseen
        self.weights: WeightsName = checks.choice("ParticipationGap", "weights", weights, WEIGHTS)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        points = stacked_points(evaluations)
        losses = client_losses(evaluations[0].problem, points)
        p, seen = evaluations[0].client_weights, [evaluation.seen for evaluation in evaluations]
        inside = [_mean(each, p, mask) for each, mask in zip(losses, seen, strict=True)]
        if self.unseen is None:
            outside = [_mean(each, p, ~mask) for each, mask in zip(losses, seen, strict=True)]
        else:
            other = problem_on("ParticipationGap", self.unseen, evaluations[0])
            weights = client_weights("ParticipationGap", other, self.weights)
            outside = losses_in_float64(other, points, other.loss_weights(weights)).tolist()
        both = zip(inside, outside, strict=True)
        return [{"loss_seen": a, "loss_unseen": b, "participation_gap": b - a} for a, b in both]


def client_losses(problem: AbstractProblem, points: Params) -> np.ndarray:
    """Return (S, M) the losses of all clients at S points, which are stacked along the first axis of every array."""
    with jax.enable_x64(True):
        points = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), points)
        if not isinstance(problem, DataProblem):
            alone = np.stack([problem.loss_weights(one) for one in np.eye(problem.num_clients)])
            return np.asarray(_losses_one_by_one(problem, points, jnp.asarray(alone, jnp.float64)))
        losses, penalties = map(np.asarray, _example_losses(problem, points))
    # Clients may share rows; those with the same rows have the same loss.
    ranges, place = np.unique(np.stack([problem.starts(), problem.sizes()], axis=1), axis=0, return_inverse=True)
    means = [losses[:, start : start + size].mean(axis=1) for start, size in ranges]
    return np.stack(means, axis=1)[:, place.ravel()] + penalties[:, None]


@jax.jit
def _example_losses(problem: DataProblem, points: Params) -> tuple[jax.Array, jax.Array]:
    """(S, n) the losses of all examples, a block at a time, and (S,) the penalties at S points."""
    n, block = problem.data.num_examples, problem.loss_block()

    def at(x: Params) -> tuple[jax.Array, jax.Array]:
        def of_block(i: jax.Array) -> jax.Array:
            rows, _ = rows_of_block(i, block, n)
            return problem.losses(x, cast_like(problem.data.take(rows), x))

        return jax.lax.map(of_block, jnp.arange(-(-n // block))).ravel()[:n], problem.penalty(x)

    return jax.vmap(at)(points)


@jax.jit
def _losses_one_by_one(problem: AbstractProblem, points: Params, alone: jax.Array) -> jax.Array:
    """(S, M) losses; row m of `alone` are the loss weights with which client m has all the weight."""
    return jax.vmap(lambda x: jax.lax.map(lambda weights: problem.loss(x, weights), alone))(points)


def _mean(losses: np.ndarray, p: np.ndarray, mask: np.ndarray) -> float:
    """The mean over the clients in the mask; nan if there are none."""
    return float(np.average(losses[mask], weights=p[mask])) if mask.any() else np.nan
