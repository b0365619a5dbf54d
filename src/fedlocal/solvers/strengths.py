"""The strength from which on every weight is zero: where a path of strengths begins."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Regularizer
from fedlocal.core.types import Weights
from fedlocal.problems.smooth_part import client_weights, smooth_part_of
from fedlocal.regularizers.l1 import L1
from fedlocal.solvers.reference import centralized
from fedlocal.util import checks

HUGE = 1e100


def zero_strength(
    problem: AbstractProblem, make_regularizer: Callable[[float], Regularizer] = L1, *, weights: Weights = "uniform"
) -> float:
    """The smallest strength of a norm at which the solution has no weights: the dual norm of the gradient there.

    Parts that do not depend on the strength (an intercept, a block with a strength of its own) are at their best where the
    weights are zero.

    Args:
        problem: F.
        make_regularizer: a norm times the strength, `ElasticNet` with the strength as l1, or `Blocks` of them.
        weights: of the clients in F, "uniform" or "examples".

    >>> from fedlocal.data.federated_data import FederatedData
    >>> from fedlocal.problems import LeastSquares
    >>> from fedlocal.regularizers import ElasticNet
    >>> data = FederatedData.from_clients([(np.eye(2), np.array([3.0, 1.0]))])
    >>> zero_strength(LeastSquares(data, intercept=False))
    3.0
    >>> zero_strength(LeastSquares(data, intercept=False), lambda strength: ElasticNet(strength, 1.0))
    3.0
    """
    checks.instance("zero_strength", "problem", problem, AbstractProblem)
    one, two, huge = (
        checks.instance("zero_strength", "the result of make_regularizer", make_regularizer(strength), Regularizer)
        for strength in (1.0, 2.0, HUGE)
    )
    with jax.enable_x64(True):
        x = problem.init(jax.random.key(0))
        parts = zip(one.parts(x), two.parts(x), jax.tree.leaves(x), strict=True)
        norms = [None if _same(part, other) else _norm(part, other, a) for part, other, a in parts]
    if all(part is None for part in norms):
        raise TypeError(f"zero_strength: {type(one).__name__} does not depend on the strength")
    empty = centralized(problem, huge, weights=weights, progress=False).x
    with jax.enable_x64(True):
        _, gradient = smooth_part_of(problem, client_weights("zero_strength", problem, weights)).value_and_gradient(
            empty
        )
        found = zip(norms, jax.tree.leaves(gradient), strict=True)
        return max(float(part.array_gauge(a)) for part, a in found if part is not None)


def _same(part: Regularizer, other: Regularizer) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(other), strict=True))


def _norm(part: Regularizer, other: Regularizer, a: jax.Array) -> Regularizer:
    """The norm in a regulariser of strength 1, which has to double with the strength; or say that there is none."""
    name, part, other = type(part).__name__, part.without_squares(), other.without_squares()
    probe = jax.random.normal(jax.random.key(0), jnp.shape(a), float)
    value, double, stronger = (
        float(psi.array_value(x)) for psi, x in ((part, probe), (part, -2 * probe), (other, probe))
    )
    is_norm = 0 < value < np.inf and np.allclose([double, stronger], 2 * value, rtol=1e-9, atol=0)
    # a norm has a dual norm: the gauge is finite everywhere, and zero at zero only
    if not is_norm or not 0 < float(part.array_gauge(probe)) < np.inf:
        raise TypeError(
            f"zero_strength: {name} does not make weights zero from a strength on; norms times the strength do (L1, GroupL1, "
            "L2Norm, LInf, Lp, Nuclear), and ElasticNet with the strength as l1"
        )
    return part
