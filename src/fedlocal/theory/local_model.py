r"""LocalModel: what a method does on the quadratic with a little skew that a problem is near its optimum, in closed form.

Near x* the clients' gradients are H (x - x*) + noise, and every smooth method of the text is an affine recurrence of a few
vectors (`LocalMethod.affine`), so along each eigenvector of H a round is a small matrix: the mean of the error and its variance
after R rounds follow exactly. Two corrections are of first order in what the quadratic leaves out:
    noise and third derivatives: clients' scatter moves the mean gradient by 1/2 grad tr(S Hess F), S the covariance of a client's
        point after k steps: the iterate bias, -(1/4) eta^3 K^2 grad tr(Sigma Hess F) for a round of FedAvg;
    heterogeneity: client m walks along its own Hessian from the same point, which moves the mean of a round in the direction
        mean_m H_m grad F_m(x*).
A prediction, not a bound: worst cases over all problems are what `fl.theory` has bounds for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod

HUGE = 1e30  # an error that counts as divergence
SPANS = 6  # of each length
ECHOES = 3


@dataclass(frozen=True)
class LocalModel:
    """Along each of d directions, the eigenvectors of the mean Hessian."""

    curvature: np.ndarray  # (d,) eigenvalues of the Hessian
    start: np.ndarray  # (d,) x0 - x*
    noise: np.ndarray  # (d,) variance of one stochastic gradient of a client, of its own batch size
    skew: np.ndarray  # (d, d) third derivatives of F, once along the first direction and twice along the second
    pull: np.ndarray  # (d,) mean_m H_m grad F_m(x*)
    spread: np.ndarray  # (d,) variance over clients of grad F_m(x*)
    share: float  # sum_m p_m^2: what averaging over all clients leaves of a variance
    uneven: np.ndarray  # (d, d) variance of a stochastic Hessian's entries: noise that grows with the distance from x*
    noise_seen: float = (
        1.0  # the part of the noise that these directions hold; less where there are too many to look at
    )

    def predict(
        self, methods: Sequence[LocalMethod], rounds: int, local_steps: int, clients_per_round: float | None = None
    ) -> np.ndarray:
        """Expected loss above the optimum after so many rounds, for each of some methods of one kind; inf where it diverges.

        `clients_per_round` is the fraction of clients that take part; None means all.
        """
        walk = self._walk(methods, local_steps)
        part = 1.0 if clients_per_round is None else clients_per_round
        left_out = self.spread * self.share * (1 / part - 1)
        apart = _outer(walk.total) * left_out[:, None, None]
        mean = np.ones(walk.turn.shape[:-1]) * self.start[:, None]
        variance = np.zeros_like(walk.turn)
        with np.errstate(over="ignore", invalid="ignore"):
            for length in _spans(rounds):
                moment = np.sum(walk.asks * (_outer(mean) + variance), axis=(-2, -1))
                noise = self.noise + moment @ self.uneven.T
                for _ in range(ECHOES):  # a client's own scatter is a distance from x*, too
                    noise = self.noise + (moment + noise * walk.scatter) @ self.uneven.T
                added = walk.unit * (noise * self.share / part)[..., None, None] + apart
                added = walk.take[:, None] @ added @ _transposed(walk.take[:, None])
                mean, variance = _repeat(length, walk.turn, walk.moved, added, mean, variance)
            error = np.einsum("edv,ev->ed", mean, walk.out) ** 2
            error = error + np.einsum("ev,edvw,ew->ed", walk.out, variance, walk.out)
            value = error @ self.curvature / 2
        return np.where(np.isfinite(value) & (value < HUGE), value, np.inf)

    def _walk(self, methods: Sequence[LocalMethod], local_steps: int) -> "Walk":
        """A round of each of e methods along each of d directions."""
        forms = [method.affine(local_steps) for method in methods]
        if any(form is None or form.proximal is not None for form in forms):
            raise TypeError(
                f"LocalModel: {type(methods[0]).__name__} is not an affine recurrence without a regulariser"
            )
        names = ("query", "transition", "gain", "start", "keep", "take")
        query, transition, gain, start, keep, take = (
            np.stack([np.asarray(getattr(form, name), float) for form in forms]) for name in names
        )
        step = (
            transition[:, None] - self.curvature[None, :, None, None] * (gain[:, :, None] * query[:, None, :])[:, None]
        )
        gains = np.broadcast_to(gain[:, None], step.shape[:-1])
        response, slope = (
            gains,
            np.zeros_like(gains),
        )  # of a unit of gradient after some steps; its change with the curvature
        power = np.broadcast_to(np.eye(step.shape[-1]), step.shape)
        total, total_slope, bent = np.zeros_like(gains), np.zeros_like(gains), np.zeros_like(gains)
        unit, scatter, sum_of_scatter = np.zeros_like(step), np.zeros(step.shape[:2]), np.zeros(step.shape[:2])
        asks = np.zeros((*step.shape[:2], *keep.shape[1:]))
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(local_steps):
                asked = _apply(_transposed(power @ start[:, None]), np.broadcast_to(query[:, None], gains.shape))
                asks = asks + _outer(asked) / local_steps
                bias = (scatter * self.noise) @ self.skew.T / 2  # of the clients' mean gradient
                bent = _apply(step, bent) + gains * bias[..., None]
                sum_of_scatter = sum_of_scatter + scatter
                seen = np.einsum("es,eds->ed", query, response)
                scatter = scatter + seen**2  # of one client's query point
                total, total_slope, unit = total + response, total_slope + slope, unit + _outer(response)
                slope = _apply(step, slope) - gains * seen[..., None]
                response, power = _apply(step, response), step @ power
            moved = -_apply(take[:, None], bent + total_slope * self.pull[:, None])
            turn = keep[:, None] + take[:, None] @ power @ start[:, None]
        out = np.broadcast_to(_solution_weights(methods[0]), keep.shape[:2])
        return Walk(turn, moved, total, unit, sum_of_scatter / local_steps, take, asks, out)


class Walk(NamedTuple):
    """A round: V <- turn V + moved + noise, for e methods along d directions."""

    turn: np.ndarray  # (e, d, v, v)
    moved: np.ndarray  # (e, d, v)
    total: np.ndarray  # (e, d, s) what a constant gradient does to a client
    unit: np.ndarray  # (e, d, s, s) covariance of a client for noise of variance one
    scatter: np.ndarray  # (e, d) mean over the steps of the variance of a client's query point, likewise
    take: np.ndarray  # (e, v, s)
    asks: np.ndarray  # (e, d, v, v) mean over the steps of q q', where the query points are q'V
    out: np.ndarray  # (e, v) the solution


def _spans(rounds: int) -> list[int]:
    """Numbers of rounds, few first and then more, in which the noise counts as constant."""
    spans, done = [], 0
    while done < rounds:
        spans.append(min(2 ** (len(spans) // SPANS), rounds - done))
        done += spans[-1]
    return spans


def _repeat(rounds: int, turn: Any, moved: Any, added: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
    """Mean and variance after so many rounds of V <- turn V + moved + noise of variance `added`, by doubling."""
    while rounds:
        if rounds & 1:
            mean, variance = _apply(turn, mean) + moved, turn @ variance @ _transposed(turn) + added
        rounds >>= 1
        if rounds:
            moved, added = _apply(turn, moved) + moved, turn @ added @ _transposed(turn) + added
            turn = turn @ turn
    return mean, variance


def _solution_weights(method: LocalMethod) -> np.ndarray:
    """(v,) how the solution reads the server's vectors."""
    server = method.init(jnp.zeros(()))
    leaves, tree = jax.tree.flatten(server)
    units = [
        jax.tree.unflatten(tree, [jnp.asarray(float(i == j)) for j in range(len(leaves))]) for i in range(len(leaves))
    ]
    return np.array([float(method.solution(unit)) for unit in units])


def _apply(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return (matrix @ vector[..., None])[..., 0]


def _transposed(matrix: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrix, -1, -2)


def _outer(vector: np.ndarray) -> np.ndarray:
    return vector[..., :, None] * vector[..., None, :]
