"""The closed formulas of the transcripts against a general minimiser and the first-order condition."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from oracles import transcripts

MASK = np.array([False] + [True] * 6)
D = np.array([1.0, 0.5, 2.0, 3.0, 0.7, 1.2, 4.0])
P = 1.5


class Pair(NamedTuple):
    """h, and psi + indicator(bounds, total) on the masked coordinates, beside the formula."""

    mirror: transcripts.Mirror
    h: Callable[[np.ndarray], float]
    psi: Callable[[np.ndarray], float] = lambda x: 0.0  # of |x_i|
    bounds: tuple[float, float] = (-np.inf, np.inf)
    total: float | None = None


def _entropy(x: np.ndarray) -> float:
    return float(np.sum(x * np.log(x) - x))


def _p_norm(x: np.ndarray) -> float:
    return float(np.sum(np.abs(x) ** P) ** (2.0 / P) / 2.0)


def _diagonal(x: np.ndarray) -> float:
    return float(np.sum(D[MASK] * x**2) / 2.0)


def _l1(size: np.ndarray) -> float:
    return 0.3 * float(size.sum())


PAIRS = {
    "entropy_zero": Pair(transcripts.entropy_l1(0.0, MASK), _entropy, bounds=(1e-9, np.inf)),
    "entropy_l1": Pair(transcripts.entropy_l1(0.3, MASK), _entropy, _l1, bounds=(1e-9, np.inf)),
    "entropy_simplex": Pair(transcripts.entropy_simplex(0.8, MASK), _entropy, bounds=(1e-9, np.inf), total=0.8),
    "entropy_box": Pair(transcripts.entropy_box(0.5, 2.0, MASK), _entropy, bounds=(0.5, 2.0)),
    "p_norm_zero": Pair(transcripts.p_norm_l1(P, 0.0, MASK), _p_norm),
    "p_norm_l1": Pair(transcripts.p_norm_l1(P, 0.3, MASK), _p_norm, _l1),
    "diagonal_zero": Pair(transcripts.diagonal_elastic_net(D, 0.0, 0.0, MASK), _diagonal),
    "diagonal_l1": Pair(transcripts.diagonal_elastic_net(D, 0.3, 0.0, MASK), _diagonal, _l1),
    "diagonal_elastic_net": Pair(
        transcripts.diagonal_elastic_net(D, 0.3, 0.4, MASK), _diagonal, lambda size: _l1(size) + 0.2 * np.sum(size**2)
    ),
    "diagonal_box": Pair(transcripts.diagonal_box(D, -0.4, 0.3, MASK), _diagonal, bounds=(-0.4, 0.3)),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PAIRS)
def test_the_primal_map_is_the_minimiser(name: str, seed: int):
    """argmin of h(x) + t psi(x) - <y, x>, found by SLSQP over x = u - v with u, v >= 0, which makes the l1 norm smooth."""
    pair, rng, t = PAIRS[name], np.random.default_rng(seed), 1.7
    y = rng.standard_normal(7)
    x = pair.mirror.primal(y, t)
    assert x[0] == y[0]  # the intercept is Euclidean and free
    assert pair.mirror.dual(pair.mirror.inverse(y)) == pytest.approx(y, abs=1e-14)
    lower, upper = pair.bounds

    def objective(uv: np.ndarray) -> float:
        u, v = uv[:6], uv[6:]
        return pair.h(u - v) + t * pair.psi(u + v) - float(y[MASK] @ (u - v))

    positive = lower > 0
    bounds = [(max(lower, 0.0), upper)] * 6 + [(0.0, 0.0 if positive else -lower)] * 6
    constraints = () if pair.total is None else LinearConstraint(np.repeat([[1.0, -1.0]], 6), pair.total, pair.total)
    start = np.full(12, 0.25) if not positive else np.repeat([max(lower, 0.1), 0.0], 6)
    found = minimize(
        objective,
        start,
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-15, "maxiter": 500},
    ).x
    mine = np.concatenate([np.maximum(x[MASK], 0.0), np.maximum(-x[MASK], 0.0)])
    np.testing.assert_allclose(x[MASK], found[:6] - found[6:], atol=1e-4)
    assert objective(mine) <= objective(found) + 1e-10
    assert np.all((x[MASK] >= lower) & (x[MASK] <= upper))
    assert pair.total is None or x[MASK].sum() == pytest.approx(pair.total, rel=1e-14)


def _rows(x: np.ndarray) -> np.ndarray:
    return x[MASK].reshape(2, 3)


def _spectrum(x: np.ndarray) -> np.ndarray:
    return np.linalg.svd(_rows(x), compute_uv=False)


EUCLIDEAN: dict[str, tuple[transcripts.Psi, Callable[[np.ndarray], Any]]] = {
    "elastic_net": (
        transcripts.elastic_net(0.3, 0.2, MASK),
        lambda x: 0.3 * np.abs(x[MASK]).sum() + 0.1 * (x[MASK] ** 2).sum(),
    ),
    "l2_norm": (transcripts.l2_norm(0.3, MASK), lambda x: 0.3 * np.linalg.norm(x[MASK])),
    "group_l1": (
        transcripts.group_l1(0.5, [[1, 2, 3], [4, 5, 6]]),
        lambda x: 0.5 * np.linalg.norm(_rows(x), axis=1).sum(),
    ),
    "l_inf": (transcripts.l_inf(0.3, MASK), lambda x: 0.3 * np.abs(x[MASK]).max()),
    "nuclear_ball": (
        transcripts.nuclear_ball(0.5, MASK, (2, 3)),
        lambda x: 0.0 if _spectrum(x).sum() <= 0.5 + 1e-12 else np.inf,
    ),
    "non_negative": (transcripts.non_negative(MASK), lambda x: 0.0 if x[MASK].min() >= 0 else np.inf),
    "l_inf_ball": (
        transcripts.l_inf_ball(0.3, MASK),
        lambda x: 0.0 if np.abs(x[MASK]).max() <= 0.3 else np.inf,
    ),
}


@pytest.mark.parametrize("name", EUCLIDEAN)
def test_the_prox_meets_the_first_order_condition(name: str):
    """x = prox(v, t) if and only if t psi(z) >= t psi(x) + <v - x, z - x> for all z. Checked at z near and far."""
    (psi, value), rng = EUCLIDEAN[name], np.random.default_rng(0)
    for t in (0.1, 1.0, 3.0):
        v = rng.standard_normal(7)
        x = psi.prox(v, t)
        assert x[0] == v[0]
        assert np.isfinite(value(x))
        for distance in (1e-6, 1e-3, 0.1, 1.0):
            for _ in range(50):
                z = psi.prox(x + distance * rng.standard_normal(7), 1e-3 * distance)  # feasible, and on faces
                z[0] = x[0]
                assert t * value(z) - t * value(x) - (v - x) @ (z - x) >= -1e-13 * t
