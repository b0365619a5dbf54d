"""Proximal maps of a matrix of weights: which threshold and which scale they amount to."""

import numpy as np

from fedlocal.simulation.kernels.jit import internal
from fedlocal.simulation.kernels.networks.buffers import ELASTIC, L1_BALL, L2_BALL
from fedlocal.simulation.kernels.networks.microkernels import beyond, reduced
from fedlocal.simulation.kernels.simd import load

SAMPLED = 16  # a first guess is made from every sixteenth vector
CLOSE = 1e-6  # of the radius by which a projection may be off


@internal
def newton_step(total, count, level, radius):
    """The next threshold: where a line through the sum of what is beyond the last one comes down to the radius."""
    if count == 0:
        return level / 2
    return max(level + (total - radius) / count, 0.0)


@internal
def l1_threshold(lanes, weights, vectors, radius, guess, density):
    """The threshold whose soft thresholding projects so many vectors onto the l1 ball, 0 within it; and the density of their
    absolute values there.

    The sum over max(|w| - level, 0) is convex and piecewise linear, so that Newton's method rises to the threshold from the
    second step on. It stops where the next sum is known to be close: by the present one, which only falls, or by the density.
    """
    level = guess
    total, count = beyond(lanes, weights, vectors, 1, level)
    if level == 0 and total > radius and vectors >= 64 * SAMPLED:
        part = radius * ((vectors // SAMPLED) / vectors)
        for _ in range(20):
            found = beyond(lanes, weights, vectors, SAMPLED, level)
            last, level = level, newton_step(found[0], found[1], level, part)
            if abs(level - last) <= 1e-3 * level:
                break
        if not 0 < level < 1e30:
            return 0.0, 0.0
        total, count = beyond(lanes, weights, vectors, 1, level)
    for _ in range(60):
        if level == 0 and not total > radius:
            return 0.0, 0.0
        following = np.float64(np.float32(newton_step(total, count, level, radius)))
        if not following < 1e30:
            return 0.0, 0.0
        moved = following - level
        if moved == 0:
            return level, density
        if abs(total - radius) <= CLOSE * radius or (density > 0 and 2 * density * moved * moved <= CLOSE * radius):
            return following, density
        level, before = following, count
        total, count = beyond(lanes, weights, vectors, 1, level)
        density = abs(before - count) / abs(moved)
    return level, density


@internal
def norm_of(lanes, weights, vectors):
    """The Euclidean norm of so many vectors."""
    array, first = weights[0], weights[1] // len(lanes)
    zero = load(lanes, array, first) * 0.0
    a, b, c, d = zero, zero, zero, zero
    for j in range(first, first + vectors - 3, 4):
        a += load(lanes, array, j) * load(lanes, array, j)
        b += load(lanes, array, j + 1) * load(lanes, array, j + 1)
        c += load(lanes, array, j + 2) * load(lanes, array, j + 2)
        d += load(lanes, array, j + 3) * load(lanes, array, j + 3)
    for j in range(first + vectors // 4 * 4, first + vectors):
        a += load(lanes, array, j) * load(lanes, array, j)
    return np.sqrt(np.float64(reduced(a + b + (c + d))[1]))


@internal
def proximal(sizes, strengths, cell, t, weights, vectors, scale, guess, density):
    """Threshold, scale and density of the proximal map of scale times so many vectors: it is scale' soft(vectors, threshold)."""
    if sizes.psi == L1_BALL:
        level, density = l1_threshold(sizes.lanes, weights, vectors, strengths[cell, 0] / scale, guess, density)
        return level, scale, density
    if sizes.psi == L2_BALL:
        norm = scale * norm_of(sizes.lanes, weights, vectors)
        return 0.0, scale * strengths[cell, 0] / norm if norm > strengths[cell, 0] else scale, 0.0
    if sizes.psi == ELASTIC:
        return t * strengths[cell, 0] / scale, scale / (1 + t * strengths[cell, 1]), 0.0
    return 0.0, scale, 0.0
