"""The instability of accelerated gradient descent: an objective on which two close runs part, and how far runs can part."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from fedlocal.methods import FedAc
from fedlocal.util import checks
from fedlocal.util.optional import optional_import

DIGITS, DIGITS_PER_BLOCK = 60, 8  # to begin with
SAFETY = 1000  # how much smaller than the neighbourhood rounding errors must be


class Step(NamedTuple):
    """A state of AGD, with the point at which it queries the gradient."""

    ag: Any
    md: Any
    w: Any


class Bump(NamedTuple):
    """An interval on which the curvature is L."""

    center: Any
    radius: Any


@dataclass(frozen=True)
class UnstableObjective:
    r"""F with F(0) = F'(0) = 0 and F'' = L on some intervals, mu elsewhere, and a start of AGD with prescribed curvatures.

    mu is 1 and L is kappa. For t < 3 K with K = `blocks`, F'' is L on [w_md^(t) - delta, w_md^(t) + delta] if t mod 3 is
    `stiff_step`, mu if not. Numbers are mpmath's, with `digits` digits, for the intervals shrink geometrically.
    """

    kappa: float
    blocks: int  # K
    stiff_step: int
    digits: int
    bumps: tuple[Bump, ...]
    start: tuple[Any, Any]  # (w_ag, w)
    neighbourhood: Any  # delta

    def gradient(self, w: Any) -> Any:
        """F'(w) = mu w + (L - mu) |[0, w] inside the intervals|."""
        return w + (self.kappa - 1) * (self._inside(w) - self._inside(0))

    def curvature(self, w: Any) -> float:
        """F''(w); the intervals are closed."""
        return self.kappa if any(abs(w - bump.center) <= bump.radius for bump in self.bumps) else 1.0

    def wanted_curvature(self, t: int) -> float:
        return self.kappa if t % 3 == self.stiff_step else 1.0

    @property
    def largest_epsilon(self) -> Any:
        """How far a second run may start from the first, in both sequences, to see the same curvatures for 3 K steps."""
        root = self.kappa**0.5
        agd = FedAc.vanilla(step_size=1 / self.kappa, strong_convexity=1.0)
        product, largest = np.eye(2), 0.0
        for t in range(3 * self.blocks):
            largest = max(largest, float(np.abs(np.array([root, 1.0]) / (root + 1) @ product).sum()))
            product = difference_matrix(agd, self.wanted_curvature(t)) @ product
        return self.neighbourhood / (1.001 * largest)  # rounding of float64 included

    @cached_property
    def _intervals(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Left ends, right ends, and how much of the intervals is left of each."""
        lefts, rights = (sorted(c + sign * r for c, r in self.bumps) for sign in (-1, 1))
        lengths = (right - left for left, right in zip(lefts, rights, strict=True))
        return lefts, rights, list(accumulate(lengths, initial=0))

    def _inside(self, w: Any) -> Any:
        """How much of the intervals is left of w."""
        lefts, rights, before = self._intervals
        i = bisect_right(lefts, w)
        return before[i] - max(rights[i - 1] - w, 0) if i else 0


def growth_factor(kappa: float) -> float:
    r"""2 (1 - 1/sqrt(kappa))^3: by how much the distance of two runs grows in three steps of curvatures mu, L, mu.

    Reference: dissertation, proof of theorem agd:instability. Differs from it: nothing.

    >>> round(growth_factor(25.0), 12)
    1.024
    """
    return 2 * (1 - checks.number("growth_factor", "kappa", kappa, at_least=1) ** -0.5) ** 3


def unstable_objective(kappa: float, blocks: int, stiff_step: int = 1) -> UnstableObjective:
    r"""The objective of the instability theorem for `blocks` times three steps of AGD, by the construction of its proof.

    F_0 = mu/2 w^2. From F_k to F_{k+1}, an interval of curvature L is put around the point w_md^(3k+1) that AGD queries, so
    small that the later points stay where the curvature is mu. With u^(0) = w^(0) - eps, u_ag^(0) = w_ag^(0) - eps for an eps
    of at most `largest_epsilon`, and r = 2 (1 - 1/sqrt(kappa))^3, the distances after 3 K steps are

        |w_ag - u_ag| = eps/2 (1 + 1/sqrt(kappa)) r^K,    |w - u| = eps/2 (1 + sqrt(kappa)) r^K    with `stiff_step` 1,
        |w_ag - u_ag| = eps r^K,                          |w - u| = eps/2 sqrt(kappa) r^K          with `stiff_step` 0.

    Reference: dissertation, theorem agd:instability, claim instability:induction. Differs from it: `stiff_step` says which of
    three steps sees curvature L. With the text's, 1, the bounds eps/2 1.02^K on w_ag and eps 1.02^K on w of the proof hold; the
    statement has them exchanged, and it holds with 0.

    >>> objective = unstable_objective(kappa=100.0, blocks=3)
    >>> bool(objective.neighbourhood > 0), len(objective.bumps)
    (True, 3)
    >>> [round(float(factor), 9) for factor in growth(objective, objective.largest_epsilon)[:, 1]]
    [1.0, 8.019, 11.691702, 17.046501516]
    """
    checks.number("unstable_objective", "kappa", kappa, above=1)
    checks.whole("unstable_objective", "blocks", blocks)
    checks.whole("unstable_objective", "stiff_step", stiff_step, at_least=0, at_most=2)
    digits = DIGITS + DIGITS_PER_BLOCK * blocks
    while True:
        objective = _constructed(float(kappa), blocks, stiff_step, digits)
        if objective is not None and _digits_are_enough(objective):
            return objective
        digits *= 2


def agd_trajectory(
    objective: UnstableObjective, start: tuple[Any, Any] | None = None, steps: int | None = None
) -> list[Step]:
    """The states 0, ..., `steps` of AGD from (w_ag, w): by default from the objective's start, 3 K of them.

    >>> steps = agd_trajectory(unstable_objective(kappa=25.0, blocks=2))
    >>> [unstable_objective(kappa=25.0, blocks=2).curvature(step.md) for step in steps[:6]]
    [1.0, 25.0, 1.0, 1.0, 25.0, 1.0]
    """
    context = _context(objective.digits)
    kappa, root = context.mpf(objective.kappa), context.sqrt(objective.kappa)
    ag, w = (context.mpf(value) for value in start or objective.start)
    seen = []
    for _ in range(steps if steps is not None else 3 * objective.blocks):
        md = (w + root * ag) / (root + 1)
        g = objective.gradient(md)
        seen.append(Step(ag, md, w))
        ag, w = md - g / kappa, (1 - 1 / root) * w + md / root - g / root
    return [*seen, Step(ag, (w + root * ag) / (root + 1), w)]


def distances(objective: UnstableObjective, epsilon: Any, steps: int | None = None) -> np.ndarray:
    """Distances (|w_ag - u_ag|, |w - u|) / eps of two runs of AGD, the second from eps to the left, one row per step."""
    first = agd_trajectory(objective, steps=steps)
    moved = (objective.start[0] - epsilon, objective.start[1] - epsilon)
    second = agd_trajectory(objective, moved, steps)
    apart = [[abs(a.ag - b.ag), abs(a.w - b.w)] for a, b in zip(first, second, strict=True)]
    return np.array([[float(distance / epsilon) for distance in row] for row in apart])


def growth(objective: UnstableObjective, epsilon: Any) -> np.ndarray:
    """`distances` after each three steps: K + 1 rows."""
    return distances(objective, epsilon)[::3]


def gradient_descent_distances(objective: UnstableObjective, epsilon: Any, steps: int) -> np.ndarray:
    """Distances / eps of two runs of w <- w - F'(w) / L on the same objective, from w_ag^(0) and eps to the left of it."""
    first, second = objective.start[0], objective.start[0] - epsilon
    seen = [1.0]
    for _ in range(steps):
        first, second = (w - objective.gradient(w) / objective.kappa for w in (first, second))
        seen.append(float(abs(first - second) / epsilon))
    return np.array(seen)


def difference_matrix(method: FedAc, curvature: float) -> np.ndarray:
    r"""By what a step multiplies the difference (x_ag, x) of two noiseless runs that see the curvature H:

        [[(1 - 1/beta)(1 - eta H),            1/beta (1 - eta H)                          ],
         [(1 - 1/beta)(1/alpha - gamma H),    1/beta (1/alpha - gamma H) + (1 - 1/alpha)]].

    `FedAc.vanilla(step_size=1/L, strong_convexity=mu)` is AGD; then the last entry is sqrt(kappa)/(sqrt(kappa) + 1) (1 - H/L).
    Reference: dissertation, claim fedac:general:stab and lemma instability:2. Differs from it: nothing.

    >>> agd = FedAc.vanilla(step_size=1 / 25, strong_convexity=1.0)
    >>> difference_matrix(agd, 1.0).round(12).tolist()
    [[0.8, 0.16], [0.0, 0.8]]
    """
    ag, x = 1 - 1 / method.beta, 1 / method.beta
    shrink, pull = 1 - method.eta * curvature, 1 / method.alpha - method.gamma * curvature
    return np.array([[ag * shrink, x * shrink], [ag * pull, x * pull + 1 - 1 / method.alpha]])


def worst_distances(method: FedAc, smoothness: float, strong_convexity: float, steps: int) -> np.ndarray:
    r"""The largest |x_ag - y_ag| and |x - y| that two runs can have after 0, ..., `steps` steps, over all sequences of curvatures
    in [mu, L] and all starts with both distances at most 1; one row per number of steps.

    It is exact: differences are affine in each curvature, so mu and L are the worst, and a convex function is largest at a
    vertex of the convex hull of all differences that can be reached, which each step maps to the hull of its two images.

    >>> agd = FedAc.vanilla(step_size=1 / 25, strong_convexity=1.0)
    >>> worst_distances(agd, smoothness=25.0, strong_convexity=1.0, steps=1).round(6).tolist()
    [[1.0, 1.0], [0.96, 4.0]]
    """
    matrices = [difference_matrix(method, h).T for h in (strong_convexity, smoothness)]
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    largest = [np.abs(corners).max(axis=0)]
    for _ in range(checks.whole("worst_distances", "steps", steps, at_least=0)):
        corners = _hull(np.concatenate([corners @ matrix for matrix in matrices]))
        largest.append(np.abs(corners).max(axis=0))
    return np.array(largest)


def _constructed(kappa: float, blocks: int, stiff_step: int, digits: int) -> UnstableObjective | None:
    """The construction, or nothing if the intervals shrink too much for these digits."""
    context = _context(digits)
    start, zero = (context.mpf(1), context.mpf(0)), context.mpf(0)
    found = UnstableObjective(kappa, blocks, stiff_step, digits, (), start, zero)
    queries = [step.md for step in agd_trajectory(found)]
    delta = _neighbourhood(found, queries)
    for k in range(blocks):
        radius = context.ldexp(1, context.mag(delta / kappa**0.5) - 3)  # a power of two
        while True:
            t = 3 * k + stiff_step  # the interval is about the point queried now, then about the one queried with it
            tilde = _with(found, Bump(queries[t], radius))
            following = _with(found, Bump(agd_trajectory(tilde, steps=t)[t].md, radius))
            after = [step.md for step in agd_trajectory(following)]
            if max(abs(a - b) for a, b in zip(queries[:-1], after[:-1], strict=True)) <= delta / 2:
                break
            radius /= 2
            if radius < context.mpf(10) ** (-digits // 2):
                return None
        found, queries = following, after
        delta = _neighbourhood(found, queries)
    return replace(found, neighbourhood=delta)


def _with(objective: UnstableObjective, bump: Bump) -> UnstableObjective:
    return replace(objective, bumps=(*objective.bumps, bump))


def _neighbourhood(objective: UnstableObjective, queries: Sequence[Any]) -> Any:
    """The largest delta for which every query has one curvature within delta, and queries are 2 delta apart, nearly."""
    edges = [edge for c, r in objective.bumps for edge in (c - r, c + r)]
    asked = sorted(queries[: 3 * objective.blocks])
    apart = min(b - a for a, b in pairwise(asked)) / 2
    return min([apart, *(abs(md - edge) for md in asked for edge in edges)]) * 999 / 1000


def _digits_are_enough(objective: UnstableObjective) -> bool:
    """With twice the digits the queries are the same up to a small part of delta, and their curvatures are those wanted."""
    delta, blocks = objective.neighbourhood, objective.blocks
    if delta < _context(objective.digits).mpf(10) ** (-objective.digits // 2):
        return False
    double = replace(objective, digits=2 * objective.digits)
    pairs = list(zip(agd_trajectory(objective), agd_trajectory(double), strict=True))[: 3 * blocks]
    return all(
        abs(a.md - b.md) * SAFETY < delta
        and {double.curvature(b.md + sign * delta) for sign in (-1, 0, 1)} == {objective.wanted_curvature(t)}
        for t, (a, b) in enumerate(pairs)
    )


@cache
def _context(digits: int) -> Any:
    """Return arithmetic with this many digits; cached, because making it takes longer than a thousand sums."""
    context = optional_import("unstable_objective", "mpmath", "theory").MPContext()
    context.dps = digits
    return context


def _hull(points: np.ndarray) -> np.ndarray:
    """The vertices of the convex hull of points of the plane, those that stick out by less than rounding left out."""
    points = np.unique(points, axis=0)
    small = 1e-13 * np.prod(np.ptp(points, axis=0))

    def turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    def chain(ordered: np.ndarray) -> list[np.ndarray]:
        kept: list[np.ndarray] = []
        for point in ordered:
            while len(kept) > 1 and turn(kept[-2], kept[-1], point) <= small:
                kept.pop()
            kept.append(point)
        return kept[:-1]

    return np.array(chain(points) + chain(points[::-1]))
