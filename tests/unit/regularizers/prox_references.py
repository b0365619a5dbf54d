"""The prox of every regulariser of the table by its formula, in NumPy and float64; none of it is written from our code."""

from fractions import Fraction
from itertools import product

import numpy as np

from unit.regularizers.regularizer_cases import LABELS, LOWER, SHAPE, STRENGTHS, UPPER


def reference(name: str, x: np.ndarray, t: float = 0.5) -> np.ndarray:
    """The weights of the prox."""
    w = x[:6]
    return {
        "zero": lambda: w,
        "l1": lambda: np.sign(w) * np.maximum(np.abs(w) - 0.7 * t, 0),
        "squared_l2": lambda: w / (1 + 0.4 * t),
        "nuclear": lambda: w - spectral_ball(w, 0.6 * t),
        "l2_norm": lambda: shrink(w, 0.9 * t),
        "elastic_net": lambda: np.sign(w) * np.maximum(np.abs(w) - 0.3 * t, 0) / (1 + 0.5 * t),
        "group_l1_of_rows": lambda: np.concatenate([shrink(row, 0.6 * t) for row in w.reshape(SHAPE)]),
        "group_l1_of_labels": lambda: by_label(w, t * STRENGTHS),
        "linf": lambda: w - l1_ball(w, 0.8 * t),
        "lp_below_2": lambda: p_norm(w, 0.5 * t, 1.5),
        "lp_above_2": lambda: p_norm(w, 0.5 * t, 3.0),
        "total_variation": lambda: total_variation(w, 0.5 * t),
        "l1_ball": lambda: l1_ball(w, 1.5),
        "l2_ball": lambda: w * min(1.0, 1.2 / max(np.linalg.norm(w), 1e-300)),
        "linf_ball": lambda: np.clip(w, -0.7, 0.7),
        "nuclear_ball": lambda: nuclear_ball(w, 1.1),
        "non_negative": lambda: np.maximum(w, 0),
        "monotone": lambda: isotonic(w),
        "monotone_decreasing": lambda: -isotonic(-w),
        "box": lambda: np.clip(w, -0.5, 0.8),
        "box_of_arrays": lambda: np.clip(w, LOWER.ravel(), UPPER.ravel()),
        "simplex": lambda: simplex(w, 1.3),
    }[name]()


def shrink(w: np.ndarray, threshold: float) -> np.ndarray:
    return w * max(0.0, 1 - threshold / max(np.linalg.norm(w), 1e-300))


def by_label(w: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    z = np.zeros(6)
    for label, threshold in enumerate(thresholds):
        members = np.flatnonzero(label == LABELS.ravel())
        z[members] = shrink(w[members], threshold)
    return z


def simplex(u: np.ndarray, total: float) -> np.ndarray:
    u = u - u.max()  # a projection onto the simplex does not change when all coordinates move together
    ordered = np.sort(u)[::-1]
    thresholds = (np.cumsum(ordered) - total) / np.arange(1, u.size + 1)
    return np.maximum(u - thresholds[np.flatnonzero(ordered > thresholds)[-1]], 0)


def l1_ball(w: np.ndarray, radius: float) -> np.ndarray:
    return w if np.abs(w).sum() <= radius else np.sign(w) * simplex(np.abs(w), radius)


def spectral_ball(w: np.ndarray, radius: float) -> np.ndarray:
    u, s, vt = np.linalg.svd(w.reshape(SHAPE), full_matrices=False)
    return ((u * np.minimum(s, radius)) @ vt).ravel()


def nuclear_ball(w: np.ndarray, radius: float) -> np.ndarray:
    u, s, vt = np.linalg.svd(w.reshape(SHAPE), full_matrices=False)
    return ((u * l1_ball(s, radius)) @ vt).ravel()


def p_norm(w: np.ndarray, threshold: float, p: float) -> np.ndarray:
    """Bisection for c with c ||u||_p^(p-1) = threshold, where u + c u^(p-1) = |w| by bisection in each coordinate."""
    if np.linalg.norm(w, p / (p - 1)) <= threshold:
        return np.zeros_like(w)
    scale = np.abs(w).max()
    a, r = np.abs(w) / scale, threshold / scale

    def inner(c: float) -> np.ndarray:
        low, high = np.zeros_like(a), a.copy()
        for _ in range(56):  # until float64 has no number in between
            middle = (low + high) / 2
            below = middle + c * middle ** (p - 1) < a
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    low, high = np.log(1e-20), np.log(1e20)
    for _ in range(60):
        middle = (low + high) / 2
        c = np.exp(middle)
        low, high = (middle, high) if c * np.linalg.norm(inner(c), p) ** (p - 1) < r else (low, middle)
    return np.sign(w) * scale * inner(np.exp(low))


def total_variation(w: np.ndarray, threshold: float) -> np.ndarray:
    """Every pattern of jumps in exact arithmetic, until one obeys the optimality conditions."""
    y, r, n = [Fraction(v) for v in w], Fraction(threshold), len(w)
    for signs in product((0, 1, -1), repeat=n - 1):
        ends = [i for i in range(n) if i == n - 1 or signs[i]]
        x: list[Fraction] = []
        for end in ends:
            members = y[len(x) : end + 1]
            before = signs[len(x) - 1] if x else 0
            after = signs[end] if end < n - 1 else 0
            x += [(sum(members) + r * (after - before)) / len(members)] * len(members)
        dual = [sum(x[: k + 1]) - sum(y[: k + 1]) for k in range(n - 1)]
        jumps = [x[k + 1] - x[k] for k in range(n - 1)]
        if all(abs(z) <= r for z in dual) and all(s * j >= 0 for s, j in zip(signs, jumps, strict=True)):
            return np.array([float(v) for v in x])
    raise AssertionError("no pattern of jumps is optimal")


def isotonic(w: np.ndarray) -> np.ndarray:
    """The min-max formula: x_i is the largest over a <= i of the smallest over b >= i of the mean of w_a ... w_b."""
    n = len(w)
    return np.array([max(min(w[a : b + 1].mean() for b in range(i, n)) for a in range(i + 1)) for i in range(n)])
