"""The lemmas of FedAc on F + lambda/2 ||x - x0||^2 hold for any lambda and any step size, on an F that is not quadratic.

F(x) = sum_j a_j (sqrt(1 + x_j^2) - 1), which is convex and not strongly convex; all constants are exact. FedAc is written from
the box of the text, with all seeds in one array.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedlocal.theory.bounds.bound import Bound, Constants, Setting
from fedlocal.theory.bounds.fed_ac_augmented import (
    fed_ac_one_augmented_bound,
    fed_ac_two_augmented_bound,
    fed_ac_two_third_order_augmented_bound,
)

SCALES, START, SEEDS = np.array([1.0, 0.3, 0.02]), np.array([1.5, -2.0, 2.0]), 24
THIRD = 48 / 25 / math.sqrt(5)  # max |(sqrt(1 + t^2))'''|, at t = 1/2
LAMBDAS = (1e-3, 0.03, 0.3, 3.0)
SETTINGS = [Setting(M, R, K) for M, R, K in itertools.product((1, 8), (4, 64), (1, 16))]


def value(x: np.ndarray) -> np.ndarray:
    return (SCALES * (np.sqrt(1 + x**2) - 1)).sum(axis=-1)


def constants(noise: float) -> Constants:
    """Of noise that is uniform on [-noise, noise] in each coordinate: E n^2 = noise^2/3, E n^4 = noise^4/5."""
    d = len(SCALES)
    fourth = (d * noise**4 / 5 + d * (d - 1) * noise**4 / 9) ** 0.25
    sigma = noise * math.sqrt(d / 3)
    return Constants(1.0, sigma, float(np.linalg.norm(START)), third_order=THIRD, fourth_moment=fourth)


def fed_ac(kind: str, lam: float, eta: float, setting: Setting, noise: float) -> np.ndarray:
    """Mean x_ag after R rounds on F + lambda/2 ||x - x0||^2, (seeds, d), with mu = lambda in the parameters."""
    M, R, K = setting.clients, setting.rounds, setting.local_steps
    gamma = max(math.sqrt(eta / (lam * K)), eta)
    alpha = 1 / (gamma * lam) if kind == "one" else 3 / (2 * gamma * lam) - 1 / 2
    beta = alpha + 1 if kind == "one" else (2 * alpha**2 - 1) / (alpha - 1)
    rng = np.random.default_rng(0)
    x = x_ag = np.broadcast_to(START, (SEEDS, M, 3))
    for _ in range(R):
        for _ in range(K):
            x_md = x / beta + (1 - 1 / beta) * x_ag
            g = SCALES * x_md / np.sqrt(1 + x_md**2) + lam * (x_md - START) + rng.uniform(-noise, noise, x_md.shape)
            x_ag = x_md - eta * g
            x = (1 - 1 / alpha) * x + x_md / alpha - gamma * g
        x, x_ag = (np.broadcast_to(a.mean(axis=1, keepdims=True), a.shape) for a in (x, x_ag))
    return x_ag[:, 0]


@pytest.mark.parametrize(
    ("kind", "bound_fn"),
    [
        ("one", fed_ac_one_augmented_bound),
        ("two", fed_ac_two_augmented_bound),
        ("two", fed_ac_two_third_order_augmented_bound),
    ],
)
def test_augmented_lemmas_hold_for_any_lambda(kind: str, bound_fn: Callable[..., Bound]):
    """And without the term of the augmentation, or with a hundredth of what is left of the start, they do not."""
    largest, needed = 0.0, set()
    for noise, lam, setting in itertools.product((0.0, 0.5), LAMBDAS, SETTINGS):
        given: Any = constants(noise), setting, lam
        for step_size in (None, 0.01 / (1 + lam), 1 / (1 + lam)):
            bound = bound_fn(*given, step_size)
            assert bound.applies
            assert bound.step_size is not None
            error = value(fed_ac(kind, lam, bound.step_size, setting, noise))
            mean, spread = error.mean(), 4 * error.std(ddof=1) / math.sqrt(SEEDS)
            assert mean + spread <= bound.value, (noise, lam, setting, bound)
            largest = max(largest, mean / bound.value)
            needed |= {name for name, term in bound.terms.items() if mean - spread > bound.value - 0.99 * term}
    assert largest > 0.2
    assert {"regularization", "deterministic"} <= needed
