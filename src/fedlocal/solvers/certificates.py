r"""Certificates: how far a point is from optimal, measured at the point itself and without knowing a solution.

With P(x) = F(x) + psi(x) and a linear model, F(x) = sum_i w_i l_i(s_i) + l2/2 ||weights||^2 with scores s_i = a_i'x + x0,
every u with sum_i w_i u_i = 0 (where the intercept is free) gives a lower bound of min P:
    D(u) = -sum_i w_i l_i^*(u_i) - Psi^*(-sum_i w_i u_i a_i),   Psi = psi + l2/2 ||.||^2.
We take u_i = scale l_i'(s_i) at the weights of x with their best intercept; `scale` is 1, or less where Psi^* asks for it.
All of it is means over examples (one vector, a few numbers), so clients that share no data can compute it too.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, Params, Regularizer, Scalar, Zero
from fedlocal.core.types import Weights
from fedlocal.losses import ScoreLoss
from fedlocal.losses.score_loss import array_namespace
from fedlocal.problems.linear import LinearProblem
from fedlocal.problems.smooth_part import ExampleMean, SmoothPart, client_weights, point, smooth_part_of
from fedlocal.solvers.intercept import InterceptSlope, best_intercept
from fedlocal.solvers.units import check_units
from fedlocal.util import checks, html
from fedlocal.util.placement import on_device

ROUNDING = 1e-15  # relative; a dual point scaled onto the boundary of a domain stays inside


@dataclass(frozen=True)
class Certificate:
    """How far a point is from optimal."""

    objective: float  # F(x) + psi(x)
    # ||x - prox_psi(x - grad F(x))||_2 over all parameters; zero where x is optimal, and only there
    kkt_residual: float
    violation: float  # largest distance outside the constraint; zero where there is none
    duality_gap: float | None  # at least F(x) + psi(x) - min (F + psi); None where it is not known
    no_gap_because: str | None = None  # why the duality gap is None
    # the largest part of the KKT residual in units in which columns have size one, relative to the slopes of the losses without
    # weights; only estimators know it, and only where the penalty takes each weight by itself and there is no gap
    relative_residual: float | None = None

    def __str__(self) -> str:
        gap = f"{self.duality_gap:.3g}" if self.duality_gap is not None else f"not known ({self.no_gap_because})"
        outside = f", outside the constraint by {self.violation:.3g}" if self.violation > 0 else ""
        residual = f"{self.kkt_residual:.3g}"
        if self.relative_residual is not None:
            residual += f" ({self.relative_residual:.3g} relative to the sizes of columns)"
        return f"objective {self.objective:.10g}, KKT residual {residual}{outside}, duality gap {gap}"

    def _repr_html_(self) -> str:
        gap = self.duality_gap if self.duality_gap is not None else f"not known: {self.no_gap_because}"
        rows = {"objective": self.objective, "KKT residual": self.kkt_residual, "duality gap": gap}
        return html.section("Certificate", html.facts({**rows, "outside the constraint by": self.violation}))


def certificate(
    problem: AbstractProblem,
    regularizer: Regularizer | None,
    x: Params,
    weights: Weights = "uniform",
    federated: bool = False,
) -> Certificate:
    r"""How far x is from the minimum of F + psi: KKT residual and, for linear models, a duality gap. Always in float64.

    The gap exists for linear models with one score per example (LeastSquares, MatrixSensing, Logistic); it bounds
    objective - minimum where x is feasible.

    Args:
        problem: F.
        regularizer: psi; None for none.
        x: the parameters.
        weights: of the clients in F, "uniform" or "examples".
        federated: True computes the same numbers from the means that each client takes over its own examples.

    >>> from fedlocal.data.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> from fedlocal.regularizers import L1
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 0.0]))])
    >>> found = certificate(LeastSquares(data, intercept=False), L1(1.0), {"weights": np.array([2.0, 0.0])})
    >>> found.objective, found.kkt_residual, abs(found.duality_gap) < 1e-12
    (2.5, 0.0, True)
    """
    checks.instance("certificate", "problem", problem, AbstractProblem).rounding.check("certificate")
    if regularizer is not None:
        checks.instance("certificate", "regularizer", regularizer, Regularizer)
    return certify(problem, regularizer, x, client_weights("certificate", problem, weights), federated)


def certify(
    problem: AbstractProblem, regularizer: Regularizer | None, x: Params, p: np.ndarray, federated: bool = False
) -> Certificate:
    """`certificate` for any weights p of the clients."""
    psi = Zero() if regularizer is None else regularizer
    with jax.enable_x64(True):
        x64 = point("certificate", "x", problem, x)
        smooth = smooth_part_of(problem, p, federated)
        objective, residual, violation = map(float, _optimality(smooth, psi, x64))
        if not np.isfinite(objective) or not np.isfinite(residual):
            check_units("certificate", problem)
        gap, reason = _gap_or_reason(smooth, psi, x64, objective)
    return Certificate(objective, residual, violation, gap, reason)


def kkt_residual(psi: Regularizer, x: Params, g: Params) -> jax.Array:
    """||x - prox_psi(x - g)||_2 for the gradient g of F at x."""
    return optax.tree.norm(optax.tree.sub(x, psi.prox(optax.tree.sub(x, g), 1.0)))


def dual_scales(loss: ScoreLoss, gauge: Any, squares: Any, products: Any) -> list[Any]:
    """The scales of the dual point u_i = scale l_i'(s_i) to be tried, none of which leaves the domain of Psi^*.

    The largest up to 1; and for a quadratic loss, whose part of D is quadratic in the scale, the maximum of that part.
    NumPy numbers give NumPy numbers, JAX arrays (also traced) give JAX arrays.

    Args:
        loss: l.
        gauge: the smallest c for which Psi^* is finite at -sum_i w_i l_i'(s_i) a_i / c.
        squares, products: sum_i w_i l_i'(s_i)^2 and sum_i w_i l_i'(s_i) b_i; used for a quadratic loss only.
    """
    xp = array_namespace(gauge)
    limit = xp.where(gauge > 0, (1 - ROUNDING) / xp.where(gauge > 0, gauge, 1), xp.inf)
    scales = [xp.minimum(1, limit)]
    if loss.quadratic:
        best = xp.where(squares > 0, -loss.curvature_bound * products / xp.where(squares > 0, squares, 1), 0)
        scales.append(xp.clip(best, 0, limit))
    return scales


@jax.jit
def _optimality(smooth: SmoothPart, psi: Regularizer, x: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
    value, g = smooth.value_and_gradient(x)
    return value + psi.value(x), kkt_residual(psi, x, g), psi.violation(x)


def _gap_or_reason(
    smooth: SmoothPart, psi: Regularizer, x: Params, objective: float
) -> tuple[float, None] | tuple[None, str]:
    problem: Any = smooth.problem  # pyright: ignore[reportAttributeAccessIssue]
    if not isinstance(smooth, ExampleMean) or not isinstance(problem, LinearProblem) or problem.score_loss.outputs > 1:
        name = type(problem).__name__
        return None, f"{name} has no conjugate here; LeastSquares, MatrixSensing and Logistic have one"
    l2: Any = problem.l2
    no_l2 = l2 is None or float(l2) == 0  # an array may be zero too
    if no_l2:
        smooth = cast(ExampleMean, eqx.tree_at(lambda s: s.problem.l2, smooth, None, is_leaf=lambda a: a is None))
    if not all(np.isfinite(a).all() for a in x.values()):
        return None, "x is not finite"
    psi_of, held = held_parts(psi, x)
    conjugated = {name: psi_of[name] for name in held if name != "weights" or no_l2}
    for name, part in conjugated.items():
        try:
            jax.eval_shape(lambda a, part=part: part.array_conjugate(a), x[name])
        except (TypeError, NotImplementedError) as error:
            advice = "write array_conjugate; with l2 > 0 the prox of the weights is enough"
            return None, f"{error}, which a gap needs: {advice}"
    if "intercept" in x and "intercept" not in held:
        slope_fn, start = partial(_intercept_slope, cast(ExampleMean, smooth), x), float(x["intercept"])
        best = best_intercept(lambda at: InterceptSlope(*map(float, slope_fn(on_device(at)))), start)
        x = {**x, "intercept": on_device(best)}
    bound, gauges = _lower_bound(smooth, psi, x)
    for part, gauge in zip((psi_of[name] for name in held), gauges, strict=True):
        if not np.isfinite(gauge):
            return None, _no_gauge_because(part)
    for part in conjugated.values():
        if np.isneginf(bound) and not part.has_gauge():
            name = type(part).__name__
            return None, f"the conjugate of {name} is inf at the dual point; {name} needs array_gauge to scale it down"
    return objective - float(bound), None


def held_parts(psi: Regularizer, x: Params) -> tuple[dict[str, Regularizer], list[str]]:
    """The regulariser of each part of x, and the parts that are not a free intercept."""
    psi_of = jax.tree.unflatten(jax.tree.structure(x), psi.parts(x))
    return psi_of, [name for name in x if name != "intercept" or not isinstance(psi_of[name], Zero)]


def _no_gauge_because(psi: Regularizer) -> str:
    name = type(psi).__name__
    if psi.strengths() and all(np.any(np.asarray(strength) == 0) for strength in psi.strengths()):
        return f"the strength of {name} is 0, so that its conjugate is finite at the origin only; l2 > 0 helps"
    return f"the conjugate of {name} is finite on a cone only, which rounding leaves; l2 > 0 helps"


@jax.jit
def _lower_bound(mean: ExampleMean, psi: Regularizer, x: Params) -> tuple[jax.Array, jax.Array]:
    """D(u) and the gauges that limit the scale of u, for x with its best intercept; see the head of this file."""
    problem: Any = mean.problem
    psi_of, held = held_parts(psi, x)
    l2_of = {name: problem.l2 if name == "weights" else None for name in x}

    def first_sums(examples: tuple[Any, ...], weights: jax.Array) -> Any:
        u = problem.slopes(x, examples)
        g = jax.grad(lambda x: jnp.sum(weights * problem.losses(x, examples)))(x)
        return g, jnp.sum(weights * u**2), jnp.sum(weights * u * examples[1])

    g, squares, products = mean(first_sums)
    y = {name: -a for name, a in g.items()}
    # of a free intercept y is the mean slope, which is zero but for rounding
    gauges = jnp.stack([_gauge(psi_of[name], l2_of[name], y[name]) for name in held])
    scales = dual_scales(problem.score_loss, jnp.max(gauges), squares, products)

    def second_sums(examples: tuple[Any, ...], weights: jax.Array) -> list[jax.Array]:
        u = problem.slopes(x, examples)
        return [jnp.sum(weights * problem.score_loss.conjugate(scale * u, examples[1])) for scale in scales]

    losses = mean(second_sums)
    regularizers = [sum(_conjugate(psi_of[name], l2_of[name], scale * y[name]) for name in held) for scale in scales]
    return jnp.max(jnp.stack([-a - b for a, b in zip(losses, regularizers, strict=True)])), gauges


def _gauge(psi: Regularizer, l2: Scalar | None, y: jax.Array) -> jax.Array:
    """The smallest c for which the conjugate of psi + l2/2 ||.||^2 is finite at y / c; inf where its domain has no interior
    around the origin, since then y is inside up to rounding at best, and that proves nothing."""
    if l2 is not None:
        return jnp.zeros(())
    probe = jax.random.normal(jax.random.key(0), y.shape, y.dtype)
    interior = jnp.isfinite(psi.array_gauge(probe)) & jnp.isfinite(psi.array_gauge(-probe))
    return jnp.where(interior, psi.array_gauge(y), jnp.inf)


def _conjugate(psi: Regularizer, l2: Scalar | None, y: jax.Array) -> jax.Array:
    """The conjugate of psi + l2/2 ||.||^2, whose maximum is at prox_{psi / l2}(y / l2)."""
    if l2 is None:
        return psi.array_conjugate(y)
    z = psi.array_prox(y / l2, 1 / l2)
    return jnp.sum(y * z) - psi.array_value(z) - l2 / 2 * jnp.sum(z**2)


@jax.jit
def _intercept_slope(mean: ExampleMean, x: Params, intercept: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`InterceptSlope` of F at the weights of x and another intercept."""
    problem: Any = mean.problem

    def sums(examples: tuple[Any, ...], weights: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        features, targets = examples
        scores = problem.scores({**x, "intercept": intercept}, features)
        u, curvature = problem.score_loss.slope(scores, targets), problem.score_loss.curvature(scores, targets)
        size = jnp.abs(u) + jnp.abs(scores) * curvature
        return jnp.sum(weights * u), jnp.sum(weights * curvature), jnp.sum(weights * size)

    return mean(sums)
