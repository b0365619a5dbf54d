"""What a regulariser says about itself is true of its value and its proximal map."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from fedlocal.core import Regularizer
from fedlocal.regularizers import (
    L1,
    Box,
    ElasticNet,
    GroupL1,
    L1Ball,
    L2Ball,
    L2Norm,
    LInf,
    LInfBall,
    Lp,
    NonNegative,
    Nuclear,
    NuclearBall,
    Simplex,
    SquaredL2,
    TotalVariation,
    Zero,
)

EACH = [
    Zero(),
    L1(0.3),
    SquaredL2(0.7),
    ElasticNet(0.3, 0.7),
    NonNegative(),
    Box(-0.2, 0.5),
    Box(np.full((3, 2), -0.2), 0.5),
    Box(-np.inf, 0.5),
    LInfBall(0.4),
    L1Ball(0.8),
    L2Ball(0.8),
    Simplex(1.5),
    NuclearBall(0.8),
    Nuclear(0.3),
    GroupL1(0.3),
    L2Norm(0.3),
    LInf(0.3),
    Lp(0.3, 3.0),
    TotalVariation(0.3),
]
over_each = pytest.mark.parametrize("psi", EACH, ids=lambda psi: type(psi).__name__)


def points(count=6, size=2.0):
    return size * np.random.default_rng(0).normal(size=(count, 3, 2))


def array_of(psi):
    """Arrays of a shape that psi takes."""
    return (lambda x: x[:, 0]) if isinstance(psi, TotalVariation) else (lambda x: x)


@over_each
def test_separable_ones_have_a_proximal_map_of_each_number_alone(psi):
    """A step size for each coordinate, and a change of another coordinate, change one coordinate as they would alone."""
    if not psi.is_separable():
        assert psi.separable() is None
        first = np.array(points())
        first[:, 0, 0] = 2.0  # the same number, among others
        found = {float(psi.array_prox(jnp.asarray(array_of(psi)(x)), 1.0).ravel()[0]) for x in first}
        assert len(found) > 1
        return
    steps = np.linspace(0.1, 2.0, 6).reshape(3, 2)
    for x in points():
        with jax.enable_x64(True):
            found = np.asarray(psi.array_prox(jnp.asarray(x), jnp.asarray(steps)))
            each = [np.asarray(psi.array_prox(jnp.asarray(x), t)).flat[i] for i, t in enumerate(steps.flat)]
        np.testing.assert_allclose(found.ravel(), each, rtol=1e-12)


@over_each
def test_smooth_ones_have_the_gradient_that_they_say(psi):
    x = array_of(psi)(points()[0])
    if psi.is_smooth():
        with jax.enable_x64(True):
            gradient = jax.grad(psi.array_value)(jnp.asarray(x))
            np.testing.assert_allclose(psi.array_subgradient(jnp.asarray(x)), gradient, rtol=1e-12)
    else:  # a kink or a wall: some proximal map with a small step moves a point much further than the step
        near = 1e-3 * x
        moved = np.abs(np.asarray(psi.array_prox(jnp.asarray(near), 1e-2)) - near).max()
        far = np.abs(np.asarray(psi.array_prox(jnp.asarray(100 * x), 1e-6)) - 100 * x).max()
        assert moved > 1e-4 or far > 1e-4


@over_each
def test_psi_without_its_strong_convexity_is_convex(psi):
    c = float(psi.strong_convexity())
    assert c == {SquaredL2: 0.7, ElasticNet: 0.7}.get(type(psi), 0.0)
    take = array_of(psi)
    with jax.enable_x64(True):
        for x, y in zip(points(), points()[::-1], strict=True):
            x, y = (psi.array_prox(jnp.asarray(take(a)), 0.0) for a in (x, y))  # allowed points
            values = [float(psi.array_value(z) - c / 2 * jnp.sum(z**2)) for z in (x, y, (x + y) / 2)]
            assert values[2] <= (values[0] + values[1]) / 2 + 1e-12


@over_each
def test_no_allowed_point_is_longer_than_the_largest_norm(psi):
    take = array_of(psi)
    norms = [float(jnp.linalg.norm(psi.array_prox(jnp.asarray(take(x)), 1e-3))) for x in points(size=100.0)]
    largest = psi.largest_norm(take(points()[0]).shape)
    assert max(norms) <= largest * (1 + 1e-5)
    assert np.isfinite(largest) == (type(psi) in (LInfBall, L1Ball, L2Ball, Simplex, NuclearBall) or max(norms) < 10)


@over_each
def test_strengths_are_factors_of_the_value(psi):
    x = jnp.asarray(array_of(psi)(points()[0]))
    if psi.strengths():
        without = jax.tree.map(lambda a: 0.0 * a, psi)
        assert float(psi.array_value(x)) > 0 == float(without.array_value(x))
        assert all(float(s) > 0 for s in psi.strengths())
        assert all(float(s) == 0 for s in without.strengths())
    else:
        assert float(psi.array_value(psi.array_prox(x, 1.0))) == 0  # a constraint, or nothing


def test_an_elastic_net_without_squares_is_l1():
    assert isinstance(ElasticNet(0.3, 0.7).without_squares(), L1)
    assert ElasticNet(0.3, 0.7).without_squares().strength == 0.3
    same: Any = L2Norm(0.3).without_squares()
    assert same.strength == 0.3


def test_a_regulariser_that_says_nothing():
    class Mine(Regularizer):
        def array_value(self, x: jax.Array) -> jax.Array:
            return jnp.sum(x**4)

        def array_prox(self, x: jax.Array, t: fl.core.Scalar) -> jax.Array:
            return x

    mine = Mine()
    says = [mine.is_separable(), mine.is_smooth(), mine.has_conjugate(), mine.has_gauge(), bool(mine.strengths())]
    assert not any(says)
    assert mine.strong_convexity() == 0
    assert mine.largest_norm((3,)) == np.inf
    assert L1(1.0).has_conjugate()
    assert L1(1.0).has_gauge()
    assert not L1Ball(1.0).has_gauge()
