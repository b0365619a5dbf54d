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
from fedlocal.regularizers import L1, Blocks, Box, L1Ball, L2Norm, LInf, Lp, Simplex, Zero
from unit.regularizers.prox_references import reference, spectral_ball
from unit.regularizers.regularizer_cases import (
    ALONE,
    CASES,
    CONSTRAINTS,
    FINITE,
    SHAPE,
    SIGNS,
    draw,
    few,
    over,
    params,
    prox,
    shape,
    solve,
    steps,
    subgradient,
    value,
    vectors,
    violation,
)


@over("name", CASES)
@given(x=vectors, z=vectors, t=steps)
@few
def test_prox_obeys_the_three_point_inequality(name: str, x: np.ndarray, z: np.ndarray, t: float):
    psi = CASES[name].psi
    p, z = np.asarray(prox(psi, x, t)), np.asarray(prox(psi, z, 0.0))  # t = 0 makes z feasible and no more
    at_z = t * value(psi, z) + 0.5 * np.sum((z - x) ** 2)
    at_p = t * value(psi, p) + 0.5 * np.sum((p - x) ** 2)
    assert at_z - at_p >= 0.5 * np.sum((z - p) ** 2) - 1e-10 * (1 + abs(at_z))


@over("name", CASES)
@given(x=vectors, z=vectors, t=steps)
@few
def test_prox_is_firmly_nonexpansive(name: str, x: np.ndarray, z: np.ndarray, t: float):
    psi = CASES[name].psi
    moved = np.asarray(prox(psi, x, t)) - np.asarray(prox(psi, z, t))
    assert moved @ moved <= moved @ (x - z) + 1e-10


@over("name", CONSTRAINTS)
@given(x=vectors)
@few
def test_projections_are_feasible_and_idempotent(name: str, x: np.ndarray):
    psi = CASES[name].psi
    p = prox(psi, x, 1.0)
    assert violation(psi, p) <= 1e-12
    assert value(psi, p) == 0
    np.testing.assert_allclose(prox(psi, p, 1.0), p, rtol=0, atol=1e-12)


@over("name", CONSTRAINTS)
def test_projections_do_not_depend_on_t(name: str):
    psi = CASES[name].psi
    np.testing.assert_array_equal(prox(psi, draw(0), 0.1), prox(psi, draw(0), 7.0))


@over("name", CONSTRAINTS)
def test_a_point_outside_a_constraint_has_infinite_value_and_its_violation(name: str):
    psi, far = CASES[name].psi, 5.0 * SIGNS
    assert np.isinf(value(psi, far))
    assert violation(psi, far) > 1


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


@over("name", DUALS)
@given(x=vectors, t=steps)
@few
def test_prox_and_the_prox_of_the_conjugate_add_up_to_the_point(name: str, x: np.ndarray, t: float):
    p = np.asarray(prox(CASES[name].psi, x, t))[:6]
    np.testing.assert_allclose(p + DUALS[name](x[:6], t), x[:6], rtol=0, atol=1e-11)


@given(x=vectors)
@few
def test_the_l1_ball_is_the_simplex_of_absolute_values(x: np.ndarray):
    ball, simplex = np.asarray(prox(L1Ball(1.3), x, 1.0))[:6], np.asarray(prox(Simplex(1.3), np.abs(x), 1.0))[:6]
    inside = np.abs(x[:6]).sum() <= 1.3
    np.testing.assert_allclose(ball, x[:6] if inside else np.sign(x[:6]) * simplex, rtol=0, atol=1e-12)


@over("name", FINITE)
@given(x=vectors, z=vectors)
@few
def test_subgradient_supports_psi_from_below(name: str, x: np.ndarray, z: np.ndarray):
    psi = CASES[name].psi
    s = np.asarray(subgradient(psi, x))
    assert value(psi, z) >= value(psi, x) + s @ (z - x) - 1e-10


@over("name", FINITE)
@given(z=vectors)
@few
def test_subgradient_at_zero_supports_psi_from_below(name: str, z: np.ndarray):
    psi = CASES[name].psi
    s = np.asarray(subgradient(psi, np.zeros(7)))
    assert value(psi, z) >= s @ z - 1e-10


@over("name", CONSTRAINTS)
def test_a_constraint_has_no_subgradient_and_says_what_to_use(name: str):
    psi = CASES[name].psi
    with pytest.raises(TypeError, match=f"{type(psi).__name__} is a constraint .* use FedMiD or FedDualAvg"):
        psi.subgradient(params(psi, draw(0)))


tree_prox = jax.jit(lambda psi, x, t: psi.prox(x, t))  # on parameters of any structure


@over("name", ALONE)
def test_an_intercept_is_not_touched_by_default(name: str):
    psi = CASES[name].psi
    w = {"weights": params(psi, draw(1))["weights"]}
    free = {"intercept": jnp.array([50.0, -3.0]), "bias": jnp.array(-7.0)}
    p = tree_prox(psi, w | free, 2.0)
    np.testing.assert_allclose(p["weights"], tree_prox(psi, w, 2.0)["weights"], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(p["intercept"], free["intercept"])
    np.testing.assert_array_equal(p["bias"], free["bias"])
    assert psi.value(w | free) == psi.value(w)


def test_an_intercept_is_touched_when_blocks_names_it():
    x = {"weights": jnp.array([3.0]), "intercept": jnp.array(3.0)}
    assert Blocks({"intercept": L1(1.0)}).prox(x, 2.0) == {"weights": jnp.array([3.0]), "intercept": 1.0}


def layers(psi: Regularizer, seed: int) -> list[dict[str, jax.Array]]:
    return [{"weights": params(psi, draw(s))["weights"], "bias": jnp.asarray(draw(s)[:2])} for s in (seed, seed + 10)]


@over("name", ALONE)
def test_in_a_nested_pytree_every_weight_array_is_treated_on_its_own(name: str):
    psi = CASES[name].psi
    x = layers(psi, 2)
    for got, layer in zip(tree_prox(psi, x, 0.3), x, strict=True):
        alone = tree_prox(psi, layer["weights"], 0.3)
        # a program of two layers may be fused differently from that of one
        np.testing.assert_allclose(got["weights"], alone, rtol=0, atol=1e-14)
        np.testing.assert_array_equal(got["bias"], layer["bias"])


@over("name", [name for name in FINITE if name in ALONE])
def test_in_a_nested_pytree_the_value_is_the_sum_over_weight_arrays(name: str):
    psi = CASES[name].psi
    x = layers(psi, 2)
    np.testing.assert_allclose(psi.value(x), sum(psi.array_value(layer["weights"]) for layer in x), rtol=1e-15)


def test_blocks_reach_into_a_nested_pytree_by_position_and_by_name():
    x = layers(Zero(), 3)
    p = Blocks({1: Blocks({"bias": Box(0.0, 0.0)})}).prox(x, 1.0)
    assert not p[1]["bias"].any()
    np.testing.assert_array_equal(p[0]["bias"], x[0]["bias"])
    np.testing.assert_array_equal(p[1]["weights"], x[1]["weights"])


@over("name", CASES)
def test_vmap_over_points_equals_one_at_a_time(name: str):
    psi, points = CASES[name].psi, np.stack([draw(i) for i in range(4)])
    together = jax.vmap(lambda x: prox(psi, x, 0.3))(points)
    np.testing.assert_allclose(together, [prox(psi, x, 0.3) for x in points], rtol=0, atol=1e-13)


@over("name", [name for name in ALONE if jax.tree.leaves(CASES[name].psi)])
def test_vmap_over_regularisers_equals_one_at_a_time(name: str):
    psi, scales, x = CASES[name].psi, np.array([0.5, 1.0, 2.0]), draw(5)
    together = jax.vmap(lambda psi: prox(psi, x, 0.3))(jax.tree.map(lambda a: np.multiply.outer(scales, a), psi))
    alone = [prox(jax.tree.map(lambda a, s=s: a * s, psi), x, 0.3) for s in scales]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-13)


@over("name", FINITE)
def test_t_zero_is_the_identity_for_a_finite_psi(name: str):
    np.testing.assert_allclose(prox(CASES[name].psi, draw(6), 0.0), draw(6), rtol=0, atol=1e-14)


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
@over("name", ALONE)
def test_extreme_points_in_float64(name: str, extreme: str):
    x = EXTREMES[extreme]
    expected = reference(name, x)
    got = np.asarray(prox(CASES[name].psi, x, 0.5))[:6]
    # a projection that works with x as it is loses the digits of |x|: 1e8 * 2^-52 = 2e-8
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=max(1e-12, 4e-16 * np.abs(x).max()))


@over("extreme", EXTREMES)
@over("name", ALONE)
def test_extreme_points_in_float32(name: str, extreme: str):
    x = EXTREMES[extreme].astype(np.float32)
    expected = reference(name, x.astype(np.float64))
    with jax.enable_x64(False):
        got = prox(CASES[name].psi, jnp.asarray(x), 0.5)
    assert got.dtype == np.float32
    # singular values and norms are good to the digits of the largest coordinate of the answer
    np.testing.assert_allclose(got[:6], expected, rtol=2e-6, atol=2e-6 * max(1.0, np.abs(expected).max()))


@over("extreme", EXTREMES)
@over("name", CONSTRAINTS)
def test_projections_in_float32_are_feasible(name: str, extreme: str):
    with jax.enable_x64(False):
        psi, x = CASES[name].psi, jnp.asarray(EXTREMES[extreme], jnp.float32)
        assert value(psi, prox(psi, x, 1.0)) == 0


@over("name", CASES)
def test_float32_stays_float32(name: str):
    with jax.enable_x64(False):
        assert prox(CASES[name].psi, jnp.asarray(draw(7), jnp.float32), 0.5).dtype == np.float32


@over("name", CASES)
def test_float32_leaves_stay_float32_when_float64_is_on(name: str):
    # of leaves of two types `prox` would return the wider one
    assert prox(CASES[name].psi, draw(7).astype(np.float32), 0.5).dtype == np.float32


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
        # a gap of 1e-10 leaves sqrt(2e-10) = 1.4e-5; the solver does better, but for the power cones of p-norms
        atol = 1e-5 if name.startswith("lp") else 1e-6
        np.testing.assert_allclose(prox(case.psi, draw(seed), t), np.asarray(x.value), rtol=0, atol=atol)


@over("name", ["box", "box_of_arrays"])
def test_boxes_agree_with_scipy(name: str):
    psi: Any = CASES[name].psi
    x = draw(8)
    bounds = [np.broadcast_to(b, SHAPE).ravel() for b in (psi.lower, psi.upper)]
    expected = scipy.optimize.lsq_linear(np.eye(6), x[:6], bounds, tol=1e-14).x
    np.testing.assert_allclose(prox(psi, x, 1.0)[:6], expected, rtol=0, atol=1e-7)


@over("name", CASES)
def test_a_point_that_diverged_is_not_hidden(name: str):
    x = draw(12)
    x[2] = np.nan
    assert np.isnan(prox(CASES[name].psi, x, 0.5)).any()


@over(("p", "twin"), [(1, L1), (2, L2Norm), (np.inf, LInf)])
def test_a_p_norm_with_a_name_is_the_regulariser_of_that_name(p: float, twin: Callable[[float], Regularizer]):
    psi, other = Lp(0.6, p), twin(0.6)
    for fn in (value, subgradient, lambda psi, x: prox(psi, x, 0.7), lambda psi, x: psi.gauge(params(psi, x))):
        np.testing.assert_allclose(fn(psi, draw(9)), fn(other, draw(9)), rtol=1e-14, atol=0)


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
@over("name", STRENGTHS)
def test_strength_zero_is_no_regulariser(name: str, dtype: type):
    psi = jax.tree.map(jnp.zeros_like, CASES[name].psi)
    for x in (draw(11).astype(dtype), np.zeros(7, dtype)):
        # a nuclear norm takes its matrix apart and puts it together again
        np.testing.assert_allclose(prox(psi, x, 0.7), x, rtol=0, atol=20 * np.finfo(dtype).eps)
        assert value(psi, x) == 0
