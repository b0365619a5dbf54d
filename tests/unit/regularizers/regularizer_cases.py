"""Every regulariser from one table, and what its tests share."""

from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from fedlocal.core import Params, Regularizer
from fedlocal.regularizers import (
    L1,
    Blocks,
    Box,
    ElasticNet,
    GroupL1,
    L1Ball,
    L2Ball,
    L2Norm,
    LInf,
    LInfBall,
    Lp,
    Monotone,
    NonNegative,
    Nuclear,
    NuclearBall,
    Simplex,
    SquaredL2,
    TotalVariation,
    Zero,
)
from unit.one_program import for_each

SHAPE = (3, 2)  # of the weights: a matrix, so that the nuclear norm has something to do
CHAINS = (TotalVariation, Monotone)  # for these the weights are a vector


class Case(NamedTuple):
    """A regulariser on {"weights": shape(psi), "intercept": ()}, and the same in the language of cvxpy."""

    psi: Regularizer
    value: Callable[[Any, Any], Any]  # (weights, intercept) -> psi, where finite
    constraints: Callable[[Any, Any], list[Any]]
    finite: bool = True  # whether psi is finite everywhere


def _finite(psi: Regularizer, value: Callable[[Any], Any]) -> Case:
    return Case(psi, lambda w, b: value(w), lambda w, b: [])


def _constraint(psi: Regularizer, constraints: Callable[[Any], list[Any]]) -> Case:
    return Case(psi, lambda w, b: 0.0, lambda w, b: constraints(w), finite=False)


LOWER = np.array([[-0.5, 0.1], [-2.0, -1.0], [0.3, -np.inf]])
UPPER = np.array([[0.5, 1.1], [-1.0, 0.0], [1.3, 0.2]])
LABELS = np.array([[0, 2], [1, 0], [2, 2]])
STRENGTHS = np.array([0.3, 0.9, 0.5])


def _group_norms(w: Any) -> Any:
    members = [[w[i, j] for i, j in np.argwhere(label == LABELS)] for label in range(3)]
    return sum(s * cp.norm(cp.hstack(x), 2) for s, x in zip(STRENGTHS, members, strict=True))


CASES: dict[str, Case] = {
    "zero": _finite(Zero(), lambda w: 0.0),
    "l1": _finite(L1(0.7), lambda w: 0.7 * cp.sum(cp.abs(w))),
    "squared_l2": _finite(SquaredL2(0.4), lambda w: 0.2 * cp.sum_squares(w)),
    "nuclear": _finite(Nuclear(0.6), lambda w: 0.6 * cp.normNuc(w)),
    "l2_norm": _finite(L2Norm(0.9), lambda w: 0.9 * cp.norm(w, "fro")),
    "elastic_net": _finite(ElasticNet(0.3, 0.5), lambda w: 0.3 * cp.sum(cp.abs(w)) + 0.25 * cp.sum_squares(w)),
    "group_l1_of_rows": _finite(GroupL1(0.6), lambda w: 0.6 * cp.sum(cp.norm(w, 2, axis=1))),
    "group_l1_of_labels": _finite(GroupL1(STRENGTHS, LABELS), _group_norms),
    "linf": _finite(LInf(0.8), lambda w: 0.8 * cp.max(cp.abs(w))),
    "lp_below_2": _finite(Lp(0.5, 1.5), lambda w: 0.5 * cp.pnorm(cp.vec(w, order="C"), 1.5)),  # pyright: ignore[reportArgumentType]
    "lp_above_2": _finite(Lp(0.5, 3), lambda w: 0.5 * cp.pnorm(cp.vec(w, order="C"), 3)),
    "total_variation": _finite(TotalVariation(0.5), lambda w: 0.5 * cp.tv(w)),
    "l1_ball": _constraint(L1Ball(1.5), lambda w: [cp.sum(cp.abs(w)) <= 1.5]),
    "l2_ball": _constraint(L2Ball(1.2), lambda w: [cp.norm(w, "fro") <= 1.2]),
    "linf_ball": _constraint(LInfBall(0.7), lambda w: [cp.abs(w) <= 0.7]),
    "nuclear_ball": _constraint(NuclearBall(1.1), lambda w: [cp.normNuc(w) <= 1.1]),
    "non_negative": _constraint(NonNegative(), lambda w: [w >= 0]),
    "monotone": _constraint(Monotone(), lambda w: [cp.diff(w) >= 0]),
    "monotone_decreasing": _constraint(Monotone(increasing=False), lambda w: [cp.diff(w) <= 0]),
    "box": _constraint(Box(-0.5, 0.8), lambda w: [w >= -0.5, w <= 0.8]),
    "box_of_arrays": _constraint(
        Box(LOWER, UPPER),
        lambda w: [w[:2] >= LOWER[:2], w[2, 0] >= LOWER[2, 0], w <= UPPER],
    ),
    "simplex": _constraint(Simplex(1.3), lambda w: [w >= 0, cp.sum(w) == 1.3]),
    "blocks": Case(
        Blocks({"weights": L1(0.7), "intercept": SquaredL2(2.0)}),
        lambda w, b: 0.7 * cp.sum(cp.abs(w)) + cp.square(b),
        lambda w, b: [],
    ),
    "blocks_with_constraint": Case(
        Blocks({"weights": Nuclear(0.6), "intercept": Box(-0.5, 0.5)}),
        lambda w, b: 0.6 * cp.normNuc(w),
        lambda w, b: [b >= -0.5, b <= 0.5],
        finite=False,
    ),
}
PSIS = {name: case.psi for name, case in CASES.items()}
FINITE = [name for name, case in CASES.items() if case.finite]
CONSTRAINTS = [name for name, case in CASES.items() if not case.finite and name != "blocks_with_constraint"]
ALONE = [name for name in CASES if not name.startswith("blocks")]

SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0])
numbers = hnp.arrays(np.float64, 7, elements=st.floats(-10, 10, allow_subnormal=False))
vectors = st.builds(np.multiply, numbers, st.sampled_from([1.0, 0.02]))  # small ones lie inside the constraints
steps = st.floats(1e-3, 10)
few = settings(max_examples=12, deadline=None, derandomize=True)  # of points; each is one for every regulariser
over = pytest.mark.parametrize


def shape(psi: Regularizer) -> tuple[int, ...]:
    return (6,) if isinstance(psi, CHAINS) else SHAPE


def params(psi: Regularizer, flat: Any) -> Params:
    """Seven numbers as parameters for psi."""
    flat = jnp.asarray(flat)
    return {"weights": flat[:6].reshape(shape(psi)), "intercept": flat[6]}


def flat(x: Params) -> jax.Array:
    return jnp.concatenate([jnp.ravel(x["weights"]), jnp.ravel(x["intercept"])])


proxes = for_each(lambda psi, x, t: flat(psi.prox(params(psi, x), t)))
values = for_each(lambda psi, x: psi.value(params(psi, x)))
subgradients = for_each(lambda psi, x: flat(psi.subgradient(params(psi, x))))
violations = for_each(lambda psi, x: psi.violation(params(psi, x)))
conjugates = for_each(lambda psi, y: psi.conjugate(params(psi, y)))
gauges = for_each(lambda psi, y: psi.gauge(params(psi, y)))


def without_strength(names: list[str]) -> dict[str, Regularizer]:
    """The table, in which the strengths of these are zero."""
    return PSIS | {name: jax.tree.map(lambda a: a * 0, PSIS[name]) for name in names}


def draw(seed: int, scale: float = 2.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal(7)


def solve(problem: Any) -> None:
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
