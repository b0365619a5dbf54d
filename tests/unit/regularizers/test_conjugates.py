"""Every regulariser's conjugate and gauge from the same table: Fenchel-Young, domains, cvxpy."""

from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fedlocal.regularizers import L1, Blocks, Box, ElasticNet, NonNegative, SquaredL2, TotalVariation, Zero
from unit.regularizers.regularizer_cases import (
    ALONE,
    CASES,
    CHAINS,
    FINITE,
    SIGNS,
    conjugate,
    draw,
    few,
    gauge,
    over,
    prox,
    shape,
    solve,
    value,
    vectors,
)

CURVED = ["squared_l2", "elastic_net"]  # psi grows faster than any norm, so psi^* is finite everywhere
NORMS = [name for name in FINITE if name in ALONE and name not in [*CURVED, "zero"]]
CONES = ["zero", "non_negative", "monotone", "monotone_decreasing"]
BOUNDED = ["l1_ball", "l2_ball", "linf_ball", "nuclear_ball", "box", "simplex"]


def test_the_table_is_complete():
    assert {*CURVED, *NORMS, *CONES, *BOUNDED, "box_of_arrays"} == set(ALONE)


@over("name", CASES)
@given(x=vectors, v=vectors)
@few
def test_psi_and_its_conjugate_are_never_below_the_inner_product(name: str, x: np.ndarray, v: np.ndarray):
    psi = CASES[name].psi
    x = np.asarray(prox(psi, x, 0.0))  # feasible
    y = v - np.asarray(prox(psi, v, 1.0))  # a subgradient of psi, so in the domain of psi^*
    assert np.isfinite(conjugate(psi, y))
    assert value(psi, x) + conjugate(psi, y) >= x @ y - 1e-9


@over("name", CASES)
@given(v=vectors)
@few
def test_psi_and_its_conjugate_are_the_inner_product_at_a_subgradient(name: str, v: np.ndarray):
    psi = CASES[name].psi
    x = np.asarray(prox(psi, v, 1.0))
    y = v - x
    np.testing.assert_allclose(value(psi, x) + conjugate(psi, y), x @ y, rtol=1e-10, atol=1e-9)


@over("name", ALONE)
@given(x=vectors, y=vectors)
@few
def test_any_dual_point_obeys_the_inequality_or_is_outside(name: str, x: np.ndarray, y: np.ndarray):
    psi = CASES[name].psi
    x, y = np.asarray(prox(psi, x, 0.0)), np.append(y[:6], 0.0)
    # a point that is outside by rounding, 1e-5 of its scale, counts as inside
    slack = 2e-5 * max(1.0, np.abs(y).sum()) * (1 + np.abs(x).sum())
    assert value(psi, x) + conjugate(psi, y) >= x @ y - slack


def dual_point(name: str, seed: int) -> np.ndarray:
    """A dual point for which the gauge of a norm is finite; nothing for the intercept."""
    y = draw(seed)[:6]
    return np.append(y - y.mean() if isinstance(CASES[name].psi, CHAINS) else y, 0.0)


@over("name", NORMS)
def test_the_gauge_of_a_norm_says_where_the_domain_of_its_conjugate_ends(name: str):
    psi = CASES[name].psi
    for seed in range(3):
        y = dual_point(name, seed)
        c = np.asarray(gauge(psi, y))
        assert c > 0
        assert conjugate(psi, y / c) == 0
        assert conjugate(psi, y / (1.01 * c)) == 0
        assert np.isinf(conjugate(psi, y / (0.99 * c)))
        np.testing.assert_allclose(gauge(psi, 1e5 * y), 1e5 * c, rtol=1e-12)


@over("name", NORMS)
@over("dtype", [np.float32, np.float64])
def test_the_gauge_of_a_norm_at_the_smallest_threshold_that_makes_the_prox_zero(name: str, dtype: type):
    psi, y = CASES[name].psi, dual_point(name, 4).astype(dtype)
    c = float(gauge(psi, y))
    assert gauge(psi, y).dtype == dtype
    zero = np.asarray(prox(psi, y, 1.001 * c))
    np.testing.assert_allclose(zero, 0, rtol=0, atol=10 * np.finfo(dtype).eps)
    assert np.abs(prox(psi, y, 0.99 * c)).max() > 1e-3


@over("name", [*CURVED, *BOUNDED])
def test_a_conjugate_that_is_finite_everywhere_has_gauge_zero(name: str):
    y = np.append(1e4 * SIGNS[:6], 0.0)
    assert gauge(CASES[name].psi, y) == 0
    assert np.isfinite(conjugate(CASES[name].psi, y))


@over("name", CONES)
@given(v=vectors)
@few
def test_the_gauge_of_a_cone_is_zero_in_its_polar_and_infinite_elsewhere(name: str, v: np.ndarray):
    psi = CASES[name].psi
    y = v - np.asarray(prox(psi, v, 1.0))  # Moreau: the projection onto the polar cone
    assert gauge(psi, y) == conjugate(psi, y) == 0
    if np.abs(y).max() > 1e-3:
        assert gauge(psi, -y) == conjugate(psi, -y) == np.inf


@over("name", ["squared_l2", "elastic_net", *BOUNDED, "box_of_arrays"])
def test_a_finite_conjugate_agrees_with_cvxpy(name: str):
    case, y = CASES[name], np.append(draw(1)[:6], 0.0)
    if name == "box_of_arrays":
        y[5] = abs(y[5])  # the last coordinate has no lower bound
    w = cp.Variable(shape(case.psi))
    objective = cp.vec(w, order="C") @ y[:6] - case.value(w, None)
    problem: Any = cp.Problem(cp.Maximize(objective), case.constraints(w, None))
    solve(problem)
    np.testing.assert_allclose(conjugate(case.psi, y), problem.value, rtol=1e-7)


@over("name", [*NORMS, "non_negative", "monotone", "monotone_decreasing"])
def test_an_infinite_conjugate_agrees_with_cvxpy(name: str):
    case = CASES[name]
    w, y = cp.Variable(shape(case.psi)), cp.Parameter(6)
    objective = cp.vec(w, order="C") @ y - case.value(w, None)
    # within a box: 0 where the conjugate is, far above where it is not
    problem: Any = cp.Problem(cp.Maximize(objective), [*case.constraints(w, None), cp.abs(w) <= 1e3])
    found = set()
    subgradient = draw(3) - np.asarray(prox(case.psi, draw(3), 1.0))
    for point in (draw(2), 0.9 * subgradient, 2.0 * subgradient):
        y.value = point[:6]
        problem.solve(solver=cp.CLARABEL)
        inside = conjugate(case.psi, np.append(point[:6], 0.0)) == 0
        assert problem.value < 1e-3 if inside else problem.value > 1
        found.add(bool(inside))
    assert found == {True, False}


def test_a_box_without_a_bound_has_a_conjugate_that_is_finite_on_one_side():
    psi, y = Box(np.array([0.0, -np.inf, -1.0]), np.array([np.inf, 2.0, np.inf])), jnp.array([-3.0, 4.0, 0.0])
    assert psi.conjugate(y) == 8.0
    assert psi.gauge(y) == 0
    for push in ([1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]):
        assert psi.conjugate(y * 0 + jnp.array(push)) == psi.gauge(y * 0 + jnp.array(push)) == np.inf


@given(y=vectors)
@few
def test_the_box_above_zero_is_the_non_negative_cone(y: np.ndarray):
    box, cone = Box(0.0, np.inf), NonNegative()
    assert conjugate(box, y) == conjugate(cone, y)
    assert gauge(box, y) == gauge(cone, y)


@given(y=vectors)
@few
def test_an_elastic_net_without_its_second_term_is_the_first(y: np.ndarray):
    # through jit, where the zero is a traced value
    y = np.append(y[:6], 0.0)
    assert conjugate(ElasticNet(0.3, 0.0), y) == conjugate(L1(0.3), y)
    assert gauge(ElasticNet(0.3, 0.0), y) == gauge(L1(0.3), y)
    np.testing.assert_allclose(conjugate(ElasticNet(0.0, 0.4), y), conjugate(SquaredL2(0.4), y), rtol=1e-14)
    assert conjugate(SquaredL2(0.0), y) == conjugate(Zero(), y)
    assert gauge(SquaredL2(0.0), y) == gauge(Zero(), y)


@over("name", [name for name in FINITE if name in ALONE and name != "zero"])
def test_with_strength_zero_only_the_origin_is_in_the_domain(name: str):
    psi = jax.tree.map(jnp.zeros_like, CASES[name].psi)
    assert conjugate(psi, np.zeros(7)) == gauge(psi, np.zeros(7)) == 0
    y = dual_point(name, 5)
    assert conjugate(psi, y) == gauge(psi, y) == np.inf


def test_an_intercept_is_in_the_domain_only_at_zero():
    y = {"weights": jnp.array([0.5]), "intercept": jnp.array(0.0)}
    assert L1(1.0).conjugate(y) == 0
    assert L1(1.0).gauge(y) == 0.5
    assert L1(1.0).conjugate(y | {"intercept": jnp.array(0.1)}) == np.inf
    assert L1(1.0).gauge(y | {"intercept": jnp.array(0.1)}) == np.inf


def test_blocks_add_their_conjugates_and_take_the_largest_gauge():
    psi = Blocks({"a": L1(2.0), "b": TotalVariation(0.5), "c": Box(-1.0, 3.0)})
    y = {"a": jnp.array([1.0]), "b": jnp.array([0.4, -0.4]), "c": jnp.array([2.0, -1.0])}
    np.testing.assert_allclose(psi.conjugate(y), 7.0)  # 3 * 2 + 1
    np.testing.assert_allclose(psi.gauge(y), 0.8)
    with pytest.raises(TypeError, match="Blocks: acts on parameters with named parts"):
        psi.conjugate(jnp.ones(2))


@over("name", ALONE)
def test_vmap_over_dual_points_equals_one_at_a_time(name: str):
    psi, points = CASES[name].psi, np.stack([dual_point(name, i) for i in range(3)])
    together = jax.jit(jax.vmap(lambda y: jnp.stack([conjugate(psi, y), gauge(psi, y)])))(points)
    alone = [[conjugate(psi, y), gauge(psi, y)] for y in points]
    np.testing.assert_allclose(together, alone, rtol=1e-13)


def test_total_variation_sees_no_constant_so_a_dual_point_must_sum_to_zero():
    psi = TotalVariation(1.0)
    assert psi.gauge(jnp.array([0.1, 0.1])) == psi.conjugate(jnp.array([0.1, 0.1])) == np.inf
    assert psi.gauge(jnp.array([0.25, -0.5, 0.25])) == 0.25
