"""Constants of problems without formulas: the largest that are sampled, which are no bounds."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import Params
from fedlocal.problems import MLP, Oracle
from fedlocal.theory.finding import FULL, HOMOGENEOUS, Findings, Found, Search
from fedlocal.theory.gradient_samples import Sampler
from fedlocal.theory.oracle_constants import oracle_noise

POINTS = 16  # with those of the path


def find_sampled(search: Search) -> Findings:
    """All constants of a problem that is only known by its gradients."""
    sampler, problem, path = Sampler(search), search.problem, search.path
    points = [*path, *(_random_point(search) for _ in range(POINTS - len(path)))]
    rows = [sampler.at(x) for x in points]
    how = f"largest of {POINTS} points {search.region} and {len(sampler.groups)} clients, not a bound"
    found = {name: Found(max(row[name] for row in rows), how, False) for name in rows[0]}
    local: dict[str, float | None] = {name: max(row[name] for row in rows[: len(path)]) for name in rows[0]}
    if isinstance(problem, Oracle):
        found |= oracle_noise(search)
        local |= {name: found[name].value for name in ("noise", "fourth_moment")}
    if search.batch_size is None:
        found |= {"noise": FULL, "fourth_moment": FULL}
    if len(sampler.every) == 1:
        found["heterogeneity"] = HOMOGENEOUS
    found["strong_convexity"] = Found(0.0, "not known; 0 is right for every convex F", False)
    local["strong_convexity"] = 0.0
    if isinstance(problem, MLP):
        found["third_order"] = Found(None, "rectifiers have no continuous Hessian", False)
        local["third_order"] = None
    warning = "no formula for this kind of problem: its constants are the largest sampled, not bounds"
    return Findings(found, local, [warning])


def _random_point(search: Search) -> Params:
    center, unravel = ravel_pytree(jax.tree.map(jnp.asarray, search.region.solution))
    step = search.rng.standard_normal(center.size)
    length = search.region.radius * search.rng.random() / np.linalg.norm(step)
    return unravel(center + length * step)
