"""fit_local_model: computes the local model of a problem from derivatives and stochastic gradients at the optimum."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import AbstractProblem, Batch, Params, Regularizer, Zero
from fedlocal.problems.linear import LinearProblem
from fedlocal.problems.smooth_part import smooth_part_of
from fedlocal.solvers.gathered import feature_matrix, fits
from fedlocal.theory.advice.local_model import LocalModel
from fedlocal.theory.constants.client_groups import group_clients

LARGEST = 1000  # parameters up to which all eigenvectors of the Hessian are used
KRYLOV = 100  # dimension of the Krylov space used for larger problems
DRAWS = 512  # stochastic gradients from which the noise is estimated
CLIENTS = 64  # largest number of clients from which heterogeneity is estimated


@dataclass(frozen=True)
class LocalCoordinates:
    """The optimum of a problem, and the coordinates that psi leaves free there."""

    problem: AbstractProblem
    client_weights: np.ndarray  # (M,)
    whole: jax.Array  # (n,) all parameters
    unravel: Any
    free: np.ndarray  # indices of the coordinates that psi does not fix

    def params(self, z: jax.Array) -> Params:
        return self.unravel(self.whole.at[self.free].set(z))

    @property
    def z(self) -> jax.Array:
        return self.whole[self.free]

    @property
    def homogeneous(self) -> bool:
        """True if there is one client, or all clients have the same examples."""
        return len(group_clients(self.problem, self.client_weights)) == 1

    def flat(self, g: Params) -> jax.Array:
        return ravel_pytree(g)[0][self.free]


def fit_local_model(
    problem: AbstractProblem,
    solution: Params,
    x0: Params,
    client_weights: np.ndarray,
    batch_size: int | None = 1,
    regularizer: Regularizer | None = None,
    seed: int = 0,
) -> LocalModel | None:
    """Return the local model of a problem at the minimiser of F + psi, or None if there is none.

    If psi is a sum of absolute values or bounds over coordinates, the model covers the coordinates that psi does not fix (at zero
    or at a bound), because FedDualAvg equals FedAvg there. For any other psi, or if psi fixes all coordinates, there is no model.

    Args:
        problem: the losses of the clients.
        solution: x*, the minimiser of F + psi.
        x0: the starting point of the runs to predict.
        client_weights: (M,) the weights of the clients in F.
        batch_size: examples per stochastic gradient; None means full gradients.
        regularizer: psi.
        seed: the seed of the sampled stochastic gradients.
    """
    with jax.enable_x64(True):
        solution, x0 = (jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), x) for x in (solution, x0))
        free = _free(Zero() if regularizer is None else regularizer, solution)
        if free is None:
            return None
        whole, unravel = ravel_pytree(solution)
        at = LocalCoordinates(problem, client_weights, whole, unravel, free)
        start = np.asarray(at.flat(x0) - at.z)
        linear = isinstance(problem, LinearProblem) and fits(problem) and not problem.output_shape()
        found = _of_scores(at) if linear and len(free) <= LARGEST else _of_gradients(at, start)
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
    """Return the indices of the coordinates that psi leaves free; None if there are none, or psi is not separable, or curved."""
    free = []
    for part, leaf in zip(psi.parts(solution), jax.tree.leaves(solution), strict=True):
        kind, x = part.separable(), np.ravel(leaf)
        if kind is None or kind.l2 > 0:  # with a curved psi the primal steps of dual averaging shrink
            return None
        free.append(~((kind.l1 > 0) & (x == 0)) & (x > kind.lower) & (x < kind.upper))
    indices = np.flatnonzero(np.concatenate(free))
    return indices if len(indices) else None


class Derivatives(NamedTuple):
    """Derivatives of F at the optimum."""

    curvature: np.ndarray  # (d,) eigenvalues of the Hessian
    basis: np.ndarray  # (n, d) its eigenvectors
    skew: np.ndarray  # (d, d)
    uneven: np.ndarray  # (d, d) of one example


def _of_scores(at: LocalCoordinates) -> Derivatives:
    """Return the derivatives for a linear model, from those of the loss with respect to the score."""
    problem: Any = at.problem
    matrix, weights = feature_matrix(problem).astype(np.float64), np.asarray(problem.loss_weights(at.client_weights))
    penalty = np.full(matrix.shape[1], float(problem.l2 or 0.0))
    if problem.intercept:  # parameters are in the order of their names
        matrix = np.concatenate([np.ones((len(matrix), 1)), matrix], axis=1)
        penalty = np.concatenate([[0.0], penalty])
    scores, targets = matrix @ np.asarray(at.whole), np.asarray(problem.data.arrays[1], np.float64)
    matrix, penalty = matrix[:, at.free], penalty[at.free]
    second, third = problem.score_loss.second(scores, targets), problem.score_loss.third(scores, targets)
    curvature, basis = np.linalg.eigh(matrix.T @ ((weights * second)[:, None] * matrix) + np.diag(penalty))
    along = matrix @ basis
    squares = along**2
    skew = along.T @ ((weights * third)[:, None] * squares)
    means = np.diag(curvature) - basis.T @ (penalty[:, None] * basis)  # of the examples' Hessians, in this basis
    seconds = squares.T @ ((weights * second**2)[:, None] * squares)
    return Derivatives(curvature, basis, skew, np.maximum(seconds - means**2, 0))


def _of_gradients(at: LocalCoordinates, start: np.ndarray) -> Derivatives:
    """Return the derivatives by automatic differentiation, in a Krylov space if there are many parameters; the variance of the
    stochastic Hessians is taken as zero."""
    smooth = smooth_part_of(at.problem, at.client_weights)

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
        for _ in range(2):  # orthogonalising twice removes the rounding errors
            new = new - basis @ (basis.T @ new)
        if np.linalg.norm(new) <= 1e-10 * size:
            break
        basis = np.column_stack([basis, new / np.linalg.norm(new)])
    return basis


def _clients(at: LocalCoordinates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights of sampled clients, their gradients at the optimum minus the mean, and their Hessians times these."""
    d, p = len(at.free), at.client_weights
    if at.homogeneous:
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


def _noise(at: LocalCoordinates, batch_size: int | None, seed: int) -> np.ndarray:
    """Return (n, d) draws of a client's stochastic gradient minus its full gradient, at the optimum."""
    if batch_size is None:
        return np.zeros((1, len(at.free)))
    problem, rng = at.problem, np.random.default_rng(seed)
    clients = rng.choice(len(at.client_weights), DRAWS, p=at.client_weights)
    rows, sizes, starts = None, problem.sizes(), problem.starts()
    if sizes is not None and starts is not None:
        rows = jnp.asarray(starts[clients, None] + rng.integers(0, sizes[clients, None], (DRAWS, batch_size)))
    random = rows is None or problem.random_losses
    keys = jax.random.split(jax.random.key(seed), (DRAWS, batch_size)) if random else None
    x = at.params(at.z)

    def draw(each: Any) -> jax.Array:
        m, rows, keys = each
        return at.flat(problem.gradient(x, Batch(m, rows, None, keys)))

    drawn = np.asarray(jax.lax.map(draw, (jnp.asarray(clients), rows, keys), batch_size=32))
    if at.homogeneous:
        return drawn - drawn.mean(axis=0)
    unique, which = np.unique(clients, return_inverse=True)
    exact = jax.lax.map(lambda m: at.flat(problem.full_gradient(x, m)), jnp.asarray(unique))
    return drawn - np.asarray(exact)[which]
