"""The minimiser x* of a problem, and the constants that depend on x0 and x* alone."""

import math
import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, MirrorMap, Params, Regularizer
from fedlocal.core.types import Weights
from fedlocal.problems import MLP, Oracle
from fedlocal.solvers import ConvergenceWarning, Solution
from fedlocal.solvers.certificates import certify
from fedlocal.solvers.reference import ITERATIONS, TOLERANCE, ReferenceSolver
from fedlocal.theory.constants.client_groups import gradient_norms, group_clients
from fedlocal.theory.constants.linear_measurements import optimum_heterogeneity
from fedlocal.theory.constants.linear_model import MODELS, LinearModel
from fedlocal.theory.constants.types import SAME, ConstantValue

UNKNOWN_ITERATIONS = 500  # of the solver if F need not be convex


@dataclass(frozen=True)
class Endpoints:
    """The minimiser x*, its distance from x0, and warnings about it."""

    solution: Solution
    distance: float  # ||x0 - x*||
    warnings: list[str]

    @property
    def x(self) -> Params:
        return self.solution.x


def solve_endpoints(problem: AbstractProblem, psi: Regularizer | None, weights: Weights, x0: Params) -> Endpoints:
    """Minimise F + psi from x0."""
    known = isinstance(problem, (*MODELS, Oracle))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        most = ITERATIONS if known else UNKNOWN_ITERATIONS
        # not `centralized`, which would take the 64 bits of this place for the user's
        solution = ReferenceSolver("estimate", problem, weights, TOLERANCE, most).solve(psi, x0, progress=False)
    distance = float(optax.tree.norm(optax.tree.sub(x0, jax.tree.map(jnp.asarray, solution.x))))
    notes = []
    if isinstance(problem, MLP):
        came = "x* is where the solver came to from x0, and no theorem on convex F applies"
        notes.append(f"the loss is not convex: {came}")
    elif not known:
        notes.append("convexity of a loss given as a function is not checked; the theorems on convex F ask for it")
    if not solution.converged:
        residual = solution.certificate.kkt_residual
        notes.append(f"the solver stopped at a KKT residual of {residual:.2g}: x*, B, Delta and zeta_* are rough")
    return Endpoints(solution, distance, notes)


def endpoint_constants(
    problem: AbstractProblem,
    p: np.ndarray,
    psi: Regularizer | None,
    mirror_map: MirrorMap | None,
    x0: Params,
    endpoints: Endpoints,
) -> dict[str, ConstantValue]:
    """Return the constants that depend on x0 and x* alone."""
    x = jax.tree.map(jnp.asarray, endpoints.x)
    sure = endpoints.solution.converged and not endpoints.warnings
    residual = f"x* with a KKT residual of {endpoints.solution.certificate.kkt_residual:.1g}"
    value = certify(problem, psi, x0, p).objective
    gap = max(value - endpoints.solution.objective, 0.0) if math.isfinite(value) else None
    apart = _optimum_heterogeneity(problem, p, x)
    how_gap = "objective at x0 minus that at x*" if gap is not None else "x0 is outside the constraint"
    found = {
        "distance": ConstantValue(endpoints.distance, f"||x0 - x*||, {residual}", sure),
        "gap": ConstantValue(gap, how_gap, sure),
        "optimum_heterogeneity": SAME if apart is None else ConstantValue(apart, f"at {residual}", sure),
        "mirror_distance": ConstantValue(None, "no mirror map given: Euclidean, B / sqrt(2)", True),
    }
    if mirror_map is not None:
        name, divergence = type(mirror_map).__name__, float(mirror_map.divergence(x, x0))
        root = math.sqrt(max(divergence, 0.0)) if math.isfinite(divergence) else None
        how = f"the divergence of {name} from x0 to {residual}" if root is not None else f"infinite for {name}"
        found["mirror_distance"] = ConstantValue(root, how, sure)
    return found


def _optimum_heterogeneity(problem: AbstractProblem, p: np.ndarray, x: Params) -> float | None:
    """Return zeta_*; None if it is zero because all clients are the same."""
    groups = group_clients(problem, p)
    if len(groups) == 1:
        return None
    if isinstance(problem, MODELS):
        return optimum_heterogeneity(LinearModel(problem, p), x)
    apart = gradient_norms(problem, groups, x, p)
    return math.sqrt(sum(g.weight * float(a) ** 2 for g, a in zip(groups, apart, strict=True)))
