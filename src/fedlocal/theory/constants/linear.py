"""Proven constants of linear models, from the features and bounds of the derivatives of the loss."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from fedlocal.theory.constants.client_groups import ClientGroup, batch_moments, fourth_moment, sample_groups
from fedlocal.theory.constants.linear_measurements import measure_along_path, separates
from fedlocal.theory.constants.linear_model import LinearModel
from fedlocal.theory.constants.types import FULL, HOMOGENEOUS, ConstantValue, EstimationTask, ProblemConstants, Region
from fedlocal.util.linalg import ROUNDING, krylov_top, least_eigenvalue

HESSIAN_CLIENTS = 64  # largest number of groups whose Hessians are measured along the path
LEAST = 2048  # parameters up to which the smallest eigenvalue is computed; Krylov spaces converge to it slowly


def linear_constants(task: EstimationTask) -> ProblemConstants:
    """Return all constants of a linear model."""
    model = LinearModel(task.problem, task.p)  # pyright: ignore[reportArgumentType]
    groups = sample_groups(model.groups, HESSIAN_CLIENTS, task.rng)
    result = ProblemConstants(
        found=linear_bounds(model, task.region, task.batch_size),
        local={**measure_along_path(model, task.path, groups, task.batch_size)},
    )
    found = result.found
    if len(groups) < len(model.groups):
        few = f"; locally, the largest of {len(groups)} clients drawn from {len(model.groups)}"
        names = [name for name in ("smoothness", "third_order") if found[name].value]
        found |= {name: found[name]._replace(how=found[name].how + few) for name in names}
    if model.loss.quadratic:
        sentence = (
            "squares have no bounded slopes: noise, fourth_moment, gradient_bound and (with unequal features) "
            "heterogeneity are not bounded over all x"
        )
        result.warn_of_ball(sentence, task.region)
        return result
    mu, curvature = found["strong_convexity"], result.local["strong_convexity"]
    how = f"{mu.how}; locally, from x0 to x*, at least {curvature:.4g}"
    found["strong_convexity"] = mu._replace(how=how)
    if model.l2 == 0 and separates(model, task.region.solution):
        stopped = "no minimum is attained, x* is where the solver stopped"
        result.warnings.append(f"the data is separable and l2 = 0: {stopped}")
    return result


def linear_bounds(model: LinearModel, region: Region, batch_size: int | None) -> dict[str, ConstantValue]:
    """Return the constants that hold everywhere, or in the region if `how` says so."""
    spectra = [model.top_eigenvalue(g.rows, g.mean_weights) for g in model.groups]  # of mean aa'
    found = {"smoothness": _smoothness(model, spectra), "third_order": _third_order(model)}
    if model.loss.slope_bound is None:
        return found | _of_squares(model, region, batch_size, spectra)
    return found | _of_bounded_slopes(model, region, batch_size, spectra, model.loss.slope_bound)


def _smoothness(model: LinearModel, spectra: Sequence[float]) -> ConstantValue:
    bound, l2 = model.loss.curvature_bound, model.l2
    if model.first and l2 > 0:
        values = [model.top_eigenvalue(g.rows, bound * g.mean_weights, l2) for g in model.groups]
    else:
        values = [bound * top + l2 for top in spectra]
    value, client = _largest(model.groups, values)
    how = f"certified upper bound: largest eigenvalue of {bound:g} mean aa' + l2, which bounds the Hessians"
    if model.loss.quadratic:
        how = "exact: largest eigenvalue of the clients' Hessians 2 mean aa' + l2"
    return ConstantValue(value, f"{how}, client {client}", True)


def _third_order(model: LinearModel) -> ConstantValue:
    bound = model.loss.third_bound
    if bound == 0:
        return ConstantValue(0.0, "exact: the Hessians are constant", True)
    tops = [model.top_eigenvalue(g.rows, model.norms[g.rows] * g.mean_weights) for g in model.groups]
    value, client = _largest(model.groups, [bound * top for top in tops])
    how = f"certified upper bound: {bound:.4g} times the largest eigenvalue of mean ||a|| aa', client {client}"
    return ConstantValue(value, how, True)


def _of_bounded_slopes(
    model: LinearModel, region: Region, batch_size: int | None, spectra: Sequence[float], slope: float
) -> dict[str, ConstantValue]:
    variances = [_bounded_variance(model, g, slope) for g in model.groups]
    fourths = [fourth_moment(slope * model.norms[g.rows], v) for g, v in zip(model.groups, variances, strict=True)]
    # a client's mean gradient without the penalty: at most the mean norm, and A'u/n at most ||A|| ||u|| / n
    means = [float(np.mean(model.norms[g.rows])) for g in model.groups]
    reach = [slope * min(mean, math.sqrt(top)) for mean, top in zip(means, spectra, strict=True)]
    slopes = f"slopes of the {model.loss.name} loss are at most {slope:.4g}"
    where = f"; the penalty's gradient {region}" if model.l2 else ""
    norms = max(reach) if batch_size is None else slope * float(np.max(model.norms))
    mu, why = model.l2, "certified lower bound: l2"
    if model.first or not model.l2:
        mu, why = 0.0, "the intercept has no l2" if model.l2 else "l2 = 0"
        why = f"certified: 0 is all that holds everywhere, {why}"
    return {
        "strong_convexity": ConstantValue(mu, why, True),
        **_noise(model, variances, fourths, batch_size, f"certified upper bound: {slopes}"),
        "heterogeneity": _bounded_heterogeneity(model, reach, slopes),
        "gradient_bound": ConstantValue(norms + _pull(model, region), f"certified upper bound: {slopes}{where}", True),
    }


def _bounded_variance(model: LinearModel, group: ClientGroup, slope: float) -> float:
    """sup of E||g - Eg||^2 <= E||g - c||^2 for g_i = w_i v_i with any w_i in [0, 1]; for logistic v = -b a, c = alpha mean v."""
    squares = model.norms[group.rows] ** 2
    if model.loss.targets != "signs":
        return slope**2 * float(np.mean(squares))
    signs = -model.targets[group.rows].astype(np.float64)
    center = model.transposed_times(group.rows, signs * group.mean_weights)
    products, size = signs * model.times(group.rows, center), float(center @ center)

    def bound(alpha: float) -> float:  # mean_i max(||c||^2, ||v_i - c||^2)
        return alpha**2 * size + float(np.mean(np.maximum(squares - 2 * alpha * products, 0)))

    best: Any = minimize_scalar(bound, bounds=(0, 2), method="bounded")
    return min(bound(0.0), float(best.fun))


def _bounded_heterogeneity(model: LinearModel, reach: Sequence[float], slopes: str) -> ConstantValue:
    if len(model.groups) == 1:
        return HOMOGENEOUS
    total = sum(g.weight * r for g, r in zip(model.groups, reach, strict=True))
    values = [(1 - g.weight) * r + total - g.weight * r for g, r in zip(model.groups, reach, strict=True)]
    value, client = _largest(model.groups, values)
    how = f"certified upper bound: (1 - p_m) ||g_m|| + sum_k p_k ||g_k|| over the others, {slopes}, client {client}"
    return ConstantValue(value, how, True)


def _of_squares(
    model: LinearModel, region: Region, batch_size: int | None, spectra: Sequence[float]
) -> dict[str, ConstantValue]:
    x, r = model.coefficients(region.solution), region.radius
    slopes = model.loss.slope(model.times(slice(0, model.count), x), model.targets)
    reach = (np.abs(slopes) + 2 * r * model.norms) * model.norms  # of 2 (a'x - b) a in the ball
    variances = [_variance_in_ball(model, g, slopes[g.rows], r) for g in model.groups]
    fourths = [fourth_moment(reach[g.rows], v) for g, v in zip(model.groups, variances, strict=True)]
    norms = float(np.max(reach))
    if batch_size is None:
        gradients = [model.transposed_times(g.rows, slopes[g.rows] * g.mean_weights) for g in model.groups]
        norms = max(float(np.linalg.norm(g)) + 2 * r * top for g, top in zip(gradients, spectra, strict=True))
    bound = f"certified upper bound {region}:"
    how = f"{bound} residuals there are at most those at x* plus radius times ||a||"
    return {
        "strong_convexity": _least_curvature(model),
        **_noise(model, variances, fourths, batch_size, f"{bound} the variance is quadratic in x"),
        "heterogeneity": _heterogeneity_in_ball(model, slopes, region, spectra),
        "gradient_bound": ConstantValue(norms + _pull(model, region), how, True),
    }


def _variance_in_ball(model: LinearModel, group: ClientGroup, slopes: np.ndarray, radius: float) -> float:
    """c0 + 2 radius ||c1|| + radius^2 lambda_max(C2), where E||g - Eg||^2 = c0 + 2 c1'd + d'C2 d at x* + d."""
    rows, w, squares = group.rows, group.mean_weights, model.norms[group.rows] ** 2
    mean = model.transposed_times(rows, w * slopes)
    c0 = float(np.sum(w * squares * slopes**2) - mean @ mean)

    def second(v: np.ndarray) -> np.ndarray:  # 4 (mean ||a||^2 aa' - (mean aa')^2) v
        s = model.times(rows, v)
        inner = model.times(rows, model.transposed_times(rows, w * s))
        return 4 * model.transposed_times(rows, w * (squares * s - inner))

    inner = model.times(rows, mean)
    c1 = 2 * model.transposed_times(rows, w * (squares * slopes - inner))
    if model.dense:
        gram = model.gram(rows, w)
        top = float(np.linalg.eigvalsh(4 * (model.gram(rows, w * squares) - gram @ gram))[-1])
    else:
        top = krylov_top(second, model.size)
    return max(c0, 0.0) + 2 * radius * float(np.linalg.norm(c1)) + radius**2 * max(top, 0.0)


def _least_curvature(model: LinearModel) -> ConstantValue:
    if model.size > LEAST:
        how = "certified lower bound: l2, for so many parameters"
        return ConstantValue(0.0 if model.first else model.l2, how, True)
    value = least_eigenvalue(model.gram(slice(0, model.count), 2 * model.example_weights, model.l2))
    return ConstantValue(value, "exact: smallest eigenvalue of the Hessian of F", True)


def _heterogeneity_in_ball(
    model: LinearModel, slopes: np.ndarray, region: Region, spectra: Sequence[float]
) -> ConstantValue:
    if len(model.groups) == 1:
        return HOMOGENEOUS
    mean = model.transposed_times(slice(0, model.count), model.example_weights * slopes)
    shifts = [model.transposed_times(g.rows, slopes[g.rows] * g.mean_weights) - mean for g in model.groups]
    if model.dense:
        gram = model.gram(slice(0, model.count), model.example_weights)
        bends = [2 * float(np.linalg.norm(model.gram(g.rows, g.mean_weights) - gram, 2)) for g in model.groups]
    else:  # H_m and H are positive semidefinite, so H_m - H is no larger than both
        total = sum(g.weight * top for g, top in zip(model.groups, spectra, strict=True))
        bends = [2 * max(top, total) for top in spectra]
    return affine_heterogeneity([g.client for g in model.groups], shifts, bends, 2 * max(spectra), region)


def affine_heterogeneity(
    clients: Sequence[int], shifts: Sequence[np.ndarray], bends: Sequence[float], smoothness: float, region: Region
) -> ConstantValue:
    """||shift_m + (H_m - H) d|| for ||d|| <= radius, ||H_m - H|| = bend_m."""
    sizes = [float(np.linalg.norm(shift)) for shift in shifts]
    if max(bends) <= ROUNDING * smoothness:
        best = int(np.argmax(sizes))
        return ConstantValue(sizes[best], f"exact everywhere: the Hessians are equal, client {clients[best]}", True)
    values = [size + region.radius * bend for size, bend in zip(sizes, bends, strict=True)]
    best = int(np.argmax(values))
    how = f"certified upper bound {region}: its value at x* plus radius ||H_m - H||, client {clients[best]}"
    return ConstantValue(values[best], how, True)


def _noise(
    model: LinearModel, variances: Sequence[float], fourths: Sequence[float], batch_size: int | None, how: str
) -> dict[str, ConstantValue]:
    if batch_size is None:
        return {"noise": FULL, "fourth_moment": FULL}
    pairs = [batch_moments(v, f, batch_size) for v, f in zip(variances, fourths, strict=True)]
    (noise, client), (fourth, other) = (_largest(model.groups, each) for each in zip(*pairs, strict=True))
    return {
        "noise": ConstantValue(noise, f"{how}, client {client}", True),
        "fourth_moment": ConstantValue(fourth, f"{how}, client {other}", True),
    }


def _pull(model: LinearModel, region: Region) -> float:
    """Return the largest norm of the penalty's gradient in the region."""
    weights = model.coefficients(region.solution)[model.first :]
    return model.l2 * min(float(np.linalg.norm(weights)) + region.radius, region.largest_norm) if model.l2 else 0.0


def _largest(groups: Sequence[ClientGroup], values: Sequence[float]) -> tuple[float, int]:
    best = int(np.argmax(values))
    return float(values[best]), groups[best].client
