"""Vectors of lanes in compiled loops against the same arithmetic in NumPy."""

import math
from typing import Any

import numba
import numpy as np
import pytest

from fedlocal.simulation.kernels.simd import exp, load, log1p, spread, store

ONE, MANY = (0,), (0,) * 16
BOUND = {np.float32: 87.0, np.float64: 708.0}
DIGITS = {np.float32: 2.4e-7, np.float64: 4e-16}  # two units in the last place, where NumPy itself is up to 1.96e-7 off


@numba.njit
def exps(lanes, x, out):
    for row in range(x.shape[0]):
        store(out, row, exp(load(lanes, x, row)))


@numba.njit
def log1ps(lanes, x, out):
    for row in range(x.shape[0]):
        store(out, row, log1p(load(lanes, x, row)))


def through(loop: Any, values: np.ndarray, lanes: tuple[int, ...]) -> np.ndarray:
    """Values, as many as fill rows of lanes, through a compiled loop."""
    x = np.ascontiguousarray(values).reshape(-1, len(lanes))
    out = np.empty_like(x)
    loop(lanes, x, out)
    return out.ravel()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_up_to_the_last_digits(dtype: Any):
    """NumPy's in extended precision is the truth."""
    rng = np.random.default_rng(0)
    bound = BOUND[dtype]
    parts = [np.linspace(-bound, bound, 4096), rng.uniform(-1, 1, 4096), rng.uniform(-1e-3, 1e-3, 2048)]
    halves = (np.arange(-64, 64) + 0.5) * np.log(2)  # where rounding to a power of two changes
    x = np.concatenate([*parts, halves, np.zeros(16)]).astype(dtype)
    truth = np.exp(x.astype(np.longdouble))
    error = np.abs(through(exps, x, MANY) - truth) / truth
    assert error.max() < DIGITS[dtype]
    assert (through(exps, np.zeros(16, dtype), MANY) == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_is_clipped_and_does_not_overflow(dtype: Any):
    bound = BOUND[dtype]
    huge = np.array([bound + 1, 1e4, np.finfo(dtype).max, np.inf] * 4, dtype)
    for sign in (1, -1):
        clipped = through(exps, sign * huge, MANY)
        np.testing.assert_allclose(clipped, np.exp(np.longdouble(sign * bound)), rtol=DIGITS[dtype])
    mixed = through(
        exps, np.array([np.nan, 1.0] * 8, dtype), MANY
    )  # nan ends somewhere, its neighbours stay themselves
    np.testing.assert_allclose(mixed[1::2], np.exp(1.0), rtol=DIGITS[dtype])


def test_exp_and_log1p_of_one_lane_are_those_of_the_library():
    x = np.random.default_rng(0).uniform(0, 1, 64)
    np.testing.assert_array_equal(through(exps, x, ONE), [math.exp(a) for a in x])
    np.testing.assert_allclose(through(log1ps, x, ONE), np.log1p(x), rtol=3e-16)


def test_log1p_between_zero_and_one():
    x = np.concatenate([np.linspace(0, 1, 1024), 10.0 ** np.linspace(-300, 0, 1024)])
    truth = np.log1p(x.astype(np.longdouble))
    error = np.abs(through(log1ps, x, MANY) - truth) / np.where(truth == 0, 1, truth)
    assert error.max() < 8e-16


@numba.njit
def arithmetic(lanes, a, b, out):
    x, y = load(lanes, a, 0), load(lanes, b, 0)
    z = x * 2.0 + y
    z -= 1.0
    z *= y
    z /= x
    z += 3
    store(out, 0, z)
    store(out, 1, 1.0 / y - x * -1.0)
    store(out, 2, max(x, y))
    store(out, 3, min(x, 0.25))


@pytest.mark.parametrize("lanes", [ONE, MANY])
@pytest.mark.parametrize("kinds", [(np.float64,) * 3, (np.float32,) * 3, (np.float32, np.float64, np.float64)])
def test_operators_in_mixed_precision(lanes: tuple[int, ...], kinds: tuple[Any, Any, Any]):
    """Numbers beside a vector take its precision; of two vectors the wider one counts, without rounding in between."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.1, 1, (1, len(lanes))).astype(kind) for kind in kinds[:2])
    out = np.empty((4, len(lanes)), kinds[2])
    arithmetic(lanes, a, b, out)
    x, y = a[0].astype(float), b[0].astype(float)
    wanted = [(x * 2 + y - 1) * y / x + 3, 1 / y + x, np.maximum(x, y), np.minimum(x, 0.25)]
    digits = 4e-7 if kinds[1] == np.float32 else 1e-15
    np.testing.assert_allclose(out, wanted, rtol=digits)


@numba.njit
def copy(lanes, source, row, target, other):
    store(target, other, spread(lanes, target, load(lanes, source, row)))


@numba.njit
def copy_directly(lanes, source, row, target, other):
    store(target, other, load(lanes, source, row))


@numba.njit
def fill(lanes, target, row, value):
    store(target, row, spread(lanes, target, value))


@pytest.mark.parametrize("lanes", [ONE, MANY])
@pytest.mark.parametrize("loop", [copy, copy_directly])
@pytest.mark.parametrize("kinds", [(np.float32, np.float64), (np.float64, np.float32)])
def test_rows_are_read_and_written_in_another_precision(lanes: tuple[int, ...], loop: Any, kinds: tuple[Any, Any]):
    source = np.random.default_rng(0).standard_normal((5, len(lanes))).astype(kinds[0])
    target = np.full((4, len(lanes)), 7, kinds[1])
    for row in (3, np.uint32(3), np.int32(3)):  # any integer is a row
        target[:] = 7
        loop(lanes, source, row, target, 2)
        np.testing.assert_array_equal(target[2], source[3].astype(kinds[1]))
        assert (target[[0, 1, 3]] == 7).all()
    fill(lanes, target, 1, 0.1)
    np.testing.assert_array_equal(target[1], np.full(len(lanes), 0.1, kinds[1]))


def test_arrays_that_are_not_contiguous_are_refused():
    good = np.zeros((4, 16))
    for bad in (np.zeros((4, 32))[:, ::2], np.zeros((16, 4)).T):
        for arguments in ((bad, 0, good, 0), (good, 0, bad, 0)):
            with pytest.raises(Exception, match="arrays must be contiguous"):
                copy(MANY, *arguments)
