"""x* of a problem, and the constants that x0 and x* alone decide."""

import math
import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.certificates import certify
from fedlocal.core import AbstractProblem, MirrorMap, Params, Regularizer
from fedlocal.problems import MLP, Oracle
from fedlocal.solvers import ConvergenceWarning, Solution, centralized
from fedlocal.solvers.centralized import ITERATIONS
from fedlocal.theory.client_gradients import distances_from_mean
from fedlocal.theory.client_groups import groups_of
from fedlocal.theory.finding import Found
from fedlocal.theory.linear_measurements import optimum_heterogeneity
from fedlocal.theory.linear_model import MODELS, LinearModel

UNKNOWN_ITERATIONS = 500  # of the solver, where F need not be convex


@dataclass(frozen=True)
class Ends:
    """Where runs begin and should end."""

    solution: Solution
    distance: float
    warnings: list[str]

    @property
    def x(self) -> Params:
        return self.solution.x


def solved(problem: AbstractProblem, psi: Regularizer | None, weights: str, x0: Params) -> Ends:
    known = isinstance(problem, (*MODELS, Oracle))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = centralized(
            problem,
            psi,
            weights=weights,
            x0=x0,
            max_iterations=ITERATIONS if known else UNKNOWN_ITERATIONS,
            progress=False,
        )
    distance = float(optax.tree.norm(optax.tree.sub(x0, jax.tree.map(jnp.asarray, solution.x))))
    notes = []
    if isinstance(problem, MLP):
        notes.append(
            "the loss is not convex: x* is where the solver came to from x0, and no theorem on convex F applies"
        )
    elif not known:
        notes.append("convexity of a loss given as a function is not checked; the theorems on convex F ask for it")
    if not solution.converged:
        residual = solution.certificate.kkt_residual
        notes.append(f"the solver stopped at a KKT residual of {residual:.2g}: x*, B, Delta and zeta_* are rough")
    return Ends(solution, distance, notes)


def end_constants(
    problem: AbstractProblem,
    p: np.ndarray,
    psi: Regularizer | None,
    mirror_map: MirrorMap | None,
    x0: Params,
    ends: Ends,
) -> dict[str, Found]:
    """What x0 and x* alone decide."""
    x = jax.tree.map(jnp.asarray, ends.x)
    sure = ends.solution.converged and not ends.warnings
    residual = f"x* with a KKT residual of {ends.solution.certificate.kkt_residual:.1g}"
    value = certify(problem, psi, x0, p).objective
    gap = max(value - ends.solution.objective, 0.0) if math.isfinite(value) else None
    apart, one = _optimum_heterogeneity(problem, p, x)
    found = {
        "distance": Found(ends.distance, f"||x0 - x*||, {residual}", sure),
        "gap": Found(
            gap, "objective at x0 minus that at x*" if gap is not None else "x0 is outside the constraint", sure
        ),
        "optimum_heterogeneity": Found(
            apart, "exact: all clients are the same" if one else f"at {residual}", sure or one
        ),
        "mirror_distance": Found(None, "no mirror map given: Euclidean, B / sqrt(2)", True),
    }
    if mirror_map is not None:
        name, divergence = type(mirror_map).__name__, float(mirror_map.divergence(x, x0))
        root = math.sqrt(max(divergence, 0.0)) if math.isfinite(divergence) else None
        how = f"the divergence of {name} from x0 to {residual}" if root is not None else f"infinite for {name}"
        found["mirror_distance"] = Found(root, how, sure)
    return found


def _optimum_heterogeneity(problem: AbstractProblem, p: np.ndarray, x: Params) -> tuple[float, bool]:
    """zeta_*, and whether it is zero because there is only one kind of client."""
    if isinstance(problem, MODELS):
        model = LinearModel(problem, p)
        return optimum_heterogeneity(model, x), len(model.groups) == 1
    groups = groups_of(problem, p)
    if len(groups) == 1:
        return 0.0, True
    apart = distances_from_mean(problem, p, groups, x)
    return math.sqrt(sum(g.weight * float(a) ** 2 for g, a in zip(groups, apart, strict=True))), False
