"""Euclidean and Entropy: conjugate_grad(y, psi, t) minimises h(x) + t psi(x) - <y, x>."""

from typing import Any

import cvxpy as cp
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.core import MirrorMap, Regularizer
from fedlocal.mirrors import Entropy, Euclidean
from fedlocal.regularizers import L1, Blocks, Box, L1Ball, L2Ball, Nuclear, Simplex, SquaredL2, Zero

SHAPE = (3, 2)
ENTROPIC: dict[str, Regularizer] = {
    "zero": Zero(),
    "l1": L1(0.7),
    "simplex": Simplex(1.3),
    "l1_ball": L1Ball(1.5),
    "box": Box(0.2, 0.9),
    "box_with_negative_lower": Box(-1.0, 0.9),
}
EUCLIDEAN: dict[str, Regularizer] = {
    **ENTROPIC,
    "squared_l2": SquaredL2(0.4),
    "nuclear": Nuclear(0.6),
    "l2_ball": L2Ball(1.2),
}
WITHOUT_FORMULA: list[Regularizer] = [SquaredL2(0.4), Nuclear(0.6), L2Ball(1.2)]

numbers = hnp.arrays(np.float64, SHAPE, elements=st.floats(-5, 5, allow_subnormal=False))
matrices = st.builds(np.multiply, numbers, st.sampled_from([1.0, 0.02]))  # small ones lie inside the constraints
steps = st.floats(1e-3, 5)
few = settings(max_examples=25, deadline=None, derandomize=True)
over = pytest.mark.parametrize
# the optimum is flat: a gap of 1e-11 leaves sqrt(1e-11), about 3e-6, in the point
ACCURATE = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


@jax.jit
def conjugate(mirror: MirrorMap, psi: Regularizer, y: jax.Array, t: Any) -> jax.Array:
    return mirror.conjugate_grad(y, psi, t)


@jax.jit
def feasible(psi: Regularizer, z: jax.Array) -> jax.Array:
    return psi.prox(z, 0.0)


def draw(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE)


def entropy(x: np.ndarray) -> float:
    return float(np.sum(scipy.special.xlogy(x, x) - x))


@over("mirror", [Euclidean(), Entropy()], ids=["euclidean", "entropy"])
def test_conjugate_grad_with_zero_inverts_grad(mirror: MirrorMap):
    x = {"weights": np.exp(draw(0)), "intercept": np.array(-2.0)}
    back = mirror.conjugate_grad(mirror.grad(x), Zero(), 3.0)
    np.testing.assert_allclose(back["weights"], x["weights"], rtol=1e-14)
    assert back["intercept"] == -2


@over("mirror", [Euclidean(), Entropy()], ids=["euclidean", "entropy"])
def test_grad_inverts_conjugate_grad_with_zero(mirror: MirrorMap):
    np.testing.assert_allclose(mirror.grad(mirror.conjugate_grad(draw(1), Zero(), 3.0)), draw(1), rtol=0, atol=1e-14)


def test_grad_of_entropy_is_the_derivative_of_x_log_x_minus_x():
    x = np.exp(draw(2))
    derivative = jax.grad(lambda x: jnp.sum(x * jnp.log(x) - x))(x)
    np.testing.assert_allclose(Entropy().grad(x), derivative, rtol=0, atol=1e-14)


@over("name", EUCLIDEAN)
@given(y=matrices, z=matrices, t=steps)
@few
def test_euclidean_point_is_better_than_any_feasible_point_by_half_their_distance(
    name: str, y: np.ndarray, z: np.ndarray, t: float
):
    psi = EUCLIDEAN[name]
    p, z = np.asarray(conjugate(Euclidean(), psi, y, t)), np.asarray(feasible(psi, z))
    objective = [0.5 * np.sum(x**2) + t * psi.array_value(x) - np.sum(x * y) for x in (z, p)]
    assert objective[0] - objective[1] >= 0.5 * np.sum((z - p) ** 2) - 1e-10


@over("name", ENTROPIC)
@given(y=matrices, z=matrices, t=steps, shift=st.sampled_from([0.0, -6.0]))  # -6: constraints that do not bind
@few
def test_entropic_point_is_better_than_any_feasible_point_by_their_divergence(
    name: str, y: np.ndarray, z: np.ndarray, t: float, shift: float
):
    psi, y = ENTROPIC[name], y + shift
    p, z = np.asarray(conjugate(Entropy(), psi, y, t)), np.asarray(feasible(psi, np.abs(z)))
    objective = [entropy(x) + t * psi.array_value(x) - np.sum(x * y) for x in (z, p)]
    assert objective[0] - objective[1] >= np.sum(scipy.special.kl_div(z, p)) - 1e-10 * (1 + abs(objective[1]))


@over("name", ENTROPIC)
@given(y=matrices, t=steps)
@few
def test_entropic_points_are_positive_and_feasible(name: str, y: np.ndarray, t: float):
    p = conjugate(Entropy(), ENTROPIC[name], y, t)
    assert (p > 0).all()
    assert ENTROPIC[name].array_violation(p) <= 1e-12


@over("name", ENTROPIC)
def test_entropy_agrees_with_cvxpy(name: str):
    terms = {
        "zero": lambda x: (0.0, []),
        "l1": lambda x: (0.7 * cp.sum(cp.abs(x)), []),
        "simplex": lambda x: (0.0, [cp.sum(x) == 1.3]),
        "l1_ball": lambda x: (0.0, [cp.sum(x) <= 1.5]),
        "box": lambda x: (0.0, [x >= 0.2, x <= 0.9]),
        "box_with_negative_lower": lambda x: (0.0, [x >= -1, x <= 0.9]),
    }
    t, x = 0.8, cp.Variable(SHAPE)
    psi, constraints = terms[name](x)
    for seed in range(3):
        objective = -cp.sum(cp.entr(x)) - cp.sum(x) + t * psi - cp.sum(cp.multiply(draw(seed), x))
        cp.Problem(cp.Minimize(objective), constraints).solve(**ACCURATE)
        np.testing.assert_allclose(conjugate(Entropy(), ENTROPIC[name], draw(seed), t), x.value, rtol=0, atol=1e-5)


def test_entropy_on_the_simplex_is_a_softmax():
    expected = 1.3 * scipy.special.softmax(draw(3))
    np.testing.assert_allclose(conjugate(Entropy(), Simplex(1.3), draw(3), 2.0), expected, rtol=1e-14)


@over("psi", [Simplex(1.3), L1Ball(1.5)], ids=["simplex", "l1_ball"])
def test_entropy_does_not_overflow_under_a_bound_on_the_sum(psi: Regularizer):
    p = conjugate(Entropy(), psi, 2000.0 + draw(4), 1.0)
    np.testing.assert_allclose(np.sum(p), 1.3 if isinstance(psi, Simplex) else 1.5, rtol=1e-12)


def test_entropy_does_not_overflow_in_a_box():
    assert (conjugate(Entropy(), Box(0.2, 0.9), 2000.0 + draw(4), 1.0) == 0.9).all()


@over("psi", WITHOUT_FORMULA, ids=lambda psi: type(psi).__name__)
def test_a_pair_without_a_formula_lists_those_that_have_one(psi: Regularizer):
    sentence = (
        f"^Entropy has no conjugate_grad with {type(psi).__name__}; it has one with: Zero, L1, Simplex, L1Ball, Box$"
    )
    with pytest.raises(TypeError, match=sentence):
        Entropy().conjugate_grad(draw(0), psi, 1.0)


@over("name", EUCLIDEAN)
def test_euclidean_conjugate_grad_is_the_prox(name: str):
    psi, y = EUCLIDEAN[name], {"weights": draw(5), "bias": draw(6)}
    got, expected = Euclidean().conjugate_grad(y, psi, 0.3), psi.prox(y, 0.3)
    assert all(np.array_equal(got[part], expected[part]) for part in y)


@over("part", ["intercept", "bias"])
@over("name", ENTROPIC)
def test_an_intercept_stays_euclidean_and_free_under_entropy(name: str, part: str):
    y = {"weights": draw(7), part: np.array([-3.0, 4.0])}
    np.testing.assert_array_equal(Entropy().grad({"weights": np.exp(draw(7)), part: y[part]})[part], y[part])
    np.testing.assert_array_equal(Entropy().conjugate_grad(y, ENTROPIC[name], 0.5)[part], y[part])


def test_an_intercept_named_by_blocks_gets_the_euclidean_prox_under_entropy():
    psi = Blocks({"weights": L1(0.7), "intercept": SquaredL2(2.0)})
    x = Entropy().conjugate_grad({"weights": draw(8), "intercept": np.array(-3.0)}, psi, 0.5)
    assert x["intercept"] == -1.5
    np.testing.assert_allclose(x["weights"], np.exp(draw(8) - 0.35), rtol=1e-14)


def test_weights_not_named_by_blocks_are_free_under_entropy():
    psi = Blocks({"b": Simplex()})
    x = Entropy().conjugate_grad({"a": draw(8), "b": draw(9)}, psi, 0.5)
    np.testing.assert_allclose(x["a"], np.exp(draw(8)), rtol=1e-14)
    np.testing.assert_allclose(np.sum(x["b"]), 1, rtol=1e-14)


@over("name", ENTROPIC)
def test_entropy_vmaps_over_points(name: str):
    points = np.stack([draw(i) for i in range(3)])
    together = jax.vmap(lambda y: conjugate(Entropy(), ENTROPIC[name], y, 0.5))(points)
    alone = [conjugate(Entropy(), ENTROPIC[name], y, 0.5) for y in points]
    np.testing.assert_allclose(together, alone, rtol=1e-14)


@over("name", ENTROPIC)
def test_entropy_keeps_float32(name: str):
    with jax.enable_x64(False):
        assert conjugate(Entropy(), ENTROPIC[name], jnp.asarray(draw(0), jnp.float32), 0.5).dtype == np.float32
