"""around: the local model of a problem, from its derivatives and its clients at the optimum."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import AbstractProblem, Batch, Params, Regularizer
from fedlocal.means import smooth_part
from fedlocal.problems.data_problem import DataProblem
from fedlocal.problems.linear import LinearProblem
from fedlocal.regularizers.zero import Zero
from fedlocal.solvers.dense import feature_matrix, fits
from fedlocal.theory.local_model import LocalModel

LARGEST = 1000  # parameters that all directions are looked at for
KRYLOV = 100  # directions of larger problems
DRAWS = 512  # stochastic gradients that the noise is measured with
CLIENTS = 64  # at most so many clients are looked at for heterogeneity


@dataclass(frozen=True)
class Point:
    """The optimum, and the coordinates in which a method moves around it."""

    problem: AbstractProblem
    client_weights: np.ndarray  # (M,)
    whole: jax.Array  # (n,) all parameters
    unravel: Any
    free: np.ndarray  # indices of the coordinates that psi does not hold in place

    def params(self, z: jax.Array) -> Params:
        return self.unravel(self.whole.at[self.free].set(z))

    @property
    def z(self) -> jax.Array:
        return self.whole[self.free]

    def flat(self, g: Params) -> jax.Array:
        return ravel_pytree(g)[0][self.free]


def around(
    problem: AbstractProblem,
    solution: Params,
    x0: Params,
    client_weights: np.ndarray,
    batch_size: int | None = 1,
    regularizer: Regularizer | None = None,
    seed: int = 0,
) -> LocalModel | None:
    """The model of a problem around the minimiser of F + psi.

    With a psi that is a sum of absolute values or bounds over coordinates: in those that psi does not hold where they are (at
    zero, at a bound), because there FedDualAvg walks like FedAvg. None for other psi, and where psi holds everything.
    """
    with jax.enable_x64(True):
        solution, x0 = (jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), x) for x in (solution, x0))
        free = _free(Zero() if regularizer is None else regularizer, solution)
        if free is None:
            return None
        whole, unravel = ravel_pytree(solution)
        at = Point(problem, client_weights, whole, unravel, free)
        start = np.asarray(at.flat(x0) - at.z)
        found = _of_scores(at) if _has_scores(at) else _of_gradients(at, start)
        shares, offsets, pulls = _clients(at)
        noises = _noise(at, batch_size, seed)
    basis = found.basis
    return LocalModel(
        curvature=np.maximum(found.curvature, 0),
        start=start @ basis,
        noise=np.mean((noises @ basis) ** 2, axis=0),
        skew=found.skew,
        pull=shares @ (pulls @ basis),
        spread=shares @ (offsets @ basis) ** 2 * len(shares) / max(len(shares) - 1, 1),
        share=float(np.sum(client_weights**2)),
        uneven=found.uneven / batch_size if batch_size is not None else 0 * found.uneven,
        noise_seen=float(np.sum((noises @ basis) ** 2) / max(np.sum(noises**2), 1e-300)) if np.any(noises) else 1.0,
    )


def _free(psi: Regularizer, solution: Params) -> np.ndarray | None:
    """Indices of the coordinates that psi leaves free; None where there are none, or psi is no sum, or curved."""
    free = []
    for part, leaf in zip(psi.parts(solution), jax.tree.leaves(solution), strict=True):
        kind, x = part.separable(), np.ravel(leaf)
        if kind is None or kind.l2 > 0:  # dual averaging with a curved psi takes shorter and shorter steps
            return None
        free.append(~((kind.l1 > 0) & (x == 0)) & (x > kind.lower) & (x < kind.upper))
    indices = np.flatnonzero(np.concatenate(free))
    return indices if len(indices) else None


class Derivatives(NamedTuple):
    """Of F at the optimum."""

    curvature: np.ndarray  # (d,) eigenvalues of the Hessian
    basis: np.ndarray  # (n, d) its eigenvectors
    skew: np.ndarray  # (d, d)
    uneven: np.ndarray  # (d, d) of one example


def _has_scores(at: Point) -> bool:
    problem = at.problem
    return (
        isinstance(problem, LinearProblem) and fits(problem) and not problem.output_shape() and len(at.free) <= LARGEST
    )


def _of_scores(at: Point) -> Derivatives:
    """Of a linear model: all derivatives are those of the losses of scores."""
    problem: Any = at.problem
    matrix, weights = feature_matrix(problem).astype(np.float64), np.asarray(problem.loss_weights(at.client_weights))
    penalty = np.full(matrix.shape[1], float(problem.l2 or 0.0))
    if problem.intercept:  # parameters are in the order of their names
        matrix = np.concatenate([np.ones((len(matrix), 1)), matrix], axis=1)
        penalty = np.concatenate([[0.0], penalty])
    targets = jnp.asarray(problem.data.arrays[1], jnp.float64)
    scores = jnp.asarray(matrix @ np.asarray(at.whole))
    matrix, penalty = matrix[:, at.free], penalty[at.free]

    def slope(s: jax.Array, b: jax.Array) -> jax.Array:
        return jax.grad(lambda s: problem.losses_of_scores(s[None], b[None])[0])(s)

    second, third = jax.grad(slope), jax.grad(jax.grad(slope))
    bent = weights * np.asarray(jax.vmap(second)(scores, targets))
    curvature, basis = np.linalg.eigh(matrix.T @ (bent[:, None] * matrix) + np.diag(penalty))
    along = matrix @ basis
    skew = along.T @ ((weights * np.asarray(jax.vmap(third)(scores, targets)))[:, None] * along**2)
    means = np.diag(curvature) - basis.T @ (penalty[:, None] * basis)  # of the examples' Hessians, in this basis
    squares = along**2
    seconds = squares.T @ ((weights * np.asarray(jax.vmap(second)(scores, targets)) ** 2)[:, None] * squares)
    return Derivatives(curvature, basis, skew, np.maximum(seconds - means**2, 0))


def _of_gradients(at: Point, start: np.ndarray) -> Derivatives:
    """Of any differentiable problem, whose stochastic Hessians count as equal; of many parameters, in a Krylov space."""
    smooth = smooth_part(at.problem, at.client_weights)

    def gradient(z: jax.Array) -> jax.Array:
        return at.flat(smooth.value_and_gradient(at.params(z))[1])

    @jax.jit
    def curve(direction: jax.Array) -> jax.Array:
        return jax.jvp(gradient, (at.z,), (direction,))[1]

    @jax.jit
    def third(direction: jax.Array) -> jax.Array:
        return jax.jvp(lambda z: jax.jvp(gradient, (z,), (direction,))[1], (at.z,), (direction,))[1]

    basis = np.eye(len(start)) if len(start) <= LARGEST else _krylov(curve, start)
    curved = np.asarray(jax.lax.map(curve, jnp.asarray(basis.T), batch_size=16)) @ basis
    curvature, turned = np.linalg.eigh((curved + curved.T) / 2)
    basis = basis @ turned
    skew = (np.asarray(jax.lax.map(third, jnp.asarray(basis.T), batch_size=16)) @ basis).T
    return Derivatives(curvature, basis, skew, np.zeros_like(skew))


def _krylov(curve: Any, start: np.ndarray) -> np.ndarray:
    """(n, KRYLOV) an orthonormal basis of start, H start, H^2 start, ..."""
    first = start if start.any() else np.random.default_rng(0).standard_normal(len(start))
    basis = first[:, None] / np.linalg.norm(first)
    for _ in range(KRYLOV - 1):
        new = np.asarray(curve(jnp.asarray(basis[:, -1])))
        size = np.linalg.norm(new)
        for _ in range(2):  # twice is enough
            new = new - basis @ (basis.T @ new)
        if np.linalg.norm(new) <= 1e-10 * size:
            break
        basis = np.column_stack([basis, new / np.linalg.norm(new)])
    return basis


def _clients(at: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of some clients, their gradients at the optimum minus the mean, and their Hessians times those."""
    d, p = len(at.free), at.client_weights
    if homogeneous(at.problem):
        return np.ones(1), np.zeros((1, d)), np.zeros((1, d))
    chosen = np.arange(len(p))
    if len(p) > CLIENTS:
        chosen = np.random.default_rng(0).choice(len(p), CLIENTS, replace=False)
    shares = p[chosen] / p[chosen].sum()
    gradient = lambda m, z: at.flat(at.problem.full_gradient(at.params(z), m))  # noqa: E731
    own = jax.lax.map(lambda m: gradient(m, at.z), jnp.asarray(chosen))
    offsets = own - jnp.asarray(shares) @ own

    def pull(each: tuple[jax.Array, jax.Array]) -> jax.Array:
        m, offset = each
        return jax.jvp(lambda z: gradient(m, z), (at.z,), (offset,))[1]

    return shares, np.asarray(offsets), np.asarray(jax.lax.map(pull, (jnp.asarray(chosen), offsets)))


def _noise(at: Point, batch_size: int | None, seed: int) -> np.ndarray:
    """(n, d) draws of a client's stochastic gradient minus its gradient, at the optimum."""
    if batch_size is None:
        return np.zeros((1, len(at.free)))
    problem, rng = at.problem, np.random.default_rng(seed)
    clients = rng.choice(len(at.client_weights), DRAWS, p=at.client_weights)
    rows, sizes, starts = None, problem.sizes(), problem.starts()
    if sizes is not None and starts is not None:
        rows = jnp.asarray(starts[clients, None] + rng.integers(0, sizes[clients, None], (DRAWS, batch_size)))
    keys = jax.random.split(jax.random.key(seed), (DRAWS, batch_size))
    x = at.params(at.z)

    def draw(each: Any) -> jax.Array:
        m, rows, keys = each
        return at.flat(problem.gradient(x, Batch(m, rows, None, keys)))

    drawn = np.asarray(jax.lax.map(draw, (jnp.asarray(clients), rows, keys), batch_size=32))
    if homogeneous(problem):
        return drawn - drawn.mean(axis=0)
    unique, which = np.unique(clients, return_inverse=True)
    exact = jax.lax.map(lambda m: at.flat(problem.full_gradient(x, m)), jnp.asarray(unique))
    return drawn - np.asarray(exact)[which]


def homogeneous(problem: AbstractProblem) -> bool:
    """Whether all clients are known to be the same: one client, or all with the same examples."""
    if problem.num_clients == 1:
        return True
    starts, sizes = problem.starts(), problem.sizes()
    if not isinstance(problem, DataProblem) or starts is None or sizes is None:
        return False
    return bool(np.all(starts == starts[0]) and np.all(sizes == sizes[0]))
