"""Certificates of a fit from sums over examples: KKT residual and duality gap, as in `fedlocal.certificates`, in NumPy."""

import numpy as np

from fedlocal.certificates import ROUNDING, Certificate
from fedlocal.estimators.fits import Fit, Goal
from fedlocal.estimators.penalties import Penalty
from fedlocal.estimators.pool import Pool, norm


def certify(
    pool: Pool, penalty: Penalty, x: np.ndarray, scores: np.ndarray, weighted_slopes: np.ndarray, g: np.ndarray
) -> Certificate:
    """The certificate of weights x whose intercepts are at their best; g is the gradient with respect to the weights."""
    objective = pool.value(scores) + penalty.value(x)
    slope = weighted_slopes.sum(axis=0) if pool.intercept else np.zeros(1)
    residual = float(np.hypot(norm(x - penalty.prox(x - g, 1.0)), norm(slope)))
    violation = penalty.violation(x)
    gauge = penalty.gauge(-g)
    if not np.isfinite(gauge):
        because = "the conjugate of this penalty is finite at the origin or on a cone only"
        return Certificate(objective, residual, violation, None, because)
    pool.sent.exchange(2, 4 if pool.loss.quadratic else 1)  # scales down, sums of slopes and means of the conjugates up
    u = pool.loss.slopes(scores, pool.targets)
    limit = (1 - ROUNDING) / gauge if gauge > 0 else np.inf
    scales = [min(1.0, limit)]
    if pool.loss.quadratic:  # the losses' part of the bound is quadratic in the scale: take its maximum
        squares, products = pool.weights @ u[:, 0] ** 2, pool.weights @ (u[:, 0] * pool.targets)
        scales.append(float(np.clip(-products / squares if squares > 0 else 0.0, 0.0, limit)))
    bounds = [
        -float(pool.weights @ pool.loss.conjugates(scale * u, pool.targets)) - penalty.conjugate(-scale * g)
        for scale in scales
    ]
    return Certificate(objective, residual, violation, objective - max(bounds))


def certified(pool: Pool, penalty: Penalty, x: np.ndarray, b: np.ndarray, goal: Goal, iterations: int) -> Fit:
    """Weights x with their best intercepts, and the certificate there."""
    b, scores = pool.best_intercept(pool.scores(x, b), b)
    slopes = pool.weighted_slopes(scores)
    g = pool.gradient(slopes)
    pool.sent.exchange(x.size, g.size)
    found = certify(pool, penalty, x, scores, slopes, g)
    return Fit(x, b, found, iterations, goal.reached(found))
