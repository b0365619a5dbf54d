"""Reference solutions: the problem solved to many digits with all data at hand."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import AbstractProblem, Params, Regularizer, Zero
from fedlocal.core.types import Weights
from fedlocal.problems.smooth_part import SmoothPart, client_weights, point, smooth_part_of
from fedlocal.problems.views import only
from fedlocal.regularizers.l1 import L1
from fedlocal.solvers.certificates import Certificate, certify, held_parts
from fedlocal.solvers.coordinates import Coordinates, FeatureMoments, Objective, fitting_coordinates, sizes_and_offset
from fedlocal.solvers.fista import accelerated
from fedlocal.solvers.gathered import feature_matrix, fits, gather, gather_features, worth_gathering
from fedlocal.solvers.lbfgs import minimize_smooth
from fedlocal.solvers.units import check_units
from fedlocal.util import checks
from fedlocal.util.progress import ProgressBar

ITERATIONS, TOLERANCE = 100_000, 1e-10
HUGE = 1e100


class ConvergenceWarning(UserWarning):
    """A solver stopped before it reached the tolerance."""


@dataclass(frozen=True)
class Solution:
    """A solved problem."""

    x: Params = field(repr=False)  # the parameters, as float64 NumPy arrays
    objective: float  # F(x) + psi(x)
    certificate: Certificate  # how far from optimal x is, measured on the data
    iterations: int
    converged: bool  # True if the KKT residual is as small as was asked for
    solver: str

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"Solution({state} after {self.iterations} iterations of {self.solver}: {self.certificate})"


def centralized(
    problem: AbstractProblem,
    regularizer: Regularizer | None = None,
    *,
    weights: Weights = "uniform",
    x0: Params | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = ITERATIONS,
    progress: bool = True,
) -> Solution:
    r"""The minimum of F + psi with all data at hand, to a KKT residual of tolerance * max(1, ||x||), in float64.

    Smooth objectives are solved by L-BFGS and Newton steps, all others by accelerated proximal gradient; least squares with more
    examples than parameters through the Gram matrix.

    Linear models of moderate size are solved in coordinates in which columns have a similar size (for a psi that is a sum
    over coordinates) and mean zero (for a free intercept); x is in the units of the data all the same, and so is the KKT
    residual. Large features have large gradients, of which float64 has 16 digits: to the residual that is asked for we add
    8 eps ||c|| (sum_j c_j |x_j| + size of the targets), c_j^2 the curvature of F in x_j, but never more than 2e-9 of the size
    of the gradient at zero. It matters from features of 1e4 on.

    Args:
        problem: F.
        regularizer: psi; None for none.
        weights: of the clients in F, "uniform" or "examples".
        x0: where to begin; None: where the problem says.
        tolerance: of the KKT residual.
        max_iterations: at most; a ConvergenceWarning says that they were not enough.
        progress: show a progress bar.

    >>> from fedlocal.data.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 0.0]))])
    >>> solution = centralized(LeastSquares(data, intercept=False), L1(1.0))
    >>> solution.x["weights"].round(8).tolist()
    [2.0, 0.0]
    """
    checks.instance("centralized", "problem", problem, AbstractProblem).rounding.check("centralized")
    task = ReferenceSolver("centralized", problem, weights, tolerance, max_iterations)
    return task.solve(regularizer, x0, progress)


def local(
    problem: AbstractProblem,
    client: int,
    regularizer: Regularizer | None = None,
    *,
    x0: Params | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = ITERATIONS,
    progress: bool = True,
) -> Solution:
    """The minimum of F_m + psi for one client m alone: what it can do without the others.

    Args:
        problem: one with data.
        client: m, from 0.
        regularizer, x0, tolerance, max_iterations, progress: as in `centralized`.
    """
    checks.instance("local", "problem", problem, AbstractProblem).rounding.check("local")
    task = ReferenceSolver("local", only(problem, client), "uniform", tolerance, max_iterations)
    return task.solve(regularizer, x0, progress)


def path(
    problem: AbstractProblem,
    strengths: Sequence[float] | np.ndarray,
    make_regularizer: Callable[[float], Regularizer] = L1,
    *,
    weights: Weights = "uniform",
    x0: Params | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = ITERATIONS,
    progress: bool = True,
) -> list[Solution]:
    """The minima of F + psi for many strengths, from the largest to the smallest, each started at the one before.

    Args:
        problem: F.
        strengths: in any order.
        make_regularizer: psi of a strength.
        max_iterations: of one strength.
        weights, x0, tolerance, progress: as in `centralized`.

    >>> from fedlocal.data.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 0.0]))])
    >>> [float(s.x["weights"][0].round(8)) for s in path(LeastSquares(data, intercept=False), [1.0, 2.0])]
    [1.0, 2.0]
    """
    if not np.ndim(strengths) == 1 or len(strengths) == 0:
        raise ValueError(f"path: strengths must be a list of at least one number, got {strengths!r}")
    ordered = sorted((float(checks.number("path", "strengths", s, at_least=0)) for s in strengths), reverse=True)
    regularizers = [make_regularizer(strength) for strength in ordered]
    checks.instance("path", "problem", problem, AbstractProblem).rounding.check("path")
    task = ReferenceSolver("path", problem, weights, tolerance, max_iterations)
    solutions: list[Solution] = []
    with ProgressBar("path", len(ordered), progress) as bar:
        for strength, psi in zip(ordered, regularizers, strict=True):
            solutions.append(task.solve(psi, x0, progress=False))
            x0 = solutions[-1].x
            bar.advance_to(len(solutions), f"strength {strength:.3g}")
    return solutions


class ReferenceSolver:
    """A problem ready to be solved for any psi: checked arguments, and F gathered once.

    Args:
        owner: the function that was called; messages begin with it.
        problem, weights, tolerance, max_iterations: as in `centralized`.
    """

    def __init__(self, owner: str, problem: AbstractProblem, weights: Weights, tolerance: float, max_iterations: int):
        self.owner, self.problem = owner, checks.instance(owner, "problem", problem, AbstractProblem)
        self.tolerance = checks.number(owner, "tolerance", tolerance, above=0)
        self.max_iterations = checks.whole(owner, "max_iterations", max_iterations)
        self.p = client_weights(owner, problem, weights)
        self.gathered: dict[Any, tuple[SmoothPart, Coordinates]] = {}
        check_units(owner, problem)

    def solve(self, regularizer: Regularizer | None, x0: Params | None, progress: bool) -> Solution:
        psi = Zero() if regularizer is None else checks.instance(self.owner, "regularizer", regularizer, Regularizer)
        with jax.enable_x64(True):
            x0 = point(self.owner, "x0", self.problem, self.problem.init(jax.random.key(0)) if x0 is None else x0)
            objective = self._objective(psi, x0)
            with ProgressBar(self.owner, self.max_iterations, progress) as bar:
                z, iterations, solver = self._minimize(objective, objective.coordinates.from_x(x0), bar)
            x = jax.tree.map(lambda a: np.asarray(a, np.float64), objective.coordinates.to_x(z))
            found = certify(self.problem, psi, x, self.p)
            allowed = 2 * float(objective.allowed(z, self.tolerance / 2))
        converged = found.kkt_residual <= allowed
        if not converged:
            got = f"KKT residual {found.kkt_residual:.3g} after {iterations} iterations, {allowed:.3g} asked for"
            advice = "try more max_iterations, a larger tolerance, or features of similar size"
            warnings.warn(f"{self.owner}: {got}; {advice}", ConvergenceWarning, stacklevel=3)
        return Solution(x, found.objective, found, iterations, converged, solver)

    def _objective(self, psi: Regularizer, x: Params) -> Objective:
        problem = self.problem
        if not fits(problem) and not worth_gathering(problem):
            zeros, ones = (jax.tree.map(lambda a, fill=fill: jnp.full_like(a, fill), x) for fill in (0.0, 1.0))
            return Objective(smooth_part_of(problem, self.p), psi, Coordinates(ones), zeros, 0.0)
        psi_of, held = held_parts(psi, x)
        kind = len(held), psi_of["weights"].is_separable()
        matrix, moments, example_weights = self._linear
        if kind not in self.gathered:
            coordinates = fitting_coordinates(problem, moments, psi, x)
            if worth_gathering(problem):
                spread = jax.tree.map(lambda a, s: jnp.broadcast_to(s, a.shape), x, coordinates.scales)
                smooth = gather(problem, example_weights, coordinates.center).scaled(ravel_pytree(spread)[0])
            else:
                smooth = gather_features(problem, matrix, example_weights, coordinates)
            self.gathered = {kind: (smooth, coordinates)}  # one at a time: it may be large
        smooth, coordinates = self.gathered[kind]
        return Objective(smooth, psi, coordinates, *sizes_and_offset(problem, moments, x))

    @cached_property
    def _linear(self) -> tuple[np.ndarray, FeatureMoments, np.ndarray]:
        """Features, their moments, and the weights of the examples, of a linear model."""
        matrix, example_weights = feature_matrix(self.problem), self.problem.loss_weights(self.p)
        return matrix, FeatureMoments.of(self.problem, matrix, example_weights), example_weights

    def _minimize(self, objective: Objective, z: Params, bar: ProgressBar) -> tuple[Params, int, str]:
        # the last digits of F here are not those of F in the certificate, so ask for a little more
        tolerance, spent, solver = self.tolerance / 2, 0, "accelerated proximal gradient"
        if all(part.is_smooth() for part in objective.psi.parts(z)):
            z, spent, solved, ran = minimize_smooth(objective, z, tolerance, self.max_iterations, bar)
            if solved or spent == self.max_iterations:
                return z, spent, ran
            solver = f"{ran}, then {solver}"
        state = accelerated(objective, z, tolerance, self.max_iterations - spent, bar)
        return state.x, spent + int(state.iterations), solver


def zero_strength(
    problem: AbstractProblem, make_regularizer: Callable[[float], Regularizer] = L1, *, weights: Weights = "uniform"
) -> float:
    """The smallest strength of a norm at which the solution has no weights: the dual norm of the gradient there.

    Parts that do not depend on the strength (an intercept, a block with a strength of its own) are at their best where the
    weights are zero.

    Args:
        problem: F.
        make_regularizer: a norm times the strength, `ElasticNet` with the strength as l1, or `Blocks` of them.
        weights: of the clients in F, "uniform" or "examples".

    >>> from fedlocal.data.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> from fedlocal.regularizers import ElasticNet
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 1.0]))])
    >>> zero_strength(LeastSquares(data, intercept=False))
    3.0
    >>> zero_strength(LeastSquares(data, intercept=False), lambda strength: ElasticNet(strength, 1.0))
    3.0
    """
    checks.instance("zero_strength", "problem", problem, AbstractProblem).rounding.check("zero_strength")
    one, two, huge = (
        checks.instance("zero_strength", "the result of make_regularizer", make_regularizer(strength), Regularizer)
        for strength in (1.0, 2.0, HUGE)
    )
    with jax.enable_x64(True):
        x = problem.init(jax.random.key(0))
        norms = list(map(_norm, one.parts(x), two.parts(x), jax.tree.leaves(x)))
    if all(part is None for part in norms):
        raise TypeError(f"zero_strength: {type(one).__name__} does not depend on the strength")
    empty = centralized(problem, huge, weights=weights, progress=False).x
    with jax.enable_x64(True):
        smooth = smooth_part_of(problem, client_weights("zero_strength", problem, weights))
        found = zip(norms, jax.tree.leaves(smooth.value_and_gradient(empty)[1]), strict=True)
        return max(float(part.array_gauge(a)) for part, a in found if part is not None)


def _norm(part: Regularizer, other: Regularizer, a: jax.Array) -> Regularizer | None:
    """The norm in a regulariser of strength 1, which has to double with the strength; or say that there is none. None where
    nothing depends on the strength."""
    if all(map(np.array_equal, jax.tree.leaves(part), jax.tree.leaves(other))):
        return None
    name, part, other = type(part).__name__, part.without_squares(), other.without_squares()
    probe = jax.random.normal(jax.random.key(0), jnp.shape(a), float)
    pairs = (part, probe), (part, -2 * probe), (other, probe)
    value, double, stronger = (float(psi.array_value(x)) for psi, x in pairs)
    is_norm = 0 < value < np.inf and np.allclose([double, stronger], 2 * value, rtol=1e-9, atol=0)
    # a norm has a dual norm: the gauge is finite everywhere, and zero at zero only
    if not is_norm or not 0 < float(part.array_gauge(probe)) < np.inf:
        norms = "(L1, GroupL1, L2Norm, LInf, Lp, Nuclear), and ElasticNet with the strength as l1"
        text = f"{name} does not make weights zero from a strength on; norms times the strength do {norms}"
        raise TypeError(f"zero_strength: {text}")
    return part
