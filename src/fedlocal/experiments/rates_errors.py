"""Errors of FedAvg and FedAc on problems that split into coordinates: a noisy one that is walked, quadratics in closed form.

Every method here is FedAc with its four parameters: FedAvg is alpha = beta = 1, gamma = eta. A cell is one choice of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem
from fedlocal.methods import FedAc
from fedlocal.methods.fed_ac import AcState, accelerated_step, accelerated_weights, middle_point, middle_weights

CONSTRUCTORS = {"FedAc-I": FedAc.one, "FedAc-II": FedAc.two}


class Cells(NamedTuple):
    """Parameters of a method, and the strength of the l2 term around the start that it is run with; all (cells,)."""

    alpha: np.ndarray
    beta: np.ndarray
    eta: np.ndarray
    gamma: np.ndarray
    augmented: np.ndarray


def cells(method: str, step_sizes: np.ndarray, moduli: np.ndarray, local_steps: int, augment: bool = False) -> Cells:
    """One cell for each pair of a step size and a modulus that FedAc is told, which with `augment` it gets by an l2 term.

    >>> cells("FedAc-I", np.array([0.1]), np.array([0.1]), local_steps=4).gamma.round(6).tolist()
    [0.5]
    """
    if method == "FedAvg":
        one, nothing = np.ones_like(step_sizes), np.zeros_like(step_sizes)
        return Cells(one, one, step_sizes, step_sizes, nothing)
    made = [
        CONSTRUCTORS[method](step_size=float(eta), strong_convexity=float(mu), local_steps=local_steps)
        for eta, mu in zip(step_sizes, moduli, strict=True)
    ]
    values = [np.array([getattr(one, name) for one in made]) for name in ("alpha", "beta", "eta", "gamma")]
    return Cells(*values, augmented=moduli if augment else np.zeros_like(moduli))


def limit_errors(
    problem: AbstractProblem, own: Cells, noise: float, local_steps: int, rounds: list[int], pairs: int, seed: int
) -> np.ndarray:
    r"""(rounds, cells): F(x_ag) from the optimum 0 of a problem in one number, as the number of clients goes to infinity.

    2 `pairs` clients have noise xi and -xi: what is linear in the noise, which vanishes in the limit, cancels, and the bias
    remains, with a relative error of the order of 1/sqrt(pairs).
    """
    with jax.enable_x64(True):
        steps, key = jnp.asarray(local_steps), jax.random.key(seed)
        places = np.asarray(_walk(problem, _columns(own), noise, steps, max(rounds), pairs, key))
        return _values(problem, places[np.array(rounds) - 1])


def finite_errors(
    problem: AbstractProblem,
    own: Cells,
    noise: float,
    local_steps: int,
    rounds: int,
    clients: int,
    repeats: int,
    seed: int,
) -> np.ndarray:
    """(cells,): the mean of F(x_ag) over repeats, from the optimum 0, with independent noise for every client."""
    with jax.enable_x64(True):
        steps, count = jnp.asarray(local_steps), jnp.asarray(rounds)
        places = _last(problem, _columns(own), noise, steps, count, (repeats, clients), jax.random.key(seed))
        return _values(problem, np.asarray(places)).mean(axis=-1)


def quadratic_errors(
    own: Cells, curvatures: np.ndarray, distance: float, steps: int, noise: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    r"""E h/2 x_ag^2 after `steps` steps on h/2 x^2 from `distance`, for every cell and curvature h: that of the mean, and what
    the noise of one client adds, of which M clients have 1/M. How often they communicate does not matter on a quadratic.

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


def _quadratic_step(own: Cells, curvatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A step as (cells, curvatures, 3, 3) on (x, x_ag, start), and where unit noise pushes, (cells, 1, 3)."""
    steps = np.zeros((len(own.eta), len(curvatures), 3, 3))
    push = np.zeros((len(own.eta), 1, 3))
    for i, (alpha, beta, eta, gamma, strength) in enumerate(zip(*own, strict=True)):
        md, gain = middle_weights(beta), np.array([gamma, eta])
        slope = (curvatures + strength)[:, None, None] * md
        steps[i, :, :2, :2] = accelerated_weights(md, alpha) - gain[:, None] * slope
        steps[i, :, :2, 2] = gain * strength
        steps[i, :, 2, 2] = 1
        push[i, 0, :2] = gain
    return steps, push


def _values(problem: AbstractProblem, x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(_value(problem, jnp.asarray(x.ravel()))).reshape(x.shape)


@eqx.filter_jit
def _value(problem: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda a: problem.value(a, jnp.asarray(0)))(x)


def _columns(own: Cells) -> Cells:
    """(cells, 1, 1), against repeats and clients."""
    return Cells(*(jnp.asarray(values)[:, None, None] for values in own))  # pyright: ignore[reportArgumentType]


@eqx.filter_jit
def _walk(
    problem: AbstractProblem, own: Cells, noise: float, local_steps: jax.Array, rounds: int, pairs: int, key: jax.Array
) -> jax.Array:
    """(rounds, cells): x_ag of the server after every round, with noise in pairs."""

    def draw(step: jax.Array) -> jax.Array:
        drawn = noise * jax.random.normal(jax.random.fold_in(key, step), (1, pairs))
        return jnp.concatenate([drawn, -drawn], axis=1)

    def one(server: AcState, r: jax.Array) -> tuple[AcState, jax.Array]:
        server = _round(problem, own, draw, local_steps, (1, 2 * pairs), server, r)
        return server, server.ag[:, 0, 0]

    start = jnp.zeros((len(own.eta), 1, 1))
    return jax.lax.scan(one, AcState(start, start), jnp.arange(rounds))[1]


@eqx.filter_jit
def _last(
    problem: AbstractProblem,
    own: Cells,
    noise: float,
    local_steps: jax.Array,
    rounds: jax.Array,
    shape: tuple[int, int],
    key: jax.Array,
) -> jax.Array:
    """(cells, repeats): x_ag of the server after the last round."""

    def draw(step: jax.Array) -> jax.Array:
        return noise * jax.random.normal(jax.random.fold_in(key, step), shape)

    def one(r: jax.Array, server: AcState) -> AcState:
        return _round(problem, own, draw, local_steps, shape, server, r)

    start = jnp.zeros((len(own.eta), shape[0], 1))
    return jax.lax.fori_loop(0, rounds, one, AcState(start, start)).ag[:, :, 0]


def _round(
    problem: AbstractProblem,
    own: Cells,
    draw: Callable[[jax.Array], jax.Array],
    local_steps: jax.Array,
    shape: tuple[int, int],
    server: AcState,
    r: jax.Array,
) -> AcState:
    """All cells see the same noise, and so do all numbers of local steps, which are traced: one program serves all of them."""

    def step(k: jax.Array, state: AcState) -> AcState:
        md = middle_point(state, own.beta)
        slope = jax.vmap(lambda a: problem.full_gradient(a, jnp.asarray(0)))(md.ravel()).reshape(md.shape)  # pyright: ignore
        g = slope + own.augmented * md + draw(r * local_steps + k)  # pyright: ignore
        return accelerated_step(state, md, g, own.alpha, own.eta, own.gamma)  # pyright: ignore

    state = jax.tree.map(lambda a: jnp.broadcast_to(a, (a.shape[0], *shape)), server)
    state = jax.lax.fori_loop(0, local_steps, step, state)
    return jax.tree.map(lambda a: jnp.mean(a, axis=2, keepdims=True), state)
