"""What one mirror map has that others do not: its numbers, its extremes, its identities."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from fedlocal.core import MirrorMap, Regularizer
from fedlocal.mirrors import DiagonalQuadratic, Entropy, Euclidean, PNorm
from fedlocal.mirrors.entropy import shrunk
from fedlocal.mirrors.pairs import water_level
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
    Nuclear,
    NuclearBall,
    Simplex,
    SquaredL2,
    TotalVariation,
    Zero,
)
from unit.mirrors.geometry import EVERY_MIRROR, MIRRORS, PSIS, SIZE, D, conjugate, draw
from unit.one_program import for_each

over = pytest.mark.parametrize
every_mirror = over("mirror", EVERY_MIRROR.values(), ids=EVERY_MIRROR)
MATRIX: dict[str, Regularizer] = {
    "nuclear": Nuclear(0.6),
    "nuclear_ball": NuclearBall(1.1),
    "l2_ball": L2Ball(1.2),
    "l2_norm": L2Norm(0.5),
    "group_l1": GroupL1(0.5),
    "lp": Lp(0.8, 3.0),
    "simplex": Simplex(1.3),
    "l1": L1(0.7),
}


@every_mirror
def test_grad_and_conjugate_grad_with_zero_are_inverse(mirror: MirrorMap):
    x = {"weights": np.exp(draw(0)), "intercept": np.array(-2.0)}
    back = mirror.conjugate_grad(mirror.grad(x), Zero(), 3.0)
    np.testing.assert_allclose(back["weights"], x["weights"], rtol=1e-13)
    assert back["intercept"] == -2
    np.testing.assert_allclose(mirror.grad(mirror.conjugate_grad(draw(1), Zero(), 3.0)), draw(1), rtol=0, atol=1e-14)


def test_euclidean_conjugate_grad_is_the_prox():
    y = {"weights": jnp.asarray(draw(5).reshape(3, 2)), "bias": jnp.asarray(draw(6))}
    both = for_each(lambda psi: (Euclidean().conjugate_grad(y, psi, 0.3), psi.prox(y, 0.3)))(MATRIX)
    for name, (got, expected) in both.items():
        assert all(np.array_equal(got[part], expected[part]) for part in y), name


# Entropy


def test_entropy_on_the_simplex_is_a_softmax():
    expected = 1.3 * scipy.special.softmax(draw(3))
    np.testing.assert_allclose(conjugate(Entropy(), Simplex(1.3), draw(3), 2.0), expected, rtol=1e-14)


@over("psi", [Simplex(1.3), L1Ball(1.5)], ids=["simplex", "l1_ball"])
def test_entropy_does_not_overflow_under_a_bound_on_the_sum(psi: Regularizer):
    p = conjugate(Entropy(), psi, 2000.0 + draw(4), 1.0)
    np.testing.assert_allclose(np.sum(p), 1.3 if isinstance(psi, Simplex) else 1.5, rtol=1e-12)


@over("psi", [Box(0.2, 0.9), LInfBall(0.9)], ids=["box", "l_inf_ball"])
def test_entropy_does_not_overflow_under_a_bound_on_each(psi: Regularizer):
    assert (conjugate(Entropy(), psi, 2000.0 + draw(4), 1.0) == 0.9).all()


@over("psi", [L1(2.0), LInf(12000.0), ElasticNet(1.0, 0.0)], ids=["l1", "l_inf", "elastic_net"])
def test_entropy_does_not_overflow_where_the_point_does_not(psi: Regularizer):
    """y - t s is small though y is large; l_inf lowers six equal coordinates by a sixth of t s each."""
    lowered = {"L1": 2000.0, "LInf": 2000.0, "ElasticNet": 1000.0}[type(psi).__name__]
    p = conjugate(Entropy(), psi, np.full(SIZE, lowered + 1.5), {"LInf": 1.0}.get(type(psi).__name__, 1000.0))
    np.testing.assert_allclose(p, np.exp(1.5), rtol=1e-12)


@over("psi", [Zero(), SquaredL2(1.0), LInf(1.0), TotalVariation(1.0)], ids=lambda psi: type(psi).__name__)
def test_entropy_of_a_very_negative_point_is_zero(psi: Regularizer):
    np.testing.assert_array_equal(conjugate(Entropy(), psi, np.full(SIZE, -2000.0), 1.0), 0)


shrunk_of = jax.jit(shrunk)
Y = np.concatenate([np.linspace(-700, 700, 141), [1e4, 1e8, 1e100]])


@over("a", [1e-200, 1e-8, 0.3, 1.0, 7.0, 1e8, 1e200])
def test_shrunk_is_lambert_w_to_machine_precision(a: float):
    x = np.asarray(shrunk_of(Y, a))
    b = Y + np.log(a)
    omega = scipy.special.wrightomega(b)  # W(e^b), so that a x = omega
    # an error of eps in b moves log x by b eps / (1 + omega)
    tolerance = 8 * np.finfo(float).eps * (1 + (np.abs(b) + np.abs(Y)) / (1 + omega))
    expected = np.where(omega > 1, omega / a, np.exp(np.where(omega > 1, 0, Y - omega)))
    np.testing.assert_array_less(np.abs(x / expected - 1), tolerance)


def test_shrunk_in_single_precision():
    with jax.enable_x64(False):
        y = np.array([-80.0, -1.0, 0.0, 1.0, 2.0, 50.0, 1e6, 1e30], np.float32)
        x = np.asarray(shrunk_of(y, 1.0))
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, scipy.special.wrightomega(y.astype(float)), rtol=2e-5)


def test_shrunk_by_nothing_is_exp():
    y = jnp.asarray(draw(0))
    np.testing.assert_array_equal(shrunk(y, 0.0), jnp.exp(y))


# PNorm


def both_points(mirror: MirrorMap, psis: dict[str, Regularizer], y: np.ndarray) -> dict[str, Any]:
    """The point of the mirror map with every regulariser, and the prox."""
    return for_each(lambda psi, y: (mirror.conjugate_grad(y, psi, 0.4), psi.prox(y, 0.4)))(psis, y)


def test_p_norm_of_two_is_euclidean():
    x = draw(0)
    np.testing.assert_allclose(PNorm(2).grad(x), x, rtol=1e-14)
    np.testing.assert_allclose(PNorm(2.0).value(x), Euclidean().value(x), rtol=1e-14)
    names = ("l1", "l_inf", "total_variation", "monotone")
    for got, expected in both_points(PNorm(2.0), {name: PSIS[name] for name in names}, x).values():
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-15)


@over("p", [1.001, 1.3, 2.0])
@over("size", [1e-30, 1.0, 1e30])
@over("dtype", [np.float32, np.float64])
def test_the_link_keeps_the_norm_and_the_direction_of_any_size(p: float, size: float, dtype: Any):
    """<x, grad h(x)> = ||x||_p^2 = ||grad h(x)||_q^2, for sizes whose squares overflow or vanish in single precision."""
    x = (draw(1) * size).astype(dtype)
    w = np.asarray(PNorm(p).grad(x))
    assert w.dtype == dtype
    a, b = x.astype(float) / size, w.astype(float) / size
    q, rtol = p / (p - 1), {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    np.testing.assert_allclose(
        np.linalg.norm(b / np.abs(b).max(), q) * np.abs(b).max(), np.linalg.norm(a, p), rtol=rtol
    )
    np.testing.assert_allclose(a @ b, np.linalg.norm(a, p) ** 2, rtol=rtol)


@over("p", [1.05, 1.5])
def test_the_link_of_zeros_is_zero(p: float):
    zeros = np.zeros(SIZE)
    np.testing.assert_array_equal(PNorm(p).grad(zeros), 0)
    np.testing.assert_array_equal(conjugate(PNorm(p), Zero(), zeros, 1.0), 0)
    assert PNorm(p).value(zeros) == 0


def test_the_link_keeps_zeros_ties_and_order():
    x = np.array([0.0, 2.0, -2.0, 2.0, 0.0, -3.0])
    w = np.asarray(PNorm(1.2).grad(x))
    np.testing.assert_array_equal(np.sign(w), np.sign(x))
    np.testing.assert_array_equal(scipy.stats.rankdata(w), scipy.stats.rankdata(x))


@over("p", [1, 1.0, 0.5, 2.5, [1.5, 3.0]])
def test_p_must_be_above_one_and_at_most_two(p: Any):
    with pytest.raises(ValueError, match=r"^PNorm: p must be > 1 and <= 2, got "):
        PNorm(p)


def test_p_must_be_a_number():
    with pytest.raises(TypeError, match=r"^PNorm: p must be a finite number, got 'x'$"):
        PNorm("x")


def test_lp_of_another_p_is_an_error_or_nan_where_p_is_traced():
    with pytest.raises(ValueError, match=r"^PNorm: .*same p only, got p=1.5 and Lp of p=1.25$"):
        PNorm(1.5).conjugate_grad(draw(0), Lp(1.0, 1.25), 0.1)
    assert np.isnan(conjugate(PNorm(1.5), Lp(1.0, 1.25), draw(0), 0.1)).all()


# DiagonalQuadratic


def test_ones_on_the_diagonal_are_euclidean():
    psis = {name: psi for name, psi in PSIS.items() if name != "lp"}
    for name, (got, expected) in both_points(DiagonalQuadratic(np.ones(SIZE)), psis, draw(2)).items():
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14, err_msg=name)


def test_one_number_on_the_diagonal_has_a_formula_with_every_regulariser():
    """min d/2 ||x||^2 + t psi - <y, x> is the prox of (t / d) psi at y / d."""
    t, d = 0.4, 2.5
    both = for_each(lambda psi, y: (DiagonalQuadratic(d).conjugate_grad(y, psi, t), psi.prox(y / d, t / d)))
    for name, (got, expected) in both(MATRIX, draw(3).reshape(3, 2)).items():
        np.testing.assert_allclose(got, expected, rtol=1e-14, err_msg=name)


def test_a_plain_diagonal_is_for_weights_and_a_named_one_for_what_it_names():
    x = {"layer": {"weights": np.ones(2), "bias": np.ones(2)}, "weights": np.ones(2), "intercept": np.array(1.0)}
    d = np.array([2.0, 3.0])
    for diagonal, expected in (
        (d, {"layer": {"weights": d, "bias": [1, 1]}, "weights": d, "intercept": 1}),
        ({"layer": 5.0}, {"layer": {"weights": [5, 5], "bias": [1, 1]}, "weights": [1, 1], "intercept": 1}),
        ({"layer": {"bias": d}}, {"layer": {"weights": [1, 1], "bias": d}, "weights": [1, 1], "intercept": 1}),
        ({"weights": d, "intercept": 7}, {"layer": {"weights": [1, 1], "bias": [1, 1]}, "weights": d, "intercept": 7}),
    ):
        mirror = DiagonalQuadratic(diagonal)
        mirror.check(x)
        jax.tree.map(np.testing.assert_array_equal, mirror.grad(x), expected)
        total = sum(np.sum(part) for part in jax.tree.leaves(expected))
        np.testing.assert_allclose(mirror.value(x), total / 2, rtol=1e-15)
        back = mirror.conjugate_grad(mirror.grad(x), Zero(), 1.0)
        jax.tree.map(np.testing.assert_array_equal, back, x)


class Pair(NamedTuple):
    a: Any
    b: Any


@over("diagonal", [Pair(2.0, 3.0), {"a": 2.0, "b": 3.0}], ids=["fields", "names"])
def test_parts_may_be_fields(diagonal: Any):
    got = DiagonalQuadratic(diagonal).grad(Pair(np.ones(2), np.ones(3)))
    np.testing.assert_array_equal(got.a, [2, 2])
    np.testing.assert_array_equal(got.b, [3, 3, 3])


@over("diagonal", [(2.0, 3.0), {1: 3.0, 0: 2.0}], ids=["tuple", "positions"])
def test_parts_may_be_positions(diagonal: Any):
    got = DiagonalQuadratic(diagonal).grad((np.ones(2), np.ones(3)))
    np.testing.assert_array_equal(np.concatenate(got), [2, 2, 3, 3, 3])


def test_a_named_intercept_follows_its_number_and_its_regulariser():
    mirror = DiagonalQuadratic({"weights": D, "intercept": 4.0})
    psi = Blocks({"weights": L1(0.7), "intercept": SquaredL2(2.0)})
    x = mirror.conjugate_grad({"weights": draw(8), "intercept": np.array(-3.0)}, psi, 0.5)
    np.testing.assert_allclose(x["intercept"], -3 / (4 + 0.5 * 2), rtol=1e-15)
    np.testing.assert_allclose(x["weights"], np.sign(draw(8)) * np.maximum(np.abs(draw(8)) - 0.35, 0) / D, rtol=1e-13)


def test_a_row_of_numbers_broadcasts_over_a_matrix():
    y, row = draw(9).reshape(3, 2), np.array([2.0, 5.0])
    expected = conjugate(DiagonalQuadratic(np.tile(row, 3)), Simplex(), y.ravel(), 0.5)
    got = DiagonalQuadratic(row).conjugate_grad(y, Simplex(), 0.5)
    np.testing.assert_allclose(got.ravel(), expected, rtol=1e-14)


@over(
    ("diagonal", "x", "sentence"),
    [
        (np.ones(3), np.ones(2), r"a diagonal of shape \(3,\) does not fit parameters of shape \(2,\)"),
        (np.ones((2, 2)), np.ones(2), r"a diagonal of shape \(2, 2\) does not fit parameters of shape \(2,\)"),
        ({"w": np.ones(3)}, {"w": np.ones(1)}, r"a diagonal of shape \(3,\) does not fit parameters of shape \(1,\)"),
        ({"v": 1.0}, {"w": np.ones(2)}, r"the parameters have no part 'v'; they have: \['w'\]"),
        ({"v": 1.0}, np.ones(2), r"the diagonal has parts \['v'\], the parameters are a single array of shape \(2,\)"),
        ([1.0, 2.0], np.ones(2), r"the diagonal has parts \[0, 1\], the parameters are a single array of shape \(2,\)"),
    ],
)
def test_a_diagonal_that_does_not_fit_says_so(diagonal: Any, x: Any, sentence: str):
    mirror = DiagonalQuadratic(diagonal)
    for call in (mirror.check, mirror.value, mirror.grad, lambda x: mirror.conjugate_grad(x, Zero(), 1.0)):
        with pytest.raises(ValueError, match=f"^DiagonalQuadratic: {sentence}"):
            call(x)


@over("diagonal", [0.0, -1.0, np.array([1.0, 0.0]), {"w": -2.0}, np.inf], ids=str)
def test_a_diagonal_must_be_positive(diagonal: Any):
    with pytest.raises(ValueError, match=r"^DiagonalQuadratic: diagonal must be > 0, got "):
        DiagonalQuadratic(diagonal)


@over("name", ["simplex", "l1_ball"])
def test_a_diagonal_keeps_digits_of_large_dual_points(name: str):
    """A shift of y by a multiple of two's power moves nothing on the simplex."""
    y = np.round(np.abs(draw(4)) * 64) / 64 + 8
    near, far = (conjugate(MIRRORS["diagonal"], PSIS[name], y + shift, 1.0) for shift in (0.0, 2.0**40))
    np.testing.assert_allclose(near, far, rtol=1e-12)


# The level

level = jax.jit(water_level)


@over("total", [0.0, 1e-3, 1.0, 50.0])
def test_water_level_fills_to_the_total(total: float):
    for seed in range(10):
        v, weights = draw(seed), np.exp(draw(50 + seed))
        c = float(level(v, weights, total))
        np.testing.assert_allclose(np.sum(weights * np.maximum(v - c, 0)), total, rtol=1e-12, atol=1e-14)


def test_water_level_of_ties_and_of_depths_that_would_overflow():
    assert level(np.full(4, 3.0), 2.0, 4.0) == 2.5
    assert level(np.array([0.0, -1e308]), 10.0, 5.0) == -0.5


# Starting points


def test_entropy_needs_a_positive_start_but_for_an_intercept():
    Entropy().check({"weights": np.ones(2), "intercept": np.array(-1.0)})
    with pytest.raises(ValueError, match=r"^Entropy: x0 must be > 0 in every weight, got 0.0"):
        Entropy().check({"weights": np.array([1.0, 0.0]), "intercept": np.array(-1.0)})
