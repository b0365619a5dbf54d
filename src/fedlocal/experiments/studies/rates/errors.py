"""Errors of FedAvg and FedAc on problems that split into coordinates: a noisy one is simulated, quadratics are exact.

Every method here is FedAc with its four parameters: FedAvg is alpha = beta = 1, gamma = eta. A cell is one choice of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem
from fedlocal.experiments.runner.methods import smooth_method
from fedlocal.methods.fed_ac import AcState, accelerated_step, accelerated_weights, middle_point, middle_weights
from fedlocal.theory.bounds.bound import Setting

Draw = Callable[[jax.Array], jax.Array]  # number of the step -> noise


class FedAcCells(NamedTuple):
    """Parameters of FedAc, and the strength of the l2 term around the start that is added to F; all (cells,)."""

    alpha: np.ndarray
    beta: np.ndarray
    eta: np.ndarray
    gamma: np.ndarray
    augmented: np.ndarray


class NoisyCoordinate(NamedTuple):
    """A problem in one number whose optimum is 0, and the standard deviation of its normal gradient noise."""

    problem: AbstractProblem
    noise: float


def cells(
    method: str, step_sizes: np.ndarray, moduli: np.ndarray, local_steps: int, augment: bool = False
) -> FedAcCells:
    """Return one cell per pair of a step size and a modulus mu of FedAc; with `augment`, mu comes from an added l2 term.

    >>> cells("FedAc-I", np.array([0.1]), np.array([0.1]), local_steps=4).gamma.round(6).tolist()
    [0.5]
    """
    if method == "FedAvg":
        one, nothing = np.ones_like(step_sizes), np.zeros_like(step_sizes)
        return FedAcCells(one, one, step_sizes, step_sizes, nothing)
    pairs = zip(step_sizes, moduli, strict=True)
    made = [smooth_method(method, float(eta), float(mu), local_steps) for eta, mu in pairs]
    values = [np.array([getattr(one, name) for one in made]) for name in ("alpha", "beta", "eta", "gamma")]
    return FedAcCells(*values, augmented=moduli if augment else np.zeros_like(moduli))


def limit_errors(
    noisy: NoisyCoordinate, own: FedAcCells, local_steps: int, rounds: list[int], pairs: int, seed: int
) -> np.ndarray:
    r"""Return (rounds, cells): F(x_ag) from the optimum, as the number of clients goes to infinity.

    2 `pairs` clients have noise xi and -xi: what is linear in the noise, which vanishes in the limit, cancels, and the bias
    remains, with a relative error of the order of 1/sqrt(pairs).
    """
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        places = _every_round(noisy, _columns(own), jnp.asarray(local_steps), max(rounds), pairs, key)
        return np.asarray(_values(noisy.problem, places[np.array(rounds) - 1]))


def finite_errors(noisy: NoisyCoordinate, own: FedAcCells, setting: Setting, repeats: int, seed: int) -> np.ndarray:
    """Return (cells,): the mean of F(x_ag) over repeats, from the optimum, with independent noise for every client."""
    with jax.enable_x64(True):
        steps, count, shape = jnp.asarray(setting.local_steps), jnp.asarray(setting.rounds), (repeats, setting.clients)
        places = _last_round(noisy, _columns(own), steps, count, shape, jax.random.key(seed))
        return np.asarray(_values(noisy.problem, places)).mean(axis=-1)


def quadratic_errors(
    own: FedAcCells, curvatures: np.ndarray, distance: float, steps: int, noise: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return E h/2 x_ag^2 after `steps` steps on h/2 x^2 from `distance`, for every cell and curvature h, in two parts: that
    of the mean, and what the noise of one client adds, of which M clients have 1/M. On a quadratic the error does not depend
    on how often they communicate.

    >>> own = cells("FedAvg", np.array([0.5]), np.array([1.0]), local_steps=2)
    >>> mean, added = quadratic_errors(own, np.array([1.0]), distance=1.0, steps=2, noise=1.0)
    >>> mean.tolist(), added.tolist()  # (1 - 0.5)^4 / 2 and 0.5^2 (1 + 0.5^2) / 2
    ([[0.03125]], [[0.15625]])
    """
    step, push = _quadratic_step(own, curvatures)
    covariance = push[..., :, None] * push[..., None, :] * noise**2
    power, gathered = np.zeros_like(step) + np.eye(3), np.zeros_like(step)
    with np.errstate(all="ignore"):
        while steps:  # binary powers: covariance is that of the steps in `step`, gathered that of those in `power`
            if steps % 2:
                gathered = covariance + step @ gathered @ np.swapaxes(step, -1, -2)
                power = step @ power
            covariance = covariance + step @ covariance @ np.swapaxes(step, -1, -2)
            step, steps = step @ step, steps // 2
        place = distance * power[..., 1, :].sum(axis=-1)
        mean, added = curvatures / 2 * place**2, curvatures / 2 * gathered[..., 1, 1]
    return np.where(np.isfinite(mean), mean, np.inf), np.where(np.isfinite(added), added, np.inf)


def _quadratic_step(own: FedAcCells, curvatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a step as (cells, curvatures, 3, 3) on (x, x_ag, start), and the effect of unit noise, (cells, 1, 3)."""
    steps, push = np.zeros((len(own.eta), len(curvatures), 3, 3)), np.zeros((len(own.eta), 1, 3))
    for i, (alpha, beta, eta, gamma, strength) in enumerate(zip(*own, strict=True)):
        md, gain = middle_weights(beta), np.array([gamma, eta])
        slope = (curvatures + strength)[:, None, None] * md
        steps[i, :, :2, :2] = accelerated_weights(md, alpha) - gain[:, None] * slope
        steps[i, :, :2, 2] = gain * strength
        steps[i, :, 2, 2] = 1
        push[i, 0, :2] = gain
    return steps, push


@eqx.filter_jit
def _values(problem: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda a: problem.value(a, jnp.asarray(0)))(x.ravel()).reshape(x.shape)


def _columns(own: FedAcCells) -> FedAcCells:
    """Give the parameters the shape (cells, 1, 1), to broadcast over repeats and clients."""
    return FedAcCells(*(jnp.asarray(values)[:, None, None] for values in own))  # pyright: ignore[reportArgumentType]


@eqx.filter_jit
def _every_round(
    noisy: NoisyCoordinate, own: FedAcCells, local_steps: jax.Array, rounds: int, pairs: int, key: jax.Array
) -> jax.Array:
    """Return (rounds, cells): x_ag of the server after every round, with noise in pairs."""

    def draw(step: jax.Array) -> jax.Array:
        drawn = noisy.noise * jax.random.normal(jax.random.fold_in(key, step), (1, pairs))
        return jnp.concatenate([drawn, -drawn], axis=1)

    one_round = _round(noisy.problem, own, draw, local_steps, (1, 2 * pairs))

    def one(server: AcState, r: jax.Array) -> tuple[AcState, jax.Array]:
        server = one_round(server, r)
        return server, server.ag[:, 0, 0]

    start = jnp.zeros((len(own.eta), 1, 1))
    return jax.lax.scan(one, AcState(start, start), jnp.arange(rounds))[1]


@eqx.filter_jit
def _last_round(
    noisy: NoisyCoordinate, own: FedAcCells, steps: jax.Array, rounds: jax.Array, shape: tuple[int, int], key: jax.Array
) -> jax.Array:
    """Return (cells, repeats): x_ag of the server after the last round."""

    def draw(step: jax.Array) -> jax.Array:
        return noisy.noise * jax.random.normal(jax.random.fold_in(key, step), shape)

    one_round = _round(noisy.problem, own, draw, steps, shape)
    start = jnp.zeros((len(own.eta), shape[0], 1))
    return jax.lax.fori_loop(0, rounds, lambda r, server: one_round(server, r), AcState(start, start)).ag[:, :, 0]


def _round(
    problem: AbstractProblem, own: FedAcCells, draw: Draw, local_steps: jax.Array, shape: tuple[int, int]
) -> Callable[[AcState, jax.Array], AcState]:
    """Return the function from the server's state and the number of the round to the state after it.

    All cells and all numbers of local steps, which are traced, have the same noise and share one compiled program.
    """

    def one_round(server: AcState, r: jax.Array) -> AcState:
        def step(k: jax.Array, state: AcState) -> AcState:
            md = middle_point(state, own.beta)
            slope = jax.vmap(lambda a: problem.full_gradient(a, jnp.asarray(0)))(md.ravel()).reshape(md.shape)  # pyright: ignore
            g = slope + own.augmented * md + draw(r * local_steps + k)  # pyright: ignore
            return accelerated_step(state, md, g, own.alpha, own.eta, own.gamma)  # pyright: ignore

        state = jax.tree.map(lambda a: jnp.broadcast_to(a, (a.shape[0], *shape)), server)
        state = jax.lax.fori_loop(0, local_steps, step, state)
        return jax.tree.map(lambda a: jnp.mean(a, axis=2, keepdims=True), state)

    return one_round
