r"""LocalModel: the expected error of a method in closed form, from a quadratic model of the problem at its optimum.

Near x* the clients' gradients are H (x - x*) + noise, and every smooth method of the text is an affine recurrence of a few
vectors (`LocalMethod.affine`). Along each eigenvector of H a round is therefore a small matrix, and the mean and the variance of
the error after R rounds follow exactly. Two first-order corrections account for what the quadratic model leaves out:
    noise and third derivatives: clients' scatter moves the mean gradient by 1/2 grad tr(S Hess F), S the covariance of a client's
        point after k steps: the iterate bias, -(1/4) eta^3 K^2 grad tr(Sigma Hess F) for a round of FedAvg;
    heterogeneity: client m steps along its own Hessian from the same point, which moves the mean of a round in the direction
        mean_m H_m grad F_m(x*).
The result is a prediction, not a bound; `fl.theory` has bounds for the worst case over all problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod

HUGE = 1e30  # an error that counts as divergence
SPANS = 6  # number of spans of rounds of each length
FIXED_POINT_STEPS = 3  # for the noise that a client's own scatter adds


@dataclass(frozen=True)
class LocalModel:
    """The second and third derivatives, noise and heterogeneity of a problem at x*, along d eigenvectors of its Hessian."""

    curvature: np.ndarray  # (d,) eigenvalues of the Hessian
    start: np.ndarray  # (d,) x0 - x*
    noise: np.ndarray  # (d,) variance of one stochastic gradient of a client, of its own batch size
    skew: np.ndarray  # (d, d) third derivatives of F, once along the first direction and twice along the second
    pull: np.ndarray  # (d,) mean_m H_m grad F_m(x*)
    spread: np.ndarray  # (d,) variance over clients of grad F_m(x*)
    share: float  # sum_m p_m^2: what averaging over all clients leaves of a variance
    uneven: np.ndarray  # (d, d) variance of a stochastic Hessian's entries: noise that grows with the distance from x*
    noise_seen: float = 1.0  # the fraction of the noise's variance in these directions; below 1 in a Krylov space

    def predict(
        self,
        methods: Sequence[LocalMethod],
        rounds: int,
        local_steps: int,
        participation: float | None = None,
        regularization: float = 0.0,
    ) -> np.ndarray:
        """Return the expected loss above the optimum after `rounds` rounds, one value per method; inf where it diverges.

        Args:
            methods: methods of one class that are affine recurrences, with any step sizes.
            rounds: how often the clients communicate.
            local_steps: of a client in a round.
            participation: the fraction of the clients that take part in a round; None means all.
            regularization: lambda, for runs on F + lambda/2 ||x - x0||^2; the loss is that of F.
        """
        curvature = self.curvature + regularization
        offset = self.start * np.divide(regularization, curvature, out=np.zeros_like(curvature), where=curvature > 0)
        start = self.start - offset  # from the optimum of what the methods run on
        round_map = replace(self, curvature=curvature, start=start)._round_map(methods, local_steps)
        part = 1.0 if participation is None else participation
        left_out = self.spread * self.share * (1 / part - 1)
        apart = _outer(round_map.response) * left_out[:, None, None]
        mean = np.ones(round_map.transition.shape[:-1]) * start[:, None]
        variance = np.zeros_like(round_map.transition)
        with np.errstate(over="ignore", invalid="ignore"):
            for length in _spans(rounds):
                moment = np.sum(round_map.query_moment * (_outer(mean + offset[:, None]) + variance), axis=(-2, -1))
                noise = self.noise + moment @ self.uneven.T
                for _ in range(FIXED_POINT_STEPS):  # a client's own scatter also moves it away from x*
                    noise = self.noise + (moment + noise * round_map.scatter) @ self.uneven.T
                added = round_map.noise_covariance * (noise * self.share / part)[..., None, None] + apart
                added = round_map.take[:, None] @ added @ round_map.take[:, None].mT
                mean, variance = _repeat(length, round_map.transition, round_map.drift, added, mean, variance)
            error = (np.einsum("edv,ev->ed", mean, round_map.solution) + offset) ** 2
            error = error + np.einsum("ev,edvw,ew->ed", round_map.solution, variance, round_map.solution)
            value = error @ self.curvature / 2
        return np.where(np.isfinite(value) & (value < HUGE), value, np.inf)

    def _round_map(self, methods: Sequence[LocalMethod], local_steps: int) -> "RoundMap":
        """Return the affine map of one round, for each of e methods along each of d directions."""
        forms = [method.affine(local_steps) for method in methods]
        if any(form is None or form.proximal is not None for form in forms):
            kind = type(methods[0]).__name__
            raise TypeError(f"LocalModel: {kind} is not an affine recurrence without a regulariser")
        names = ("query", "transition", "gain", "start", "keep", "take")
        query, transition, gain, start, keep, take = (
            np.stack([np.asarray(getattr(form, name), float) for form in forms]) for name in names
        )
        pulled = (gain[:, :, None] * query[:, None, :])[:, None]
        step = transition[:, None] - self.curvature[None, :, None, None] * pulled
        gains = np.broadcast_to(gain[:, None], step.shape[:-1])
        # the response of a client's vectors to one unit of gradient some steps ago, and its derivative in the curvature
        response, slope = gains, np.zeros_like(gains)
        power = np.broadcast_to(np.eye(step.shape[-1]), step.shape)
        total, total_slope, bent = np.zeros_like(gains), np.zeros_like(gains), np.zeros_like(gains)
        unit, scatter, sum_of_scatter = np.zeros_like(step), np.zeros(step.shape[:2]), np.zeros(step.shape[:2])
        asks = np.zeros((*step.shape[:2], *keep.shape[1:]))
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(local_steps):
                asked = _apply((power @ start[:, None]).mT, np.broadcast_to(query[:, None], gains.shape))
                asks = asks + _outer(asked) / local_steps
                bias = (scatter * self.noise) @ self.skew.T / 2  # of the clients' mean gradient
                bent = _apply(step, bent) + gains * bias[..., None]
                sum_of_scatter = sum_of_scatter + scatter
                seen = np.einsum("es,eds->ed", query, response)
                scatter = scatter + seen**2  # of one client's query point
                total, total_slope, unit = total + response, total_slope + slope, unit + _outer(response)
                slope = _apply(step, slope) - gains * seen[..., None]
                response, power = _apply(step, response), step @ power
            drift = -_apply(take[:, None], bent + total_slope * self.pull[:, None])
            transition_of_round = keep[:, None] + take[:, None] @ power @ start[:, None]
        out = np.broadcast_to(_solution_weights(methods[0]), keep.shape[:2])
        return RoundMap(transition_of_round, drift, total, unit, sum_of_scatter / local_steps, take, asks, out)


class RoundMap(NamedTuple):
    """One round as V <- transition V + drift + noise, where V are the server's v vectors; for e methods along d directions."""

    transition: np.ndarray  # (e, d, v, v)
    drift: np.ndarray  # (e, d, v) mean change of V that comes from third derivatives and heterogeneity
    response: np.ndarray  # (e, d, s) change of a client's s vectors for a constant gradient of one
    noise_covariance: np.ndarray  # (e, d, s, s) covariance of a client's vectors for gradient noise of variance one
    scatter: np.ndarray  # (e, d) variance of a client's query point for noise of variance one, averaged over the steps
    take: np.ndarray  # (e, v, s) how the server reads the mean of the clients' vectors
    query_moment: np.ndarray  # (e, d, v, v) mean over the steps of q q', where the query points are q'V
    solution: np.ndarray  # (e, v) the solution as a combination of V


def _spans(rounds: int) -> list[int]:
    """Split the rounds into spans of growing length, during which the noise is treated as constant."""
    spans, done = [], 0
    while done < rounds:
        spans.append(min(2 ** (len(spans) // SPANS), rounds - done))
        done += spans[-1]
    return spans


def _repeat(rounds: int, transition: Any, drift: Any, added: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
    """Return mean and variance after `rounds` rounds of V <- transition V + drift + noise of variance `added`, by doubling."""
    while rounds:
        if rounds & 1:
            mean, variance = _apply(transition, mean) + drift, transition @ variance @ transition.mT + added
        rounds >>= 1
        if rounds:
            drift, added = _apply(transition, drift) + drift, transition @ added @ transition.mT + added
            transition = transition @ transition
    return mean, variance


def _solution_weights(method: LocalMethod) -> np.ndarray:
    """Return (v,) the solution as a combination of the server's vectors."""
    server = method.init(jnp.zeros(()))
    leaves, tree = jax.tree.flatten(server)
    places = range(len(leaves))
    units = [jax.tree.unflatten(tree, [jnp.asarray(float(i == j)) for j in places]) for i in places]
    return np.array([float(method.solution(unit)) for unit in units])


def _apply(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return (matrix @ vector[..., None])[..., 0]


def _outer(vector: np.ndarray) -> np.ndarray:
    return vector[..., :, None] * vector[..., None, :]
