"""Constants of other problems: the largest values at sampled points, which are not bounds."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import Params
from fedlocal.problems import MLP, Oracle
from fedlocal.theory.constants.gradient_samples import GradientSampler
from fedlocal.theory.constants.oracle import oracle_noise
from fedlocal.theory.constants.types import FULL, HOMOGENEOUS, ConstantValue, EstimationTask, ProblemConstants

POINTS = 16  # sampled points, including those of the path


def sampled_constants(task: EstimationTask) -> ProblemConstants:
    """Return all constants of a problem of which only gradients are known."""
    sampler, problem, path = GradientSampler(task), task.problem, task.path
    points = [*path, *(_random_point(task) for _ in range(POINTS - len(path)))]
    rows = [sampler.at(x) for x in points]
    how = f"largest of {POINTS} points {task.region} and {len(sampler.groups)} clients, not a bound"
    found = {name: ConstantValue(max(row[name] for row in rows), how, False) for name in rows[0]}
    local: dict[str, float | None] = {name: max(row[name] for row in rows[: len(path)]) for name in rows[0]}
    if isinstance(problem, Oracle):
        found |= oracle_noise(task)
        local |= {name: found[name].value for name in ("noise", "fourth_moment")}
    if task.batch_size is None:
        found |= {"noise": FULL, "fourth_moment": FULL}
    if len(sampler.every) == 1:
        found["heterogeneity"] = HOMOGENEOUS
    found["strong_convexity"] = ConstantValue(0.0, "not known; 0 is right for every convex F", False)
    local["strong_convexity"] = 0.0
    if isinstance(problem, MLP):
        found["third_order"] = ConstantValue(None, "rectifiers have no continuous Hessian", False)
        local["third_order"] = None
    warning = "no formula for this kind of problem: its constants are the largest sampled, not bounds"
    return ProblemConstants(found, local, [warning])


def _random_point(task: EstimationTask) -> Params:
    center, unravel = ravel_pytree(jax.tree.map(jnp.asarray, task.region.solution))
    step = task.rng.standard_normal(center.size)
    length = task.region.radius * task.rng.random() / np.linalg.norm(step)
    return unravel(center + length * step)
