"""estimate: computes the constants in the assumptions of the theorems from a problem, and says how each was obtained."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import AbstractProblem, MirrorMap, Params, Regularizer
from fedlocal.core.types import Weights
from fedlocal.problems import MLP, Oracle
from fedlocal.problems.data_problem import DataProblem
from fedlocal.problems.smooth_part import client_weights, point
from fedlocal.theory.bounds.bound import Constants
from fedlocal.theory.constants.gradient_samples import GradientSampler
from fedlocal.theory.constants.linear import linear_constants
from fedlocal.theory.constants.linear_model import MODELS
from fedlocal.theory.constants.optimum import endpoint_constants, solve_endpoints
from fedlocal.theory.constants.oracle import oracle_constants, oracle_noise
from fedlocal.theory.constants.types import FULL, HOMOGENEOUS, ConstantValue, EstimationTask, ProblemConstants, Region
from fedlocal.util import checks

LETTERS = {
    "smoothness": "L",
    "noise": "sigma",
    "distance": "B",
    "strong_convexity": "mu",
    "heterogeneity": "zeta",
    "optimum_heterogeneity": "zeta_*",
    "fourth_moment": "sigma (4th)",
    "third_order": "Q",
    "gradient_bound": "G",
    "gap": "Delta",
    "mirror_distance": "sqrt(D_h)",
}
PATH = 5  # number of points from x0 to x* at which the local constants are measured
POINTS = 16  # sampled points, including those of the path


class ConstantRow(NamedTuple):
    """One constant as a row of a table."""

    constant: str
    letter: str  # its symbol in the dissertation
    value: float | None
    certified: bool
    local: float | None
    how: str


@dataclass(frozen=True)
class Estimate:
    """The constants of a problem, how each was obtained, and which of them are proven bounds."""

    constants: Constants  # upper bounds (lower for mu) where `certified` is True
    local: Constants  # the same, measured at points between x0 and x*
    how: dict[str, str]  # how each constant was obtained
    certified: dict[str, bool]  # True if proven, everywhere or, where `how` says so, for ||x - x*|| <= radius
    warnings: list[str]  # assumptions that fail, constants that are not known
    optimum: float  # F* = min F, or min F + psi
    solution: Params = field(repr=False)  # x*
    radius: float  # of the ball around x* in which local bounds hold

    def rows(self) -> list[ConstantRow]:
        """Return one row per constant."""
        both = ((name, getattr(self.constants, name), getattr(self.local, name)) for name in LETTERS)
        return [ConstantRow(n, LETTERS[n], value, self.certified[n], local, self.how[n]) for n, value, local in both]

    def __str__(self) -> str:
        lines = [f"{'constant':>22}  {'value':>10}  {'local':>10}  how"]
        for row in self.rows():
            name = f"{row.constant} {row.letter}" if len(row.constant) < 16 else row.constant
            lines.append(f"{name:>22}  {_written(row.value):>10}  {_written(row.local):>10}  {row.how}")
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


def estimate(
    problem: AbstractProblem,
    *,
    x0: Params | None = None,
    batch_size: int | None = 1,
    weights: Weights = "uniform",
    regularizer: Regularizer | None = None,
    mirror_map: MirrorMap | None = None,
    radius: float | None = None,
    seed: int = 0,
) -> Estimate:
    r"""Compute the constants of a problem, for stochastic gradients that are means of `batch_size` draws with replacement.

    For linear models and quadratics, `constants` are proven bounds: the Hessians are mean l''(s) aa' + l2 and the gradients
    mean l'(s) a, so bounds of l', l'', l''' are enough. If l' is not bounded (squares), the bounds hold for ||x - x*|| <= radius.
    For other problems the constants are the largest values at sampled points. `local` is measured at points between x0 and x*,
    with the Hessians of at most 64 clients. All norms are Euclidean. With a regulariser, x*, B and Delta are those of F + psi.

    Args:
        problem: a problem with examples, or an Oracle.
        x0: the starting point; the problem's own when None.
        batch_size: examples per stochastic gradient; None means full gradients.
        weights: how clients count in F, "uniform" or "examples".
        regularizer: psi.
        mirror_map: h, for the mirror distance; Euclidean when None.
        radius: of the ball around x* for bounds that do not hold everywhere; 2 ||x0 - x*|| when None.
        seed: the seed of sampled points, clients and examples.

    Reference: dissertation, assumptions fo:2o, fo:3o, fedavg:hetero, hetero:star, a1, a2. Differs from it: zeta_* is that of
    grad F_m(x*) - grad F(x*), which is the text's where grad F(x*) = 0, and zero for equal clients also with a regulariser.

    >>> from fedlocal.problems import quadratics
    >>> found = estimate(quadratics([[[2.0]], [[4.0]]], [[0.0], [3.0]], noise_std=0.5), x0=np.array([0.0]))
    >>> found.constants.smoothness, found.constants.strong_convexity, found.constants.noise, round(found.constants.distance, 9)
    (4.0, 3.0, 0.5, 2.0)
    >>> found.how["smoothness"]
    "exact: largest eigenvalue of the clients' matrices, client 1"
    """
    checks.instance("estimate", "problem", problem, AbstractProblem)
    if not isinstance(problem, (DataProblem, Oracle)):
        raise TypeError(
            f"estimate: problem must have examples or be an Oracle, got {type(problem).__name__}; for an augmented problem, "
            "estimate the one it was made from and add its strength to smoothness and strong_convexity"
        )
    problem.rounding.check("estimate")
    if batch_size is not None:
        batch_size = checks.whole("estimate", "batch_size", batch_size)
    if radius is not None:
        radius = float(checks.number("estimate", "radius", radius, above=0))
    if mirror_map is not None:
        checks.instance("estimate", "mirror_map", mirror_map, MirrorMap)
    seed = checks.whole("estimate", "seed", seed, at_least=0)
    p = client_weights("estimate", problem, weights)
    with jax.enable_x64(True):
        x0 = point("estimate", "x0", problem, problem.init(jax.random.key(seed)) if x0 is None else x0)
        endpoints = solve_endpoints(problem, regularizer, weights, x0)
        ball = 2 * endpoints.distance if radius is None else radius
        region = Region(endpoints.x, ball, _largest_norm(regularizer, endpoints.x))
        steps = np.linspace(0, 1, PATH)
        path = [jax.tree.map(lambda a, b, t=t: jnp.asarray((1 - t) * a + t * b), x0, endpoints.x) for t in steps]
        task = EstimationTask(problem, p, region, path, batch_size, np.random.default_rng(seed))
        linear = isinstance(problem, MODELS)
        result = linear_constants(task) if linear else oracle_constants(task) or sampled_constants(task)
        found = result.found | endpoint_constants(problem, p, regularizer, mirror_map, x0, endpoints)
    missing = [name for name, each in found.items() if each.value is None and name != "mirror_distance"]
    missing += ["mirror_distance"] if found["mirror_distance"].how.startswith("infinite") else []
    notes = [*endpoints.warnings, *result.warnings, *(f"{name} is None: {found[name].how}" for name in missing)]
    fixed = {name: found[name].value for name in ("distance", "optimum_heterogeneity", "gap", "mirror_distance")}
    return Estimate(
        constants=Constants(**{name: found[name].value for name in LETTERS}),  # pyright: ignore[reportArgumentType]
        local=Constants(**result.local, **fixed),  # pyright: ignore[reportArgumentType]
        how={name: found[name].how for name in LETTERS},
        certified={name: found[name].certified for name in LETTERS},
        warnings=notes,
        optimum=endpoints.solution.objective,
        solution=endpoints.x,
        radius=region.radius,
    )


def _largest_norm(psi: Regularizer | None, x: Params) -> float:
    """Return the largest ||weights|| that the constraint in psi allows; inf without a constraint."""
    if psi is None or not isinstance(x, dict) or "weights" not in x:
        return math.inf
    return dict(zip(sorted(x), psi.parts(x), strict=True))["weights"].largest_norm(np.shape(x["weights"]))


def _written(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def sampled_constants(task: EstimationTask) -> ProblemConstants:
    """Return all constants of a problem of which only gradients are known."""
    sampler, problem, path = GradientSampler(task), task.problem, task.path
    points = [*path, *(_random_point(task) for _ in range(POINTS - len(path)))]
    rows = [sampler.at(x) for x in points]
    how = f"largest of {POINTS} points {task.region} and {len(sampler.groups)} clients, not a bound"
    found = {name: ConstantValue(max(row[name] for row in rows), how, False) for name in rows[0]}
    local: dict[str, float | None] = {name: max(row[name] for row in rows[: len(path)]) for name in rows[0]}
    if isinstance(problem, Oracle):
        found |= oracle_noise(task)
        local |= {name: found[name].value for name in ("noise", "fourth_moment")}
    if task.batch_size is None:
        found |= {"noise": FULL, "fourth_moment": FULL}
    if len(sampler.every) == 1:
        found["heterogeneity"] = HOMOGENEOUS
    found["strong_convexity"] = ConstantValue(0.0, "not known; 0 is right for every convex F", False)
    local["strong_convexity"] = 0.0
    if isinstance(problem, MLP):
        found["third_order"] = ConstantValue(None, "rectifiers have no continuous Hessian", False)
        local["third_order"] = None
    warning = "no formula for this kind of problem: its constants are the largest sampled, not bounds"
    return ProblemConstants(found, local, [warning])


def _random_point(task: EstimationTask) -> Params:
    center, unravel = ravel_pytree(jax.tree.map(jnp.asarray, task.region.solution))
    step = task.rng.standard_normal(center.size)
    length = task.region.radius * task.rng.random() / np.linalg.norm(step)
    return unravel(center + length * step)
