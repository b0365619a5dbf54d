"""Groups of clients that own the same examples, so that each group is evaluated once."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, Params
from fedlocal.problems.smooth_part import SmoothPart, smooth_part_of


class ClientGroup(NamedTuple):
    """All clients that own the same examples."""

    client: int  # the first client of the group
    weight: float  # the sum of their weights in F
    rows: slice  # their examples

    @property
    def size(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def mean_weights(self) -> np.ndarray:
        """(n,) weights 1/n of the mean over the examples."""
        return np.full(self.size, 1 / self.size)


def group_clients(problem: AbstractProblem, p: np.ndarray) -> list[ClientGroup]:
    """Group the clients that have the same rows; without examples, each client is a group with no rows."""
    starts, sizes = problem.starts(), problem.sizes()
    if starts is None or sizes is None:
        return [ClientGroup(m, float(weight), slice(0, 0)) for m, weight in enumerate(p)]
    owned = np.stack([starts, sizes], axis=1)
    intervals, first, index = np.unique(owned, axis=0, return_index=True, return_inverse=True)
    totals = np.bincount(index.ravel(), weights=p)
    return [
        ClientGroup(int(m), float(t), slice(int(a), int(a + n)))
        for (a, n), m, t in zip(intervals, first, totals, strict=True)
    ]


def sample_groups(groups: Sequence[ClientGroup], count: int, rng: np.random.Generator) -> list[ClientGroup]:
    """Return all groups, or `count` of them drawn without replacement if there are more."""
    if len(groups) <= count:
        return list(groups)
    return [groups[i] for i in rng.choice(len(groups), count, replace=False)]


def gradient_norms(
    problem: AbstractProblem, groups: Sequence[ClientGroup], x: Params, p: np.ndarray | None = None
) -> np.ndarray:
    """Return ||grad F_m(x)|| of each group, or ||grad F_m(x) - grad F(x)|| with the clients' weights p in F."""
    x = jax.tree.map(jnp.asarray, x)
    center = jax.tree.map(jnp.zeros_like, x) if p is None else _gradient(smooth_part_of(problem, p), x)
    return np.asarray(_norms(problem, x, center, jnp.asarray([g.client for g in groups])))


@eqx.filter_jit
def _norms(problem: AbstractProblem, x: Params, center: Params, clients: jax.Array) -> jax.Array:
    return jax.lax.map(lambda m: optax.tree.norm(optax.tree.sub(problem.full_gradient(x, m), center)), clients)


@eqx.filter_jit
def _gradient(smooth: SmoothPart, x: Params) -> Params:
    return smooth.value_and_gradient(x)[1]


def batch_moments(variance: float, fourth: float, batch_size: int | None) -> tuple[float, float]:
    r"""Return sigma of E||.||^2 <= sigma^2 and of E||.||^4 <= sigma^4, for the mean of B independent draws n_i of mean zero.

    E||sum n_i||^4 = B E||n||^4 + B (B - 1) ((E||n||^2)^2 + 2 tr(C^2)), since all terms with a lone n_i vanish; C is the
    covariance of n, and tr(C^2) <= (tr C)^2 = (E||n||^2)^2. Hence E||mean||^4 <= (E||n||^4 + 3 (B - 1) (E||n||^2)^2) / B^3.
    `batch_size` None means a full gradient.

    >>> batch_moments(4.0, 16.0, 1)
    (2.0, 2.0)
    """
    if batch_size is None:
        return 0.0, 0.0
    b = batch_size
    return math.sqrt(variance / b), ((fourth + 3 * (b - 1) * variance**2) / b**3) ** 0.25


def fourth_moment(reach: np.ndarray, variance: float) -> float:
    r"""Return a bound of E||g - Eg||^4 for g uniform over vectors with ||g_i|| <= reach_i and E||g - Eg||^2 <= variance.

    The smallest of three, with q_k = mean reach^k, R = max reach and m = ||Eg||:
        (R + q_1)^2 variance;
        27/16 R^4, because ||g - Eg||^2 <= R^2 + m^2 - 2 <g, Eg> has mean R^2 - m^2, and (R + m)^2 (R^2 - m^2) is largest at R/2;
        q_4 + 4 q_1 q_3 + 6 q_1^2 q_2 - 3 q_1^4, from the expansion, which grows in m <= q_1.

    >>> fourth_moment(np.ones(3), 1.0)
    1.6875
    """
    q1, q2, q3, q4 = (float(np.mean(reach**k)) for k in (1, 2, 3, 4))
    top = float(np.max(reach))
    return min((top + q1) ** 2 * variance, 27 / 16 * top**4, q4 + 4 * q1 * q3 + 6 * q1**2 * q2 - 3 * q1**4)
