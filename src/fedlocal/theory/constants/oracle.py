"""Exact constants of quadratics and the piecewise quadratic."""

import math
from typing import Any

import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.problems import Oracle
from fedlocal.problems.oracle import normal_draw, piecewise_value, quadratic_value
from fedlocal.theory.constants.client_groups import gradient_norms, group_clients
from fedlocal.theory.constants.gradient_samples import DRAWS, GradientSampler
from fedlocal.theory.constants.linear import affine_heterogeneity
from fedlocal.theory.constants.types import FULL, SAME, ConstantValue, EstimationTask, ProblemConstants
from fedlocal.util.linalg import ROUNDING, least_eigenvalue


def oracle_constants(task: EstimationTask) -> ProblemConstants | None:
    """Return all constants of a problem made by `quadratics` or `piecewise_quadratic`; None for other problems."""
    problem = task.problem
    plain = isinstance(problem, Oracle) and problem.gradient_fn is None
    value = getattr(problem, "value", None) if plain else None
    func = getattr(value, "func", None)
    constants = _of_quadratics if func is quadratic_value else _of_piecewise if func is piecewise_value else None
    return (
        None if constants is None else constants(task, *(np.asarray(a, np.float64) for a in getattr(value, "args", ())))
    )


def _of_quadratics(task: EstimationTask, matrices: np.ndarray, optima: np.ndarray) -> ProblemConstants:
    """F_m(x) = 1/2 (x - c_m)' A_m (x - c_m)."""
    matrices = (matrices + np.swapaxes(matrices, 1, 2)) / 2
    tops = np.max(np.abs(np.linalg.eigvalsh(matrices)), axis=1)
    mean = np.tensordot(task.p, matrices, 1)
    lowest = float(np.linalg.eigvalsh(mean)[0])
    top, client = float(tops.max()), int(tops.argmax())
    gradients = np.einsum("mij,mj->mi", matrices, task.region.solution - optima)
    result = ProblemConstants()
    if lowest < -ROUNDING * top:
        result.warnings.append(f"F is not convex: its matrix has the eigenvalue {lowest:.4g}")
    bends = np.linalg.norm(matrices - mean, 2, axis=(1, 2))
    if (matrices == matrices[0]).all() and (optima == optima[0]).all():
        heterogeneity = SAME
    else:
        if bends.max() > ROUNDING * top:
            result.warn_of_ball("clients with unequal matrices have no bounded heterogeneity", task.region)
        shifts = list(gradients - task.p @ gradients)
        heterogeneity = affine_heterogeneity(range(len(shifts)), shifts, bends.tolist(), top, task.region)
    least, how = least_eigenvalue(mean), f"exact: largest eigenvalue of the clients' matrices, client {client}"
    result.found = {
        "smoothness": ConstantValue(top, how, True),
        "strong_convexity": ConstantValue(least, "exact: smallest eigenvalue of the mean matrix", True),
        "third_order": ConstantValue(0.0, "exact: the Hessians are constant", True),
        "heterogeneity": heterogeneity,
        **oracle_noise(task),
    }
    norms = float(np.max(np.linalg.norm(gradients, axis=1) + task.region.radius * tops))
    return _completed(result, task, norms)


def _of_piecewise(task: EstimationTask, right: np.ndarray, left: np.ndarray) -> ProblemConstants:
    """F(x) = right x^2 for x >= 0, left x^2 for x < 0."""
    low, high = sorted((2 * float(right), 2 * float(left)))
    bend = ConstantValue(0.0, "exact: the second derivative is constant", True)
    jump = ConstantValue(None, "the second derivative jumps at 0", False)
    found = {
        "smoothness": ConstantValue(high, "exact: twice the larger coefficient", True),
        "strong_convexity": ConstantValue(low, "exact: twice the smaller coefficient", True),
        "third_order": bend if low == high else jump,
        "heterogeneity": SAME,
        **oracle_noise(task),
    }
    reach = abs(float(task.region.solution)) + task.region.radius
    return _completed(ProblemConstants(found), task, high * reach)


def oracle_noise(task: EstimationTask) -> dict[str, ConstantValue]:
    """Return the moments of the noise: exact if it is zero or normal (||n||^2 / noise_std^2 is chi-square), else sampled."""
    noise: Any = task.problem.noise  # pyright: ignore[reportAttributeAccessIssue]
    if noise is None or task.batch_size is None:
        return {"noise": FULL, "fourth_moment": FULL}
    if noise.func is not normal_draw:
        second, fourth = GradientSampler(task).noises(task.path)
        how = f"largest of {len(task.path)} points, {DRAWS} draws, not a bound"
        return {"noise": ConstantValue(second, how, False), "fourth_moment": ConstantValue(fourth, how, False)}
    d, size = ravel_pytree(task.region.solution)[0].size, float(noise.args[0]) / math.sqrt(task.batch_size)
    how = f"exact: normal noise in {d} coordinates"
    return {
        "noise": ConstantValue(math.sqrt(d) * size, how, True),
        "fourth_moment": ConstantValue((d * (d + 2)) ** 0.25 * size, how, True),
    }


def _completed(result: ProblemConstants, task: EstimationTask, norms: float) -> ProblemConstants:
    """Add the gradient bound (`norms` if there is no noise) and the local values."""
    found, local = result.found, result.local
    if found["noise"].value:
        found["gradient_bound"] = ConstantValue(None, "normal noise is not bounded", False)
    else:
        result.warn_of_ball("gradients of a quadratic are not bounded over all x", task.region)
        how = f"certified upper bound {task.region}: norms at x* plus radius times L"
        found["gradient_bound"] = ConstantValue(norms, how, True)
    names = ("smoothness", "strong_convexity", "third_order", "noise", "fourth_moment")
    local |= {name: found[name].value for name in names}
    local["heterogeneity"], local["gradient_bound"] = 0.0, None
    problem, groups = task.problem, group_clients(task.problem, task.p)
    if found["heterogeneity"].value != 0:
        local["heterogeneity"] = float(max(gradient_norms(problem, groups, x, task.p).max() for x in task.path))
    if found["gradient_bound"].value is not None:
        local["gradient_bound"] = float(max(gradient_norms(problem, groups, x).max() for x in task.path))
    return result
