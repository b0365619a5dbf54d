"""Proximal maps of a matrix of weights: which threshold and which scale they amount to."""

import numpy as np

from fedlocal.simulation.kernels.jit import internal
from fedlocal.simulation.kernels.networks.buffers import ELASTIC, L1_BALL, L2_BALL
from fedlocal.simulation.kernels.networks.microkernels import beyond, reduced
from fedlocal.simulation.kernels.simd import load

SAMPLED = 16  # a first guess is made from every sixteenth vector
CLOSE = 1e-6  # of the radius by which a projection may be off
NEAR = 0.05  # part of a threshold by which a step down may change it for the density there to be known
LARGEST = 1e30  # threshold of finite weights


@internal
def newton_step(total, count, level, radius):
    """The next threshold: where a line through the sum of what is beyond the last one comes down to the radius."""
    if count == 0:
        return level / 2
    return max(level + (total - radius) / count, 0.0)


@internal
def l1_threshold(lanes, weights, vectors, radius, guess):
    """The threshold whose soft thresholding projects so many vectors onto the l1 ball; 0 within it, or if they are not finite.

    The sum over max(|w| - level, 0) is convex and piecewise linear, so that Newton's method rises to the threshold from the
    second step on. It stops where the next sum is close to the radius: because the present one is, which only falls, or
    because of the density of absolute values that the last step passed.
    """
    level, density = guess, 0.0
    total, count = beyond(lanes, weights, vectors, 1, level)
    if level == 0 and total > radius and vectors >= 64 * SAMPLED:
        level = _sampled_threshold(lanes, weights, vectors, radius)
        total, count = beyond(lanes, weights, vectors, 1, level)
    for _ in range(60):
        if level == 0 and not total > radius:
            return 0.0
        following = np.float64(np.float32(newton_step(total, count, level, radius)))
        moved = following - level
        if not following < LARGEST:
            return 0.0
        if moved == 0 or abs(total - radius) <= CLOSE * radius or 0 < 8 * density * moved * moved <= CLOSE * radius:
            return following
        level, before = following, count
        total, count = beyond(lanes, weights, vectors, 1, level)
        density = (before - count) / moved if moved > -NEAR * level else 0.0
    return level


@internal
def _sampled_threshold(lanes, weights, vectors, radius):
    """The threshold of a sample of the vectors with its share of the radius; 0 if that is not finite."""
    part, level = radius * ((vectors // SAMPLED) / vectors), 0.0
    for _ in range(20):
        total, count = beyond(lanes, weights, vectors, SAMPLED, level)
        last, level = level, newton_step(total, count, level, part)
        if not level < LARGEST:
            return 0.0
        if abs(level - last) <= 1e-3 * level:
            break
    return level


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
def proximal(sizes, strengths, cell, t, weights, vectors, scale, guess):
    """Threshold and scale of the proximal map of scale times so many vectors: it is scale' soft(vectors, threshold)."""
    if sizes.psi == L1_BALL:
        return l1_threshold(sizes.lanes, weights, vectors, strengths[cell, 0] / scale, guess), scale
    if sizes.psi == L2_BALL:
        norm = scale * norm_of(sizes.lanes, weights, vectors)
        return 0.0, scale * strengths[cell, 0] / norm if norm > strengths[cell, 0] else scale
    if sizes.psi == ELASTIC:
        return t * strengths[cell, 0] / scale, scale / (1 + t * strengths[cell, 1])
    return 0.0, scale
