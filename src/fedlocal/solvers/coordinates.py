"""Coordinates: features of any size look alike to a solver, and a free intercept does not disturb the weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import Params, Regularizer, Scalar
from fedlocal.problems.linear import LinearProblem
from fedlocal.problems.smooth_part import SmoothPart
from fedlocal.solvers.certificates import held_parts, kkt_residual

CONSTANT = 1e-12  # a column whose deviation is a smaller part of its size is constant but for rounding
ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of scores: the order of their terms differs between processors
MOST_ROUNDING = 1e-9  # of the gradient at zero; more than that is no rounding but a point that ran away


class Coordinates(eqx.Module):
    r"""x = S z: weights = scales * z_weights, intercept = scale * z_0 - center'weights.

    With center = the mean of the features a_i, scores are (a_i - center)'weights + scale z_0, so that the best z_0 does not
    depend on the weights. Scales are powers of two: no digit is lost, and zeros and bounds stay where they are.
    """

    scales: Params  # in the structure of x: one number, or one that broadcasts to its array
    center: jax.Array | None = None  # in the shape of one example; None for zero

    def to_x(self, z: Params) -> Params:
        x = jax.tree.map(jnp.multiply, z, self.scales)
        return x if self.center is None else {**x, "intercept": x["intercept"] - _shift(self.center, x)}

    def from_x(self, x: Params) -> Params:
        if self.center is not None:
            x = {**x, "intercept": x["intercept"] + _shift(self.center, x)}
        return jax.tree.map(jnp.divide, x, self.scales)

    def gradient(self, g: Params) -> Params:
        """The gradient with respect to x, of that with respect to z."""
        g = jax.tree.map(jnp.divide, g, self.scales)
        if self.center is None:
            return g
        return {**g, "weights": g["weights"] + jnp.tensordot(self.center, g["intercept"], 0)}


class Objective(eqx.Module):
    """F + psi as a function of z; how well it is solved is measured in x."""

    smooth: SmoothPart  # F of z
    psi: Regularizer  # of x
    coordinates: Coordinates
    sizes: Params  # in the structure of x: square roots of the curvature of each coordinate; 0 where they are not known
    offset: Scalar  # size of what is added to sizes'|x| before a gradient is taken of it

    def psi_value(self, z: Params) -> jax.Array:
        return self.psi.value(self.coordinates.to_x(z))

    def psi_gradient(self, z: Params) -> Params:
        """A subgradient of psi(S z) with respect to z; a centred intercept is free."""
        return jax.tree.map(jnp.multiply, self.psi.subgradient(self.coordinates.to_x(z)), self.coordinates.scales)

    def prox(self, z: Params, t: Scalar) -> Params:
        """argmin_v 1/2 ||v - z||^2 + t psi(S v): with x_j = s_j z_j, the prox of psi at x_j with the step t s_j^2."""
        leaves, treedef = jax.tree.flatten(z)
        parts = zip(self.psi.parts(z), leaves, jax.tree.leaves(self.coordinates.scales), strict=True)
        return jax.tree.unflatten(treedef, [part.array_prox(s * a, t * s**2) / s for part, a, s in parts])

    def residual(self, z: Params, g: Params) -> jax.Array:
        """The KKT residual at x, for the gradient g of F with respect to z."""
        return kkt_residual(self.psi, self.coordinates.to_x(z), self.coordinates.gradient(g))

    def allowed(self, z: Params, tolerance: Scalar) -> jax.Array:
        """tolerance * max(1, ||x||), and what the rounding of x and of scores puts into a gradient."""
        x = self.coordinates.to_x(z)
        scores = sum(jnp.sum(s * jnp.abs(a)) for s, a in zip(*map(jax.tree.leaves, (self.sizes, x)), strict=True))
        relative = jnp.minimum(ROUNDING * (scores + self.offset), MOST_ROUNDING * self.offset)
        return tolerance * jnp.maximum(1, optax.tree.norm(x)) + optax.tree.norm(self.sizes) * relative


class FeatureMoments(eqx.Module):
    """First and second moments of the features and targets of a linear model: what scales and rounding are known from."""

    mean: np.ndarray  # of the features, in the shape of one example
    square: np.ndarray  # of the features
    target: float  # root mean square of the targets; 1 for labels

    @classmethod
    def of(cls, problem: LinearProblem, features: np.ndarray, example_weights: np.ndarray) -> "FeatureMoments":
        """`features` are (n, d) numbers; the moments have the shape of the problem's examples."""
        shape, rows = problem.data.arrays[0].shape[1:], max(1, (1 << 23) // features.shape[1])
        mean, square = np.zeros(features.shape[1]), np.zeros(features.shape[1])
        for start in range(0, len(features), rows):
            here = slice(start, start + rows)
            block = np.asarray(features[here], np.float64)
            mean += example_weights[here] @ block
            square += np.einsum("i,ij,ij->j", example_weights[here], block, block)
        target = 1.0
        if problem.score_loss.quadratic:
            target = float(np.sqrt(np.sum(example_weights * np.asarray(problem.data.arrays[1], np.float64) ** 2)))
        return cls(mean.reshape(shape), square.reshape(shape), target)


def fitting_coordinates(problem: LinearProblem, moments: FeatureMoments, psi: Regularizer, x: Params) -> Coordinates:
    """Coordinates in which the curvature of F has a diagonal near one; for a psi that is not a sum over coordinates, a
    diagonal of mean near one."""
    center, variance = None, moments.square
    psi_of, held = held_parts(psi, x)
    if len(held) < len(x):  # a free intercept
        center, variance = moments.mean, moments.square - moments.mean**2
        variance = np.where(variance > CONSTANT * moments.square, variance, moments.square)
    curvature = problem.score_loss.diagonal_bound * variance + (0.0 if problem.l2 is None else float(problem.l2))
    if not psi_of["weights"].is_separable():
        curvature = np.asarray(np.mean(curvature))
    weights = _power_of_two(curvature)
    if weights.ndim > 0:  # one number stays one: regularisers that couple weights take a step of no axes
        weights = weights.reshape(weights.shape + (1,) * (np.ndim(x["weights"]) - weights.ndim))
    scales = {"weights": weights}
    if "intercept" in x:
        scales["intercept"] = _power_of_two(np.asarray(problem.score_loss.diagonal_bound))
    return Coordinates(jax.tree.map(jnp.asarray, scales), None if center is None else jnp.asarray(center))


def sizes_and_offset(problem: LinearProblem, moments: FeatureMoments, x: Params) -> tuple[Params, float]:
    """`sizes` and `offset` of an `Objective`."""
    root = np.sqrt(problem.score_loss.diagonal_bound)
    weights = root * np.sqrt(moments.square)
    sizes = {"weights": weights.reshape(weights.shape + (1,) * (np.ndim(x["weights"]) - weights.ndim))}
    if "intercept" in x:
        sizes["intercept"] = np.asarray(root)
    sizes = {name: jnp.broadcast_to(jnp.asarray(a), np.shape(x[name])) for name, a in sizes.items()}
    # slopes are curvature * (score - target) for squares, and at most one for the other losses
    return sizes, float(moments.target * root if problem.score_loss.quadratic else moments.target / root)


def _shift(center: jax.Array, x: Params) -> jax.Array:
    """center'weights, of each output."""
    return jnp.tensordot(center, x["weights"], center.ndim)


def _power_of_two(curvature: np.ndarray) -> np.ndarray:
    """About 1 / sqrt(curvature); columns of nearly the same size get the same one."""
    known = (curvature > 1e-200) & (curvature < 1e200)
    if not known.any():
        return np.ones(curvature.shape)
    usual = np.median(curvature[known])
    exponents = np.round(-np.log2(np.where(known, curvature, usual) / usual) / 2) + np.round(-np.log2(usual) / 2)
    return np.exp2(exponents)
