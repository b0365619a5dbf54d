"""The step of a Newton iteration: the minimum of a quadratic model plus the penalty, found at the server alone."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from fedlocal.core import Regularizer
from fedlocal.simulation.kernels.jit import compiled
from fedlocal.solvers.fista import next_momentum
from fedlocal.solvers.newton.penalties import AnyPenalty, Penalty, SumPenalty

SWEEPS = 4  # of coordinate descent before an attempt at the exact solution on its support; doubled every time
ATTEMPTS = 9
CROSSINGS = 20
ROUGH = 1e-5  # a precision for which few sweeps are enough
SMALL = 512  # a support on which systems are solved all the same
RIDGES = 1e-15, 1e-13, 1e-11  # on a diagonal of ones: what makes a singular system solvable, and changes little else
SINGULAR = 1e-13  # eigenvalues that are a smaller part of the largest are zero but for rounding
REFINEMENTS = 2  # of a solution, which take back what the ridge changed
PROXIMAL_STEPS = 20_000


def minimize_model(
    matrix: np.ndarray, free: np.ndarray, g: np.ndarray, v0: np.ndarray, penalty: Penalty, precision: float
) -> np.ndarray:
    """argmin_v g'(v - v0) + 1/2 (v - v0)'matrix (v - v0) + psi(v); coordinates that are not free change nothing and become zero.

    `free` tells which coordinates have curvature. Smooth: a linear system. A sum over coordinates: coordinate descent, with
    exact solutions on its support in between. Any other psi: accelerated proximal gradient. These two stop when their changes
    are `precision` times the solution.
    """
    if isinstance(penalty, AnyPenalty):
        return _proximal(matrix, g, v0, penalty, precision)
    v, inside = np.clip(np.zeros_like(v0), penalty.lower, penalty.upper), np.flatnonzero(free | (penalty.l2 > 0))
    part = np.ascontiguousarray(matrix[np.ix_(inside, inside)]) if len(inside) < len(v0) else matrix
    v[inside] = (_smooth if penalty.smooth else _by_coordinates)(part, g[inside], v0[inside], penalty, precision)
    return v


def _smooth(matrix: np.ndarray, g: np.ndarray, v0: np.ndarray, penalty: SumPenalty, _: float) -> np.ndarray:
    l2 = penalty.l2
    return v0 - (_solve(matrix + l2 * np.eye(len(v0)), g + l2 * v0) if l2 > 0 else _shortest(matrix, g))


def _shortest(matrix: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The solution of a semidefinite system that is shortest in units in which the diagonal is one."""
    size = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / size / size[:, None])
    kept = values > SINGULAR * values[-1]
    return vectors[:, kept] @ ((vectors[:, kept].T @ (g / size)) / values[kept]) / size


def _solve(matrix: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The solution of a semidefinite system whose columns may have very different sizes; where there are many, a short one."""
    size = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    scaled, g = matrix / size / size[:, None], g / size
    for ridge in RIDGES:
        try:
            factor = scipy.linalg.cho_factor(scaled + ridge * np.eye(len(g)))
        except np.linalg.LinAlgError:
            continue
        v = scipy.linalg.cho_solve(factor, g)
        for _ in range(REFINEMENTS):
            v += scipy.linalg.cho_solve(factor, g - scaled @ v)
        return v / size
    return np.linalg.lstsq(scaled, g, rcond=RIDGES[-1])[0] / size


def _by_coordinates(
    matrix: np.ndarray, g: np.ndarray, v0: np.ndarray, penalty: SumPenalty, precision: float
) -> np.ndarray:
    v, r = v0.copy(), g.copy()  # r: the model's gradient at v
    for attempt in range(ATTEMPTS):
        # what is left: the largest change of a coordinate that one sweep still makes
        left = _descend(matrix, r, v, *penalty, SWEEPS << attempt, precision)
        if left <= precision or attempt == ATTEMPTS - 1 or (precision > ROUGH and attempt == 1):
            break
        if precision <= ROUGH or np.count_nonzero(v) <= SMALL:
            v = _on_support(matrix, r, v, penalty)
            r = g + matrix @ (v - v0)
    return v


@compiled
def _descend(
    matrix: Any, r: Any, v: Any, l1: float, l2: float, lower: float, upper: float, sweeps: int, enough: float
) -> float:
    """Cyclic coordinate descent; v and r are changed in place. Returns the last sweep's largest change, in units in which
    the curvature of a coordinate is one, relative to the largest coordinate."""
    largest = 0.0
    for _ in range(sweeps):
        largest, size = 0.0, 0.0
        for j in range(len(v)):
            h = matrix[j, j] + l2
            old, target = v[j], v[j] - (r[j] + l2 * v[j]) / h
            new = min(max(max(abs(target) - l1 / h, 0.0) * np.sign(target), lower), upper)
            if new != old:
                change = new - old
                v[j] = new
                for i in range(len(v)):
                    r[i] += change * matrix[j, i]
                largest = max(largest, abs(change) * np.sqrt(h))
            size = max(size, abs(new) * np.sqrt(h))
        largest = largest / size if size > 0 else 0.0
        if largest <= enough:
            break
    return largest


def _on_support(matrix: np.ndarray, r: np.ndarray, v: np.ndarray, penalty: SumPenalty) -> np.ndarray:
    """The exact solution among the coordinates that are neither zero nor at a bound; r is the model's gradient at v.

    Where some would change their sign on the way, either all of these become zero or the way ends at the first of them, whichever
    lowers the model more; then it is tried again without them.
    """
    v, r = v.copy(), r.copy()
    for _ in range(CROSSINGS):
        inside = np.flatnonzero((v != 0) & (v > penalty.lower) & (v < penalty.upper))
        here, part = v[inside], matrix[np.ix_(inside, inside)]
        push = r[inside] + penalty.l1 * np.sign(here) + penalty.l2 * here
        step = -_solve(part + penalty.l2 * np.eye(len(inside)), push)
        lower = np.where(here > 0, max(penalty.lower, 0.0), penalty.lower) if penalty.l1 > 0 else penalty.lower
        upper = np.where(here < 0, min(penalty.upper, 0.0), penalty.upper) if penalty.l1 > 0 else penalty.upper
        first = _until_crossing(here, step, lower, upper)
        ends = [end for end in (first, np.clip(here + step, lower, upper)) if end is not None]
        # the penalty is smooth on the way: no signs change
        moves = [end - here for end in ends]
        falls = [push @ move + move @ part @ move / 2 + penalty.l2 / 2 * sum(move**2) for move in moves]
        if not len(inside) or min(falls) >= 0:
            break
        best = int(np.argmin(falls))
        v[inside] = ends[best]
        r += matrix[:, inside] @ moves[best]
        if first is None:
            break
    return v


def _until_crossing(here: np.ndarray, step: np.ndarray, lower: Any, upper: Any) -> np.ndarray | None:
    """Where a step is when its first coordinate arrives at a bound; None if none does."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step > 0, (upper - here) / step, np.where(step < 0, (lower - here) / step, np.inf))
    if not len(room) or np.min(room) >= 1:
        return None
    first = int(np.argmin(room))
    end = np.clip(here + room[first] * step, lower, upper)
    # exactly, whatever rounding says
    end[first] = np.broadcast_to(upper if step[first] > 0 else lower, here.shape)[first]
    return end


def _proximal(matrix: np.ndarray, g: np.ndarray, v0: np.ndarray, penalty: AnyPenalty, precision: float) -> np.ndarray:
    """Accelerated proximal gradient with restarts (Beck and Teboulle 2009, O'Donoghue and Candes 2015)."""
    top = len(v0) - 1
    smoothness = float(scipy.linalg.eigh(matrix, eigvals_only=True, subset_by_index=[top, top])[0])
    if smoothness <= 0:
        return penalty.prox(np.zeros_like(v0), 1.0)
    with jax.enable_x64(True):
        numbers = map(jnp.asarray, (matrix, g, v0, smoothness, precision))
        return np.asarray(_accelerated(penalty.regularizer, penalty.shape, *numbers))


@partial(jax.jit, static_argnums=1)
def _accelerated(
    psi: Regularizer, shape: tuple[int, ...], matrix: Any, g: Any, v0: Any, smoothness: Any, precision: Any
) -> jax.Array:
    def iterate(state: tuple[Any, ...]) -> tuple[Any, ...]:
        v, y, theta, _, first, steps = state
        moved = y - (g + matrix @ (y - v0)) / smoothness
        new = psi.array_prox(moved.reshape(shape), 1 / smoothness).ravel()
        theta, momentum = next_momentum(theta, (y - new) @ (new - v) > 0)
        move = jnp.linalg.norm(new - y)
        first = jnp.where(steps == 0, move, first)
        return new, new + momentum * (new - v), theta, move, first, steps + 1

    def unfinished(state: tuple[Any, ...]) -> jax.Array:
        v, _, _, move, first, steps = state
        enough = jnp.minimum(precision * first, precision * jnp.linalg.norm(v))
        return (steps == 0) | (steps < PROXIMAL_STEPS) & (move > enough)

    one, none = jnp.ones(()), jnp.zeros(())
    return jax.lax.while_loop(unfinished, iterate, (v0, v0, one, none, none, jnp.zeros((), int)))[0]
