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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod

HUGE = 1e30  # an error that counts as divergence


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

    def predict(
        self, methods: Sequence[LocalMethod], rounds: int, local_steps: int, clients_per_round: float | None = None
    ) -> np.ndarray:
        """Expected loss above the optimum after so many rounds, for each of some methods of one kind; inf where it diverges.

        `clients_per_round` is the fraction of clients that take part; None means all.
        """
        turn, moved, scatter, out = self._round(methods, local_steps, clients_per_round)
        state = np.ones((*turn.shape[:-1],)) * self.start[:, None]
        mean, variance = state, np.zeros_like(turn)
        with np.errstate(over="ignore", invalid="ignore"):
            while rounds:
                if rounds & 1:
                    mean = _apply(turn, mean) + moved
                    variance = turn @ variance @ _transposed(turn) + scatter
                moved = _apply(turn, moved) + moved
                scatter = turn @ scatter @ _transposed(turn) + scatter
                turn, rounds = turn @ turn, rounds >> 1
            error = np.einsum("evd,ev->ed", np.swapaxes(mean, 1, 2), out) ** 2
            error = error + np.einsum("ev,edvw,ew->ed", out, variance, out)
            value = error @ self.curvature / 2
        return np.where(np.isfinite(value) & (value < HUGE), value, np.inf)

    def _round(self, methods: Sequence[LocalMethod], local_steps: int, fraction: float | None) -> tuple[Any, ...]:
        """A round along every direction: V <- turn V + moved + noise of covariance `scatter`; `out` reads the solution off V."""
        forms = [method.affine(local_steps) for method in methods]
        if any(form is None or form.proximal is not None for form in forms):
            raise TypeError(
                f"LocalModel: {type(methods[0]).__name__} is not an affine recurrence without a regulariser"
            )
        names = ("query", "transition", "gain", "start", "keep", "take")
        query, transition, gain, start, keep, take = (
            np.stack([np.asarray(getattr(form, name), float) for form in forms]) for name in names
        )
        lam = self.curvature[None, :, None, None]
        step = transition[:, None] - lam * (gain[:, :, None] * query[:, None, :])[:, None]  # (e, d, s, s)
        flat = transition[:, None] - 0 * step
        gains = np.broadcast_to(gain[:, None], step.shape[:-1])
        response, flat_response = gains, gains  # P^k b
        power = np.broadcast_to(np.eye(step.shape[-1]), step.shape)
        total, flat_total, covariance = np.zeros_like(gains), np.zeros_like(gains), np.zeros_like(step)
        spread_of_query = np.zeros(step.shape[:2])  # variance of the query point of one client, in units of its noise
        bent = np.zeros_like(gains)  # what the gradients' bias of the steps so far has moved
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(local_steps):
                bias = (spread_of_query * self.noise) @ self.skew.T / 2  # of the mean gradient
                bent = _apply(step, bent) + gains * bias[..., None]
                spread_of_query = spread_of_query + np.einsum("es,eds->ed", query, response) ** 2
                total, flat_total = total + response, flat_total + flat_response
                covariance = covariance + response[..., :, None] * response[..., None, :]
                response, flat_response, power = _apply(step, response), _apply(flat, flat_response), step @ power
            turn = keep[:, None] + take[:, None] @ power @ start[:, None]
            uneven = (total - flat_total) / np.maximum(self.curvature, 1e-12)[:, None] * self.pull[:, None]
            moved = -_apply(take[:, None], bent + uneven)
            part = 1.0 if fraction is None else fraction
            scatter = covariance * (self.noise * self.share / part)[:, None, None]
            left_out = self.spread * self.share * (1 / part - 1)
            scatter = scatter + total[..., :, None] * total[..., None, :] * left_out[:, None, None]
            scatter = take[:, None] @ scatter @ _transposed(take[:, None])
        return turn, moved, scatter, np.stack([_solution_weights(method) for method in methods])


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
