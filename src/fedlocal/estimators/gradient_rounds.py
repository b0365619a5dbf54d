"""First-order rounds: sites send gradients only. For models with so many weights that their curvature cannot be sent."""

import numpy as np
import scipy.optimize

from fedlocal.estimators.fits import Fit, Goal, Watch
from fedlocal.estimators.gaps import certified
from fedlocal.estimators.penalties import Penalty, SumPenalty
from fedlocal.estimators.pool import Pool

CHECK_EVERY = 20  # rounds between two looks at the certificate
GROWTH = 1.02  # of an accepted step size
MEMORY = 20  # pairs of vectors that L-BFGS keeps


def gradient_rounds(
    pool: Pool, penalty: Penalty, x: np.ndarray, b: np.ndarray, *, goal: Goal, max_iter: int, watch: Watch
) -> Fit:
    """Minimise the pool's loss plus the penalty: L-BFGS where the penalty is smooth, else accelerated proximal gradient."""
    smooth = isinstance(penalty, SumPenalty) and penalty.smooth
    return (_lbfgs if smooth else _accelerated)(pool, penalty, x, b, goal, max_iter, watch)


def _lbfgs(pool: Pool, penalty: Penalty, x: np.ndarray, b: np.ndarray, goal: Goal, max_iter: int, watch: Watch) -> Fit:
    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        x_now, b_now = z[: x.size].reshape(x.shape), z[x.size :]
        scores = pool.scores(x_now, b_now)
        slopes = pool.weighted_slopes(scores)
        pool.sent.exchange(z.size, z.size + 1)
        g = pool.gradient(slopes) + penalty.l2 * x_now  # pyright: ignore[reportAttributeAccessIssue]
        slope = slopes.sum(axis=0) if pool.intercept else np.zeros_like(b)
        return pool.value(scores) + penalty.value(x_now), np.concatenate([g.ravel(), slope])

    z, spent, precision = np.concatenate([x.ravel(), b]), 0, 1e-3
    while True:
        # the gap is not what L-BFGS looks at: ask it for smaller and smaller gradients until the gap is small
        options = {
            "maxiter": max_iter - spent,
            "maxcor": MEMORY,
            "ftol": 0.0,
            "gtol": precision * goal.gradient,
            "maxls": 40,
        }
        found = scipy.optimize.minimize(value_and_gradient, z, jac=True, method="L-BFGS-B", options=options)
        z, spent, precision = found.x, spent + int(found.nit), precision / 10
        fit = certified(pool, penalty, z[: x.size].reshape(x.shape), z[x.size :], goal, spent)
        watch("gradient", fit.certificate, fit.x)
        if fit.converged or spent >= max_iter or precision < 1e-16:
            return fit


def _accelerated(
    pool: Pool, penalty: Penalty, x: np.ndarray, b: np.ndarray, goal: Goal, max_iter: int, watch: Watch
) -> Fit:
    """Beck and Teboulle (2009) with restarts; the intercepts are at their best at every point where a gradient is taken."""

    def look(x: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        b, scores = pool.best_intercept(pool.scores(x, b), b)
        pool.sent.exchange(x.size, x.size + 1)
        return pool.value(scores), pool.gradient(pool.weighted_slopes(scores)), b

    y, theta = x, 1.0
    value, g, b = look(y, b)
    step = _first_step(look, y, g, b)
    fit = certified(pool, penalty, x, b, goal, 0)
    for iteration in range(1, max_iter + 1):
        while True:
            new = penalty.prox(y - step * g, step)
            move = new - y
            new_value, new_g, new_b = look(new, b)
            length2 = float(np.sum(move**2))
            if new_value <= value + float(np.sum(g * move)) + length2 / (2 * step) + 1e-14 * abs(value):
                break
            if step < np.finfo(float).tiny:
                return fit
            step /= 2
        forward = new - x
        if np.sum(move * forward) < 0:
            theta = 1.0
        theta, before = (1 + np.sqrt(1 + 4 * theta**2)) / 2, theta
        y, x, b = new + (before - 1) / theta * forward, new, new_b
        value, g, b = (new_value, new_g, b) if before == 1 else look(y, b)
        step *= GROWTH
        if iteration % CHECK_EVERY == 0 or iteration == max_iter or length2 == 0:
            fit = certified(pool, penalty, x, b, goal, iteration)
            watch("gradient", fit.certificate, fit.x)
            if fit.converged or length2 == 0:
                break
    return fit


def _first_step(look, y: np.ndarray, g: np.ndarray, b: np.ndarray) -> float:
    """The inverse of the curvature along the gradient."""
    reach = 1e-3 * max(1.0, float(np.linalg.norm(y))) / max(float(np.linalg.norm(g)), 1e-300)
    change = float(np.linalg.norm(look(y - reach * g, b)[1] - g))
    return reach * float(np.linalg.norm(g)) / change if change > 0 else 1.0
