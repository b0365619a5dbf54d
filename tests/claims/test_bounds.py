"""No bound of `fedlocal.theory` is ever broken by simulation, over a grid of M, K, R and step sizes, and none is idle there.

Every claim is checked in all settings of the grid whose conditions hold: mean over seeds plus four standard errors <= bound.
That the check can fail is shown beside it: somewhere in the grid the measured mean is a fair part of the bound, and the bound
with one of its terms divided by a hundred is broken by four standard errors.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fedlocal as fl
from claims.second_moments import CLIENTS, Trace, losses, walk
from fedlocal.problems import Oracle
from fedlocal.theory import Bound, Constants, Setting
from fedlocal.theory.bias.bounds import iterate_bias_lower_bound, iterate_bias_upper_bound
from fedlocal.theory.bias.quadrature import Gaussian, Uniform, exact_bias
from fedlocal.theory.bounds.composite import (
    composite_small_step_bound,
    fed_dual_avg_bounded_gradient_bound,
    fed_dual_avg_bounded_gradient_discrepancy_bound,
    fed_dual_avg_perturbed_bound,
    fed_dual_avg_quadratic_bound,
    fed_dual_avg_quadratic_discrepancy_bound,
)
from fedlocal.theory.bounds.fed_ac import fed_ac_one_bound, fed_ac_two_bound, fed_ac_two_third_order_bound
from fedlocal.theory.bounds.fed_ac_convex import (
    fed_ac_one_convex_bound,
    fed_ac_two_convex_bound,
    fed_ac_two_third_order_convex_bound,
)
from fedlocal.theory.bounds.fed_ac_stability import (
    fed_ac_one_discrepancy_bound,
    fed_ac_one_perturbed_bound,
    fed_ac_two_discrepancy_bound,
    fed_ac_two_perturbed_bound,
    fed_ac_two_third_order_discrepancy_bound,
)
from fedlocal.theory.bounds.fed_avg import (
    fed_avg_convex_bound,
    fed_avg_non_convex_bound,
    fed_avg_non_convex_third_order_bound,
    fed_avg_strongly_convex_third_order_bound,
    fed_avg_third_order_bound,
)
from fedlocal.theory.bounds.fed_avg_stability import (
    client_discrepancy_bound,
    fed_avg_strongly_convex_perturbed_bound,
    fourth_order_discrepancy_bound,
    shadow_bound,
)
from fedlocal.theory.bounds.minibatch import minibatch_sgd_bound
from fedlocal.theory.constants.estimation import estimate
from fedlocal.theory.constructions.lower_bound_instances import (
    log_cosh_instance,
    lower_bound_instance,
    piecewise_instance,
)

LOCAL_STEPS, ROUNDS, SEEDS = (1, 4, 16), (4, 16), 32
FRACTIONS = (0.01, 0.05, 0.25, 0.5, 1.0)  # of 1/L: at least three are allowed by every theorem of FedAvg
ROUNDING = 1e-20  # of squared distances between clients that have not moved
TINY = 1e-6  # client step size of the small-step theorem, relative to 1/L
SPECTRUM = np.array([1.0, 0.3, 0.03])
SMOOTH = float(SPECTRUM.max())


class Case(NamedTuple):
    """A problem of 16 clients, of which the first M are taken, with what is known about it."""

    problem: Any
    constants: Constants
    x0: Any
    solution: Any
    optimum: float
    clients: tuple[int, ...] = (1, 4, 16)
    batch_size: int | None = 1

    @property
    def smoothness(self) -> float:
        return self.constants.smoothness


# ---------------------------------------------------------------- problems


def quadratic(noise: float, spread: float = 0.0, start: float = 1.0) -> Case:
    """1/2 (x - c_m)' A (x - c_m) with c_m = +-spread (1, 1, 1) in turn: L, mu, sigma, zeta, B and Delta are exact."""
    d, x0 = len(SPECTRUM), np.full(3, start)
    optima = spread * np.where(np.arange(CLIENTS) % 2, 1.0, -1.0)[:, None] * np.ones(d)
    problem = fl.problems.quadratics(np.stack([np.diag(SPECTRUM)] * CLIENTS), optima, noise_std=noise)
    zeta = spread * float(np.linalg.norm(SPECTRUM))
    constants = Constants(
        smoothness=SMOOTH,
        noise=noise * math.sqrt(d),
        distance=float(np.linalg.norm(x0)),
        strong_convexity=float(SPECTRUM.min()),
        heterogeneity=zeta,
        optimum_heterogeneity=zeta,
        fourth_moment=noise * (d * (d + 2)) ** 0.25,  # E ||N(0, I)||^4 = d (d + 2)
        third_order=0.0,
        gap=float(x0 @ (SPECTRUM * x0)) / 2,
    )
    optimum = spread**2 * float(SPECTRUM.sum()) / 2
    return Case(problem, constants, x0, np.zeros(d), optimum, (4, 16) if spread else (1, 4, 16))


def examples(num: int = 64, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num, d))
    return X, np.where(X[:, 0] + rng.standard_normal(num) > 0, 1.0, -1.0)


def logistic(l2: float, start: float = 2.0, psi: Any = None) -> Case:
    X, y = examples()
    problem = fl.problems.Logistic(fl.FederatedData.shared(X, y, num_clients=CLIENTS), l2=l2)
    return with_constants(problem, {"weights": np.full(X.shape[1], start)}, psi)


def logistic_apart() -> Case:
    """Clients of four kinds, in turn, each with a quarter of the examples."""
    X, y = examples()
    order = np.argsort(y, kind="stable")
    starts = 16 * (np.arange(CLIENTS) % 4)
    data = fl.FederatedData((X[order], y[order]), starts, np.full(CLIENTS, 16))
    case = with_constants(fl.problems.Logistic(data, l2=0.0), {"weights": np.full(X.shape[1], 2.0)})
    return case._replace(clients=(4, 16))


def a9a() -> Case:
    X, y = cast(Any, fl.data.a9a())
    data = fl.FederatedData.shared(X[:256].toarray(), y[:256], num_clients=CLIENTS)
    return with_constants(fl.problems.Logistic(data, l2=1e-2), {"weights": np.zeros(X.shape[1])})


def with_constants(problem: Any, x0: Any, psi: Any = None) -> Case:
    """With the certified constants of `estimate`."""
    found = estimate(problem, x0=x0, regularizer=psi)
    needed = ("smoothness", "noise", "distance", "heterogeneity", "third_order", "fourth_moment", "gap")
    assert all(found.certified[name] for name in needed)
    return Case(problem, found.constants, x0, found.solution, found.optimum)


def waves() -> Case:
    """sum_i (1 - cos x_i), not convex, with uniform noise: |F''| <= 1, |F'''| <= 1 in each coordinate, so L = Q = 1."""
    width, d = 0.5, 2
    problem = Oracle(
        lambda x, m: jnp.sum(1 - jnp.cos(x)),
        noise=lambda key, x, m: width * jax.random.uniform(key, x.shape, x.dtype, -1.0, 1.0),
        num_clients=CLIENTS,
    )
    x0 = np.array([2.5, 1.0])
    constants = Constants(
        smoothness=1.0,
        noise=width * math.sqrt(d / 3),
        distance=float(np.linalg.norm(x0)),
        third_order=1.0,
        gradient_bound=math.sqrt(d) * (1 + width),
        gap=float(np.sum(1 - np.cos(x0))),
    )
    return Case(problem, constants, x0, np.zeros(d), 0.0)


def text_instance() -> Case:
    """That of the lower bound, without heterogeneity; its noise is in one coordinate."""
    constants = Constants(smoothness=1.0, noise=2.0, distance=1.0)
    problem = lower_bound_instance(constants, Setting(CLIENTS, rounds=16, local_steps=16))
    distance = 1 / math.sqrt(2)  # of (0, B/2, B/2, 0)
    known = Constants(smoothness=1.0, noise=2.0, distance=distance)
    return Case(problem, known, problem.init(jax.random.key(0)), np.zeros(4), 0.0)


def third_order_instance() -> Case:
    """log cosh with noise on [-sigma, sigma]: variance sigma^2/3, fourth moment sigma^4/5."""
    L, Q, sigma, start = 1.0, 0.5, 1.0, -3.0
    one = log_cosh_instance(L, Q, sigma)
    problem = Oracle(one.value, one.gradient_fn, one.noise, CLIENTS)
    value = float(one.value(jnp.array(start), jnp.array(0)))
    constants = Constants(
        smoothness=L,
        noise=sigma / math.sqrt(3),
        distance=abs(start),
        strong_convexity=L / 2,
        third_order=Q,
        fourth_moment=sigma / 5**0.25,
        gap=value,
    )
    return Case(problem, constants, np.array(start), np.array(0.0), 0.0)


L1 = fl.regularizers.L1(0.1)
BALL = fl.regularizers.L2Ball(0.6)


def composite_quadratic(psi: Any, noise: float, spread: float, dual_norm: bool) -> Case:
    """In the norm of thm:2, ||x||^2 = x'Ax/L, dual to ||y||^2 = L y'A^-1 y; or in the Euclidean one."""
    case = quadratic(noise, spread, start=0.3)
    moved = fl.problems.quadratics(
        np.stack([np.diag(SPECTRUM)] * CLIENTS), np.asarray(case.problem.value.args[1]) + 1.0, noise_std=noise
    )
    found = estimate(moved, x0=case.x0, regularizer=psi)
    weight = SMOOTH / SPECTRUM if dual_norm else np.ones(3)
    zeta = spread * math.sqrt(float(weight @ SPECTRUM**2))
    constants = Constants(
        smoothness=SMOOTH,
        noise=noise * math.sqrt(float(weight.sum())),
        distance=found.constants.distance,
        heterogeneity=zeta,
        third_order=0.0,
    )
    return Case(moved, constants, case.x0, found.solution, found.optimum, case.clients)


CASES: dict[str, Callable[[], Case]] = {
    "quadratic": partial(quadratic, noise=0.4),
    "quadratic, little noise": partial(quadratic, noise=0.01),
    "quadratic, from the optimum": partial(quadratic, noise=0.4, start=1e-3),
    "quadratic, clients apart": partial(quadratic, noise=0.05, spread=1.0),
    "logistic": partial(logistic, l2=0.0),
    "logistic, l2": partial(logistic, l2=0.1),
    "logistic, clients apart": logistic_apart,
    "a9a": a9a,
    "waves": waves,
    "lower bound instance": text_instance,
    "log cosh instance": third_order_instance,
    "lasso": partial(composite_quadratic, L1, 0.4, 0.0, dual_norm=True),
    "lasso, clients apart": partial(composite_quadratic, L1, 0.05, 1.0, dual_norm=True),
    "ball": partial(composite_quadratic, BALL, 0.4, 0.0, dual_norm=True),
    "lasso, Euclidean": partial(composite_quadratic, L1, 0.4, 0.5, dual_norm=False),
    "ball, Euclidean": partial(composite_quadratic, BALL, 0.4, 0.5, dual_norm=False),
    "sparse logistic": partial(logistic, l2=0.0, start=0.3, psi=L1),
    "logistic in a ball": partial(logistic, l2=0.0, start=0.2, psi=BALL),
}
MANY_SEEDS = {
    "lower bound instance": 512,
    "log cosh instance": 512,
}  # noise in one number, and bounds that are nearly attained
DUAL_NORM = {"lasso", "lasso, clients apart", "ball"}
REGULARIZER = {"lasso": L1, "ball": BALL, "sparse logistic": L1, "logistic in a ball": BALL}


@lru_cache
def case_named(name: str) -> Case:
    return CASES[name]()


def regularizer(name: str) -> Any:
    return REGULARIZER[name.split(",")[0]]


def psi_of(method: str, name: str) -> Any:
    return regularizer(name) if "Dual" in method or "MiD" in method else None


# ---------------------------------------------------------------- runs


class Run(NamedTuple):
    """All runs of a case in one setting with one step size: first axis of the trace is seeds, its rounds are the first R."""

    case: Case
    setting: Setting
    step_size: float
    trace: Trace
    psi: Any

    def objective(self, points: np.ndarray) -> np.ndarray:
        """F + psi at points (seeds, d)."""
        weights = np.where(np.arange(CLIENTS) < self.setting.clients, 1 / self.setting.clients, 0.0)
        loss_weights = jnp.asarray(self.case.problem.loss_weights(weights))
        value = np.asarray(losses(self.case.problem, points, loss_weights, self.case.x0))
        if self.psi is not None:
            unravel = ravel_pytree(self.case.x0)[1]
            value = value + np.asarray(jax.vmap(lambda x: self.psi.value(unravel(x)))(jnp.asarray(points)))
        return value

    def error(self, points: np.ndarray) -> np.ndarray:
        return self.objective(points) - self.case.optimum

    def weighted(self, weights: np.ndarray) -> np.ndarray:
        """The mean of the points before each step, t = r K + k, with these weights (K R,): (seeds, d)."""
        points = self.trace.points[:, :, :-1].reshape(-1, len(weights), ravel_pytree(self.case.x0)[0].size)
        return np.einsum("t,std->sd", weights / weights.sum(), points)

    @property
    def steps(self) -> int:
        return self.setting.rounds * self.setting.local_steps


Methods = Callable[[str, Case, float, int], fl.LocalMethod]  # (name of the case, case, step size, K)


def accelerated(kind: str) -> Methods:
    make = getattr(fl.methods.FedAc, kind)
    return lambda _, case, eta, K: make(step_size=eta, strong_convexity=case.constants.strong_convexity, local_steps=K)


def hardly_moving(kind: type, **given: Any) -> Methods:
    def make(name: str, case: Case, eta: float, K: int) -> fl.LocalMethod:
        client = TINY / case.smoothness
        return kind(client, eta / (4 * K) / client, regularizer(name), **given)

    return make


METHODS: dict[str, Methods] = {
    "FedAvg": lambda _, case, eta, K: fl.methods.FedAvg(eta),
    "MinibatchSGD": lambda _, case, eta, K: fl.methods.MinibatchSGD(eta),
    "FedAc-I": accelerated("one"),
    "FedAc-II": accelerated("two"),
    "FedDualAvg": lambda name, case, eta, K: fl.methods.FedDualAvg(eta, 1.0, regularizer(name)),
    "FedDualAvg, small steps": hardly_moving(fl.methods.FedDualAvg),
    "FedMiD-OSP, small steps": hardly_moving(fl.methods.FedMiD, prox_on_clients=False),
}


def fractions(method: str) -> tuple[float, ...]:
    return FRACTIONS if method.endswith("Avg") else FRACTIONS[::2]


@lru_cache
def traces(method: str, name: str, clients: int, local_steps: int) -> Trace:
    smoothness = case_named(name).smoothness
    return walked(method, name, clients, local_steps, [fraction / smoothness for fraction in fractions(method)])


def walked(method: str, name: str, clients: int, local_steps: int, step_sizes: list[float]) -> Trace:
    case = case_named(name)
    chosen = [METHODS[method](name, case, eta, local_steps) for eta in step_sizes]
    return walk(
        case.problem,
        chosen,
        case.solution,
        clients=clients,
        local_steps=local_steps,
        rounds=max(ROUNDS),
        most_steps=max(LOCAL_STEPS),
        seeds=MANY_SEEDS.get(name, SEEDS),
        x0=case.x0,
        norm=np.diag(SMOOTH / SPECTRUM) if name in DUAL_NORM else None,
        strong_convexity=case.constants.strong_convexity,
    )


def runs(method: str, name: str) -> Any:
    """All of the grid."""
    case, psi = case_named(name), psi_of(method, name)
    for clients in case.clients:
        for local_steps in LOCAL_STEPS:
            for rounds in ROUNDS:
                trace = traces(method, name, clients, local_steps)
                for i, fraction in enumerate(fractions(method)):
                    cut = Trace(*(a[i][:, :rounds] for a in trace))
                    setting = Setting(clients=clients, rounds=rounds, local_steps=local_steps)
                    yield Run(case, setting, fraction / case.smoothness, cut, psi)


# ---------------------------------------------------------------- claims


class Claim(NamedTuple):
    """measured(run), first axis seeds, is in the mean at most bound(run)."""

    method: str
    bound: Callable[[Run], Bound | float]
    measured: Callable[[Run], np.ndarray]
    term: str = ""  # that the bound cannot do without, for a Bound
    cases: tuple[str, ...] = ()
    attained: float = 0.01  # the measured mean is somewhere more than this part of the bound
    thorough: tuple[str, ...] = ()
    theorem: Callable[..., Bound] | None = None  # with the step size of its own
    divisor: float = 100.0  # with which the term is too small


def at(bound_fn: Callable[..., Any]) -> Callable[[Run], Any]:
    return lambda run: bound_fn(run.case.constants, run.setting, run.step_size)


def average_error(run: Run) -> np.ndarray:
    return run.trace.loss[:, :, 1:].mean(axis=(1, 2)) - run.case.optimum


def shadow_error(run: Run) -> np.ndarray:
    return average_error(run) + run.trace.distance[:, -1] / (2 * run.step_size * run.steps)


def shadow_with_measured(run: Run) -> Bound:
    total = run.trace.apart[:, :, :-1].sum(axis=(1, 2, 3)).mean()
    return shadow_bound(run.case.constants, run.setting, run.step_size, discrepancy_sum=float(total))


def discrepancy(run: Run) -> np.ndarray:
    """Of each client; where they are alike, of all of them together."""
    alike = run.case.constants.heterogeneity == 0
    return run.trace.apart.mean(axis=-1) if alike else run.trace.apart


def third_order_error(run: Run) -> np.ndarray:
    t = np.arange(run.steps)
    return run.error(run.weighted((1 + 1 / run.steps) ** (-(t + 1.0))))


def strongly_convex_error(run: Run) -> np.ndarray:
    mu, t = run.case.constants.strong_convexity, np.arange(run.steps)
    weights = (1 - run.step_size * mu / 2) ** (run.steps - t - 1.0)
    return run.error(run.weighted(weights)) + mu / 2 * run.trace.distance[:, -1]


def gradient_of_a_random_iterate(run: Run) -> np.ndarray:
    return run.trace.gradient[:, :, :-1].mean(axis=(1, 2))


def server_error(run: Run) -> np.ndarray:
    return run.trace.server_loss.mean(axis=1) - run.case.optimum


def potential(weight: float) -> Callable[[Run], np.ndarray]:
    def value(run: Run) -> np.ndarray:
        distance = run.case.constants.strong_convexity * run.trace.distance[:, -1]
        return run.trace.server_loss[:, -1] - run.case.optimum + weight * distance

    return value


def perturbed(bound_fn: Callable[..., Bound], column: str) -> Callable[[Run], Bound]:
    def bound(run: Run) -> Bound:
        largest = float(getattr(run.trace, column).mean(axis=0).max())
        return bound_fn(run.case.constants, run.setting, run.step_size, discrepancy=largest)

    return bound


def strongly_convex_with_measured(run: Run) -> Bound:
    largest = float((run.trace.apart[:, :, :-1] ** 2).mean(axis=(0, -1)).max())
    return fed_avg_strongly_convex_perturbed_bound(run.case.constants, run.setting, run.step_size, discrepancy=largest)


def dual_average_with_measured(run: Run) -> Bound:
    apart = float(run.trace.apart[:, :, :-1].mean())
    return fed_dual_avg_perturbed_bound(run.case.constants, run.setting, run.step_size, discrepancy=apart)


def uniform_error(run: Run) -> np.ndarray:
    return run.error(run.trace.points[:, :, 1:].mean(axis=(1, 2)))


def round_error(run: Run) -> np.ndarray:
    return run.error(run.trace.server.mean(axis=1))


def small_step(run: Run) -> Bound:
    eta = run.step_size / (4 * run.setting.local_steps)
    return composite_small_step_bound(run.case.constants, run.setting, eta)


QUADRATICS = ("quadratic", "quadratic, little noise", "quadratic, from the optimum")
CLAIMS = {
    "thm:fedavg:2o:ub": Claim(
        "FedAvg",
        at(fed_avg_convex_bound),
        average_error,
        "deterministic",
        (*QUADRATICS, "quadratic, clients apart", "logistic"),
        thorough=("logistic, clients apart", "a9a", "lower bound instance", "log cosh instance"),
        theorem=fed_avg_convex_bound,
    ),
    "lem:fedavg:2o:ub:1": Claim(
        "FedAvg",
        shadow_with_measured,
        shadow_error,
        "statistical",
        (*QUADRATICS, "quadratic, clients apart", "logistic"),
        thorough=("logistic, clients apart", "a9a", "lower bound instance", "log cosh instance"),
    ),
    "lem:fedavg:2o:ub:2": Claim(
        "FedAvg",
        at(client_discrepancy_bound),
        discrepancy,
        "drift",
        ("quadratic", "quadratic, clients apart", "logistic"),
        thorough=("logistic, clients apart", "a9a", "lower bound instance", "log cosh instance"),
    ),
    "thm:fedavg:3o:ub": Claim(
        "FedAvg",
        at(fed_avg_third_order_bound),
        third_order_error,
        "statistical",
        (*QUADRATICS, "logistic"),
        thorough=("a9a", "log cosh instance"),
        theorem=fed_avg_third_order_bound,
    ),
    "fedavg:a2:stab:main": Claim(
        "FedAvg",
        at(fourth_order_discrepancy_bound),
        lambda run: (run.trace.apart**2).mean(axis=-1),
        "drift",
        ("quadratic", "logistic"),
        thorough=("a9a", "log cosh instance"),
        attained=0.004,  # while nothing curves, normal noise gives (1 - 1/M)^2 eta^4 k^2 s^4, a 192nd of the bound
        divisor=1000.0,
    ),
    "fedavg:a2:general:eta": Claim(
        "FedAvg",
        at(fed_avg_strongly_convex_third_order_bound),
        strongly_convex_error,
        "statistical",
        QUADRATICS,
        thorough=("logistic, l2", "a9a", "log cosh instance"),
        theorem=fed_avg_strongly_convex_third_order_bound,
    ),
    "fedavg:a2:conv:main": Claim(
        "FedAvg",
        strongly_convex_with_measured,
        strongly_convex_error,
        "statistical",
        QUADRATICS,
        thorough=("logistic, l2", "a9a", "log cosh instance"),
    ),
    "thm:fedavg:ncvx:2o": Claim(
        "FedAvg",
        at(fed_avg_non_convex_bound),
        gradient_of_a_random_iterate,
        "deterministic",
        ("logistic",),
        thorough=("waves",),
        theorem=fed_avg_non_convex_bound,
    ),
    "thm:fedavg:ncvx:3o": Claim(
        "FedAvg",
        at(fed_avg_non_convex_third_order_bound),
        gradient_of_a_random_iterate,
        "deterministic",
        ("logistic",),
        thorough=("waves",),
        theorem=fed_avg_non_convex_third_order_bound,
    ),
    "lem:fedavg:2o:ub:1, minibatch": Claim(
        "MinibatchSGD", at(minibatch_sgd_bound), server_error, "statistical", (), thorough=QUADRATICS
    ),
    "fedaci:general:eta": Claim(
        "FedAc-I",
        at(fed_ac_one_bound),
        potential(1 / 2),
        "deterministic",
        QUADRATICS[1:],
        thorough=("quadratic", "logistic, l2", "log cosh instance"),
        theorem=fed_ac_one_bound,
    ),
    "fedaci:stab:main": Claim(
        "FedAc-I",
        at(fed_ac_one_discrepancy_bound),
        lambda run: run.trace.cross,
        "",
        QUADRATICS[2:],
        thorough=("quadratic", "logistic, l2", "log cosh instance"),
    ),
    "fedaci:conv:main": Claim(
        "FedAc-I",
        perturbed(fed_ac_one_perturbed_bound, "cross"),
        potential(1 / 2),
        "statistical",
        QUADRATICS[1:],
        thorough=("quadratic", "logistic, l2", "log cosh instance"),
    ),
    "fedacii:a1:general:eta": Claim(
        "FedAc-II",
        at(fed_ac_two_bound),
        potential(1 / 6),
        "deterministic",
        QUADRATICS[1:],
        thorough=("quadratic", "logistic, l2", "log cosh instance"),
        theorem=fed_ac_two_bound,
    ),
    "fedacii:a2:general:eta": Claim(
        "FedAc-II",
        at(fed_ac_two_third_order_bound),
        potential(1 / 6),
        "deterministic",
        QUADRATICS[1:],
        thorough=("quadratic", "logistic, l2", "log cosh instance"),
        theorem=fed_ac_two_third_order_bound,
    ),
    "fedacii:conv:main": Claim(
        "FedAc-II",
        perturbed(fed_ac_two_perturbed_bound, "gradient_gap"),
        potential(1 / 6),
        "statistical",
        QUADRATICS[1:],
        thorough=("quadratic", "logistic, l2", "log cosh instance"),
    ),
    "fedacii:a1:stab:main": Claim(
        "FedAc-II",
        at(fed_ac_two_discrepancy_bound),
        lambda run: run.trace.gradient_gap,
        "",
        (),
        thorough=("logistic, l2", "log cosh instance"),
        attained=0.0,
    ),
    "fedacii:stab:main": Claim(
        "FedAc-II",
        at(fed_ac_two_third_order_discrepancy_bound),
        lambda run: run.trace.gradient_gap,
        "",
        (),
        thorough=("logistic, l2", "log cosh instance"),
        attained=0.0,
    ),
    "thm:1": Claim(
        "FedDualAvg",
        at(fed_dual_avg_bounded_gradient_bound),
        uniform_error,
        "deterministic",
        ("sparse logistic",),
        thorough=("logistic in a ball",),
        theorem=fed_dual_avg_bounded_gradient_bound,
    ),
    "bounded_gradient": Claim(
        "FedDualAvg",
        at(fed_dual_avg_bounded_gradient_discrepancy_bound),
        lambda run: run.trace.apart[:, :, :-1].mean(axis=-1),
        "",
        ("sparse logistic",),
        thorough=("logistic in a ball",),
        attained=0.002,  # noise in all directions walks like sqrt(k) and not like k
        divisor=1000.0,
    ),
    "pia:general": Claim(
        "FedDualAvg",
        dual_average_with_measured,
        uniform_error,
        "deterministic",
        ("lasso", "lasso, clients apart"),
        thorough=("ball", "sparse logistic", "logistic in a ball"),
    ),
    "thm:2": Claim(
        "FedDualAvg",
        at(fed_dual_avg_quadratic_bound),
        uniform_error,
        "deterministic",
        ("lasso", "lasso, clients apart"),
        thorough=("ball",),
        theorem=fed_dual_avg_quadratic_bound,
    ),
    "quad:stability": Claim(
        "FedDualAvg",
        at(fed_dual_avg_quadratic_discrepancy_bound),
        lambda run: run.trace.apart.mean(axis=-1),
        "",
        ("lasso", "lasso, clients apart"),
        thorough=("ball",),
    ),
    "small_lr, FedDualAvg": Claim(
        "FedDualAvg, small steps",
        small_step,
        round_error,
        "deterministic",
        ("lasso, Euclidean",),
        thorough=("ball, Euclidean",),
        theorem=composite_small_step_bound,
    ),
    "small_lr, FedMiD-OSP": Claim(  # the limit of `fed_mid_osp_bound`; the text has it for FedMiD, see test_fed_mid.py
        "FedMiD-OSP, small steps",
        small_step,
        round_error,
        "deterministic",
        ("lasso, Euclidean",),
        thorough=("ball, Euclidean",),
        theorem=composite_small_step_bound,
    ),
}


SLOW = {"thm:1", "bounded_gradient"}


def labels(chosen: Callable[[Claim], Any]) -> list[Any]:
    """Of these claims, for a test that is thorough for the slow ones."""
    names = [label for label, claim in CLAIMS.items() if chosen(claim)]
    return [pytest.param(n, marks=pytest.mark.thorough) if n in SLOW else n for n in names]


class Found(NamedTuple):
    """What a check saw."""

    settings: int  # in which the bound applies
    largest: float  # measured mean over bound
    breaks: bool  # whether the bound with the term divided by a hundred is broken


def check(claim: Claim, name: str) -> Found:
    """Raises where the claim is broken."""
    settings, largest, breaks = 0, 0.0, False
    for run in runs(claim.method, name):
        bound = claim.bound(run)
        if isinstance(bound, Bound) and not bound.applies:
            continue
        value = bound.value if isinstance(bound, Bound) else bound
        measured = claim.measured(run)
        mean, error = measured.mean(axis=0), measured.std(axis=0, ddof=1) / math.sqrt(len(measured))
        assert np.all(mean + 4 * error <= value * (1 + 1e-9) + ROUNDING), (name, run.setting, run.step_size, value)
        missing = 1 - 1 / claim.divisor
        wrong = value - missing * (bound.terms[claim.term] if isinstance(bound, Bound) else bound)
        settings, breaks = settings + 1, breaks or bool(np.any(mean - 4 * error > wrong))
        largest = max(largest, float(mean.max()) / value) if value > 0 else largest
    return Found(settings, largest, breaks)


@pytest.mark.parametrize("label", labels(lambda claim: claim.cases))
def test_bound(label: str):
    claim = CLAIMS[label]
    found = [check(claim, name) for name in claim.cases]
    assert all(one.settings >= 3 * len(LOCAL_STEPS) * len(ROUNDS) * 2 for one in found)
    assert max(one.largest for one in found) > claim.attained
    assert any(one.breaks for one in found)


@pytest.mark.thorough
@pytest.mark.parametrize(("label", "name"), [(label, name) for label in CLAIMS for name in CLAIMS[label].thorough])
def test_bound_on_more_problems(label: str, name: str):
    assert check(CLAIMS[label], name).settings >= 3 * len(LOCAL_STEPS) * len(ROUNDS) * 2


def own_step_size(label: str, name: str, setting: Setting) -> float:
    """In the units of `fractions`: that of a client, or what a small one is made of."""
    claim = CLAIMS[label]
    assert claim.theorem is not None
    bound = claim.theorem(case_named(name).constants, setting)
    assert bound.applies
    assert bound.step_size is not None
    return bound.step_size * (4 * setting.local_steps if "small" in claim.method else 1)


@lru_cache
def own_traces(method: str, name: str, setting: Setting) -> dict[str, Trace]:
    """Runs at the step sizes of all theorems about a method and a case, by label, in as many programs as elsewhere."""
    about = [label for label, c in CLAIMS.items() if c.theorem and c.method == method and name in c.cases]
    step_sizes, lanes = [own_step_size(label, name, setting) for label in about], len(fractions(method))
    found: dict[str, Trace] = {}
    for first in range(0, len(about), lanes):
        some = step_sizes[first : first + lanes]
        padded = [*some, *([some[-1]] * (lanes - len(some)))]  # as many as elsewhere, for the same program
        trace = walked(method, name, setting.clients, setting.local_steps, padded)
        found |= {about[first + i]: Trace(*(a[i][:, : setting.rounds] for a in trace)) for i in range(len(some))}
    return found


@pytest.mark.parametrize("label", labels(lambda claim: claim.theorem))
def test_theorem_at_its_own_step_size(label: str):
    """What is stated for the step size that the theorem chooses, in settings where noise decides it and where L does."""
    claim = CLAIMS[label]
    assert claim.theorem is not None
    for name in claim.cases:
        case = case_named(name)
        for setting in (Setting(clients=4, rounds=16, local_steps=4), Setting(clients=16, rounds=4, local_steps=16)):
            bound = claim.theorem(case.constants, setting)
            assert bound.applies
            assert bound.step_size is not None
            trace = own_traces(claim.method, name, setting)[label]
            measured = claim.measured(Run(case, setting, bound.step_size, trace, psi_of(claim.method, name)))
            mean, error = measured.mean(), measured.std(ddof=1) / math.sqrt(SEEDS)
            assert 0 < mean + 4 * error <= bound.value, (name, setting)


# ---------------------------------------------------------------- FedAc for convex objectives, whose lambda is the setting's own


def check_convex(bound_fn: Callable[..., Bound], kind: str, name: str, settings: list[Setting], most: int) -> float:
    """The largest measured error over the bound; raises where it is above one."""
    case, largest = case_named(name), 0.0
    make = getattr(fl.methods.FedAc, kind)
    for setting in settings:
        theorem = bound_fn(case.constants, setting)
        lam, own = theorem.regularization, theorem.step_size
        assert lam is not None
        assert own is not None
        limit = 1 / (case.smoothness + lam)
        step_sizes = [own, *(fraction * limit for fraction in FRACTIONS[::2])]
        trace = walk(
            fl.problems.augmented(case.problem, lam, case.x0),
            [make(step_size=eta, strong_convexity=lam, local_steps=setting.local_steps) for eta in step_sizes],
            case.solution,
            clients=setting.clients,
            local_steps=setting.local_steps,
            rounds=max(ROUNDS),
            most_steps=most,
            seeds=SEEDS,
            x0=case.x0,
            measured=case.problem,
            strong_convexity=lam,
        )
        bounds = [theorem, *(bound_fn(case.constants, setting, eta) for eta in step_sizes[1:])]
        for bound, loss in zip(bounds, trace.server_loss[:, :, setting.rounds - 1], strict=True):
            assert bound.applies
            mean, error = loss.mean() - case.optimum, loss.std(ddof=1) / math.sqrt(SEEDS)
            assert mean + 4 * error <= bound.value, (name, setting, bound)
            largest = max(largest, mean / bound.value)
    return largest


@pytest.mark.thorough
def test_convex_fed_ac_one():
    cuts = [(4, 16), (16, 4), (16, 16)]  # K R >= 24
    settings = [Setting(clients=M, rounds=R, local_steps=K) for M in (1, 16) for K, R in cuts]
    assert check_convex(fed_ac_one_convex_bound, "one", "quadratic, little noise", settings, 16) > 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("bound_fn", [fed_ac_two_convex_bound, fed_ac_two_third_order_convex_bound])
def test_convex_fed_ac_two(bound_fn: Callable[..., Bound]):
    settings = [Setting(clients=M, rounds=16, local_steps=64) for M in (1, 4, 16)]  # K R >= 1000
    found = [check_convex(bound_fn, "two", name, settings, 64) for name in (*QUADRATICS[:2], "log cosh instance")]
    assert max(found) > 0.001


# ---------------------------------------------------------------- iterate bias, computed and not sampled


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_bias_of_the_piecewise_instance_is_between_its_bounds(fraction: float):
    """From the optimum both bounds hold, from elsewhere the upper one does."""
    L, sigma, steps = 2.0, 0.7, [2, 4, 16, 64, 400]
    constants, problem = Constants(L, noise=sigma, distance=1.0), piecewise_instance(L, sigma)
    eta = fraction / L
    at_optimum, elsewhere = (
        np.abs(exact_bias(problem, x0, eta, steps, Gaussian(sigma), kinks=[0.0])) for x0 in (0.0, 0.2)
    )
    low, high = (
        np.array([bound_fn(constants, eta, k).value for k in steps])
        for bound_fn in (iterate_bias_lower_bound, iterate_bias_upper_bound)
    )
    assert np.all((low <= at_optimum) & (at_optimum <= high))
    assert np.all(elsewhere <= high)
    assert np.any(at_optimum > high / 50)  # a fiftieth of the upper bound is broken
    assert np.any(at_optimum < 50 * low)  # fifty times the lower bound is, too


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_bias_of_the_log_cosh_instance_is_between_its_bounds(fraction: float):
    L, sigma, steps = 1.0, 0.5, [2, 4, 16, 32, 200]
    Q = L**2 / (12 * 201 * sigma)
    constants = Constants(L, noise=sigma, distance=1.0, third_order=Q)
    bias = -exact_bias(log_cosh_instance(L, Q, sigma), 0.0, fraction / L, steps, Uniform(sigma))
    low, high = (
        [bound_fn(constants, fraction / L, k) for k in steps]
        for bound_fn in (iterate_bias_lower_bound, iterate_bias_upper_bound)
    )
    assert all(bound.applies for bound in low + high)
    assert np.all(np.array([bound.value for bound in low]) <= bias)
    assert np.all(bias <= np.array([bound.value for bound in high]))
    assert np.any(bias > np.array([bound.value for bound in high]) / 50)
    assert np.any(bias < np.array([bound.value for bound in low]) * 50)


# ---------------------------------------------------------------- the runs are those of the engine


@pytest.mark.parametrize(
    ("method", "name", "average"),
    [
        ("FedAvg", "quadratic", "third_order"),
        pytest.param("FedAc-I", "quadratic, from the optimum", None, marks=pytest.mark.thorough),
        pytest.param("FedDualAvg", "lasso, clients apart", "uniform", marks=pytest.mark.thorough),
        pytest.param("FedMiD-OSP, small steps", "lasso, Euclidean", "rounds", marks=pytest.mark.thorough),
        pytest.param("FedAvg", "quadratic, clients apart", "strongly convex", marks=pytest.mark.thorough),
    ],
)
def test_simulate_walks_the_same_way(method: str, name: str, average: Any):
    """The point that it returns, and what its shadow sees, to rounding."""
    case, local_steps, lane, seed = case_named(name), max(LOCAL_STEPS), 1, 3
    eta, mu = fractions(method)[lane] / case.smoothness, case.constants.strong_convexity
    chosen = METHODS[method](name, case, eta, local_steps)
    strongly = fl.StronglyConvexAverage(step_size=eta, strong_convexity=mu) if average == "strongly convex" else average
    result = fl.simulate(
        case.problem,
        chosen,
        rounds=4,
        local_steps=local_steps,
        batch_size=1,
        seed=seed,
        x0=case.x0,
        average=strongly,
        shadow=fl.Shadow(strong_convexity=mu or None),
        progress=False,
    )
    trace = traces(method, name, CLIENTS, local_steps)
    setting = Setting(CLIENTS, rounds=4, local_steps=local_steps)
    run = Run(case, setting, eta, Trace(*(a[lane][:, :4] for a in trace)), None)
    t = np.arange(run.steps)
    expected = {
        None: lambda: run.trace.server[:, -1],
        "third_order": lambda: run.weighted((1 + 1 / run.steps) ** (-(t + 1.0))),
        "strongly convex": lambda: run.weighted((1 - eta * mu / 2) ** (run.steps - t - 1.0)),
        "uniform": lambda: run.trace.points[:, :, 1:].mean(axis=(1, 2)),
        "rounds": lambda: run.trace.server.mean(axis=1),
    }[average]()[seed]
    np.testing.assert_allclose(result.x, expected, rtol=1e-9, atol=1e-12)
    assert result.shadow is not None
    inside = result.shadow.iloc[:-1]
    columns = {"loss": run.trace.loss}
    if method == "FedAc-I":
        columns |= {"cross_term": run.trace.cross, "gradient_discrepancy": run.trace.gradient_gap}
    elif name not in DUAL_NORM:
        columns["discrepancy"] = run.trace.apart.mean(axis=-1)
    for column, ours in columns.items():
        np.testing.assert_allclose(inside[column], ours[seed].ravel(), rtol=1e-7, atol=1e-13, err_msg=column)
