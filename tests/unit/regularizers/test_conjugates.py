"""Every regulariser's conjugate and gauge from the same table: Fenchel-Young, domains, cvxpy."""

from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fedlocal.regularizers import L1, Blocks, Box, ElasticNet, SquaredL2, TotalVariation
from unit.one_program import for_each
from unit.regularizers.regularizer_cases import (
    ALONE,
    CASES,
    CHAINS,
    FINITE,
    PSIS,
    SIGNS,
    conjugates,
    draw,
    few,
    gauges,
    over,
    params,
    proxes,
    shape,
    solve,
    values,
    vectors,
    without_strength,
)

CURVED = ["squared_l2", "elastic_net"]  # psi grows faster than any norm, so psi^* is finite everywhere
NORMS = [name for name in FINITE if name in ALONE and name not in [*CURVED, "zero"]]
CONES = ["zero", "non_negative", "monotone", "monotone_decreasing"]
BOUNDED = ["l1_ball", "l2_ball", "linf_ball", "nuclear_ball", "box", "simplex"]


def test_the_table_is_complete():
    assert {*CURVED, *NORMS, *CONES, *BOUNDED, "box_of_arrays"} == set(ALONE)


def domain_point(v: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The prox of v and what is left of v: a subgradient of psi there, so in the domain of psi^*."""
    x = proxes(PSIS, v, 1.0)
    return x, {name: v - p for name, p in x.items()}


@given(x=vectors, v=vectors)
@few
def test_psi_and_its_conjugate_are_never_below_the_inner_product(x: np.ndarray, v: np.ndarray):
    feasible, (_, y) = proxes(PSIS, x, 0.0), domain_point(v)
    of_x, of_y = values(PSIS, feasible), conjugates(PSIS, y)
    for name in PSIS:
        assert np.isfinite(of_y[name]), name
        assert of_x[name] + of_y[name] >= feasible[name] @ y[name] - 1e-9, name


@given(v=vectors)
@few
def test_psi_and_its_conjugate_are_the_inner_product_at_a_subgradient(v: np.ndarray):
    x, y = domain_point(v)
    of_x, of_y = values(PSIS, x), conjugates(PSIS, y)
    for name in PSIS:
        np.testing.assert_allclose(of_x[name] + of_y[name], x[name] @ y[name], rtol=1e-10, atol=1e-9, err_msg=name)


@given(x=vectors, y=vectors)
@few
def test_any_dual_point_obeys_the_inequality_or_is_outside(x: np.ndarray, y: np.ndarray):
    feasible, y = proxes(PSIS, x, 0.0), np.append(y[:6], 0.0)
    of_x, of_y = values(PSIS, feasible), conjugates(PSIS, y)
    for name in ALONE:
        # a point that is outside by rounding, 1e-5 of its scale, counts as inside
        slack = 2e-5 * max(1.0, np.abs(y).sum()) * (1 + np.abs(feasible[name]).sum())
        assert of_x[name] + of_y[name] >= feasible[name] @ y - slack, name


def dual_point(name: str, seed: int) -> np.ndarray:
    """A dual point for which the gauge of a norm is finite; nothing for the intercept."""
    y = draw(seed)[:6]
    return np.append(y - y.mean() if isinstance(CASES[name].psi, CHAINS) else y, 0.0)


def dual_points(seed: int) -> dict[str, np.ndarray]:
    return {name: dual_point(name, seed) for name in PSIS}


def test_the_gauge_of_a_norm_says_where_the_domain_of_its_conjugate_ends():
    for seed in range(3):
        y = dual_points(seed)
        c = gauges(PSIS, y)
        inside, within, outside = (
            conjugates(PSIS, {name: y[name] / (part * c[name] if name in NORMS else 1) for name in PSIS})
            for part in (1, 1.01, 0.99)
        )
        far = gauges(PSIS, {name: 1e5 * y[name] for name in PSIS})
        for name in NORMS:
            assert c[name] > 0, name
            assert inside[name] == within[name] == 0, name
            assert np.isinf(outside[name]), name
            np.testing.assert_allclose(far[name], 1e5 * c[name], rtol=1e-12, err_msg=name)


@over("dtype", [np.float32, np.float64])
def test_the_gauge_of_a_norm_at_the_smallest_threshold_that_makes_the_prox_zero(dtype: type):
    y = {name: point.astype(dtype) for name, point in dual_points(4).items()}
    c = gauges(PSIS, y)
    above, below = (proxes(PSIS, y, {name: part * float(c[name]) for name in PSIS}) for part in (1.001, 0.99))
    for name in NORMS:
        assert c[name].dtype == dtype, name
        np.testing.assert_allclose(above[name], 0, rtol=0, atol=10 * np.finfo(dtype).eps, err_msg=name)
        assert np.abs(below[name]).max() > 1e-3, name


def test_a_conjugate_that_is_finite_everywhere_has_gauge_zero():
    y = np.append(1e4 * SIGNS[:6], 0.0)
    c, of_y = gauges(PSIS, y), conjugates(PSIS, y)
    for name in (*CURVED, *BOUNDED):
        assert c[name] == 0, name
        assert np.isfinite(of_y[name]), name


@given(v=vectors)
@few
def test_the_gauge_of_a_cone_is_zero_in_its_polar_and_infinite_elsewhere(v: np.ndarray):
    _, y = domain_point(v)  # Moreau: the projection onto the polar cone
    away = {name: -point for name, point in y.items()}
    inside, outside = (list(zip(gauges(PSIS, p).items(), conjugates(PSIS, p).values(), strict=True)) for p in (y, away))
    for ((name, c), of_y), ((_, c_away), of_away) in zip(inside, outside, strict=True):
        if name in CONES:
            assert c == of_y == 0, name
            if np.abs(y[name]).max() > 1e-3:
                assert c_away == of_away == np.inf, name


@over("name", ["squared_l2", "elastic_net", *BOUNDED, "box_of_arrays"])
def test_a_finite_conjugate_agrees_with_cvxpy(name: str):
    case, y = CASES[name], np.append(draw(1)[:6], 0.0)
    if name == "box_of_arrays":
        y[5] = abs(y[5])  # the last coordinate has no lower bound
    w = cp.Variable(shape(case.psi))
    objective = cp.vec(w, order="C") @ y[:6] - case.value(w, None)
    problem: Any = cp.Problem(cp.Maximize(objective), case.constraints(w, None))
    solve(problem)
    np.testing.assert_allclose(conjugates(PSIS, y)[name], problem.value, rtol=1e-7)


@over("name", [*NORMS, "non_negative", "monotone", "monotone_decreasing"])
def test_an_infinite_conjugate_agrees_with_cvxpy(name: str):
    case = CASES[name]
    w, y = cp.Variable(shape(case.psi)), cp.Parameter(6)
    objective = cp.vec(w, order="C") @ y - case.value(w, None)
    # within a box: 0 where the conjugate is, far above where it is not
    problem: Any = cp.Problem(cp.Maximize(objective), [*case.constraints(w, None), cp.abs(w) <= 1e3])
    found = set()
    subgradient = draw(3) - proxes(PSIS, draw(3), 1.0)[name]
    for point in (draw(2), 0.9 * subgradient, 2.0 * subgradient):
        y.value = point[:6]
        problem.solve(solver=cp.CLARABEL)
        inside = conjugates(PSIS, np.append(point[:6], 0.0))[name] == 0
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
    table = PSIS | {"box": Box(0.0, np.inf)}
    for found in (conjugates(table, y), gauges(table, y)):
        assert found["box"] == found["non_negative"]


@given(y=vectors)
@few
def test_an_elastic_net_without_its_second_term_is_the_first(y: np.ndarray):
    # through jit, where the zero is a traced value
    y = np.append(y[:6], 0.0)
    first, second = (
        PSIS | {"elastic_net": ElasticNet(*strengths), "l1": L1(0.3), "squared_l2": SquaredL2(squared)}
        for strengths, squared in (((0.3, 0.0), 0.0), ((0.0, 0.4), 0.4))
    )
    for found in (conjugates(first, y), gauges(first, y)):
        assert found["elastic_net"] == found["l1"]
        assert found["squared_l2"] == found["zero"]
    found = conjugates(second, y)
    np.testing.assert_allclose(found["elastic_net"], found["squared_l2"], rtol=1e-14)


def test_with_strength_zero_only_the_origin_is_in_the_domain():
    names = [name for name in FINITE if name in ALONE and name != "zero"]
    psis, y = without_strength(names), dual_points(5)
    at_zero, elsewhere = ((conjugates(psis, point), gauges(psis, point)) for point in (np.zeros(7), y))
    for name in names:
        assert [found[name] for found in at_zero] == [0, 0], name
        assert [found[name] for found in elsewhere] == [np.inf, np.inf], name


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


def test_vmap_over_dual_points_equals_one_at_a_time():
    points = [dual_points(i) for i in range(3)]
    stacked = {name: np.stack([y[name] for y in points]) for name in PSIS}
    together = for_each(
        lambda psi, ys: jax.vmap(lambda y: (psi.conjugate(params(psi, y)), psi.gauge(params(psi, y))))(ys)
    )(PSIS, stacked)
    alone = [(conjugates(PSIS, y), gauges(PSIS, y)) for y in points]
    for name in ALONE:
        one_by_one = [[found[name] for found in each] for each in alone]
        np.testing.assert_allclose(np.transpose(together[name]), one_by_one, rtol=1e-13, err_msg=name)


def test_total_variation_sees_no_constant_so_a_dual_point_must_sum_to_zero():
    psi = TotalVariation(1.0)
    assert psi.gauge(jnp.array([0.1, 0.1])) == psi.conjugate(jnp.array([0.1, 0.1])) == np.inf
    assert psi.gauge(jnp.array([0.25, -0.5, 0.25])) == 0.25
