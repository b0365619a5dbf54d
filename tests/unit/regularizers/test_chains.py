"""Total variation and isotonic regression with weights: exact at any size, in a number of steps linear in it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from sklearn.isotonic import isotonic_regression

from fedlocal.regularizers.monotone import _pool, isotonic
from fedlocal.regularizers.total_variation import _ranges, total_variation_prox

SIZES = [1, 2, 3, 50, 500]
over = pytest.mark.parametrize
total_variation, pooled = jax.jit(total_variation_prox), jax.jit(isotonic)
ranges, pools = jax.jit(_ranges), jax.jit(_pool)


def problem(kind: str, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y and weights."""
    rng = np.random.default_rng(seed)
    noise, weights = rng.standard_normal(n), rng.uniform(0.3, 3.0, n)
    return {
        "noise": (3 * noise, weights),
        "steps": (np.repeat(rng.standard_normal(-(-n // 10)), 10)[:n] + 0.1 * noise, np.ones(n)),
        "walk": (np.cumsum(noise), weights),
        "increasing": (np.arange(n, dtype=float), np.ones(n)),
        "decreasing": (-np.arange(n, dtype=float), np.ones(n)),
        "tied": (np.round(noise), np.ones(n)),
        "spike": (np.where(np.arange(n) == n // 2, 1e3, 0.0), weights),
        "zigzag": (np.arange(n) % 2 * np.linspace(1, 9, n), np.ones(n)),
        "constant": (np.full(n, 0.1), np.ones(n)),
    }[kind]


KINDS = ["noise", "steps", "walk", "increasing", "decreasing", "tied", "spike", "zigzag", "constant"]


@over("kind", KINDS)
@over("n", SIZES)
@over("dtype", [np.float32, np.float64])
def test_total_variation_obeys_the_optimality_conditions(kind: str, n: int, dtype: type):
    y, weights = (a.astype(dtype).astype(float) for a in problem(kind, n))  # what float32 sees, known in float64
    for strength in (0.01, 0.7, 5.0, 1e3):
        x = np.asarray(total_variation(y.astype(dtype), weights.astype(dtype), dtype(strength)))
        assert x.dtype == dtype
        x, strength = x.astype(float), float(dtype(strength))
        # the sums of n numbers of this size in this precision
        rounding = 20 * np.finfo(dtype).eps * (np.abs(y) + weights * np.abs(x) + strength / n).sum()
        dual = np.cumsum(weights * x - y)  # z_k with D'z = y - weights x
        assert abs(dual[-1]) <= rounding
        assert np.abs(dual).max() <= strength + rounding
        jump = np.diff(x)
        # |z_k| < strength forbids a jump: complementarity
        slack = strength * np.abs(jump) - dual[:-1] * jump
        assert (slack <= (rounding + 1e-15) * np.maximum(np.abs(jump), 1)).all()


@over("n", [1, 2, 3, 50])
@over("kind", ["noise", "walk", "tied"])
def test_total_variation_agrees_with_its_dual_by_scipy(kind: str, n: int):
    y, weights = problem(kind, n, seed=1)
    for strength in (0.1, 2.0):
        x = y / weights
        if n > 1:
            differences, root = np.diff(np.eye(n), axis=0), np.sqrt(weights)
            # x = (y - D'z) / weights with z the solution of a least squares problem in a box
            z = scipy.optimize.lsq_linear(
                differences.T / root[:, None], y / root, (-strength, strength), tol=1e-15, method="bvls"
            ).x
            x = (y - differences.T @ z) / weights
        np.testing.assert_allclose(total_variation(y, weights, strength), x, rtol=0, atol=1e-10)


def test_total_variation_of_huge_close_numbers_keeps_their_digits():
    y, _ = problem("noise", 50)
    y = np.round(y * 2**20) / 2**20  # so that 1e8 + y is exact
    near, far = (total_variation(y + shift, np.ones(50), 0.7) for shift in (0.0, 1e8))
    # 1e8 * 2^-52 = 2e-8 is the distance of neighbouring numbers
    np.testing.assert_allclose(np.asarray(far) - 1e8, near, rtol=0, atol=5e-8)


@over("n", SIZES)
@over("kind", KINDS)
@over("dtype", [np.float32, np.float64])
def test_isotonic_agrees_with_scikit_learn(kind: str, n: int, dtype: type):
    y, weights = (a.astype(dtype).astype(float) for a in problem(kind, n))
    got = np.asarray(pooled(y.astype(dtype), weights.astype(dtype)))
    assert got.dtype == dtype
    assert (np.diff(got) >= 0).all()
    expected = isotonic_regression(y / weights, sample_weight=weights)
    # sums of n numbers one after the other
    atol = np.finfo(dtype).eps * n * np.abs(y / weights).max()
    np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


def loops(fn: Callable[..., Any], *args: Any) -> list[int | None]:
    """How often each loop of a program runs; None where that is not known before it does."""

    def walk(jaxpr: Any) -> list[int | None]:
        found: list[int | None] = []
        for equation in jaxpr.eqns:
            if equation.primitive.name == "scan":
                found.append(equation.params["length"])
            elif equation.primitive.name == "while":
                found.append(None)
            for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "jaxpr")):
                if hasattr(inner, "jaxpr"):
                    found += walk(inner.jaxpr)
        return found

    return walk(jax.make_jaxpr(fn)(*args).jaxpr)


@over("n", [2, 50, 500])
def test_the_loops_are_linear_also_under_vmap(n: int):
    y, weights = (jnp.asarray(a) for a in problem("noise", n))
    for batch in (lambda fn: fn, lambda fn: jax.vmap(fn, in_axes=(0, None))):
        ys = y if batch(len) is len else jnp.stack([y, -y, 2 * y])
        assert loops(batch(lambda y, w: _ranges(y, w, jnp.asarray(0.7))[0]), ys, weights) == [4 * n - 3]
        assert loops(batch(lambda y, w: _pool(y, w)[0]), ys, weights) == [2 * n - 1]


@over("kind", KINDS)
@over("n", [2, 50])
def test_the_work_is_done_within_the_loops(kind: str, n: int):
    y, weights = (jnp.asarray(a) for a in problem(kind, n))
    taken = [int(ranges(y, weights, s)[1]) for s in (0.01, 0.7, 50.0)]
    assert max(taken) <= 4 * n - 3
    assert min(taken) >= 2 * n - 1  # one for each end of each range
    assert n <= int(pools(y, weights)[1]) <= 2 * n - 1


def test_the_bounds_are_reached():
    decreasing = jnp.array([3.0, 2.0, 1.0, 0.0])
    assert pools(decreasing, jnp.ones(4))[1] == 2 * 4 - 1  # everything is merged into one block
    assert pools(-decreasing, jnp.ones(4))[1] == 4  # nothing is


def test_vmap_over_strengths_and_weights_equals_one_at_a_time():
    y, weights = problem("walk", 30)
    strengths, scales = np.array([0.0, 0.1, 3.0]), np.array([[1.0], [0.5], [2.0]])
    together = jax.vmap(total_variation, in_axes=(None, 0, 0))(y, scales * weights, strengths)
    alone = [total_variation(y, w, s) for w, s in zip(scales * weights, strengths, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)
    together = jax.vmap(pooled, in_axes=(None, 0))(y, scales * weights)
    np.testing.assert_allclose(together, [pooled(y, w) for w in scales * weights], rtol=0, atol=1e-12)
