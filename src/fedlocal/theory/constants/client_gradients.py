"""Norms of the clients' full gradients."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, Params
from fedlocal.problems.smooth_part import SmoothPart, smooth_part_of
from fedlocal.theory.constants.client_groups import ClientGroup


def gradient_norms(problem: AbstractProblem, groups: Sequence[ClientGroup], x: Params) -> np.ndarray:
    """Return ||grad F_m(x)|| of each group."""
    x = jax.tree.map(jnp.asarray, x)
    return np.asarray(_norms(problem, x, jax.tree.map(jnp.zeros_like, x), _clients(groups)))


def distances_from_mean(
    problem: AbstractProblem, p: np.ndarray, groups: Sequence[ClientGroup], x: Params
) -> np.ndarray:
    """Return ||grad F_m(x) - grad F(x)|| of each group."""
    x = jax.tree.map(jnp.asarray, x)
    return np.asarray(_norms(problem, x, _gradient(smooth_part_of(problem, p), x), _clients(groups)))


@eqx.filter_jit
def _norms(problem: AbstractProblem, x: Params, center: Params, clients: jax.Array) -> jax.Array:
    return jax.lax.map(lambda m: optax.tree.norm(optax.tree.sub(problem.full_gradient(x, m), center)), clients)


@eqx.filter_jit
def _gradient(smooth: SmoothPart, x: Params) -> Params:
    return smooth.value_and_gradient(x)[1]


def _clients(groups: Sequence[ClientGroup]) -> jax.Array:
    return jnp.asarray([g.client for g in groups])
