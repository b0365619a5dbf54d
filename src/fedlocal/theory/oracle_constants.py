"""Constants of problems that are formulas: quadratics and the piecewise quadratic, with normal noise or another."""

import math
from typing import Any

import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import AbstractProblem
from fedlocal.problems import Oracle
from fedlocal.problems.oracle import normal_draw, piecewise_value, quadratic_value
from fedlocal.theory.client_gradients import distances_from_mean, gradient_norms
from fedlocal.theory.client_groups import groups_of
from fedlocal.theory.finding import FULL, SAME, Findings, Found, Search
from fedlocal.theory.gradient_samples import DRAWS, Sampler
from fedlocal.theory.linear_constants import affine_heterogeneity
from fedlocal.theory.linear_model import ROUNDING, least_eigenvalue


def are_quadratics(problem: AbstractProblem) -> bool:
    """Whether it was made by `quadratics`."""
    return _is_formula(problem, quadratic_value)


def is_piecewise(problem: AbstractProblem) -> bool:
    """Whether it was made by `piecewise_quadratic`."""
    return _is_formula(problem, piecewise_value)


def find_quadratics(search: Search) -> Findings:
    """All constants of F_m(x) = 1/2 (x - c_m)' A_m (x - c_m)."""
    matrices, optima = _arguments(search)
    matrices = (matrices + np.swapaxes(matrices, 1, 2)) / 2
    tops = np.max(np.abs(np.linalg.eigvalsh(matrices)), axis=1)
    mean = np.tensordot(search.p, matrices, 1)
    lowest = float(np.linalg.eigvalsh(mean)[0])
    top, client = float(tops.max()), int(tops.argmax())
    gradients = np.einsum("mij,mj->mi", matrices, search.region.solution - optima)
    findings = Findings()
    if lowest < -ROUNDING * top:
        findings.warnings.append(f"F is not convex: its matrix has the eigenvalue {lowest:.4g}")
    bends = np.linalg.norm(matrices - mean, 2, axis=(1, 2))
    if (matrices == matrices[0]).all() and (optima == optima[0]).all():
        heterogeneity = SAME
    else:
        if bends.max() > ROUNDING * top:
            findings.warn_of_ball("clients with unequal matrices have no bounded heterogeneity", search.region)
        shifts = list(gradients - search.p @ gradients)
        heterogeneity = affine_heterogeneity(range(len(shifts)), shifts, bends.tolist(), top, search.region)
    how = f"exact: largest eigenvalue of the clients' matrices, client {client}"
    findings.found = {
        "smoothness": Found(top, how, True),
        "strong_convexity": Found(least_eigenvalue(mean), "exact: smallest eigenvalue of the mean matrix", True),
        "third_order": Found(0.0, "exact: the Hessians are constant", True),
        "heterogeneity": heterogeneity,
        **oracle_noise(search),
    }
    norms = float(np.max(np.linalg.norm(gradients, axis=1) + search.region.radius * tops))
    return _completed(findings, search, norms)


def find_piecewise(search: Search) -> Findings:
    """All constants of F(x) = right x^2 for x >= 0, left x^2 for x < 0."""
    right, left = map(float, _arguments(search))
    bend = Found(0.0, "exact: the second derivative is constant", True)
    jump = Found(None, "the second derivative jumps at 0", False)
    found = {
        "smoothness": Found(2 * max(right, left), "exact: twice the larger coefficient", True),
        "strong_convexity": Found(2 * min(right, left), "exact: twice the smaller coefficient", True),
        "third_order": bend if right == left else jump,
        "heterogeneity": SAME,
        **oracle_noise(search),
    }
    reach = abs(float(search.region.solution)) + search.region.radius
    return _completed(Findings(found), search, 2 * max(right, left) * reach)


def oracle_noise(search: Search) -> dict[str, Found]:
    """Exact for noise that is none or normal: ||n||^2 is noise_std^2 times a chi-square of d degrees."""
    noise: Any = search.problem.noise  # pyright: ignore[reportAttributeAccessIssue]
    if noise is None or search.batch_size is None:
        return {"noise": FULL, "fourth_moment": FULL}
    if noise.func is not normal_draw:
        second, fourth = Sampler(search).noises(search.path)
        how = f"largest of {len(search.path)} points, {DRAWS} draws, not a bound"
        return {"noise": Found(second, how, False), "fourth_moment": Found(fourth, how, False)}
    d, size = ravel_pytree(search.region.solution)[0].size, float(noise.args[0]) / math.sqrt(search.batch_size)
    how = f"exact: normal noise in {d} coordinates"
    return {
        "noise": Found(math.sqrt(d) * size, how, True),
        "fourth_moment": Found((d * (d + 2)) ** 0.25 * size, how, True),
    }


def _completed(findings: Findings, search: Search, norms: float) -> Findings:
    """With the gradient bound, `norms` where there is no noise, and the local values."""
    found, local = findings.found, findings.local
    if found["noise"].value:
        found["gradient_bound"] = Found(None, "normal noise is not bounded", False)
    else:
        findings.warn_of_ball("gradients of a quadratic are not bounded over all x", search.region)
        how = f"certified upper bound {search.region}: norms at x* plus radius times L"
        found["gradient_bound"] = Found(norms, how, True)
    names = ("smoothness", "strong_convexity", "third_order", "noise", "fourth_moment")
    local |= {name: found[name].value for name in names}
    local["heterogeneity"], local["gradient_bound"] = 0.0, None
    problem, groups = search.problem, groups_of(search.problem, search.p)
    if found["heterogeneity"].value != 0:
        apart = [distances_from_mean(problem, search.p, groups, x).max() for x in search.path]
        local["heterogeneity"] = float(max(apart))
    if found["gradient_bound"].value is not None:
        local["gradient_bound"] = float(max(gradient_norms(problem, groups, x).max() for x in search.path))
    return findings


def _is_formula(problem: AbstractProblem, formula: Any) -> bool:
    if not isinstance(problem, Oracle) or problem.gradient_fn is not None:
        return False
    return getattr(problem.value, "func", None) is formula


def _arguments(search: Search) -> tuple[np.ndarray, ...]:
    """What the formula was given."""
    value: Any = search.problem.value  # pyright: ignore[reportAttributeAccessIssue]
    return tuple(np.asarray(a, np.float64) for a in value.args)
