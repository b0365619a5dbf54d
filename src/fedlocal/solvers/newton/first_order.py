"""First-order rounds: sites send gradients only. For models with so many weights that their curvature cannot be sent."""

import numpy as np

from fedlocal.solvers.fista import first_step_size, next_momentum
from fedlocal.solvers.lbfgs import minimize_lbfgs
from fedlocal.solvers.newton.stopping import FitResult, PenalizedSums

CHECK_EVERY = 20  # rounds between two certificates
GROWTH = 1.02  # of an accepted step size


def lbfgs_rounds(task: PenalizedSums, x: np.ndarray, b: np.ndarray, max_iter: int) -> FitResult:
    """L-BFGS, for a penalty that is smooth."""
    sums, penalty, rule = task.sums, task.penalty, task.rule
    # weights that nothing else has a unit for are scaled to columns of size one
    units = np.ones_like(x) if penalty.l2 > 0 else np.where(rule.sizes > 0, rule.sizes, rule.slope) / rule.slope

    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        x_now, b_now = z[: x.size].reshape(x.shape) / units, z[x.size :]
        scores = sums.scores(x_now, b_now)
        slopes = sums.weighted_slopes(scores)
        sums.sent.exchange(z.size, z.size + 1)
        g = sums.gradient(slopes) + penalty.l2 * x_now
        slope = slopes.sum(axis=0) if sums.intercept else np.zeros_like(b)
        return sums.value(scores) + penalty.value(x_now), np.concatenate([(g / units).ravel(), slope])

    z, spent, precision = np.concatenate([(x * units).ravel(), b]), 0, 1e-3
    size = rule.gradient if penalty.l2 > 0 else rule.slope
    while True:
        # the gap is not what L-BFGS looks at: ask it for smaller and smaller gradients until the gap is small
        z, iterations = minimize_lbfgs(value_and_gradient, z, max_iter - spent, precision * size)
        spent, precision = spent + iterations, precision / 10
        fit = task.fit_at(z[: x.size].reshape(x.shape) / units, z[x.size :], spent, "gradient")
        if fit.converged or spent >= max_iter or precision < 1e-16:
            return fit


def accelerated_rounds(task: PenalizedSums, x: np.ndarray, b: np.ndarray, max_iter: int) -> FitResult:
    """Beck and Teboulle (2009) with restarts; the intercepts are at their best at every point where a gradient is taken."""
    sums = task.sums

    def evaluate(x: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        b, scores = sums.best_intercept(sums.scores(x, b), b)
        sums.sent.exchange(x.size, x.size + 1)
        return sums.value(scores), sums.gradient(sums.weighted_slopes(scores)), b

    y, theta = x, 1.0
    value, g, b = evaluate(y, b)
    norm = np.linalg.norm
    step = float(first_step_size(norm(y), norm(g), lambda reach: norm(evaluate(y - reach * g, b)[1] - g)))
    fit = task.fit_at(x, b, 0)
    for iteration in range(1, max_iter + 1):
        while True:
            new = task.penalty.prox(y - step * g, step)
            move = new - y
            new_value, new_g, new_b = evaluate(new, b)
            length2 = float(np.sum(move**2))
            if new_value <= value + float(np.sum(g * move)) + length2 / (2 * step) + 1e-14 * abs(value):
                break
            if step < np.finfo(float).tiny:
                return fit
            step /= 2
        forward = new - x
        theta, momentum = next_momentum(theta, np.sum(move * forward) < 0)
        y, x, b = new + momentum * forward, new, new_b
        value, g, b = (new_value, new_g, b) if momentum == 0 else evaluate(y, b)
        step *= GROWTH
        if iteration % CHECK_EVERY == 0 or iteration == max_iter or length2 == 0:
            fit = task.fit_at(x, b, iteration, "gradient")
            if fit.converged or length2 == 0:
                break
    return fit
