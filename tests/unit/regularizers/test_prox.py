"""Every regulariser's prox from one table: optimality, Moreau, projections, structure, extremes, other libraries."""

from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.core import Params, Regularizer
from fedlocal.regularizers import L1, Blocks, Box, L1Ball, L2Ball, Nuclear, Simplex, SquaredL2, Zero

SHAPE = (3, 2)  # of the weights: a matrix, so that the nuclear norm has something to do


class Case(NamedTuple):
    """A regulariser on {"weights": SHAPE, "intercept": ()}, and the same in the language of cvxpy."""

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
CASES: dict[str, Case] = {
    "zero": _finite(Zero(), lambda w: 0.0),
    "l1": _finite(L1(0.7), lambda w: 0.7 * cp.sum(cp.abs(w))),
    "squared_l2": _finite(SquaredL2(0.4), lambda w: 0.2 * cp.sum_squares(w)),
    "nuclear": _finite(Nuclear(0.6), lambda w: 0.6 * cp.normNuc(w)),
    "l1_ball": _constraint(L1Ball(1.5), lambda w: [cp.sum(cp.abs(w)) <= 1.5]),
    "l2_ball": _constraint(L2Ball(1.2), lambda w: [cp.norm(w, "fro") <= 1.2]),
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
FINITE = [name for name, case in CASES.items() if case.finite]
CONSTRAINTS = [name for name, case in CASES.items() if not case.finite and name != "blocks_with_constraint"]
ALONE = [name for name in CASES if not name.startswith("blocks")]

numbers = hnp.arrays(np.float64, 7, elements=st.floats(-10, 10, allow_subnormal=False))
vectors = st.builds(np.multiply, numbers, st.sampled_from([1.0, 0.02]))  # small ones lie inside the constraints
steps = st.floats(1e-3, 10)
few = settings(max_examples=25, deadline=None, derandomize=True)
over = pytest.mark.parametrize


def params(flat: Any) -> Params:
    """Seven numbers as parameters."""
    flat = jnp.asarray(flat)
    return {"weights": flat[:6].reshape(SHAPE), "intercept": flat[6]}


def flat(x: Params) -> np.ndarray:
    return np.concatenate([np.ravel(x["weights"]), np.ravel(x["intercept"])])


@jax.jit
def prox(psi: Regularizer, x: jax.Array, t: Any) -> jax.Array:
    p = psi.prox(params(x), t)
    return jnp.concatenate([p["weights"].ravel(), p["intercept"][None]])


@jax.jit
def value(psi: Regularizer, x: jax.Array) -> jax.Array:
    return psi.value(params(x))


@jax.jit
def violation(psi: Regularizer, x: jax.Array) -> jax.Array:
    return psi.violation(params(x))


def draw(seed: int, scale: float = 2.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal(7)


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
    psi, far = CASES[name].psi, np.full(7, 5.0)
    assert np.isinf(value(psi, far))
    assert violation(psi, far) > 1


def spectral_ball(w: np.ndarray, radius: float) -> np.ndarray:
    u, s, vt = np.linalg.svd(w.reshape(SHAPE), full_matrices=False)
    return ((u * np.minimum(s, radius)) @ vt).ravel()


# t prox_{psi*/t}(x/t): what Moreau says x - prox_{t psi}(x) is, from the conjugate of psi by hand
DUALS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "zero": lambda x, t: np.zeros_like(x),
    "l1": lambda x, t: np.clip(x, -0.7 * t, 0.7 * t),
    "squared_l2": lambda x, t: x / (1 + 1 / (0.4 * t)),
    "nuclear": lambda x, t: spectral_ball(x, 0.6 * t),
    "l2_ball": lambda x, t: x * max(0.0, 1 - 1.2 / max(np.linalg.norm(x), 1e-300)),
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
    s = flat(psi.subgradient(params(x)))
    assert value(psi, z) >= value(psi, x) + s @ (z - x) - 1e-10


@over("name", FINITE)
@given(z=vectors)
@few
def test_subgradient_at_zero_supports_psi_from_below(name: str, z: np.ndarray):
    psi = CASES[name].psi
    s = flat(psi.subgradient(params(np.zeros(7))))
    assert value(psi, z) >= s @ z - 1e-10


@over("name", CONSTRAINTS)
def test_a_constraint_has_no_subgradient_and_says_what_to_use(name: str):
    psi = CASES[name].psi
    with pytest.raises(TypeError, match=f"{type(psi).__name__} is a constraint .* use FedMiD or FedDualAvg"):
        psi.subgradient(params(draw(0)))


@over("part", ["intercept", "bias"])
@over("name", ALONE)
def test_an_intercept_is_not_touched_by_default(name: str, part: str):
    psi, w = CASES[name].psi, params(draw(1))["weights"]
    x = {"weights": w, part: jnp.array([50.0, -3.0])}
    np.testing.assert_array_equal(psi.prox(x, 2.0)[part], x[part])
    assert psi.value(x) == psi.value({"weights": w})


def test_an_intercept_is_touched_when_blocks_names_it():
    x = {"weights": jnp.array([3.0]), "intercept": jnp.array(3.0)}
    assert Blocks({"intercept": L1(1.0)}).prox(x, 2.0) == {"weights": jnp.array([3.0]), "intercept": 1.0}


def layers(seed: int) -> list[dict[str, jax.Array]]:
    rng = np.random.default_rng(seed)
    return [{"weights": jnp.asarray(rng.standard_normal(SHAPE)), "bias": jnp.asarray(rng.standard_normal(2))}] * 2


@over("name", ALONE)
def test_in_a_nested_pytree_every_weight_array_is_treated_on_its_own(name: str):
    psi, x = CASES[name].psi, layers(2)
    for got, layer in zip(psi.prox(x, 0.3), x, strict=True):
        np.testing.assert_array_equal(got["weights"], psi.array_prox(layer["weights"], 0.3))
        np.testing.assert_array_equal(got["bias"], layer["bias"])


@over("name", FINITE[:4])
def test_in_a_nested_pytree_the_value_is_the_sum_over_weight_arrays(name: str):
    psi, x = CASES[name].psi, layers(2)
    np.testing.assert_allclose(psi.value(x), sum(psi.array_value(layer["weights"]) for layer in x), rtol=1e-15)


def test_blocks_reach_into_a_nested_pytree_by_position_and_by_name():
    x = layers(3)
    p = Blocks({1: Blocks({"bias": Box(0.0, 0.0)})}).prox(x, 1.0)
    assert not p[1]["bias"].any()
    np.testing.assert_array_equal(p[0]["bias"], x[0]["bias"])
    np.testing.assert_array_equal(p[1]["weights"], x[1]["weights"])


@over("name", CASES)
def test_vmap_over_points_equals_one_at_a_time(name: str):
    psi, points = CASES[name].psi, np.stack([draw(i) for i in range(4)])
    together = jax.vmap(lambda x: prox(psi, x, 0.3))(points)
    np.testing.assert_allclose(together, [prox(psi, x, 0.3) for x in points], rtol=0, atol=1e-13)


@over("name", [name for name in ALONE if name not in ("zero", "box_of_arrays")])
def test_vmap_over_regularisers_equals_one_at_a_time(name: str):
    psi, scales, x = CASES[name].psi, np.array([0.5, 1.0, 2.0]), draw(5)
    together = jax.vmap(lambda psi: prox(psi, x, 0.3))(jax.tree.map(lambda a: a * scales, psi))
    alone = [prox(jax.tree.map(lambda a, s=s: a * s, psi), x, 0.3) for s in scales]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-13)


@over("name", FINITE)
def test_t_zero_is_the_identity_for_a_finite_psi(name: str):
    np.testing.assert_allclose(prox(CASES[name].psi, draw(6), 0.0), draw(6), rtol=0, atol=1e-14)


SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0])
EXTREMES = {
    "zero": np.zeros(7),
    "huge": 1e8 * SIGNS * np.array([1.0, 0.5, 0.25, 0.125, 2.0, 0.0, 1.0]),
    "large": 1e4 * SIGNS * np.array([1.0, 0.5, 0.25, 0.125, 2.0, 0.0, 1.0]),
    "tiny": 1e-8 * SIGNS,
    "tied": 3.0 * SIGNS,
    "huge_and_tied": 1e8 * SIGNS,
    "large_and_close": 1e4 + np.array([0.31, 0.17, 0.83, 0.59, 0.05, 0.71, 0.0]),
}


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """The weights of the prox with t = 0.5 by the formulas, in NumPy and float64."""
    w, t = x[:6], 0.5
    if name in ("simplex", "l1_ball"):
        total, u = (1.3, w) if name == "simplex" else (1.5, np.abs(w))
        if name == "l1_ball" and u.sum() <= total:
            return w
        u = u - u.max()  # a projection onto the simplex does not change when all coordinates move together
        ordered = np.sort(u)[::-1]
        thresholds = (np.cumsum(ordered) - total) / np.arange(1, 7)
        threshold = thresholds[np.flatnonzero(ordered > thresholds)[-1]]
        p = np.maximum(u - threshold, 0)
        return p if name == "simplex" else np.sign(w) * p
    return {
        "zero": lambda: w,
        "l1": lambda: np.sign(w) * np.maximum(np.abs(w) - 0.7 * t, 0),
        "squared_l2": lambda: w / (1 + 0.4 * t),
        "nuclear": lambda: w - spectral_ball(w, 0.6 * t),
        "l2_ball": lambda: w * min(1.0, 1.2 / max(np.linalg.norm(w), 1e-300)),
        "box": lambda: np.clip(w, -0.5, 0.8),
        "box_of_arrays": lambda: np.clip(w, LOWER.ravel(), UPPER.ravel()),
    }[name]()


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
        x = params(draw(7).astype(np.float32))
        assert {a.dtype for a in jax.tree.leaves(CASES[name].psi.prox(x, 0.5))} == {np.dtype(np.float32)}


@over("name", CASES)
def test_float32_leaves_stay_float32_when_float64_is_on(name: str):
    x = params(draw(7).astype(np.float32))
    assert {a.dtype for a in jax.tree.leaves(CASES[name].psi.prox(x, 0.5))} == {np.dtype(np.float32)}


@over("name", CASES)
def test_agrees_with_cvxpy(name: str):
    case, w, b = CASES[name], cp.Variable(SHAPE), cp.Variable()
    center = cp.Parameter(7)
    t = 0.8
    x = cp.hstack([w[0], w[1], w[2], b])
    objective = 0.5 * cp.sum_squares(x - center) + t * case.value(w, b)
    problem = cp.Problem(cp.Minimize(objective), case.constraints(w, b))
    for seed in range(3):
        center.value = draw(seed)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        np.testing.assert_allclose(prox(case.psi, draw(seed), t), x.value, rtol=0, atol=1e-6)


@over("name", ["box", "box_of_arrays"])
def test_boxes_agree_with_scipy(name: str):
    psi, x = CASES[name].psi, draw(8)
    bounds = [np.broadcast_to(b, SHAPE).ravel() for b in (psi.lower, psi.upper)]
    expected = scipy.optimize.lsq_linear(np.eye(6), x[:6], bounds, tol=1e-14).x
    np.testing.assert_allclose(prox(psi, x, 1.0)[:6], expected, rtol=0, atol=1e-7)
