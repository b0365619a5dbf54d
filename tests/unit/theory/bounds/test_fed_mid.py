"""FedMiD's bounds: values by hand, lemma against theorem, and where they apply; the text's claim for it on closed forms."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from fedlocal.core import Regularizer, Zero
from fedlocal.methods import FedDualAvg, FedMiD
from fedlocal.problems import quadratics
from fedlocal.regularizers import (
    L1,
    Blocks,
    Box,
    ElasticNet,
    L2Ball,
    Monotone,
    NonNegative,
    Nuclear,
    Simplex,
    SquaredL2,
)
from fedlocal.simulation.single_run import simulate
from fedlocal.theory.bounds.bound import Bound, Constants, Setting, tightest
from fedlocal.theory.bounds.composite import composite_small_step_bound
from fedlocal.theory.bounds.fed_mid import fed_mid_constraint_bound, fed_mid_osp_bound
from oracles import transcripts
from unit.theory.bounds.test_composite import CLOSE, CUTS, PROBLEMS, decades

CONSTRAINED: Any = partial(fed_mid_constraint_bound, regularizer=Box(-1.0, 1.0))
FINITE: Any = partial(fed_mid_osp_bound, regularizer=L1(0.3))

# L = 2, sigma = 4, B = 2 sqrt(2) / sqrt(2) = 2, G = 3
HAND = Constants(2.0, 4.0, 2 * math.sqrt(2), gradient_bound=3.0)


def terms(bound: Bound) -> list[float]:
    return list(bound.terms.values())


def test_constraints_by_hand():
    setting = Setting(clients=4, rounds=8, local_steps=2)
    # eta_c = 1/4, eta_s = 2, eta = 1/2: 4 / ((1/2) 16); max(1/2, 1/4) 2 * 9 / 2
    assert terms(CONSTRAINED(HAND, setting, 0.25, server_step_size=2.0)) == pytest.approx([0.5, 4.5], rel=1e-12)
    # eta_s = 1/2, eta = 1/8: 4 / ((1/8) 16); max(1/8, 1/4) 2 * 9 / 2
    assert terms(CONSTRAINED(HAND, setting, 0.25, server_step_size=0.5)) == pytest.approx([2, 2.25], rel=1e-12)
    # sqrt(2) 2 / (2 * 3 sqrt(8)) = 1/6, and sqrt(2) 2 * 3 / sqrt(8) = 3 in two equal terms
    bound = CONSTRAINED(HAND, setting)
    assert bound.step_size == pytest.approx(1 / 6, rel=1e-12)
    assert terms(bound) == pytest.approx([1.5, 1.5], rel=1e-12)
    assert CONSTRAINED(HAND, setting, server_step_size=4.0).value == pytest.approx(3, rel=1e-12)
    assert CONSTRAINED(HAND, setting, server_step_size=0.25).value == pytest.approx(6, rel=1e-12)
    assert terms(CONSTRAINED(HAND, setting, form="simplified")) == pytest.approx([6 / math.sqrt(8)], rel=1e-12)
    assert CONSTRAINED(replace(HAND, gradient_bound=0.0), setting).value == 0


def test_only_server_proximal_by_hand():
    setting = Setting(clients=4, rounds=8, local_steps=2)
    # eta_c = 1/64, eta_s = 4, eta = 1/16: 4 / ((1/16) 16); (1/16) 16 / 4; (1/4096) 2 * 1 * 3 * 9 / 6
    bound = FINITE(HAND, setting, 1 / 64, server_step_size=4.0)
    assert terms(bound) == pytest.approx([4, 0.25, 9 / 4096], rel=1e-12)
    assert bound.applies
    assert not FINITE(HAND, setting, 1.01 / 64, server_step_size=4.0).applies
    # L B^2 / R = 1; sigma B / sqrt(64) = 1; (2 * 16 * 9 / (64 * 3))^(1/3)
    assert terms(FINITE(HAND, setting)) == pytest.approx([4, 2, 2 * 1.5 ** (1 / 3)], rel=1e-12)
    assert terms(FINITE(HAND, setting, form="simplified")) == pytest.approx([1, 1, 4.5 ** (1 / 3)], rel=1e-12)
    # 1/(4 K L), 2 * 2 / (4 * 4) and (6 * 4 / (2 * 16 * 3 * 9))^(1/3)
    assert FINITE(HAND, setting).step_size == pytest.approx(1 / 16, rel=1e-12)
    assert FINITE(replace(HAND, noise=64.0), setting).step_size == pytest.approx(1 / 64, rel=1e-12)
    drifting = replace(HAND, gradient_bound=300.0)
    assert FINITE(drifting, setting).step_size == pytest.approx((24 / (2 * 16 * 3 * 90000)) ** (1 / 3), rel=1e-12)
    one_step = FINITE(HAND, Setting(clients=4, rounds=8, local_steps=1))
    assert one_step.terms["drift"] == 0
    assert one_step.step_size == 1 / 8


@given(constants=PROBLEMS, setting=CUTS, server_step_size=decades(-2, 4))
@settings(max_examples=100, deadline=None)
def test_the_bound_at_its_own_step_size_is_at_most_what_it_promises(constants, setting, server_step_size):
    for bound_fn in (CONSTRAINED, FINITE):
        chosen = partial(bound_fn, server_step_size=server_step_size)
        promised = chosen(constants, setting)
        assert promised.applies
        found = chosen(constants, setting, promised.step_size)
        assert found.applies
        assert found.value <= promised.value * CLOSE
    best = tightest(CONSTRAINED, constants, setting, CONSTRAINED(constants, setting).step_size * 10)
    assert CONSTRAINED(constants, setting).value <= best.value * CLOSE  # no step size is better


def test_with_small_client_steps_the_variant_has_the_rate_of_thm_0():
    setting = Setting(clients=4, rounds=64, local_steps=4)
    text = composite_small_step_bound(HAND, setting)
    bound = FINITE(HAND, setting, step_size=1e-6 * (text.step_size or 0), server_step_size=1e6)
    assert bound.applies
    assert bound.value < text.value


@pytest.mark.parametrize(
    ("psi", "constraint", "finite"),
    [
        (Zero(), True, True),
        *((psi, True, False) for psi in (NonNegative(), Box(-1.0, 1.0), L2Ball(1.0), Simplex(1.0), Monotone())),
        *((psi, False, True) for psi in (L1(0.1), SquaredL2(0.1), ElasticNet(0.1, 0.0), Nuclear(0.1))),
        (Blocks({"a": L1(0.1), "b": SquaredL2(0.1)}), False, True),
        (Blocks({"a": NonNegative(), "b": L2Ball(0.1)}), True, False),
        (Blocks({"a": NonNegative(), "b": L1(0.1)}), False, False),
    ],
)
def test_where_they_apply(psi: Regularizer, constraint: bool, finite: bool):
    setting = Setting(clients=4, rounds=8, local_steps=2)
    for form in ("full", "simplified"):
        assert fed_mid_constraint_bound(HAND, setting, form=form, regularizer=psi).applies == constraint
        assert fed_mid_osp_bound(HAND, setting, form=form, regularizer=psi).applies == finite


@pytest.mark.parametrize("bound_fn", [fed_mid_constraint_bound, fed_mid_osp_bound])
@pytest.mark.parametrize(
    ("constants", "given", "error", "message"),
    [
        (
            replace(HAND, gradient_bound=None),
            {},
            ValueError,
            "constants.gradient_bound must be a number >= 0, got None",
        ),
        (replace(HAND, distance=0.0), {}, ValueError, "constants.distance must be > 0"),
        (HAND, {"server_step_size": 0.0}, ValueError, "server_step_size must be > 0, got 0"),
        (HAND, {"step_size": -1.0}, ValueError, "step_size must be > 0, got -1"),
        (HAND, {"regularizer": 0.3}, TypeError, "regularizer must be a Regularizer, got 0.3"),
    ],
)
def test_what_is_wrong_is_named(bound_fn: Any, constants: Constants, given: Any, error: Any, message: str):
    with pytest.raises(error, match=f"{bound_fn.__name__}: {message}"):
        bound_fn(constants, Setting(4, 8, 2), **given)


# ---------------------------------------------------------------- thm:0 is false for FedMiD

# With L = 1, no noise and eta = 1/(4 K L), thm:0 promises 4 B^2 / R for the mean of the server's points after each round.

SMALL = 1e-6  # client step size
ROUNDS = 1000


def promised(distance: float, clients: int, local_steps: int) -> float:
    return composite_small_step_bound(Constants(1.0, 0.0, distance), Setting(clients, ROUNDS, local_steps)).value


@pytest.mark.parametrize(
    ("method", "end"),
    [
        (FedMiD(SMALL, 0.25 / SMALL, SquaredL2(1.0)), 1 / 3),
        (FedMiD(SMALL, 0.25 / SMALL, SquaredL2(1.0), prox_on_clients=False), 1 / 2),
        (FedDualAvg(SMALL, 0.25 / SMALL, SquaredL2(1.0)), 1 / 2),
    ],
)
def test_with_a_finite_psi_fed_mid_minimises_f_plus_two_psi(method: Any, end: float):
    """F = (x - 1)^2 / 2 and psi = x^2 / 2: x* = 1/2, and 1/3 minimises F + 2 psi."""
    problem = quadratics([[[1.0]]], [[1.0]], noise_std=0.0)
    result = simulate(
        problem,
        method,
        rounds=ROUNDS,
        local_steps=1,
        x0=np.zeros(1),
        average="rounds",
        eval_every=ROUNDS,
        progress=False,
    )
    x, last = float(result.x[0]), float(np.asarray(method.solution(result.server))[0])
    gap = (x - 1) ** 2 / 2 + x**2 / 2 - 1 / 4
    assert promised(1 / 2, 1, 1) == pytest.approx(0.0005, rel=1e-12)
    assert last == pytest.approx(end, abs=3e-3)  # FedDualAvg gets near like 1/R
    assert (gap <= 0.0005) == (end == 1 / 2)
    if end == 1 / 3:
        assert gap == pytest.approx(1 / 36, abs=2e-4)


def boxed(
    optima: list[list[float]], psi: Any, x0: list[float], local_steps: int, server_step_size: float
) -> np.ndarray:
    """The server's points of FedMiD as boxed with F_m = ||x - c_m||^2 / 2."""
    clients = [(1 / len(optima), [lambda x, c=c: x - np.array(c)] * local_steps) for c in optima]
    points = transcripts.fed_mid(np.array(x0), [clients] * ROUNDS, SMALL, server_step_size, psi)
    return np.stack([np.array(x0), *points])


def gap(points: np.ndarray, optima: list[list[float]], best: list[float]) -> float:
    """F at the mean of some points, above the optimum."""

    def F(x: np.ndarray) -> float:
        return float(np.mean([np.sum((x - np.array(c)) ** 2) / 2 for c in optima]))

    return F(points.mean(axis=0)) - F(np.array(best))


@pytest.mark.parametrize("local_steps", [1, 4])
def test_with_a_constraint_and_clients_that_differ_it_goes_back_and_forth(local_steps: int):
    """x <= 0, clients at -1 and 3/2, x* = 0. From 0 only the first client moves: 0, -1/8, -1/32, 0, ..., on average -5/96."""
    optima = [[-1.0], [1.5]]
    psi = transcripts.box(-np.inf, 0.0, np.array([True]))
    points = boxed(optima, psi, [-1.0], local_steps, 1 / (4 * local_steps * SMALL))
    np.testing.assert_allclose(np.sort(points[-3:, 0]), [-1 / 8, -1 / 32, 0], atol=1e-5)
    error = gap(points[1:], optima, [0.0])
    assert error > 7 * promised(1.0, 2, local_steps)
    assert error == pytest.approx((5 / 96) ** 2 / 2 + 5 / 96 / 4, rel=0.05)
    G = 2.5  # |x - 3/2| for -1 <= x <= 0
    setting, constants = Setting(2, ROUNDS, local_steps), Constants(1.0, 0.0, 1.0, gradient_bound=G)
    given: Any = {"server_step_size": 1 / (4 * local_steps * SMALL), "regularizer": Box(-1.0, 0.0)}
    bound = fed_mid_constraint_bound(constants, setting, SMALL, **given)
    assert bound.applies
    assert gap(points[:-1], optima, [0.0]) <= bound.value


def test_with_a_curved_constraint_it_goes_back_and_forth_even_with_one_client():
    """The unit disk, F = ||x - (0, 20)||^2 / 2: the client moves along the tangent, and far, as its gradient is long."""
    optima, mask = [[0.0, 20.0]], np.array([True, True])
    points = boxed(optima, transcripts.l2_ball(1.0, mask), [1.0, 0.0], 1, 0.25 / SMALL)
    np.testing.assert_allclose(points[-1], points[-3], atol=1e-9)
    np.testing.assert_allclose(points[-1] * [-1, 1], points[-2], atol=1e-9)
    assert gap(points[1:], optima, [0.0, 1.0]) > 800 * promised(math.sqrt(2), 1, 1)
    given: Any = {"server_step_size": 0.25 / SMALL, "regularizer": L2Ball(1.0)}
    constants, setting = Constants(1.0, 0.0, math.sqrt(2), gradient_bound=21.0), Setting(1, ROUNDS, 1)
    assert gap(points[:-1], optima, [0.0, 1.0]) <= fed_mid_constraint_bound(constants, setting, SMALL, **given).value
    # with a product of step sizes that suits the radius and not only L it ends at x*
    points = boxed(optima, transcripts.l2_ball(1.0, mask), [1.0, 0.0], 1, 0.05 / SMALL)
    np.testing.assert_allclose(points[-1], [0.0, 1.0], atol=1e-5)


def test_with_a_constraint_and_noise_more_clients_do_not_help():
    """x <= 0, all clients at c = 1/10, noise N(0, 1): at x* = 0 only the clients that the noise drives inwards move."""
    c, M, eta, rounds, rng = 0.1, 1000, 0.25, 4000, np.random.default_rng(0)
    x, visited = 0.0, []
    for _ in range(rounds):
        clients = np.minimum(x - SMALL * (x - c + rng.standard_normal(M)), 0.0)
        x = min(x + eta / SMALL * (clients.mean() - x), 0.0)
        visited.append(x)
    error = (np.mean(visited) - c) ** 2 / 2 - c**2 / 2
    setting = Setting(M, rounds, 1)
    text = composite_small_step_bound(Constants(1.0, 1.0, 1e-3), setting, step_size=eta)  # it starts at x*
    assert text.applies
    assert error > 3 * text.value


def test_on_an_affine_set_it_is_fed_avg_with_the_gradients_in_the_set():
    """The projection commutes with the mean, so that the proof of thm:0 holds; clients differ, with noise and four steps."""
    rng, K, eta_c, eta_s = np.random.default_rng(0), 4, 0.1, 1.7
    A, b = np.linalg.qr(rng.standard_normal((5, 2)))[0].T, np.array([0.4, -0.7])
    along = np.eye(5) - A.T @ A
    affine = transcripts.Psi(lambda v, t: v - A.T @ (A @ v - b), np.zeros_like)
    curvatures, optima = rng.uniform(0.2, 1.0, (3, 5)), rng.standard_normal((3, 5))
    noises = rng.standard_normal((20, 3, K, 5))

    def rounds(inside: np.ndarray) -> Any:
        def gradient(r: int, m: int, k: int) -> Any:
            return lambda x: inside @ (curvatures[m] * (x - optima[m]) + noises[r, m, k])

        return [[(1 / 3, [gradient(r, m, k) for k in range(K)]) for m in range(3)] for r in range(20)]

    x0 = affine.prox(np.zeros(5), 1.0)
    boxed_points = transcripts.fed_mid(x0, rounds(np.eye(5)), eta_c, eta_s, affine)
    averaged = transcripts.fed_mid(x0, rounds(along), eta_c, eta_s, transcripts.Psi(lambda v, t: v, np.zeros_like))
    np.testing.assert_allclose(boxed_points, averaged, rtol=0, atol=1e-12)
    assert np.abs(np.diff(boxed_points, axis=0)).max() > 0.1
