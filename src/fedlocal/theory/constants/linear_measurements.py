"""Constants of a linear model, measured at given points."""

import math
from collections.abc import Sequence

import numpy as np

from fedlocal.core import Params
from fedlocal.losses import SoftmaxLoss
from fedlocal.theory.constants.client_groups import ClientGroup, batch_moments
from fedlocal.theory.constants.linear_model import LinearModel
from fedlocal.util.linalg import krylov_top, least_eigenvalue


def measure_along_path(
    model: LinearModel, points: Sequence[Params], hessians: Sequence[ClientGroup], batch_size: int | None
) -> dict[str, float]:
    """Return the largest value of each constant at these points (the smallest for mu); Hessians of some groups."""
    rows: list[dict[str, float]] = []
    for x in map(model.coefficients, points):
        scores = model.times(slice(0, model.count), x)
        row = _gradients_at(model, x, model.loss.slope(scores, model.targets), batch_size)
        third = model.loss.third_size(scores, model.targets)
        if isinstance(model.loss, SoftmaxLoss):
            curvature = model.loss.probabilities(scores)
        else:
            curvature = model.loss.curvature(scores, model.targets)
        row["smoothness"] = max(_top_curvature(model, g, curvature[g.rows]) for g in hessians)
        cubes = third * model.norms
        row["third_order"] = max(model.top_eigenvalue(g.rows, cubes[g.rows] * g.mean_weights) for g in hessians)
        row["strong_convexity"] = 0.0 if model.first else model.l2
        if model.loss.outputs == 1 and model.dense:  # softmax has no curvature along equal shifts of all classes
            weights = model.example_weights * curvature
            row["strong_convexity"] = least_eigenvalue(model.gram(slice(0, model.count), weights, model.l2))
        rows.append(row)
    return {name: (min if name == "strong_convexity" else max)(row[name] for row in rows) for name in rows[0]}


def _gradients_at(model: LinearModel, x: np.ndarray, slopes: np.ndarray, batch_size: int | None) -> dict[str, float]:
    mean = model.transposed_times(slice(0, model.count), (model.example_weights * slopes.T).T)
    pull = model.l2 * (model.penalized * x.T).T
    noise, fourth, apart, norm = 0.0, 0.0, 0.0, 0.0
    for g in model.groups:
        u, own = slopes[g.rows], model.transposed_times(g.rows, slopes[g.rows] / g.size)
        squares = model.norms[g.rows] ** 2 * (u * u if u.ndim == 1 else np.sum(u * u, axis=1))  # ||g_i||^2
        spread = _plus(model, g.rows, u, squares, -own)
        sigma, sigma4 = batch_moments(float(np.mean(spread)), float(np.mean(spread**2)), batch_size)
        noise, fourth = max(noise, sigma), max(fourth, sigma4)
        apart = max(apart, float(np.linalg.norm(own - mean)))
        if batch_size is None:
            norm = max(norm, float(np.linalg.norm(own + pull)))
        else:
            norm = max(norm, math.sqrt(np.max(_plus(model, g.rows, u, squares, pull))))
    apart = 0.0 if len(model.groups) == 1 else apart
    return {"noise": noise, "fourth_moment": fourth, "heterogeneity": apart, "gradient_bound": norm}


def optimum_heterogeneity(model: LinearModel, x: Params) -> float:
    """Return sqrt(sum_m p_m ||grad F_m(x) - grad F(x)||^2)."""
    slopes = model.loss.slope(model.times(slice(0, model.count), model.coefficients(x)), model.targets)
    mean = model.transposed_times(slice(0, model.count), (model.example_weights * slopes.T).T)
    apart = [model.transposed_times(g.rows, slopes[g.rows] / g.size) - mean for g in model.groups]
    return math.sqrt(sum(g.weight * float(np.sum(a * a)) for g, a in zip(model.groups, apart, strict=True)))


def separates(model: LinearModel, x: Params) -> bool:
    """Return True if x classifies every example correctly, so that the loss of its multiples tends to zero."""
    scores = model.times(slice(0, model.count), model.coefficients(x))
    if model.loss.outputs == 1:
        return bool(np.all(model.targets * scores > 0))
    right = np.take_along_axis(scores, model.targets[:, None], axis=1)
    return bool(np.all(np.sum(scores >= right, axis=1) == 1))


def _plus(model: LinearModel, rows: slice, u: np.ndarray, squares: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """(n,) ||a_i u_i' + shift||^2."""
    products = u * model.times(rows, shift)
    products = products if u.ndim == 1 else np.sum(products, axis=1)
    return np.maximum(squares + 2 * products + np.sum(shift * shift), 0)


def _top_curvature(model: LinearModel, group: ClientGroup, curvature: np.ndarray) -> float:
    if model.loss.outputs == 1:
        return model.top_eigenvalue(group.rows, curvature * group.mean_weights, model.l2)
    p, shape = curvature, (model.size, *model.outputs)

    def product(v: np.ndarray) -> np.ndarray:  # p are the probabilities: the Hessian of a score is diag p - pp'
        v = v.reshape(shape)
        s = p * model.times(group.rows, v)
        s = (s - p * np.sum(s, axis=1, keepdims=True)) / len(p)
        return np.ravel(model.transposed_times(group.rows, s) + model.l2 * model.penalized[:, None] * v)

    return krylov_top(product, math.prod(shape))
