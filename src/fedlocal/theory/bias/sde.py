"""The iterate bias of SGD in continuous time: the stochastic differential equation and its backward equation."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import expm_multiply

from fedlocal.core import AbstractProblem
from fedlocal.theory.bias.monte_carlo import BiasEstimate, ascending
from fedlocal.theory.bias.quadrature import descents, slopes
from fedlocal.util import checks
from fedlocal.util.optional import optional_import

REACH = 8.0  # standard deviations of X(t) on either side of the gradient flow
GRID = 400  # intervals of the grid of the backward equation
SUBSTEPS = 2  # of Heun's method in one step of SGD


def sde_bias(
    problem: AbstractProblem,
    x0: Any,
    step_size: float,
    steps: Sequence[int],
    covariance: Any,
    pairs: int,
    seed: int = 0,
    *,
    client: int = 0,
) -> BiasEstimate:
    r"""E X(t) - Z(t) at t = eta k, by sampling pairs of paths of the continuous limit of SGD.

        dX = -grad F(X) dt + sqrt(eta) Sigma^{1/2} dB,   dZ = -grad F(Z) dt,   both from x0.

    The paths of a pair use B and -B, which have the same law: terms that are odd in the noise cancel, and the mean of a
    pair has a far smaller variance. Solved by Heun's method with steps of length eta / 2 (Euler's method with steps of
    length eta is SGD itself).

    Args:
        problem, client, step_size, steps: as for `monte_carlo_bias`.
        x0: the starting point, a number or a vector.
        covariance: Sigma, (d, d), of a stochastic gradient; for a number its variance sigma^2.
        pairs, seed: how many pairs of paths are drawn, at least 2, and the seed of the draws.

    Reference: dissertation, eq. sde. Differs from it: any dimension, any constant covariance.

    >>> from fedlocal.problems.oracle import quadratics
    >>> problem = quadratics(np.eye(2)[None], np.zeros((1, 2)))
    >>> found = sde_bias(problem, np.ones(2), 0.1, [4], np.eye(2), pairs=8)
    >>> bool(np.abs(found.bias).max() < 1e-12)  # pairs around a quadratic's flow cancel
    True
    """
    owner = "sde_bias"
    eta, ends = checks.number(owner, "step_size", step_size, above=0), ascending(owner, steps)
    pairs = checks.whole(owner, "pairs", pairs, at_least=2)
    seed = checks.whole(owner, "seed", seed, at_least=0)
    with jax.enable_x64(True):
        x0 = jnp.asarray(x0, float)
        root = jnp.asarray(covariance_root(owner, covariance, x0.size))
        key, times = jax.random.key(seed), jnp.asarray(ends, float)
        found = np.asarray(_pair_means(problem, jnp.asarray(client), jnp.asarray(eta), x0, times, root, key, pairs))
    return BiasEstimate(ends, found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(pairs))


@eqx.filter_jit
def _pair_means(
    problem: AbstractProblem,
    client: jax.Array,
    eta: Any,
    x0: jax.Array,
    ends: jax.Array,
    root: jax.Array,
    key: jax.Array,
    pairs: int,
) -> jax.Array:
    """(n, pairs, ...): (X with B + X with -B) / 2 - Z. Time is counted in steps, so that it is exact."""
    diffrax, lineax = (optional_import("sde_bias", name, "theory") for name in ("diffrax", "lineax"))

    signs, shape = jnp.array([1.0, -1.0, 0.0])[:, None, None], (pairs, x0.size)
    control = jax.ShapeDtypeStruct(shape, root.dtype)

    def slope(x: jax.Array) -> jax.Array:
        return jnp.ravel(problem.full_gradient(x.reshape(x0.shape), client))

    def drift(t: Any, x: jax.Array, args: Any) -> jax.Array:
        return -eta * jax.vmap(jax.vmap(slope))(x)

    def diffusion(t: Any, x: jax.Array, args: Any) -> Any:
        return lineax.FunctionLinearOperator(lambda b: eta * signs * (b @ root.T), control)

    brownian = diffrax.UnsafeBrownianPath(control, key)
    solution = diffrax.diffeqsolve(
        diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, brownian)),
        diffrax.Heun(),
        t0=0.0,
        t1=ends[-1],
        dt0=1 / SUBSTEPS,
        y0=jnp.broadcast_to(jnp.ravel(x0), (3, *shape)),
        saveat=diffrax.SaveAt(ts=ends),
        max_steps=None,
        adjoint=diffrax.ForwardMode(),
    )
    x: Any = solution.ys
    return ((x[:, 0] + x[:, 1]) / 2 - x[:, 2]).reshape(-1, pairs, *x0.shape)


def covariance_root(owner: str, covariance: Any, size: int) -> np.ndarray:
    """Return (d, d) A with A A' = covariance, or raise an error; a variance is the covariance of a single number."""
    matrix = np.asarray(covariance, float)
    matrix = matrix.reshape(1, 1) if matrix.ndim == 0 else matrix
    if matrix.shape != (size, size):
        raise ValueError(f"{owner}: covariance must have the shape {(size, size)}, got {np.shape(covariance)}")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if not np.allclose(matrix, matrix.T) or values[0] < -1e-12 * values[-1]:
        raise ValueError(f"{owner}: covariance must be symmetric with no negative eigenvalue, got {matrix.tolist()}")
    return vectors * np.sqrt(np.maximum(values, 0))


def backward_bias(
    problem: AbstractProblem, x0: float, step_size: float, steps: Sequence[int], variance: float, *, client: int = 0
) -> np.ndarray:
    r"""E X(t) - Z(t) at t = eta k of a problem in one number, by the Kolmogorov backward equation for u(t, x) = E[X(t) | x].

        u_t = -F' u_x + (1/2) eta sigma^2 u_xx,   u(0, x) = x;   Z, the gradient flow, solves it without the last term.

    Method of lines: central differences on a grid around the flow, the matrix exponential in time. The error of the differences
    is that of both equations and cancels to a large part in u - Z.

    Args:
        problem, client, step_size, steps: as for `monte_carlo_bias`.
        x0: the starting point, a number.
        variance: sigma^2 > 0 of a stochastic gradient.

    Reference: dissertation, eq. pde:1d. Differs from it: the text lacks the 1/2, which the generator of
    dX = b dt + s dB, b d/dx + (s^2 / 2) d^2/dx^2, has.

    >>> from fedlocal.problems.oracle import piecewise_quadratic
    >>> bool(backward_bias(piecewise_quadratic(), 0.0, 0.01, [64], 0.01)[0] < 0)
    True
    """
    owner = "backward_bias"
    eta, ends = checks.number(owner, "step_size", step_size, above=0), ascending(owner, steps)
    variance = checks.number(owner, "variance", variance, above=0)
    path = descents(problem, client, eta, np.array([float(x0)]), np.zeros(1), int(ends[-1]))
    reach = np.abs(path - x0).max() + REACH * eta * np.sqrt(variance * ends[-1])
    x, h = np.linspace(x0 - reach, x0 + reach, GRID + 1, retstep=True)
    drift, diffusion = _central(slopes(problem, client, x), float(h))
    noisy, quiet = x.copy(), x.copy()
    found = []
    for length in eta * np.diff(ends, prepend=0):
        noisy = expm_multiply((drift + eta * variance / 2 * diffusion) * length, noisy)
        quiet = expm_multiply(drift * length, quiet)
        found.append(noisy[GRID // 2] - quiet[GRID // 2])
    return np.array(found)


def _central(slope: np.ndarray, h: float) -> tuple[csr_array, csr_array]:
    """-F' d/dx and d^2/dx^2 as matrices; at the ends one-sided, and none of the second."""
    n = len(slope)
    first = (np.eye(n, k=1) - np.eye(n, k=-1)) / (2 * h)
    first[0, :2] = first[-1, -2:] = np.array([-1, 1]) / h
    second = (np.eye(n, k=1) - 2 * np.eye(n) + np.eye(n, k=-1)) / h**2
    second[[0, -1]] = 0
    return csr_array(-slope[:, None] * first), csr_array(second)
