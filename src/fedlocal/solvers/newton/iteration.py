"""Federated proximal Newton: sites send gradients and curvature of few weights, the server does the rest."""

from typing import NamedTuple

import numpy as np

from fedlocal.solvers.newton.first_order import accelerated_rounds, lbfgs_rounds
from fedlocal.solvers.newton.model_step import minimize_model
from fedlocal.solvers.newton.penalties import Penalty
from fedlocal.solvers.newton.stopping import FitResult, PenalizedSums

ALL = 512  # weights up to which the curvature of all of them is asked for
NEW = 64, 1024  # least and most weights that join a working set at once, otherwise as many as are in it
LARGEST = 3000  # weights whose curvature is sent; more are left to first-order rounds
LENGTHS = (1.0, 0.5, 0.25)  # of steps that are tried before the model is made more careful
FIRST_ORDER = 100  # times as many iterations without curvature
SLACK = 100.0  # times the gap that is asked for will do where float64 has no more digits
RESTS = 3  # steps that are taken although no decrease can be seen: the gap may still fall
ROUNDING = 1e-15  # relative; a smaller decrease cannot be seen
CAUTION = 0.1  # at first; the share of the loss's majorizer in the model
FACTOR, LEAST, BOLD = 4.0, 1e-3, 1e-7  # of a change of caution, what it rises to at least, and what counts as none
DECREASE = 1e-4  # of what the model promised, for a step to count


class _Point(NamedTuple):
    x: np.ndarray  # (d, outputs) weights
    b: np.ndarray  # (outputs,) best intercepts
    scores: np.ndarray  # (n, outputs)


def prox_newton(task: PenalizedSums, x: np.ndarray, b: np.ndarray, max_iter: int) -> FitResult:
    r"""Minimise sum_i w_i loss_i(x, b) + psi(x) from (x, b).

    An iteration: the sites send the gradient g; the server chooses a working set W, the weights that are not zero and those
    that g says should not be; the sites send the curvature H of W; the server takes
        x+_W = argmin_v g_W'(v - x_W) + 1/2 (v - x_W)'H (v - x_W) + psi(v),
    and the sites say how long a step towards x+ may be. Intercepts are at their best all the time: H is what is left of the
    curvature then. Where a full step was too long, the next model is more careful (`ScoreLoss.majorizer_curvature`).
    Reference: Lee, Sun and Saunders (2014). Differs from it: working sets, free intercepts, careful models.
    """
    sums, penalty, rule = task.sums, task.penalty, task.rule
    x, b, scores = _start(task, x, b)
    iterations, rests, caution = 0, 0, CAUTION
    while True:
        slopes = sums.weighted_slopes(scores)
        g = sums.gradient(slopes)
        sums.sent.exchange(1, g.size + 1)
        found = task.certificate(x, scores, slopes, g)
        task.callback("newton", found, x)
        at_rest = rests > RESTS  # the last digits of the objective: a larger gap has to do
        if rule.reached(found) or iterations >= max_iter or at_rest:
            return FitResult(x, b, found, iterations, rule.reached(found, SLACK if at_rest else 1.0))
        chosen = _working_set(penalty, x, g)
        if chosen is None:
            return (lbfgs_rounds if penalty.smooth else accelerated_rounds)(task, x, b, FIRST_ORDER * max_iter)
        while True:
            matrix, free = sums.curvature(scores, chosen, caution)
            v = minimize_model(matrix, free, g.ravel()[chosen], x.ravel()[chosen], penalty, rule.precision(found))
            change = np.zeros(x.size)
            change[chosen] = v - x.ravel()[chosen]
            bend = float(change[chosen] @ matrix @ change[chosen]) / 2
            end, foreseen, at_rest = _step(task, _Point(x, b, scores), g, change.reshape(x.shape), bend)
            stuck, rests = caution == 1 and end is None, rests + at_rest
            # less careful after a step that the model foresaw well, more after one that it did not
            if end is not None and foreseen > 0.75:
                caution /= FACTOR
            elif end is None or foreseen < 0.25:
                caution = min(1.0, max(FACTOR * caution, LEAST))
            caution = caution if caution > BOLD else 0.0
            if end is not None or stuck:
                break
        (x, b, scores), iterations, rests = end or (x, b, scores), iterations + 1, RESTS + 1 if stuck else rests


def _start(task: PenalizedSums, x: np.ndarray, b: np.ndarray) -> _Point:
    """Where to begin: at the given weights, unless no weights at all are better."""
    sums, penalty = task.sums, task.penalty
    if np.isfinite(x).all() and np.isfinite(b).all():
        x, none = x if penalty.violation(x) == 0 else penalty.prox(x, 0.0), np.zeros_like(x)
        with np.errstate(over="ignore", invalid="ignore"):  # what a diverged method left
            b, scores = sums.best_intercept(sums.scores(x, b), b)
            objective = sums.value(scores) + penalty.value(x)
        if penalty.violation(none) > 0 or objective <= task.rule.value + penalty.value(none):
            return _Point(x, b, scores)
    x = penalty.prox(np.zeros_like(x), 0.0)
    return _Point(x, *sums.best_intercept(sums.scores(x, np.zeros_like(b)), np.zeros_like(b)))


def _working_set(penalty: Penalty, x: np.ndarray, g: np.ndarray) -> np.ndarray | None:
    """Places in x.ravel() of the weights to be moved; None where they are too many for their curvature to be sent."""
    if x.size <= ALL or penalty.l1 == 0:
        return np.arange(x.size) if x.size <= LARGEST else None
    moved = penalty.prox(x - g, 1.0) - x
    support = int(np.count_nonzero(x))
    urgency = np.where(x.ravel() != 0, np.inf, np.abs(moved.ravel()))
    if support > LARGEST - NEW[0]:
        return None
    size = min(support + int(np.clip(support, *NEW)), int(np.count_nonzero(urgency)), LARGEST)
    return np.sort(np.argpartition(-urgency, size - 1)[:size]) if size else np.arange(0)


def _step(
    task: PenalizedSums, point: _Point, g: np.ndarray, change: np.ndarray, bend: float
) -> tuple[_Point | None, float, bool]:
    """The end of a full step, a half or a quarter of it, or None if the objective falls enough on none of them; the decrease
    over that of the model, for a full step; True if a decrease cannot be seen any more. `bend` is half the model's curvature."""
    sums, penalty, (x, b, scores) = task.sums, task.penalty, point
    along = np.asarray(sums.features @ change)
    value, psi = sums.value(scores), penalty.value(x)
    promised = float(np.sum(g * change)) + penalty.value(x + change) - psi
    at_rest = -promised <= ROUNDING * (abs(value) + abs(psi))
    foreseen = 0.0
    for length in LENGTHS:
        sums.sent.exchange(2 * int(np.count_nonzero(change)) if length == 1 else 1, 1)
        moved = x + length * change
        b_moved, scores_moved = sums.best_intercept(scores + length * along, b)
        gained = sums.value(scores_moved) - value + penalty.value(moved) - psi
        if length == 1:
            foreseen = 1.0 if at_rest else gained / min(promised + bend, -np.finfo(float).tiny)
        if at_rest or gained <= DECREASE * length * promised:
            return _Point(moved, b_moved, scores_moved), foreseen, at_rest
    return None, foreseen, False
