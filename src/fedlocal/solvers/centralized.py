"""Reference solutions: the problem solved to many digits with all data at hand."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from fedlocal import checks
from fedlocal.certificates import Certificate, certify
from fedlocal.core import AbstractProblem, Params, Regularizer
from fedlocal.means import SmoothPart, client_weights, point, smooth_part
from fedlocal.problems.views import only
from fedlocal.progress import ProgressBar
from fedlocal.regularizers.l1 import L1
from fedlocal.regularizers.zero import Zero
from fedlocal.solvers.accelerated import accelerated
from fedlocal.solvers.dense import fits, gather_features
from fedlocal.solvers.gram import gather, worth_gathering
from fedlocal.solvers.smooth import is_smooth, minimize_smooth

ITERATIONS = 100_000


class ConvergenceWarning(UserWarning):
    """A solver stopped before it reached the tolerance."""


@dataclass(frozen=True)
class Solution:
    """A solved problem."""

    x: Params = field(repr=False)  # the parameters, as float64 NumPy arrays
    objective: float  # F(x) + psi(x)
    certificate: Certificate  # how far from optimal x is, measured on the data
    iterations: int
    converged: bool  # whether the KKT residual is at most tolerance * max(1, ||x||)
    solver: str

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"Solution({state} after {self.iterations} iterations of {self.solver}: {self.certificate})"


def centralized(
    problem: AbstractProblem,
    regularizer: Regularizer | None = None,
    *,
    weights: str = "uniform",
    x0: Params | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = ITERATIONS,
    progress: bool = True,
) -> Solution:
    r"""The minimum of F + psi with all data at hand, to a KKT residual of tolerance * max(1, ||x||), in float64.

    `weights` are those of the clients in F, "uniform" or "examples". Smooth objectives are solved by L-BFGS and Newton steps, all
    others by accelerated proximal gradient; least squares with more examples than parameters through the Gram matrix.

    >>> from fedlocal.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 0.0]))])
    >>> solution = centralized(LeastSquares(data, intercept=False), L1(1.0))
    >>> solution.x["weights"].round(8).tolist()
    [2.0, 0.0]
    """
    return _Task("centralized", problem, weights, tolerance, max_iterations, progress).solve(regularizer, x0)


def local(
    problem: AbstractProblem,
    client: int,
    regularizer: Regularizer | None = None,
    *,
    x0: Params | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = ITERATIONS,
    progress: bool = True,
) -> Solution:
    """The minimum of F_m + psi for one client m alone: what it can do without the others. Arguments as in `centralized`."""
    return _Task("local", only(problem, client), "uniform", tolerance, max_iterations, progress).solve(regularizer, x0)


def path(
    problem: AbstractProblem,
    strengths: Sequence[float],
    make_regularizer: Callable[[float], Regularizer] = L1,
    *,
    weights: str = "uniform",
    x0: Params | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = ITERATIONS,
    progress: bool = True,
) -> list[Solution]:
    """The minima of F + psi for many strengths, from the largest to the smallest, each started at the one before.

    `make_regularizer(strength)` is psi. `max_iterations` are those of one strength; other arguments as in `centralized`.

    >>> from fedlocal.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 0.0]))])
    >>> [float(s.x["weights"][0].round(8)) for s in path(LeastSquares(data, intercept=False), [1.0, 2.0])]
    [1.0, 2.0]
    """
    if not np.ndim(strengths) == 1 or len(strengths) == 0:
        raise ValueError(f"path: strengths must be a list of at least one number, got {strengths!r}")
    ordered = sorted((float(checks.number("path", "strengths", s, at_least=0)) for s in strengths), reverse=True)
    regularizers = [make_regularizer(strength) for strength in ordered]
    task = _Task("path", problem, weights, tolerance, max_iterations, progress=False)
    solutions: list[Solution] = []
    with ProgressBar("path", len(ordered), progress) as bar:
        for done, psi in enumerate(regularizers):
            solutions.append(task.solve(psi, x0))
            x0 = solutions[-1].x
            bar.advance_to(done + 1, f"strength {ordered[done]:.3g}")
    return solutions


class _Task:
    """A problem ready to be solved for any psi: checked arguments, and F gathered once."""

    def __init__(
        self,
        owner: str,
        problem: AbstractProblem,
        weights: str,
        tolerance: float,
        max_iterations: int,
        progress: bool,
    ):
        self.owner, self.problem = owner, checks.instance(owner, "problem", problem, AbstractProblem)
        self.tolerance = checks.number(owner, "tolerance", tolerance, above=0)
        self.max_iterations = checks.whole(owner, "max_iterations", max_iterations)
        self.progress, self.p = progress, client_weights(owner, problem, weights)
        with jax.enable_x64(True):
            self.smooth = self._smooth_part()

    def solve(self, regularizer: Regularizer | None, x0: Params | None) -> Solution:
        psi = Zero() if regularizer is None else checks.instance(self.owner, "regularizer", regularizer, Regularizer)
        with jax.enable_x64(True):
            x0 = self.problem.init(jax.random.key(0)) if x0 is None else x0
            x, iterations, solver = self._minimize(psi, point(self.owner, "x0", self.problem, x0))
            x = jax.tree.map(lambda a: np.asarray(a, np.float64), x)
            found = certify(self.problem, psi, x, self.p)
        allowed = self.tolerance * max(1.0, float(np.sqrt(sum(np.sum(a**2) for a in jax.tree.leaves(x)))))
        converged = found.kkt_residual <= allowed
        if not converged:
            warnings.warn(
                f"{self.owner}: KKT residual {found.kkt_residual:.3g} after {iterations} iterations, {allowed:.3g} asked for; "
                "try more max_iterations, a larger tolerance, or features of similar size",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Solution(x, found.objective, found, iterations, converged, solver)

    def _smooth_part(self) -> SmoothPart:
        problem: Any = self.problem
        if worth_gathering(problem):
            return gather(problem, problem.loss_weights(self.p))
        if fits(problem):
            return gather_features(problem, problem.loss_weights(self.p))
        return smooth_part(problem, self.p)

    def _minimize(self, psi: Regularizer, x: Params) -> tuple[Params, int, str]:
        # the last digits of F here are not those of F in the certificate, so ask for a little more
        tolerance, left = self.tolerance / 2, self.max_iterations
        solver = "accelerated proximal gradient"
        with ProgressBar(self.owner, self.max_iterations, self.progress) as bar:
            if is_smooth(psi, x):
                x, spent, solved = minimize_smooth(self.smooth, psi, x, tolerance, left, bar)
                left -= spent
                if solved or left == 0:
                    return x, spent, "L-BFGS and Newton steps"
                solver = f"L-BFGS, Newton steps and {solver}"
            state = accelerated(self.smooth, psi, x, tolerance, left, bar)
        return state.x, self.max_iterations - left + int(state.iterations), solver
