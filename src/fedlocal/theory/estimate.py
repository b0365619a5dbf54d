"""Estimate: the constants that the theorems ask for, found from a problem, each with how it was found."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from fedlocal import checks
from fedlocal.certificates import certify
from fedlocal.core import AbstractProblem, MirrorMap, Params, Regularizer
from fedlocal.means import SmoothPart, client_weights, point, smooth_part
from fedlocal.problems import MLP, LeastSquares, Logistic, MatrixSensing, Oracle, Softmax
from fedlocal.problems.data_problem import DataProblem, cast_like
from fedlocal.problems.oracle import _normal, _piecewise, _quadratic
from fedlocal.regularizers import Box, L1Ball, L2Ball, LInfBall, NuclearBall, Simplex
from fedlocal.solvers import ConvergenceWarning, Solution, centralized
from fedlocal.solvers.centralized import ITERATIONS
from fedlocal.theory import linear_constants as linear
from fedlocal.theory.bound import Constants
from fedlocal.theory.linear_constants import FULL, Found, Group, Region, groups_of, of_batch

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
MODELS = (LeastSquares, MatrixSensing, Logistic, Softmax)
PATH = 5  # points from x0 to x* at which the local constants are measured
HESSIAN_CLIENTS = 64  # whose Hessians are looked at there
POINTS = 16  # sampled where there is no formula, with those of the path
CLIENTS = 8  # sampled there
DRAWS = 256  # examples or noises of a client sampled there
POWER_STEPS = 30
DIFFERENCE = 1e-4  # relative step of differences of Hessians
UNKNOWN_ITERATIONS = 500  # of the solver, where F need not be convex


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
    measured at points from x0 to x*. All norms are Euclidean. With a regulariser, x*, B and Delta are those of F + psi.
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
        ends = _solve(problem, regularizer, weights, x0)
        region = Region(ends.x, 2 * ends.distance if radius is None else radius, _largest_norm(regularizer, ends.x))
        known = _Known(problem, p, region, _path(x0, ends.x), batch_size, seed).find()
        found = known.found | _of_ends(problem, p, regularizer, mirror_map, x0, ends)
    notes = [*ends.warnings, *known.warnings, *_missing(found)]
    fixed = {name: found[name].value for name in ("distance", "optimum_heterogeneity", "gap", "mirror_distance")}
    constants = Constants(**{name: found[name].value for name in LETTERS})  # pyright: ignore[reportArgumentType]
    return Estimate(
        constants=constants,
        local=Constants(**known.local, **fixed),  # pyright: ignore[reportArgumentType]
        how={name: found[name].how for name in LETTERS},
        certified={name: found[name].certified for name in LETTERS},
        warnings=notes,
        optimum=ends.solution.objective,
        solution=ends.x,
        radius=region.radius,
    )


@dataclass(frozen=True)
class _Ends:
    """Where runs begin and should end."""

    solution: Solution
    distance: float
    warnings: list[str]

    @property
    def x(self) -> Params:
        return self.solution.x


def _solve(problem: AbstractProblem, psi: Regularizer | None, weights: str, x0: Params) -> _Ends:
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
    return _Ends(solution, distance, notes)


def _of_ends(
    problem: AbstractProblem,
    p: np.ndarray,
    psi: Regularizer | None,
    mirror_map: MirrorMap | None,
    x0: Params,
    ends: _Ends,
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
        model = linear.LinearModel(problem, p)
        return linear.optimum_heterogeneity(model, x), len(model.groups) == 1
    groups = _groups(problem, p)
    if len(groups) == 1:
        return 0.0, True
    return math.sqrt(sum(g.weight * a**2 for g, a in zip(groups, _apart(problem, p, groups, x), strict=True))), False


def _missing(found: dict[str, Found]) -> list[str]:
    """A warning for each constant that there is none of."""
    absent = [name for name, each in found.items() if each.value is None and name != "mirror_distance"]
    infinite = [] if not found["mirror_distance"].how.startswith("infinite") else ["mirror_distance"]
    return [f"{name} is None: {found[name].how}" for name in (*absent, *infinite)]


class _Known:
    """What a kind of problem is known by: bounds, local values, and warnings."""

    def __init__(
        self,
        problem: AbstractProblem,
        p: np.ndarray,
        region: Region,
        path: list[Params],
        batch_size: int | None,
        seed: int,
    ):
        self.problem: Any = problem
        self.p, self.region, self.path = p, region, path
        self.batch_size, self.rng = batch_size, np.random.default_rng(seed)
        self.found: dict[str, Found] = {}
        self.local: dict[str, float | None] = {}
        self.warnings: list[str] = []

    def find(self) -> "_Known":
        problem = self.problem
        if isinstance(problem, MODELS):
            self._linear(problem)
        elif isinstance(problem, Oracle) and problem.gradient_fn is None and _made_by(problem.value, _quadratic):
            self._quadratics(problem)
        elif isinstance(problem, Oracle) and problem.gradient_fn is None and _made_by(problem.value, _piecewise):
            self._piecewise(problem)
        else:
            self._sampled()
        return self

    def _linear(self, problem: Any) -> None:
        model = linear.LinearModel(problem, self.p)
        self.found = linear.certified(model, self.region, self.batch_size)
        groups = self._some(model.groups, HESSIAN_CLIENTS)
        self.local |= linear.measured(model, self.path, groups, self.batch_size)
        if isinstance(problem, (LeastSquares, MatrixSensing)):
            self._warn_of_ball("squares have no bounded slopes: noise, fourth_moment, gradient_bound and (with unequal "
                               "features) heterogeneity are not bounded over all x")  # fmt: skip
            return
        mu, curvature = self.found["strong_convexity"], self.local["strong_convexity"]
        how = f"{mu.how}; locally, from x0 to x*, at least {curvature:.4g}"
        self.found["strong_convexity"] = mu._replace(how=how)
        if model.l2 == 0 and linear.separates(model, self.region.solution):
            self.warnings.append(
                "the data is separable and l2 = 0: no minimum is attained, x* is where the solver stopped"
            )

    def _quadratics(self, problem: Oracle) -> None:
        matrices, optima = (np.asarray(a, np.float64) for a in problem.value.args)  # pyright: ignore
        matrices = (matrices + np.swapaxes(matrices, 1, 2)) / 2
        tops = np.max(np.abs(np.linalg.eigvalsh(matrices)), axis=1)
        mean = np.tensordot(self.p, matrices, 1)
        lowest = float(np.linalg.eigvalsh(mean)[0])
        top, client = float(tops.max()), int(tops.argmax())
        if lowest < -linear.ROUNDING * top:
            self.warnings.append(f"F is not convex: its matrix has the eigenvalue {lowest:.4g}")
        gradients = np.einsum("mij,mj->mi", matrices, self.region.solution - optima)
        exact = "exact: largest eigenvalue of the clients' matrices, client"
        self.found = {
            "smoothness": Found(top, f"{exact} {client}", True),
            "strong_convexity": Found(
                linear.least_eigenvalue(mean), "exact: smallest eigenvalue of the mean matrix", True
            ),
            "third_order": Found(0.0, "exact: the Hessians are constant", True),
            "heterogeneity": self._affine(matrices, mean, optima, gradients, top),
            **self._oracle_noise(problem),
        }
        norms = float(np.max(np.linalg.norm(gradients, axis=1) + self.region.radius * tops))
        self._oracle_gradient_bound(norms)
        self._local_as_found(problem)

    def _affine(
        self, matrices: np.ndarray, mean: np.ndarray, optima: np.ndarray, gradients: np.ndarray, top: float
    ) -> Found:
        if (matrices == matrices[0]).all() and (optima == optima[0]).all():
            return Found(0.0, "exact: all clients are the same", True)
        shifts = gradients - self.p @ gradients
        bends = np.linalg.norm(matrices - mean, 2, axis=(1, 2))
        if bends.max() > linear.ROUNDING * top:
            self._warn_of_ball("clients with unequal matrices have no bounded heterogeneity")
        return linear.affine_heterogeneity(range(len(shifts)), list(shifts), bends.tolist(), top, self.region)

    def _piecewise(self, problem: Oracle) -> None:
        right, left = (float(a) for a in problem.value.args)  # pyright: ignore[reportFunctionMemberAccess]
        self.found = {
            "smoothness": Found(2 * max(right, left), "exact: twice the larger coefficient", True),
            "strong_convexity": Found(2 * min(right, left), "exact: twice the smaller coefficient", True),
            "third_order": Found(None, "the second derivative jumps at 0", False)
            if right != left
            else Found(0.0, "exact: the second derivative is constant", True),
            "heterogeneity": Found(0.0, "exact: all clients are the same", True),
            **self._oracle_noise(problem),
        }
        reach = abs(float(self.region.solution)) + self.region.radius
        self._oracle_gradient_bound(2 * max(right, left) * reach)
        self._local_as_found(problem)

    def _oracle_gradient_bound(self, norms: float) -> None:
        if self.found["noise"].value:
            self.found["gradient_bound"] = Found(None, "normal noise is not bounded", False)
        else:
            self._warn_of_ball("gradients of a quadratic are not bounded over all x")
            how = f"certified upper bound {self.region}: norms at x* plus radius times L"
            self.found["gradient_bound"] = Found(norms, how, True)

    def _oracle_noise(self, problem: Oracle) -> dict[str, Found]:
        """Exact for noise that is none or normal: ||n||^2 is noise_std^2 times a chi-square of d degrees."""
        if problem.noise is None or self.batch_size is None:
            return {"noise": FULL, "fourth_moment": FULL}
        if not _made_by(problem.noise, _normal):
            return self._sampled_noise()
        (std,) = problem.noise.args  # pyright: ignore[reportFunctionMemberAccess]
        d, size = ravel_pytree(self.region.solution)[0].size, float(std) / math.sqrt(self.batch_size)
        how = f"exact: normal noise in {d} coordinates"
        return {
            "noise": Found(math.sqrt(d) * size, how, True),
            "fourth_moment": Found((d * (d + 2)) ** 0.25 * size, how, True),
        }

    def _sampled_noise(self) -> dict[str, Found]:
        noises, how = (
            _Sampler(self).noises(self.path),
            f"largest of {len(self.path)} points, {DRAWS} draws, not a bound",
        )
        return {name: Found(value, how, False) for name, value in zip(("noise", "fourth_moment"), noises, strict=True)}

    def _local_as_found(self, problem: Oracle) -> None:
        names = ("smoothness", "strong_convexity", "third_order", "noise", "fourth_moment")
        self.local = {name: self.found[name].value for name in names}
        groups, zero = _groups(problem, self.p), self.found["heterogeneity"].value == 0
        self.local["heterogeneity"] = 0.0 if zero else max(max(_apart(problem, self.p, groups, x)) for x in self.path)
        gradients = [_norms(problem, x, _zero_like(x), _clients(groups)).max() for x in self.path]
        self.local["gradient_bound"] = None if self.found["gradient_bound"].value is None else float(max(gradients))

    def _sampled(self) -> None:
        sampler = _Sampler(self)
        points = [*self.path, *(self._random_point() for _ in range(POINTS - len(self.path)))]
        rows = [sampler.at(x) for x in points]
        how = f"largest of {POINTS} points {self.region} and {len(sampler.groups)} clients, not a bound"
        self.found = {name: Found(max(row[name] for row in rows), how, False) for name in rows[0]}
        self.local |= {name: max(row[name] for row in rows[: len(self.path)]) for name in rows[0]}
        if isinstance(self.problem, Oracle):
            self.found |= self._oracle_noise(self.problem)
            self.local |= {name: self.found[name].value for name in ("noise", "fourth_moment")}
        if self.batch_size is None:
            self.found |= {"noise": FULL, "fourth_moment": FULL}
        if len(_groups(self.problem, self.p)) == 1:
            self.found["heterogeneity"] = linear.HOMOGENEOUS
        self.found["strong_convexity"] = Found(0.0, "not known; 0 is right for every convex F", False)
        self.local["strong_convexity"] = 0.0
        self.warnings.append("no formula for this kind of problem: its constants are the largest sampled, not bounds")
        if isinstance(self.problem, MLP):
            self.found["third_order"] = Found(None, "rectifiers have no continuous Hessian", False)
            self.local["third_order"] = None

    def _random_point(self) -> Params:
        center, unravel = ravel_pytree(jax.tree.map(jnp.asarray, self.region.solution))
        step = self.rng.standard_normal(center.size)
        length = self.region.radius * self.rng.random() / np.linalg.norm(step)
        return unravel(center + length * step)

    def _some(self, groups: Sequence[Group], count: int) -> list[Group]:
        if len(groups) <= count:
            return list(groups)
        return [groups[i] for i in self.rng.choice(len(groups), count, replace=False)]

    def _warn_of_ball(self, sentence: str) -> None:
        ball = f"bounds are those over ||x - x*|| <= {self.region.radius:.4g}"
        hint = "; x0 is x*, so give `radius`" if self.region.radius == 0 else ""
        self.warnings.append(f"{sentence}; {ball}{hint}")


class _Sampler:
    """Some clients and examples of a problem that is only known by its gradients."""

    def __init__(self, known: _Known):
        self.problem, self.p, self.batch_size, self.rng = known.problem, known.p, known.batch_size, known.rng
        self.every = _groups(known.problem, known.p)
        self.groups = known._some(self.every, CLIENTS)
        self.draws = [self._draws(g) for g in self.groups]

    def _draws(self, group: Group) -> tuple[jax.Array, jax.Array]:
        """(DRAWS,) rows or seeds of random keys, and their weights."""
        n = group.rows.stop - group.rows.start
        if n > DRAWS:
            rows = group.rows.start + self.rng.choice(n, DRAWS, replace=False)
            return jnp.asarray(rows), jnp.full(DRAWS, 1 / DRAWS)
        places = np.arange(DRAWS)
        return jnp.asarray(group.rows.start + np.minimum(places, n - 1)), jnp.asarray((places < n) / n)

    def at(self, x: Params) -> dict[str, float]:
        """The largest over the clients of everything."""
        start = jax.tree.map(lambda a: jnp.asarray(self.rng.standard_normal(a.shape)), x)
        bends = [_hessian_norms(self.problem, x, jnp.asarray(g.client), start) for g in self.groups]
        spreads = [
            _moments(self.problem, x, jnp.asarray(g.client), *d) for g, d in zip(self.groups, self.draws, strict=True)
        ]
        noise, fourth = self._of_batches(spreads)
        norms = [float(s[2]) for s in spreads]
        if self.batch_size is None:
            norms = _norms(self.problem, x, _zero_like(x), _clients(self.groups))
        return {
            "smoothness": max(float(b[0]) for b in bends),
            "third_order": max(float(b[1]) for b in bends),
            "noise": noise,
            "fourth_moment": fourth,
            "heterogeneity": max(_apart(self.problem, self.p, self.every, x)) if len(self.every) > 1 else 0.0,
            "gradient_bound": float(max(norms)),
        }

    def noises(self, points: Sequence[Params]) -> tuple[float, float]:
        """The largest second and fourth moments over points and clients."""
        pairs = [
            _moments(self.problem, x, jnp.asarray(g.client), *d)
            for x in points
            for g, d in zip(self.groups, self.draws, strict=True)
        ]
        return self._of_batches(pairs)

    def _of_batches(self, moments: Sequence[Any]) -> tuple[float, float]:
        each = [of_batch(float(m[0]), float(m[1]), self.batch_size) for m in moments]
        return max(e[0] for e in each), max(e[1] for e in each)


@eqx.filter_jit
def _hessian_norms(problem: AbstractProblem, x: Params, client: jax.Array, v: Params) -> tuple[jax.Array, jax.Array]:
    """Norms of the Hessian of F_m at x and of its third derivative there, by the power method from v."""

    def hessian(x: Params, v: Params) -> Params:
        return jax.jvp(lambda z: problem.full_gradient(z, client), (x,), (v,))[1]

    h = DIFFERENCE * jnp.maximum(1, optax.tree.norm(x))

    def bend(
        v: Params,
    ) -> Params:  # the Hessian's change along v, times v: a symmetric form is largest at equal arguments
        ahead, behind = (hessian(optax.tree.add_scale(x, s * h, v), v) for s in (1, -1))
        return jax.tree.map(lambda a, b: (a - b) / (2 * h), ahead, behind)

    return _power(lambda v: hessian(x, v), v), _power(bend, v)


def _power(product: Any, v: Params) -> jax.Array:
    def step(_: Any, state: tuple[Params, jax.Array]) -> tuple[Params, jax.Array]:
        v, best = state
        w = product(v)
        return _unit(w, v), jnp.maximum(best, optax.tree.norm(w))

    return jax.lax.fori_loop(0, POWER_STEPS, step, (_unit(v, v), jnp.zeros(())))[1]


def _unit(v: Params, otherwise: Params) -> Params:
    size = optax.tree.norm(v)
    return jax.tree.map(lambda a, b: jnp.where(size > 0, a / jnp.where(size > 0, size, 1), b), v, otherwise)


@eqx.filter_jit
def _moments(
    problem: DataProblem | Oracle, x: Params, client: jax.Array, draws: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E||g - Eg||^2, E||g - Eg||^4 and max ||g|| over stochastic gradients g of one example, or of one draw of noise."""
    if isinstance(problem, Oracle):
        center = problem.full_gradient(x, client)
        gradient = partial(_noisy, problem, x, client, center)
    else:
        center = _mean_gradient(problem, x, draws, weights)
        gradient = partial(_example_gradient, problem, x)

    def sizes(draw: jax.Array) -> tuple[jax.Array, jax.Array]:
        g = gradient(draw)
        return optax.tree.norm(optax.tree.sub(g, center), squared=True), optax.tree.norm(g)

    spread, norms = jax.lax.map(sizes, draws, batch_size=16)
    return jnp.sum(weights * spread), jnp.sum(weights * spread**2), jnp.max(jnp.where(weights > 0, norms, 0))


def _noisy(oracle: Oracle, x: Params, client: jax.Array, exact: Params, seed: jax.Array) -> Params:
    return exact if oracle.noise is None else optax.tree.add(exact, oracle.noise(jax.random.key(seed), x, client))


def _example_gradient(problem: DataProblem, x: Params, row: jax.Array) -> Params:
    return _mean_gradient(problem, x, row[None], jnp.ones(1))


def _mean_gradient(problem: DataProblem, x: Params, rows: jax.Array, weights: jax.Array) -> Params:
    examples = cast_like(problem.data.take(rows), x)
    return jax.grad(lambda x: jnp.sum(weights * problem.losses(x, examples)) + problem.penalty(x))(x)


def _apart(problem: AbstractProblem, p: np.ndarray, groups: Sequence[Group], x: Params) -> list[float]:
    """||grad F_m(x) - grad F(x)|| of each group."""
    x = jax.tree.map(jnp.asarray, x)
    return _norms(problem, x, _gradient(smooth_part(problem, p), x), _clients(groups)).tolist()


@eqx.filter_jit
def _norms(problem: AbstractProblem, x: Params, center: Params, clients: jax.Array) -> jax.Array:
    return jax.lax.map(lambda m: optax.tree.norm(optax.tree.sub(problem.full_gradient(x, m), center)), clients)


@eqx.filter_jit
def _gradient(smooth: SmoothPart, x: Params) -> Params:
    return smooth.value_and_gradient(x)[1]


def _groups(problem: AbstractProblem, p: np.ndarray) -> list[Group]:
    starts, sizes = problem.starts(), problem.sizes()
    if starts is None or sizes is None:
        return [Group(m, float(weight), slice(0, DRAWS)) for m, weight in enumerate(p)]
    return groups_of(starts, sizes, p)


def _clients(groups: Sequence[Group]) -> jax.Array:
    return jnp.asarray([g.client for g in groups])


def _made_by(fn: Any, maker: Any) -> bool:
    return getattr(fn, "func", None) is maker


def _path(x0: Params, x: Params) -> list[Params]:
    steps = np.linspace(0, 1, PATH)
    return [jax.tree.map(lambda a, b, t=t: jnp.asarray((1 - t) * a + t * b), x0, x) for t in steps]


def _zero_like(x: Params) -> Params:
    return jax.tree.map(jnp.zeros_like, x)


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
