"""GradientSampler: estimates constants at a point from stochastic gradients of sampled clients."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, Params
from fedlocal.problems import Oracle
from fedlocal.problems.data_problem import DataProblem, cast_like
from fedlocal.theory.constants import client_groups
from fedlocal.theory.constants.types import EstimationTask
from fedlocal.util.placement import on_device

CLIENTS = 8  # largest number of sampled groups of clients
DRAWS = 256  # examples, or draws of noise, per client
POWER_STEPS = 30
DIFFERENCE = 1e-4  # relative step of the finite differences of Hessians


class GradientSampler:
    """Sampled clients and examples of a problem."""

    def __init__(self, task: EstimationTask):
        self.problem: Any = task.problem
        self.p, self.batch_size, self.rng = task.p, task.batch_size, task.rng
        self.every = client_groups.group_clients(task.problem, task.p)
        self.groups = client_groups.sample_groups(self.every, CLIENTS, task.rng)
        self.draws = [self._draws(g) for g in self.groups]

    def _draws(self, group: client_groups.ClientGroup) -> tuple[jax.Array, jax.Array]:
        """Return (DRAWS,) rows, or seeds of random keys if there are no examples, and their weights."""
        n = group.size or DRAWS
        if n > DRAWS:
            rows = group.rows.start + self.rng.choice(n, DRAWS, replace=False)
            return on_device(rows), on_device(np.full(DRAWS, 1 / DRAWS))
        places = np.arange(DRAWS)
        return on_device(group.rows.start + np.minimum(places, n - 1)), on_device((places < n) / n)

    def at(self, x: Params) -> dict[str, float]:
        """Return each constant at x, the largest over the sampled clients."""
        start = jax.tree.map(lambda a: on_device(self.rng.standard_normal(a.shape)), x)
        bends = [_hessian_norms(self.problem, x, jnp.asarray(g.client), start) for g in self.groups]
        spreads = self._spreads(x)
        noise, fourth = self._of_batches(spreads)
        norms = [float(s[2]) for s in spreads]
        if self.batch_size is None:
            norms = client_groups.gradient_norms(self.problem, self.groups, x)
        several = len(self.every) > 1
        apart = client_groups.gradient_norms(self.problem, self.every, x, self.p) if several else [0.0]
        return {
            "smoothness": max(float(b[0]) for b in bends),
            "third_order": max(float(b[1]) for b in bends),
            "noise": noise,
            "fourth_moment": fourth,
            "heterogeneity": float(max(apart)),
            "gradient_bound": float(max(norms)),
        }

    def noises(self, points: Sequence[Params]) -> tuple[float, float]:
        """Return the largest second and fourth moments of the noise over points and clients."""
        return self._of_batches([spread for x in points for spread in self._spreads(x)])

    def _spreads(self, x: Params) -> list[Any]:
        pairs = zip(self.groups, self.draws, strict=True)
        return [_moments(self.problem, x, jnp.asarray(g.client), *draws) for g, draws in pairs]

    def _of_batches(self, moments: Sequence[Any]) -> tuple[float, float]:
        each = [client_groups.batch_moments(float(m[0]), float(m[1]), self.batch_size) for m in moments]
        return max(e[0] for e in each), max(e[1] for e in each)


@eqx.filter_jit
def _hessian_norms(problem: AbstractProblem, x: Params, client: jax.Array, v: Params) -> tuple[jax.Array, jax.Array]:
    """Return the norms of the second and third derivatives of F_m at x, by the power method from v."""

    def hessian(x: Params, v: Params) -> Params:
        return jax.jvp(lambda z: problem.full_gradient(z, client), (x,), (v,))[1]

    h = DIFFERENCE * jnp.maximum(1, optax.tree.norm(x))

    def bend(v: Params) -> Params:  # the Hessian's change along v, times v: largest at equal arguments by symmetry
        ahead, behind = (hessian(optax.tree.add_scale(x, s * h, v), v) for s in (1, -1))
        return jax.tree.map(lambda a, b: (a - b) / (2 * h), ahead, behind)

    return _power(lambda v: hessian(x, v), v), _power(bend, v)


def _power(product: Any, v: Params) -> jax.Array:
    def step(_: Any, state: tuple[Params, jax.Array]) -> tuple[Params, jax.Array]:
        v, best = state
        w = product(v)
        return _unit(w, v), jnp.maximum(best, optax.tree.norm(w))

    return jax.lax.fori_loop(0, POWER_STEPS, step, (_unit(v, v), jnp.zeros(())))[1]


def _unit(v: Params, otherwise: Params) -> Params:
    size = optax.tree.norm(v)
    return jax.tree.map(lambda a, b: jnp.where(size > 0, a / jnp.where(size > 0, size, 1), b), v, otherwise)


@eqx.filter_jit
def _moments(
    problem: Any, x: Params, client: jax.Array, draws: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return E||g - Eg||^2, E||g - Eg||^4 and max ||g|| over stochastic gradients g of one example, or of one draw of noise."""
    exact = isinstance(problem, Oracle)
    center = problem.full_gradient(x, client) if exact else _mean_gradient(problem, x, draws, weights)

    def sizes(draw: jax.Array) -> tuple[jax.Array, jax.Array]:
        g = center if exact else _mean_gradient(problem, x, draw[None], jnp.ones(1))
        if exact and problem.noise is not None:
            g = optax.tree.add(center, problem.noise(jax.random.key(draw), x, client))
        return optax.tree.norm(optax.tree.sub(g, center), squared=True), optax.tree.norm(g)

    spread, norms = jax.lax.map(sizes, draws, batch_size=16)
    return jnp.sum(weights * spread), jnp.sum(weights * spread**2), jnp.max(jnp.where(weights > 0, norms, 0))


def _mean_gradient(problem: DataProblem, x: Params, rows: jax.Array, weights: jax.Array) -> Params:
    examples = cast_like(problem.data.take(rows), x)
    return jax.grad(lambda x: jnp.sum(weights * problem.losses(x, examples)) + problem.penalty(x))(x)
