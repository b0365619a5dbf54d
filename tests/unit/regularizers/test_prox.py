"""Every regulariser's prox from one table: optimality, Moreau, projections, structure, extremes, other libraries."""

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given

from fedlocal.core import Regularizer
from fedlocal.regularizers import L1, Blocks, Box, L1Ball, L2Norm, LInf, Lp, Zero
from unit.one_program import for_each
from unit.regularizers.prox_references import reference, spectral_ball
from unit.regularizers.regularizer_cases import (
    ALONE,
    CASES,
    CONSTRAINTS,
    FINITE,
    PSIS,
    SHAPE,
    SIGNS,
    draw,
    few,
    gauges,
    over,
    params,
    proxes,
    shape,
    solve,
    steps,
    subgradients,
    values,
    vectors,
    violations,
    without_strength,
)


@given(x=vectors, z=vectors, t=steps)
@few
def test_prox_obeys_the_three_point_inequality(x: np.ndarray, z: np.ndarray, t: float):
    p, feasible = proxes(PSIS, x, t), proxes(PSIS, z, 0.0)  # t = 0 makes z feasible and no more
    of_p, of_z = values(PSIS, p), values(PSIS, feasible)
    for name in PSIS:
        at_z = t * of_z[name] + 0.5 * np.sum((feasible[name] - x) ** 2)
        at_p = t * of_p[name] + 0.5 * np.sum((p[name] - x) ** 2)
        apart = np.sum((feasible[name] - p[name]) ** 2)
        assert at_z - at_p >= 0.5 * apart - 1e-10 * (1 + abs(at_z)), name


@given(x=vectors, z=vectors, t=steps)
@few
def test_prox_is_firmly_nonexpansive(x: np.ndarray, z: np.ndarray, t: float):
    of_x, of_z = proxes(PSIS, x, t), proxes(PSIS, z, t)
    for name in PSIS:
        moved = of_x[name] - of_z[name]
        assert moved @ moved <= moved @ (x - z) + 1e-10, name


@given(x=vectors)
@few
def test_projections_are_feasible_and_idempotent(x: np.ndarray):
    p = proxes(PSIS, x, 1.0)
    again, outside, of_p = proxes(PSIS, p, 1.0), violations(PSIS, p), values(PSIS, p)
    for name in CONSTRAINTS:
        assert outside[name] <= 1e-12, name
        assert of_p[name] == 0, name
        np.testing.assert_allclose(again[name], p[name], rtol=0, atol=1e-12, err_msg=name)


def test_projections_do_not_depend_on_t():
    short, long = proxes(PSIS, draw(0), 0.1), proxes(PSIS, draw(0), 7.0)
    for name in CONSTRAINTS:
        np.testing.assert_array_equal(short[name], long[name], err_msg=name)


def test_a_point_outside_a_constraint_has_infinite_value_and_its_violation():
    of_far, outside = values(PSIS, 5.0 * SIGNS), violations(PSIS, 5.0 * SIGNS)
    for name in CONSTRAINTS:
        assert np.isinf(of_far[name]), name
        assert outside[name] > 1, name


# t prox_{psi*/t}(x/t): what Moreau says x - prox_{t psi}(x) is, from the conjugate of psi by hand
DUALS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "zero": lambda x, t: np.zeros_like(x),
    "l1": lambda x, t: np.clip(x, -0.7 * t, 0.7 * t),
    "squared_l2": lambda x, t: x / (1 + 1 / (0.4 * t)),
    "nuclear": lambda x, t: spectral_ball(x, 0.6 * t),
    "l2_ball": lambda x, t: x * max(0.0, 1 - 1.2 / max(np.linalg.norm(x), 1e-300)),
    "l2_norm": lambda x, t: x * min(1.0, 0.9 * t / max(np.linalg.norm(x), 1e-300)),
    "linf_ball": lambda x, t: np.sign(x) * np.maximum(np.abs(x) - 0.7, 0),
    "non_negative": lambda x, t: np.minimum(x, 0),
    "box": lambda x, t: np.maximum(x - 0.8, 0) - np.maximum(-0.5 - x, 0),
}


@given(x=vectors, t=steps)
@few
def test_prox_and_the_prox_of_the_conjugate_add_up_to_the_point(x: np.ndarray, t: float):
    p = proxes(PSIS, x, t)
    for name, dual in DUALS.items():
        np.testing.assert_allclose(p[name][:6] + dual(x[:6], t), x[:6], rtol=0, atol=1e-11, err_msg=name)


@given(x=vectors)
@few
def test_the_l1_ball_is_the_simplex_of_absolute_values(x: np.ndarray):
    table = PSIS | {"l1_ball": L1Ball(1.3)}
    ball, simplex = proxes(table, x, 1.0)["l1_ball"][:6], proxes(table, np.abs(x), 1.0)["simplex"][:6]
    inside = np.abs(x[:6]).sum() <= 1.3
    np.testing.assert_allclose(ball, x[:6] if inside else np.sign(x[:6]) * simplex, rtol=0, atol=1e-12)


FINITE_ONES = {name: PSIS[name] for name in FINITE}


@given(x=vectors, z=vectors)
@few
def test_subgradient_supports_psi_from_below(x: np.ndarray, z: np.ndarray):
    of_x, of_z = values(PSIS, x), values(PSIS, z)
    slopes, at_zero = subgradients(FINITE_ONES, x), subgradients(FINITE_ONES, np.zeros(7))
    for name in FINITE:
        assert of_z[name] >= of_x[name] + slopes[name] @ (z - x) - 1e-10, name
        assert of_z[name] >= at_zero[name] @ z - 1e-10, name


@over("name", CONSTRAINTS)
def test_a_constraint_has_no_subgradient_and_says_what_to_use(name: str):
    psi = CASES[name].psi
    with pytest.raises(TypeError, match=f"{type(psi).__name__} is a constraint .* use FedMiD or FedDualAvg"):
        psi.subgradient(params(psi, draw(0)))


ALONES = {name: PSIS[name] for name in ALONE}
array_proxes = for_each(lambda psi, x, t: psi.prox(x[:6].reshape(shape(psi)), t).ravel())


def test_an_intercept_is_not_touched_by_default():
    x, other = draw(1), np.append(draw(1)[:6], 50.0)
    p, weights = proxes(PSIS, x, 2.0), array_proxes(ALONES, x, 2.0)
    of_x, of_other = values(PSIS, x), values(PSIS, other)
    for name in ALONE:
        np.testing.assert_allclose(p[name][:6], weights[name], rtol=0, atol=1e-14, err_msg=name)
        assert p[name][6] == x[6], name
        assert of_x[name] == of_other[name], name


def test_an_intercept_is_touched_when_blocks_names_it():
    x = {"weights": jnp.array([3.0]), "intercept": jnp.array(3.0)}
    assert Blocks({"intercept": L1(1.0)}).prox(x, 2.0) == {"weights": jnp.array([3.0]), "intercept": 1.0}


def layers(psi: Regularizer, seed: int) -> list[dict[str, jax.Array]]:
    """Weights and biases of two layers; the second has an intercept, too."""
    first, second = (
        {"weights": params(psi, draw(s))["weights"], "bias": jnp.asarray(draw(s)[:2])} for s in (seed, seed + 10)
    )
    return [first, second | {"intercept": jnp.array(-7.0)}]


layer_proxes = for_each(lambda psi, t: psi.prox(layers(psi, 2), t))


def test_in_a_nested_pytree_every_weight_array_is_treated_on_its_own():
    got, first, second = layer_proxes(ALONES, 0.3), *(array_proxes(ALONES, draw(s), 0.3) for s in (2, 12))
    for name, psi in ALONES.items():
        for layer, before, alone in zip(got[name], layers(psi, 2), (first, second), strict=True):
            # a program of two layers may be fused differently from that of one
            np.testing.assert_allclose(layer["weights"].ravel(), alone[name], rtol=0, atol=1e-14, err_msg=name)
            for free in before.keys() - {"weights"}:
                np.testing.assert_array_equal(layer[free], before[free], err_msg=name)


layer_values = for_each(
    lambda psi: (psi.value(layers(psi, 2)), sum(psi.array_value(layer["weights"]) for layer in layers(psi, 2)))
)


def test_in_a_nested_pytree_the_value_is_the_sum_over_weight_arrays():
    for name, (together, one_by_one) in layer_values({n: PSIS[n] for n in FINITE if n in ALONE}).items():
        np.testing.assert_allclose(together, one_by_one, rtol=1e-15, err_msg=name)


def test_blocks_reach_into_a_nested_pytree_by_position_and_by_name():
    x = layers(Zero(), 3)
    p = Blocks({1: Blocks({"bias": Box(0.0, 0.0)})}).prox(x, 1.0)
    assert not p[1]["bias"].any()
    np.testing.assert_array_equal(p[0]["bias"], x[0]["bias"])
    np.testing.assert_array_equal(p[1]["weights"], x[1]["weights"])


def prox_of(psi: Regularizer, x: jax.Array, t: float) -> jax.Array:
    moved = psi.prox(params(psi, x), t)
    return jnp.append(moved["weights"].ravel(), moved["intercept"])


def test_vmap_over_points_equals_one_at_a_time():
    points = np.stack([draw(i) for i in range(4)])
    together = for_each(lambda psi, x: jax.vmap(lambda a: prox_of(psi, a, 0.3))(x))(PSIS, points)
    alone = [proxes(PSIS, x, 0.3) for x in points]
    for name in PSIS:
        np.testing.assert_allclose(together[name], [one[name] for one in alone], rtol=0, atol=1e-13, err_msg=name)


def test_vmap_over_regularisers_equals_one_at_a_time():
    varied, scales, x = [name for name in ALONE if jax.tree.leaves(PSIS[name])], np.array([0.5, 1.0, 2.0]), draw(5)
    many = {name: jax.tree.map(lambda a: np.multiply.outer(scales, a), PSIS[name]) for name in varied}
    together = for_each(lambda psis: jax.vmap(lambda psi: prox_of(psi, jnp.asarray(x), 0.3))(psis))(many)
    ones = [PSIS | {name: jax.tree.map(lambda a, s=s: a * s, PSIS[name]) for name in varied} for s in scales.tolist()]
    alone = [proxes(psis, x, 0.3) for psis in ones]
    for name in varied:
        np.testing.assert_allclose(together[name], [one[name] for one in alone], rtol=0, atol=1e-13, err_msg=name)


def test_t_zero_is_the_identity_for_a_finite_psi():
    found = proxes(PSIS, draw(6), 0.0)
    for name in FINITE:
        np.testing.assert_allclose(found[name], draw(6), rtol=0, atol=1e-14, err_msg=name)


EXTREMES = {
    "zero": np.zeros(7),
    "huge": 1e8 * SIGNS * np.array([1.0, 0.5, 0.25, 0.125, 2.0, 0.0, 1.0]),
    "large": 1e4 * SIGNS * np.array([1.0, 0.5, 0.25, 0.125, 2.0, 0.0, 1.0]),
    "tiny": 1e-8 * SIGNS,
    "tied": 3.0 * SIGNS,
    "huge_and_tied": 1e8 * SIGNS,
    "large_and_close": 1e4 + np.array([0.31, 0.17, 0.83, 0.59, 0.05, 0.71, 0.0]),
}


@over("extreme", EXTREMES)
def test_extreme_points_in_float64(extreme: str):
    x = EXTREMES[extreme]
    got = proxes(PSIS, x, 0.5)
    for name in ALONE:
        # a projection that works with x as it is loses the digits of |x|: 1e8 * 2^-52 = 2e-8
        atol = max(1e-12, 4e-16 * np.abs(x).max())
        np.testing.assert_allclose(got[name][:6], reference(name, x), rtol=1e-7, atol=atol, err_msg=name)


@over("extreme", EXTREMES)
def test_extreme_points_in_float32(extreme: str):
    x = EXTREMES[extreme].astype(np.float32)
    with jax.enable_x64(False):
        got = proxes(PSIS, x, 0.5)
    for name in ALONE:
        expected = reference(name, x.astype(np.float64))
        assert got[name].dtype == np.float32, name
        # singular values and norms are good to the digits of the largest coordinate of the answer
        atol = 2e-6 * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(got[name][:6], expected, rtol=2e-6, atol=atol, err_msg=name)


@over("extreme", EXTREMES)
def test_projections_in_float32_are_feasible(extreme: str):
    with jax.enable_x64(False):
        of_p = values(PSIS, proxes(PSIS, EXTREMES[extreme].astype(np.float32), 1.0))
    assert {name: of_p[name] for name in CONSTRAINTS} == dict.fromkeys(CONSTRAINTS, 0)


def test_float32_stays_float32():
    with jax.enable_x64(False):
        found = proxes(PSIS, draw(7).astype(np.float32), 0.5)
    assert {p.dtype for p in found.values()} == {np.dtype(np.float32)}


def test_float32_leaves_stay_float32_when_float64_is_on():
    # of leaves of two types `proxes` would return the wider one
    found = proxes(PSIS, draw(7).astype(np.float32), 0.5)
    assert {name for name, p in found.items() if p.dtype != np.float32} == set()


@over("name", CASES)
def test_agrees_with_cvxpy(name: str):
    case, t = CASES[name], 0.8
    w, b, center = cp.Variable(shape(case.psi)), cp.Variable(), cp.Parameter(7)
    x = cp.hstack([cp.vec(w, order="C"), b])
    objective = 0.5 * cp.sum_squares(x - center) + t * case.value(w, b)
    problem = cp.Problem(cp.Minimize(objective), case.constraints(w, b))
    for seed in range(3):
        center.value = draw(seed)
        solve(problem)
        found = proxes(PSIS, draw(seed), t)[name]
        # a gap of 1e-10 leaves sqrt(2e-10) = 1.4e-5; the solver does better, but for the power cones of p-norms
        atol = 1e-5 if name.startswith("lp") else 1e-6
        np.testing.assert_allclose(found, np.asarray(x.value), rtol=0, atol=atol)


@over("name", ["box", "box_of_arrays"])
def test_boxes_agree_with_scipy(name: str):
    psi: Any = CASES[name].psi
    x = draw(8)
    bounds = [np.broadcast_to(b, SHAPE).ravel() for b in (psi.lower, psi.upper)]
    expected = scipy.optimize.lsq_linear(np.eye(6), x[:6], bounds, tol=1e-14).x
    np.testing.assert_allclose(proxes(PSIS, x, 1.0)[name][:6], expected, rtol=0, atol=1e-7)


def test_a_point_that_diverged_is_not_hidden():
    x = draw(12)
    x[2] = np.nan
    assert {name for name, p in proxes(PSIS, x, 0.5).items() if not np.isnan(p).any()} == set()


TWINS: dict[float, Callable[[float], Regularizer]] = {1: L1, 2: L2Norm, np.inf: LInf}


def test_a_p_norm_with_a_name_is_the_regulariser_of_that_name():
    norms: dict[str, Regularizer] = {str(p): Lp(0.6, p) for p in TWINS}
    twins = {str(p): twin(0.6) for p, twin in TWINS.items()}
    for fn in (values, subgradients, lambda psis, x: proxes(psis, x, 0.7), gauges):
        found, expected = fn(norms, draw(9)), fn(twins, draw(9))
        for name in norms:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-14, atol=0, err_msg=name)


@over("p", [1.01, 1.2, 2.0001, 10.0, 300.0])
def test_the_prox_of_a_p_norm_is_optimal_for_any_p_and_threshold(p: float):
    x = 1e3 * np.random.default_rng(10).standard_normal(40) ** 3  # over several orders of magnitude
    psi_prox, q = jax.jit(Lp(1.0, p).array_prox), p / (p - 1)
    for part in (1e-9, 0.3, 0.99, 1 - 1e-9, 1.01):
        threshold = part * norm(x, q)  # the smallest that makes the prox zero is ||x||_q
        z = np.asarray(psi_prox(x, threshold))
        y = (x - z) / threshold
        # y is a subgradient of the norm at z: in the dual ball and aligned with z; x - z has the rounding of x
        rounding = 1e-12 / part
        assert norm(y, q) <= 1 + rounding
        assert y @ z >= norm(z, p) * (1 - rounding)
        assert (not z.any()) == (part > 1)


def norm(x: np.ndarray, p: float) -> float:
    scale = np.abs(x).max() or 1.0
    return float(scale * np.linalg.norm(x / scale, p))


STRENGTHS = [name for name in FINITE if name in ALONE and name != "zero"]


@over("dtype", [np.float32, np.float64])
def test_strength_zero_is_no_regulariser(dtype: type):
    psis = without_strength(STRENGTHS)
    for x in (draw(11).astype(dtype), np.zeros(7, dtype)):
        p, of_x = proxes(psis, x, 0.7), values(psis, x)
        for name in STRENGTHS:
            # a nuclear norm takes its matrix apart and puts it together again
            np.testing.assert_allclose(p[name], x, rtol=0, atol=20 * np.finfo(dtype).eps, err_msg=name)
            assert of_x[name] == 0, name
