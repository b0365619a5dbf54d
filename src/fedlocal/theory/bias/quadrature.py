"""The iterate bias of SGD in one dimension, without sampling: the law of the iterate is computed by quadrature."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.chebyshev import chebpts1, chebval, chebvander
from numpy.polynomial.legendre import leggauss
from scipy.sparse import csr_array

from fedlocal.core import AbstractProblem
from fedlocal.theory.bias.monte_carlo import ascending
from fedlocal.util import checks

PANEL_NODES = 16  # of Gauss-Legendre in each panel
PANEL_WIDTH = 4.0  # standard deviations of a step's noise
REACH = 8.5  # standard deviations of the iterate: less than 1e-16 of its mass is farther away
TOLERANCE = 1e-13  # of polynomials, relative to the length that they are used on
DEGREES = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Gaussian:
    """Noise N(0, std^2) in the gradient.

    Args:
        std: the standard deviation, > 0.
    """

    std: float

    def __post_init__(self) -> None:
        checks.number("Gaussian", "std", self.std, above=0)

    @property
    def variance(self) -> float:
        return self.std**2


@dataclass(frozen=True)
class Uniform:
    """Noise U[-half_width, half_width] in the gradient; its variance is a third of the square.

    Args:
        half_width: the largest noise, > 0.

    >>> round(Uniform(3.0).variance, 12)
    3.0
    """

    half_width: float

    def __post_init__(self) -> None:
        checks.number("Uniform", "half_width", self.half_width, above=0)

    @property
    def variance(self) -> float:
        return self.half_width**2 / 3


@dataclass(frozen=True)
class Law:
    """The density of the iterate after several numbers of steps: integral of g = sum(weights * density[i] * g(points))."""

    steps: np.ndarray  # (n,) k
    points: np.ndarray  # (p,)
    weights: np.ndarray  # (p,) of the quadrature
    density: np.ndarray  # (n, p)
    descent: np.ndarray  # (n,) z_gd^(k)

    @property
    def bias(self) -> np.ndarray:
        """(n,) E x_sgd^(k) - z_gd^(k)."""
        pairs = zip(self.density, self.descent, strict=True)
        return np.array([np.sum(self.weights * p * (self.points - z)) for p, z in pairs])


def exact_bias(
    problem: AbstractProblem,
    x0: float,
    step_size: float,
    steps: Sequence[int],
    noise: Gaussian | Uniform,
    *,
    kinks: Sequence[float] = (),
    client: int = 0,
) -> np.ndarray:
    r"""The iterate bias E x_sgd^(k) - z_gd^(k) of a problem in one number, with additive noise, to about 1e-13 |x|.

    Gaussian noise: the density of x_sgd^(k) is carried forwards (`exact_law`), so F' may have kinks, which must be named.
    Uniform noise: u_{k+1}(x) = E u_k(x - eta F'(x) - eta xi) with u_0(x) = x is carried backwards, for smooth F.

    Args:
        problem, client, step_size, steps: as for `monte_carlo_bias`.
        x0: the starting point, a number.
        noise: `Gaussian` or `Uniform`, added to the gradient; a noise that the problem draws is not looked at.
        kinks: where F' has kinks; none with uniform noise.

    Reference: dissertation, definition def:fedavg:bias and lemma lem:bias:3o:lb:enum (a). Differs from it: nothing.

    >>> from fedlocal.problems.oracle import piecewise_quadratic
    >>> bias = exact_bias(piecewise_quadratic(), 0.0, 0.01, [2], Gaussian(0.1), kinks=[0.0])
    >>> round(float(bias[0] / -(0.01**2 * 0.1 * 1.8 / np.sqrt(2 * np.pi))), 9)  # half-normal means
    1.0
    """
    if isinstance(noise, Gaussian):
        return exact_law(problem, x0, step_size, steps, noise, kinks=kinks, client=client).bias
    if not isinstance(noise, Uniform):
        raise TypeError(f"exact_bias: noise must be Gaussian(std) or Uniform(half_width), got {noise!r}")
    if len(kinks) > 0:
        given = list(kinks)
        raise ValueError(f"exact_bias: with Uniform noise F must be smooth, got kinks={given}; use Gaussian noise")
    eta = checks.number("exact_bias", "step_size", step_size, above=0)
    ends = ascending("exact_bias", steps)
    reach = eta * noise.half_width
    spans = descents(problem, client, eta, np.full(3, float(x0)), reach * np.array([-1.0, 0.0, 1.0]), int(ends[-1]))
    means = [_backward_mean(problem, client, eta, reach, spans[: k + 1, ::2]) for k in ends]
    return np.array(means) - spans[ends, 1]


def exact_law(
    problem: AbstractProblem,
    x0: float,
    step_size: float,
    steps: Sequence[int],
    noise: Gaussian,
    *,
    kinks: Sequence[float] = (),
    client: int = 0,
) -> Law:
    r"""The density p_k of x_sgd^(k) from x0, for F of one number and Gaussian noise of the gradient.

        p_{k+1}(y) = int p_k(x) N(y; x - eta F'(x), eta^2 sigma^2) dx.

    p_k is analytic, the integrand has kinks in x only where F' has them: with panels of Gauss-Legendre nodes that end there the
    quadrature converges as fast as for smooth F, and p_k is only needed at the nodes. F must be convex and eta <= 2/L, so that
    x_sgd^(k) stays within eta sigma sqrt(k) of gradient descent.

    Args:
        problem, client, step_size, steps: as for `monte_carlo_bias`.
        x0, kinks: as for `exact_bias`.
        noise: N(0, sigma^2), added to the gradient.

    Reference: dissertation, figure fig:bias. Differs from it: exact instead of an estimate from 65,536 repeats.

    >>> from fedlocal.problems.oracle import piecewise_quadratic
    >>> law = exact_law(piecewise_quadratic(), 0.0, 0.01, [64], Gaussian(0.1), kinks=[0.0])
    >>> round(float(np.sum(law.weights * law.density[0])), 12), bool(law.bias[0] < 0)
    (1.0, True)
    """
    owner = "exact_law"
    eta = checks.number(owner, "step_size", step_size, above=0)
    checks.instance(owner, "noise", noise, Gaussian)
    ends = ascending(owner, steps)
    width = eta * noise.std
    z = descents(problem, client, eta, np.array([float(x0)]), np.zeros(1), int(ends[-1]))[:, 0]
    reach = REACH * width * np.sqrt(ends[-1])
    points, weights = _panels(z.min() - reach, z.max() + reach, PANEL_WIDTH * width, kinks)
    transition = _transition(points, weights, points - eta * slopes(problem, client, points), width)
    density, found = _normal((points - z[1]) / width) / width, []
    for k in range(1, int(ends[-1]) + 1):
        if k > 1:
            density = transition @ density
        if k in ends:
            found.append(density)
    lost = abs(1 - float(np.sum(weights * density)))
    if not lost < 1e-9:
        raise ValueError(f"{owner}: F must be convex and step_size at most 2/L; {lost:.1g} of the mass was lost")
    return Law(ends, points, weights, np.array(found), z[ends])


def slopes(problem: AbstractProblem, client: int, x: np.ndarray) -> np.ndarray:
    """F' at many numbers, in float64. Compiled for lengths that are powers of two, so that few programs serve all."""
    flat = x.ravel()
    padded = np.pad(flat, (0, (1 << (len(flat) - 1).bit_length()) - len(flat)), mode="edge")
    with jax.enable_x64(True):
        return np.asarray(_slopes(problem, np.asarray(client), padded))[: len(flat)].reshape(x.shape)


def descents(
    problem: AbstractProblem, client: int, eta: float, start: np.ndarray, shift: np.ndarray, steps: int
) -> np.ndarray:
    """(steps + 1, n): gradient descent from n numbers, each of which is moved by its shift in every step."""
    with jax.enable_x64(True):
        return np.asarray(_descents(problem, np.asarray(client), np.asarray(eta), start, shift, steps))


@eqx.filter_jit
def _slopes(problem: AbstractProblem, client: Any, x: Any) -> jax.Array:
    return jax.vmap(lambda a: problem.full_gradient(a, client))(x)


@eqx.filter_jit
def _descents(problem: AbstractProblem, client: Any, eta: Any, start: Any, shift: Any, steps: int) -> jax.Array:
    start, shift = jnp.asarray(start), jnp.asarray(shift)

    def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        x = x - eta * _slopes(problem, client, x) + shift
        return x, x

    return jnp.concatenate([start[None], jax.lax.scan(step, start, None, length=steps)[1]])


def _panels(low: float, high: float, width: float, kinks: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights in panels of at most this width, which end at the kinks."""
    stops = [low, *sorted(kink for kink in kinks if low < kink < high), high]
    parts = [np.linspace(a, b, int(np.ceil((b - a) / width)) + 1) for a, b in pairwise(stops)]
    edges = np.unique(np.concatenate(parts))
    nodes, weights = leggauss(PANEL_NODES)
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def _transition(points: np.ndarray, weights: np.ndarray, moved: np.ndarray, width: float) -> csr_array:
    """Entry (i, j): the mass of node j times the density at node i of a step from node j."""
    columns = [np.nonzero(np.abs(points - m) < 9 * width)[0] for m in moved]
    column = np.repeat(np.arange(len(moved)), [len(c) for c in columns])
    row = np.concatenate(columns)
    values = weights[column] * _normal((points[row] - moved[column]) / width) / width
    return csr_array((values, (row, column)), shape=(len(points), len(points)))


def _normal(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _backward_mean(problem: AbstractProblem, client: int, eta: float, reach: float, spans: np.ndarray) -> float:
    """u_k(x0) for uniform noise of at most `reach` a step; spans (k + 1, 2): where the iterate can be then."""
    last = np.inf
    for degree in DEGREES:
        scaled = chebpts1(degree + 1)
        middle, half = spans.mean(axis=1), np.diff(spans)[:, 0] / 2
        x = middle[:, None] + half[:, None] * scaled
        mean = _backward_polynomial(x - eta * slopes(problem, client, x), reach, middle, half)
        if abs(mean - last) <= TOLERANCE * half[-1]:
            return mean
        last = mean
    raise ValueError(f"exact_bias: F is not smooth enough for polynomials of degree {DEGREES[-1]} with Uniform noise")


def _backward_polynomial(moved: np.ndarray, reach: float, middle: np.ndarray, half: np.ndarray) -> float:
    """u_j as a polynomial on the span of the iterate when j steps are left, from its values at Chebyshev points;
    moved (k + 1, degree + 1): the points of every span after a gradient step, the first span is x0 alone."""
    nodes, weights = leggauss(max(8, moved.shape[1] // 2))
    fit = chebvander(chebpts1(moved.shape[1]), moved.shape[1] - 1).T * 2 / moved.shape[1]
    fit[0] /= 2
    values = moved[-2]  # u_1: the noise has no mean
    for i in range(len(moved) - 3, -1, -1):
        u, after = fit @ values, moved[i][:, None] + reach * nodes
        values = chebval((after - middle[i + 1]) / half[i + 1], u) @ weights / 2
    return float(values[0])
