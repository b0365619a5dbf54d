"""Values, divergences and conjugates of the mirror maps, and of h + t psi."""

import hypothesis.extra.numpy as hnp
import jax
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal.core import MirrorMap
from fedlocal.mirrors import DiagonalQuadratic, Entropy, Euclidean, PNorm
from fedlocal.regularizers import L1, Zero
from unit.mirrors.geometry import (
    EVERY_MIRROR,
    SIZE,
    TABLE,
    D,
    P,
    conjugate,
    conjugates,
    divergence,
    draw,
    feasibles,
    h,
    psi_values,
)
from unit.one_program import for_each

over = pytest.mark.parametrize
every_mirror = over("mirror", EVERY_MIRROR.values(), ids=EVERY_MIRROR)
SOME = {"l1", "elastic_net", "l_inf", "monotone", "simplex"}
SOME_PAIRS = {name: pair for name, pair in TABLE.items() if name.split("-")[1] in SOME}
few = settings(max_examples=12, deadline=None, derandomize=True)
vectors = hnp.arrays(np.float64, SIZE, elements=st.floats(-5, 5, allow_subnormal=False))

breg = jax.jit(lambda mirror, x, z: mirror.divergence(x, z))
generalized = jax.jit(lambda mirror, x, y, psi, t: mirror.generalized_divergence(x, y, psi, t))
generalized_divergences = for_each(lambda pair, x, y, t: pair[0].generalized_divergence(x, y, pair[1], t))


def inside(mirror: MirrorMap, x: np.ndarray) -> np.ndarray:
    return np.exp(x) if isinstance(mirror, Entropy) else x


@every_mirror
def test_value_is_h_and_grad_its_derivative(mirror: MirrorMap):
    x = inside(mirror, draw(0))
    np.testing.assert_allclose(mirror.value(x), h(mirror, x), rtol=1e-14)
    np.testing.assert_allclose(mirror.grad(x), jax.grad(mirror.value)(x), rtol=1e-13)
    moved = [h(mirror, x + 1e-6 * sign * np.eye(SIZE)[2]) for sign in (1, -1)]
    np.testing.assert_allclose(mirror.grad(x)[2], (moved[0] - moved[1]) / 2e-6, rtol=1e-7)


@every_mirror
def test_value_adds_over_parts_and_half_the_square_of_an_intercept(mirror: MirrorMap):
    weights = inside(mirror, draw(1))
    x = {"layer": {"weights": weights, "bias": np.array([3.0, -1.0])}, "intercept": np.array(-2.0)}
    np.testing.assert_allclose(mirror.value(x), h(mirror, weights) + 5.0 + 2.0, rtol=1e-14)


def test_entropy_is_zero_at_zero_and_infinite_below():
    assert Entropy().value(np.array([0.0, 1.0])) == -1
    assert Entropy().value(np.array([-1e-9, 1.0])) == np.inf


@every_mirror
@given(a=vectors, b=vectors)
@few
def test_divergence_is_its_formula_and_not_negative(mirror: MirrorMap, a: np.ndarray, b: np.ndarray):
    x, z = inside(mirror, a), inside(mirror, b)
    scale = 1 + abs(h(mirror, x)) + abs(h(mirror, z))
    got = float(breg(mirror, x, z))
    np.testing.assert_allclose(got, divergence(mirror, x, z), rtol=0, atol=1e-12 * scale)
    assert got >= -1e-12 * scale


@every_mirror
def test_divergence_is_zero_only_between_equal_points(mirror: MirrorMap):
    x = inside(mirror, draw(2))
    np.testing.assert_allclose(breg(mirror, x, x), 0, atol=1e-14)
    for i in range(SIZE):
        assert breg(mirror, x + 0.01 * np.eye(SIZE)[i], x) > 1e-7
        assert breg(mirror, x, x + 0.01 * np.eye(SIZE)[i]) > 1e-7


@over("mirror", [Euclidean(), DiagonalQuadratic(D)], ids=["euclidean", "diagonal"])
def test_divergence_of_a_quadratic_keeps_its_digits_between_close_points(mirror: MirrorMap):
    x, step = 1e3 + draw(3), np.ldexp(1.0, -30)
    weights = D if isinstance(mirror, DiagonalQuadratic) else np.ones(SIZE)
    np.testing.assert_allclose(breg(mirror, x + step, x), weights.sum() * step**2 / 2, rtol=1e-12)


def test_divergence_of_entropy_is_the_relative_entropy_also_at_zero():
    x, z = np.array([0.0, 0.0, 0.5]), np.array([0.0, 0.3, 0.7])
    np.testing.assert_allclose(breg(Entropy(), x, z), np.sum(scipy.special.kl_div(x, z)), rtol=1e-15)
    assert breg(Entropy(), z, x) == np.inf


@every_mirror
def test_divergence_of_an_intercept_is_half_the_squared_distance(mirror: MirrorMap):
    weights = inside(mirror, draw(4))
    x, z = ({"weights": weights, "intercept": np.array(value)} for value in (-1.0, 2.0))
    np.testing.assert_allclose(mirror.divergence(x, z), 4.5, rtol=1e-13)


def test_h_is_strongly_convex_in_the_p_norm_with_modulus_p_minus_one():
    for seed in range(20):
        x, z = draw(seed), draw(100 + seed)
        assert breg(PNorm(P), x, z) >= (P - 1) / 2 * np.linalg.norm(x - z, P) ** 2


@given(y=vectors, a=vectors, t=st.floats(0.0, 5))
@few
def test_generalized_divergence_is_its_formula_and_at_least_the_divergence(y: np.ndarray, a: np.ndarray, t: float):
    """Proposition generalized:bregman, and Fenchel-Young: the divergence is g(x) + g^*(y) - <x, y>."""
    z = conjugates(SOME_PAIRS, y, t)
    x = feasibles(SOME_PAIRS, {name: np.abs(a) if "entropy" in name else a for name in SOME_PAIRS})
    of_x, of_z = psi_values(SOME_PAIRS, x), psi_values(SOME_PAIRS, z)
    at_x, at_z = (generalized_divergences(SOME_PAIRS, point, y, t) for point in (x, z))
    for name, (mirror, _) in SOME_PAIRS.items():
        g_x, g_z = h(mirror, x[name]) + t * of_x[name], h(mirror, z[name]) + t * of_z[name]
        conjugate_of_y = y @ z[name] - g_z
        scale = float(1 + abs(g_x) + abs(g_z) + np.abs(y) @ (np.abs(x[name]) + np.abs(z[name])))
        expected = g_x + conjugate_of_y - x[name] @ y
        np.testing.assert_allclose(at_x[name], expected, rtol=0, atol=1e-12 * scale, err_msg=name)
        assert at_x[name] >= divergence(mirror, x[name], z[name]) - 1e-10 * scale, name
        np.testing.assert_allclose(at_z[name], 0, atol=1e-12 * scale, err_msg=name)


@every_mirror
def test_generalized_divergence_without_psi_is_the_divergence_from_the_primal_point(mirror: MirrorMap):
    x, z = inside(mirror, draw(5)), inside(mirror, draw(6))
    got = generalized(mirror, x, mirror.grad(z), Zero(), 2.0)
    np.testing.assert_allclose(got, divergence(mirror, x, z), rtol=1e-12)


def test_generalized_divergence_exceeds_the_divergence_where_psi_bends():
    x, y = np.array([1.0, -1.0]), np.array([0.5, 3.0])  # the prox of l1 is (0, 2): the first coordinate has slack
    got = Euclidean().generalized_divergence(x, y, L1(1.0), 1.0)
    np.testing.assert_allclose(got, 5.0 + 0.5 + 2.0, rtol=1e-14)  # D_h = 5; slack 1 - 0.5 and |-1| + 1
    assert got > divergence(Euclidean(), x, np.array([0.0, 2.0]))


CONJUGATES = {
    "euclidean": lambda y: np.sum(y**2) / 2,
    "entropy": lambda y: np.sum(np.exp(y)),
    "p_norm": lambda y: np.linalg.norm(y, P / (P - 1)) ** 2 / 2,
    "diagonal": lambda y: np.sum(y**2 / D) / 2,
}


@over("name", CONJUGATES)
def test_conjugate_grad_without_psi_attains_the_conjugate_of_h(name: str):
    mirror, y = EVERY_MIRROR[name], draw(7)
    z = np.asarray(conjugate(mirror, Zero(), y, 1.0))
    np.testing.assert_allclose(y @ z - h(mirror, z), CONJUGATES[name](y), rtol=1e-13)


def test_conjugate_grad_is_the_gradient_of_the_conjugate():
    """g^*(y) = <y, z> - g(z) with z = conjugate_grad: its slope along a direction is <z, direction>."""
    t, y, direction, step = 0.7, 2 * draw(8), draw(9), 1e-5

    def conjugate_values(y: np.ndarray) -> dict[str, float]:
        z = conjugates(TABLE, y, t)
        of_z = psi_values(TABLE, z)
        return {name: float(y @ z[name]) - h(TABLE[name][0], z[name]) - t * float(of_z[name]) for name in TABLE}

    after, before = (conjugate_values(y + sign * step * direction) for sign in (1, -1))
    for name, z in conjugates(TABLE, y, t).items():
        slope = (after[name] - before[name]) / (2 * step)
        np.testing.assert_allclose(slope, direction @ z, rtol=0, atol=1e-5, err_msg=name)
