"""What a regulariser says about itself is true of its value and its proximal map."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
from unit.one_program import for_each

EACH: list[Regularizer] = [
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
TABLE = {f"{type(psi).__name__} {i}": psi for i, psi in enumerate(EACH)}
COUNT = 6


def points(size: float = 2.0) -> np.ndarray:
    return size * np.random.default_rng(0).normal(size=(COUNT, 3, 2))


def fit(psi: Regularizer, x: Any) -> Any:
    """Arrays of a shape that psi takes."""
    return x[..., 0] if isinstance(psi, TotalVariation) else x


array_proxes = for_each(lambda psi, xs, ts: jax.vmap(psi.array_prox)(fit(psi, xs), ts))
array_values = for_each(lambda psi, xs: jax.vmap(psi.array_value)(xs))


def proxes(xs: np.ndarray, t: Any) -> dict[str, np.ndarray]:
    """The proximal maps of COUNT arrays, each with its step size, or all with one."""
    return array_proxes(TABLE, xs, np.broadcast_to(np.asarray(t, float), COUNT))


def test_separable_ones_have_a_proximal_map_of_each_number_alone():
    """A step size for each coordinate, and a change of another coordinate, change one coordinate as they would alone."""
    separable = {name: psi for name, psi in TABLE.items() if psi.is_separable()}
    first = points()
    first[:, 0, 0] = 2.0  # the same number, among others
    moved = proxes(first, 1.0)
    for name in TABLE.keys() - separable.keys():
        assert TABLE[name].separable() is None, name
        assert len({float(x.ravel()[0]) for x in moved[name]}) > 1, name
    steps = np.linspace(0.1, 2.0, COUNT).reshape(3, 2)
    found = for_each(lambda psi, xs, t: jax.vmap(lambda x: psi.array_prox(x, t))(xs))(separable, points(), steps)
    for k, x in enumerate(points()):
        alone = proxes(np.stack([x] * COUNT), steps.ravel())
        for name in separable:
            each = alone[name].reshape(COUNT, COUNT).diagonal()
            np.testing.assert_allclose(found[name][k].ravel(), each, rtol=1e-12, err_msg=name)


def test_smooth_ones_have_the_gradient_that_they_say():
    x = points()[0]
    smooth = {name: psi for name, psi in TABLE.items() if psi.is_smooth()}
    both = for_each(lambda psi, x: (psi.array_subgradient(x), jax.grad(psi.array_value)(x)))(smooth, x)
    for name, (said, gradient) in both.items():
        np.testing.assert_allclose(said, gradient, rtol=1e-12, err_msg=name)
    # a kink or a wall: some proximal map with a small step moves a point much further than the step
    pair = np.stack([1e-3 * x, 100 * x] * (COUNT // 2))
    found = proxes(pair, [1e-2, 1e-6] * (COUNT // 2))
    for name in TABLE.keys() - smooth.keys():
        near, far = np.abs(found[name] - fit(TABLE[name], pair))[:2]
        assert near.max() > 1e-4 or far.max() > 1e-4, name


def test_psi_without_its_strong_convexity_is_convex():
    x = proxes(points(), 0.0)  # allowed points
    y = {name: p[::-1] for name, p in x.items()}
    middle = {name: (x[name] + y[name]) / 2 for name in TABLE}
    of_x, of_y, of_middle = ((z, array_values(TABLE, z)) for z in (x, y, middle))
    for name, psi in TABLE.items():
        c: Any = psi.strong_convexity()
        assert float(c) == {SquaredL2: 0.7, ElasticNet: 0.7}.get(type(psi), 0.0)
        ends, center = (
            [values[name] - c / 2 * np.sum(z[name].reshape(COUNT, -1) ** 2, axis=1) for z, values in parts]
            for parts in ([of_x, of_y], [of_middle])
        )
        assert (center[0] <= (ends[0] + ends[1]) / 2 + 1e-12).all(), name


def test_constraints_are_zero_where_they_allow_and_what_is_finite_allows_everything():
    """Projections do not depend on the step size; what is neither is for users."""
    allowed, anywhere = proxes(points(), 1.0), {name: fit(psi, points(size=100.0)) for name, psi in TABLE.items()}
    inside, everywhere = array_values(TABLE, allowed), array_values(TABLE, anywhere)
    larger = proxes(points(), 5.0)
    for name, psi in TABLE.items():
        same = np.allclose(larger[name], allowed[name], rtol=1e-9, atol=1e-12)
        assert psi.is_constraint() == (bool(np.all(inside[name] == 0)) and same), name
        assert psi.is_finite() == bool(np.isfinite(everywhere[name]).all()), name


def test_no_allowed_point_is_longer_than_the_largest_norm():
    for name, moved in proxes(points(size=100.0), 1e-3).items():
        longest, psi = max(np.linalg.norm(x) for x in moved), TABLE[name]
        largest = psi.largest_norm(moved[0].shape)
        assert longest <= largest * (1 + 1e-5), name
        bounded = isinstance(psi, (LInfBall, L1Ball, L2Ball, Simplex, NuclearBall)) or longest < 10
        assert np.isfinite(largest) == bounded, name


def test_strengths_are_factors_of_the_value():
    without = {name: jax.tree.map(lambda a: 0.0 * a, psi) if psi.strengths() else psi for name, psi in TABLE.items()}
    xs = {name: fit(psi, points()) for name, psi in TABLE.items()}
    of_x, of_none, of_p = array_values(TABLE, xs), array_values(without, xs), array_values(TABLE, proxes(points(), 1.0))
    for name, psi in TABLE.items():
        if psi.strengths():
            assert of_x[name][0] > 0 == of_none[name][0], name
            assert all(float(s) > 0 for s in psi.strengths()), name
            assert all(float(s) == 0 for s in without[name].strengths()), name
        else:
            assert of_p[name][0] == 0, name  # a constraint, or nothing


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
