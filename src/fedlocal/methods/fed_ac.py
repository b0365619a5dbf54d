"""FedAc: clients take accelerated steps, the server averages both of their sequences."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal import checks
from fedlocal.core import Affine, GradFn, LocalMethod, Memory, Params, Scalar


class AcState(NamedTuple):
    x: Params  # main sequence
    ag: Params  # aggregated sequence; the solution


def middle_point(state: AcState, beta: Scalar) -> Params:
    """x_md = x / beta + (1 - 1/beta) x_ag: where the gradient is queried."""
    return jax.tree.map(lambda x, ag: x / beta + (1 - 1 / beta) * ag, state.x, state.ag)


def accelerated_step(state: AcState, md: Params, g: Params, alpha: Scalar, eta: Scalar, gamma: Scalar) -> AcState:
    """x_ag <- x_md - eta g,   x <- (1 - 1/alpha) x + x_md / alpha - gamma g."""
    ag = jax.tree.map(lambda md, g: md - eta * g, md, g)
    x = jax.tree.map(lambda x, md, g: (1 - 1 / alpha) * x + md / alpha - gamma * g, state.x, md, g)
    return AcState(x, ag)


def middle_weights(beta: Scalar) -> np.ndarray:
    """`middle_point` as weights of (x, x_ag)."""
    return np.array([1 / beta, 1 - 1 / beta])


def accelerated_weights(md: np.ndarray, alpha: Scalar) -> np.ndarray:
    """The linear part of `accelerated_step` as a matrix on (x, x_ag)."""
    return np.array([np.array([1 - 1 / alpha, 0]) + md / alpha, md])


class FedAc(LocalMethod):
    r"""Federated accelerated SGD for min_x mean_m F_m(x), F strongly convex.

    Client m repeats, from (x, x_ag) of the server:
        x_md = x / beta + (1 - 1/beta) x_ag,   g = g_m(x_md),
        x_ag <- x_md - eta g,                  x <- (1 - 1/alpha) x + x_md / alpha - gamma g.
    Server: (x, x_ag) <- mean_m of theirs. The solution is x_ag.

    Use the constructors `one`, `two` or `vanilla` for the choices of (alpha, beta, gamma) that the theory makes from a step
    size and a modulus of strong convexity. For general convex F, run them on `fl.problems.augmented(problem, strength, x0)`
    with strong_convexity = strength. alpha = beta = 1 with gamma = eta is FedAvg; with one client and one local step, `one`
    and `vanilla` are the same accelerated SGD.
    Reference: dissertation, algorithm fedac. Differs from it: line 2 of the box initialises x_ag at r = 0; unequal numbers of
    local steps and weights allowed.

    >>> method = FedAc.one(step_size=0.1, strong_convexity=0.1, local_steps=4)
    >>> round(method.gamma, 6), round(method.alpha, 6), round(method.beta, 6)
    (0.5, 20.0, 21.0)
    """

    alpha: Scalar
    beta: Scalar
    eta: Scalar
    gamma: Scalar

    def __init__(self, *, alpha: Scalar, beta: Scalar, eta: Scalar, gamma: Scalar):
        self.alpha = checks.number("FedAc", "alpha", alpha, at_least=1)
        self.beta = checks.number("FedAc", "beta", beta, at_least=1)
        self.eta = checks.number("FedAc", "eta", eta, above=0)
        self.gamma = checks.number("FedAc", "gamma", gamma, above=0)

    @classmethod
    def one(cls, *, step_size: Scalar, strong_convexity: Scalar, local_steps: int) -> "FedAc":
        """FedAc-I: gamma = max(sqrt(eta / (mu K)), eta), alpha = 1 / (gamma mu), beta = alpha + 1."""
        eta, mu, gamma = _stable_gamma("FedAc.one", step_size, strong_convexity, local_steps)
        alpha = 1 / (gamma * mu)
        return cls(alpha=_coupling("FedAc.one", alpha, eta, mu), beta=alpha + 1, eta=eta, gamma=gamma)

    @classmethod
    def two(cls, *, step_size: Scalar, strong_convexity: Scalar, local_steps: int) -> "FedAc":
        """FedAc-II: the gamma of FedAc-I, alpha = 3 / (2 gamma mu) - 1/2, beta = (2 alpha^2 - 1) / (alpha - 1)."""
        eta, mu, gamma = _stable_gamma("FedAc.two", step_size, strong_convexity, local_steps)
        alpha = 3 / (2 * gamma * mu) - 0.5
        _coupling("FedAc.two", 1 / (gamma * mu), eta, mu, strict=True)
        return cls(alpha=alpha, beta=(2 * alpha**2 - 1) / (alpha - 1), eta=eta, gamma=gamma)

    @classmethod
    def vanilla(cls, *, step_size: Scalar, strong_convexity: Scalar) -> "FedAc":
        """Direct acceleration, without the trade of speed for stability: gamma = sqrt(eta / mu), then as FedAc-I."""
        alpha, beta, eta, gamma = vanilla_parameters("FedAc.vanilla", step_size, strong_convexity)
        return cls(alpha=alpha, beta=beta, eta=eta, gamma=gamma)

    def init(self, x0: Params) -> AcState:
        return AcState(x0, x0)

    def start(self, server: AcState, memory: Memory) -> AcState:
        return server

    def step(self, client: AcState, grad_fn: GradFn) -> AcState:
        md = middle_point(client, self.beta)
        return accelerated_step(client, md, grad_fn(md), self.alpha, self.eta, self.gamma)

    def finish(self, server: AcState, client: AcState) -> tuple[AcState, Memory]:
        return optax.tree.sub(client, server), ()

    def update(self, server: AcState, mean_message: AcState) -> AcState:
        return optax.tree.add(server, mean_message)

    def solution(self, server: AcState) -> Params:
        return server.ag

    def primal(self, client: AcState) -> Params:
        return client.ag

    def affine(self, local_steps: int) -> Affine:
        md, one, zero = middle_weights(self.beta), np.eye(2), np.zeros((2, 2))
        gain = [self.gamma, self.eta]
        return Affine(md, accelerated_weights(md, self.alpha), gain, start=one, keep=zero, take=one)


def vanilla_parameters(
    owner: str, step_size: Scalar, strong_convexity: Scalar
) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """(alpha, beta, eta, gamma) with gamma = sqrt(eta / mu), alpha = 1 / (gamma mu), beta = alpha + 1."""
    eta = checks.number(owner, "step_size", step_size, above=0)
    mu = checks.number(owner, "strong_convexity", strong_convexity, above=0)
    gamma = _sqrt(eta / mu)
    alpha = _coupling(owner, 1 / (gamma * mu), eta, mu)
    return alpha, alpha + 1, eta, gamma


def _stable_gamma(owner: str, step_size: Scalar, strong_convexity: Scalar, local_steps: int):
    eta = checks.number(owner, "step_size", step_size, above=0)
    mu = checks.number(owner, "strong_convexity", strong_convexity, above=0)
    steps = checks.whole(owner, "local_steps", local_steps)
    gamma = _sqrt(eta / (mu * steps))
    if isinstance(gamma, float) and isinstance(eta, float):
        return eta, mu, max(gamma, eta)
    return eta, mu, jnp.maximum(gamma, eta)


def _sqrt(value: Scalar) -> Scalar:
    return value**0.5


def _coupling(owner: str, alpha: Scalar, eta: Scalar, mu: Scalar, strict: bool = False) -> Scalar:
    """alpha = 1 / (gamma mu) must be at least one, which holds whenever step_size <= 1/L and mu <= L."""
    if not checks.is_traced(alpha) and not np.all(np.asarray(alpha) > 1 if strict else np.asarray(alpha) >= 1):
        wanted = "< 1" if strict else "<= 1"
        raise ValueError(f"{owner}: step_size * strong_convexity must be {wanted}, got {eta} * {mu}")
    return alpha
