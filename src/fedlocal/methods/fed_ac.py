"""FedAc: clients take accelerated steps, the server averages both of their sequences."""

from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import Acceleration, Affine, GradFn, LocalMethod, NoMemory, Params, Round, Scalar, static
from fedlocal.core.schedule import checked_step_size, has_schedule
from fedlocal.util import checks


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


Variant = Literal["one", "two", "vanilla"]


class Coupling(NamedTuple):
    """How the two sequences are coupled: x_md = x / beta + ..., x <- ... + x_md / alpha - gamma g."""

    alpha: Scalar
    beta: Scalar
    gamma: Scalar

    @classmethod
    def from_gamma(cls, gamma: Scalar, mu: Scalar) -> "Coupling":
        """alpha = 1 / (gamma mu), beta = alpha + 1."""
        return cls(1 / (gamma * mu), 1 / (gamma * mu) + 1, gamma)


class AcceleratedLocalMethod(LocalMethod[AcState, AcState, AcState, NoMemory]):
    """What `FedAc` and `GeneralFedAc` share: everything but where (alpha, beta, gamma) come from."""

    alpha: eqx.AbstractVar[Scalar]
    beta: eqx.AbstractVar[Scalar]
    eta: eqx.AbstractVar[Scalar]
    gamma: eqx.AbstractVar[Scalar]

    def init(self, x0: Params) -> AcState:
        return AcState(x0, x0)

    def start(self, server: AcState, memory: NoMemory) -> AcState:
        return server

    def step(self, client: AcState, grad_fn: GradFn) -> AcState:
        md = middle_point(client, self.beta)
        return accelerated_step(client, md, grad_fn(md), self.alpha, self.eta, self.gamma)

    def finish(self, server: AcState, client: AcState) -> tuple[AcState, NoMemory]:
        return optax.tree.sub(client, server), ()

    def update(self, server: AcState, mean_message: AcState, round: Round) -> AcState:
        return optax.tree.add(server, mean_message)

    def solution(self, server: AcState) -> Params:
        return server.ag

    def primal(self, client: AcState) -> Params:
        return client.ag

    def affine(self, local_steps: int) -> Affine:
        md, one, zero = middle_weights(self.beta), np.eye(2), np.zeros((2, 2))
        gain = [self.gamma, self.eta]
        return Affine(md, accelerated_weights(md, self.alpha), gain, start=one, keep=zero, take=one)

    def acceleration(self) -> Acceleration:
        return Acceleration(self.gamma)


class FedAc(AcceleratedLocalMethod):
    r"""Federated accelerated SGD for min_x mean_m F_m(x), F strongly convex.

    Client m repeats, from (x, x_ag) of the server:
        x_md = x / beta + (1 - 1/beta) x_ag,   g = g_m(x_md),
        x_ag <- x_md - eta g,                  x <- (1 - 1/alpha) x + x_md / alpha - gamma g.
    Server: (x, x_ag) <- mean_m of theirs. The solution is x_ag.

    The theory makes (alpha, beta, gamma) from the step size eta, the modulus mu of strong convexity and the local steps K:
        one      gamma = max(sqrt(eta / (mu K)), eta),  alpha = 1 / (gamma mu),  beta = alpha + 1   (FedAc-I)
        two      the same gamma,  alpha = 3 / (2 gamma mu) - 1/2,  beta = (2 alpha^2 - 1) / (alpha - 1)   (FedAc-II)
        vanilla  gamma = sqrt(eta / mu), then as `one`: direct acceleration, without the trade of speed for stability
    With one client and one local step, `one` and `vanilla` are the same accelerated SGD. For general convex F, run them on
    `fl.problems.augmented(problem, strength, x0)` with strong_convexity = strength. `GeneralFedAc` takes (alpha, beta, eta,
    gamma) as they are.

    Args:
        step_size: eta, at most 1/L in the theorems.
        strong_convexity: mu.
        local_steps: K of the run, which is warned of if its clients take another number; None for "vanilla", which does not
            depend on it.
        variant: "one", "two" or "vanilla"; the constructors of these names are the usual way to make one.

    Reference: dissertation, algorithm fedac. Differs from it: line 2 of the box initialises x_ag at r = 0; unequal numbers of
    local steps and weights allowed.

    >>> method = FedAc.one(step_size=0.1, strong_convexity=0.1, local_steps=4)
    >>> [round(number, 6) for number in method.coupling()]
    [20.0, 21.0, 0.5]
    """

    step_size: Scalar
    strong_convexity: Scalar
    local_steps: int | None
    variant: Variant = static()

    def __init__(
        self, step_size: Scalar, strong_convexity: Scalar, local_steps: int | None = None, variant: Variant = "one"
    ):
        self.variant = checks.choice("FedAc", "variant", variant, get_args(Variant))
        owner = f"FedAc.{variant}"
        self.step_size = checked_step_size(owner, "step_size", step_size)
        self.strong_convexity = checks.number(owner, "strong_convexity", strong_convexity, above=0)
        self.local_steps = None if variant == "vanilla" else local_steps
        if variant != "vanilla" and not checks.is_traced(local_steps):
            self.local_steps = checks.whole(owner, "local_steps", local_steps)
        if not has_schedule(self):  # else it is checked when a run knows its rounds
            eta, mu = self.step_size, self.strong_convexity
            check_coupling(owner, 1 / (self.gamma * mu), eta, mu, strict=variant == "two")

    @classmethod
    def one(cls, *, step_size: Scalar, strong_convexity: Scalar, local_steps: int) -> "FedAc":
        """FedAc-I: gamma = max(sqrt(eta / (mu K)), eta), alpha = 1 / (gamma mu), beta = alpha + 1."""
        return cls(step_size, strong_convexity, local_steps, "one")

    @classmethod
    def two(cls, *, step_size: Scalar, strong_convexity: Scalar, local_steps: int) -> "FedAc":
        """FedAc-II: the gamma of FedAc-I, alpha = 3 / (2 gamma mu) - 1/2, beta = (2 alpha^2 - 1) / (alpha - 1)."""
        return cls(step_size, strong_convexity, local_steps, "two")

    @classmethod
    def vanilla(cls, *, step_size: Scalar, strong_convexity: Scalar) -> "FedAc":
        """Direct acceleration, without the trade of speed for stability: gamma = sqrt(eta / mu), then as FedAc-I."""
        return cls(step_size, strong_convexity, variant="vanilla")

    def made_for_steps(self) -> int | None:
        return None if checks.is_traced(self.local_steps) else self.local_steps

    @property
    def eta(self) -> Scalar:
        return self.step_size

    @property
    def alpha(self) -> Scalar:
        return self.coupling().alpha

    @property
    def beta(self) -> Scalar:
        return self.coupling().beta

    @property
    def gamma(self) -> Scalar:
        eta, mu = self.step_size, self.strong_convexity
        if self.variant == "vanilla":
            return (eta / mu) ** 0.5
        gamma = (eta / (mu * self.local_steps)) ** 0.5
        return max(gamma, eta) if isinstance(gamma, float) and isinstance(eta, float) else jnp.maximum(gamma, eta)

    def coupling(self) -> Coupling:
        """(alpha, beta, gamma), from what the user gave."""
        gamma, mu = self.gamma, self.strong_convexity
        if self.variant != "two":
            return Coupling.from_gamma(gamma, mu)
        alpha = 3 / (2 * gamma * mu) - 0.5
        return Coupling(alpha, (2 * alpha**2 - 1) / (alpha - 1), gamma)


class GeneralFedAc(AcceleratedLocalMethod):
    r"""`FedAc` with the four numbers of its box given one by one.

    alpha = beta = 1 with gamma = eta is FedAvg.

    Args:
        alpha, beta: at least 1.
        eta, gamma: above 0.

    Reference: dissertation, algorithm fedac. Differs from it: as `FedAc` does.

    >>> method = GeneralFedAc(alpha=1.0, beta=1.0, eta=0.1, gamma=0.1)
    >>> round(float(method.step(method.init(1.0), lambda x: 2 * x).ag), 6)
    0.8
    """

    alpha: Scalar
    beta: Scalar
    eta: Scalar
    gamma: Scalar

    def __init__(self, *, alpha: Scalar, beta: Scalar, eta: Scalar, gamma: Scalar):
        self.alpha = checks.number("GeneralFedAc", "alpha", alpha, at_least=1)
        self.beta = checks.number("GeneralFedAc", "beta", beta, at_least=1)
        self.eta = checked_step_size("GeneralFedAc", "eta", eta)
        self.gamma = checked_step_size("GeneralFedAc", "gamma", gamma)


def check_coupling(owner: str, alpha: Scalar, eta: Scalar, mu: Scalar, strict: bool = False) -> None:
    """alpha = 1 / (gamma mu) must be at least one, which holds whenever step_size <= 1/L and mu <= L."""
    if not checks.is_traced(alpha) and not np.all(np.asarray(alpha) > 1 if strict else np.asarray(alpha) >= 1):
        wanted = "< 1" if strict else "<= 1"
        raise ValueError(f"{owner}: step_size * strong_convexity must be {wanted}, got {eta} * {mu}")
