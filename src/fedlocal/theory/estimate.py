"""Estimate: the constants that the theorems ask for, found from a problem, each with how it was found."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal import checks
from fedlocal.core import AbstractProblem, MirrorMap, Params, Regularizer
from fedlocal.means import client_weights, point
from fedlocal.problems import Oracle
from fedlocal.problems.data_problem import DataProblem
from fedlocal.regularizers import Box, L1Ball, L2Ball, LInfBall, NuclearBall, Simplex
from fedlocal.theory.bound import Constants
from fedlocal.theory.end_constants import end_constants, solved
from fedlocal.theory.finding import Findings, Found, Region, Search
from fedlocal.theory.linear_constants import find_linear
from fedlocal.theory.linear_model import MODELS
from fedlocal.theory.oracle_constants import are_quadratics, find_piecewise, find_quadratics, is_piecewise
from fedlocal.theory.sampled_constants import find_sampled

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
PATH = 5  # points from x0 to x* at which the local constants are measured


class Row(NamedTuple):
    """One constant, ready to be printed."""

    constant: str
    letter: str  # of the text
    value: float | None
    certified: bool
    local: float | None
    how: str


@dataclass(frozen=True)
class Estimate:
    """The constants of a problem, and how far they can be trusted."""

    constants: Constants  # bounds where `certified` says so
    local: Constants  # the same, measured from x0 to x*: what a run meets
    how: dict[str, str]  # one sentence per constant
    certified: dict[str, bool]  # whether it is proven, everywhere or for ||x - x*|| <= radius where `how` says so
    warnings: list[str]  # assumptions that fail
    optimum: float  # F* = min F, or min F + psi
    solution: Params = field(repr=False)  # x*
    radius: float  # of the ball

    def rows(self) -> list[Row]:
        """One row per constant."""
        both = ((name, getattr(self.constants, name), getattr(self.local, name)) for name in LETTERS)
        return [Row(n, LETTERS[n], value, self.certified[n], local, self.how[n]) for n, value, local in both]

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
    weights: str = "uniform",
    regularizer: Regularizer | None = None,
    mirror_map: MirrorMap | None = None,
    radius: float | None = None,
    seed: int = 0,
) -> Estimate:
    r"""The constants of a problem, for stochastic gradients that are means of `batch_size` draws with replacement.

    `constants` are bounds wherever there is a proof: linear models and quadratics. Their Hessians are mean l''(s) aa' + l2, their
    gradients mean l'(s) a, so that bounds of l', l'', l''' are enough; where l' is not bounded (squares), bounds hold for
    ||x - x*|| <= radius, by default twice ||x0 - x*||. Other problems are looked at in sampled points. `local` is what is
    measured at points from x0 to x*, of Hessians that of at most 64 clients. All norms are Euclidean. With a regulariser, x*, B
    and Delta are those of F + psi.
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
        ends = solved(problem, regularizer, weights, x0)
        region = Region(ends.x, 2 * ends.distance if radius is None else radius, _largest_norm(regularizer, ends.x))
        search = Search(problem, p, region, _path(x0, ends.x), batch_size, np.random.default_rng(seed))
        findings = _find(search)
        found = findings.found | end_constants(problem, p, regularizer, mirror_map, x0, ends)
    notes = [*ends.warnings, *findings.warnings, *_missing(found)]
    fixed = {name: found[name].value for name in ("distance", "optimum_heterogeneity", "gap", "mirror_distance")}
    constants = Constants(**{name: found[name].value for name in LETTERS})  # pyright: ignore[reportArgumentType]
    return Estimate(
        constants=constants,
        local=Constants(**findings.local, **fixed),  # pyright: ignore[reportArgumentType]
        how={name: found[name].how for name in LETTERS},
        certified={name: found[name].certified for name in LETTERS},
        warnings=notes,
        optimum=ends.solution.objective,
        solution=ends.x,
        radius=region.radius,
    )


def _find(search: Search) -> Findings:
    """By formulas where there are any, else by sampling."""
    if isinstance(search.problem, MODELS):
        return find_linear(search)
    if are_quadratics(search.problem):
        return find_quadratics(search)
    return find_piecewise(search) if is_piecewise(search.problem) else find_sampled(search)


def _missing(found: dict[str, Found]) -> list[str]:
    """A warning for each constant that there is none of."""
    absent = [name for name, each in found.items() if each.value is None and name != "mirror_distance"]
    infinite = [] if not found["mirror_distance"].how.startswith("infinite") else ["mirror_distance"]
    return [f"{name} is None: {found[name].how}" for name in (*absent, *infinite)]


def _path(x0: Params, x: Params) -> list[Params]:
    steps = np.linspace(0, 1, PATH)
    return [jax.tree.map(lambda a, b, t=t: jnp.asarray((1 - t) * a + t * b), x0, x) for t in steps]


def _largest_norm(psi: Regularizer | None, x: Params) -> float:
    """The largest ||weights|| that a constraint allows; inf where there is none."""
    if psi is None or not isinstance(x, dict) or "weights" not in x:
        return math.inf
    part = dict(zip(sorted(x), psi.parts(x), strict=True))["weights"]
    if isinstance(part, (L1Ball, L2Ball, NuclearBall)):
        return float(part.radius)
    if isinstance(part, LInfBall):
        return float(part.radius) * math.sqrt(np.size(x["weights"]))
    if isinstance(part, Box):
        most = np.maximum(np.abs(part.lower), np.abs(part.upper))
        return float(np.linalg.norm(np.broadcast_to(most, np.shape(x["weights"]))))
    return float(part.total) if isinstance(part, Simplex) else math.inf


def _written(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
