"""The iterate bias of SGD in formulas: its leading term for small steps, and for little noise."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedlocal.core import AbstractProblem, Params
from fedlocal.theory.bias.monte_carlo import ascending
from fedlocal.theory.bias.sde import covariance_root
from fedlocal.util import checks

VectorFn = Callable[[jax.Array], jax.Array]


def small_step_bias(
    problem: AbstractProblem, x0: Params, step_size: float, steps: Sequence[int], covariance: Any, *, client: int = 0
) -> Params:
    r"""The leading term of the iterate bias from x0 as eta k L -> 0, at every k of `steps`:

        E x_sgd^(k) - z_gd^(k)  ~  -(1/4) eta^3 k^2 T,   T_i = sum_jl Sigma_jl d_i d_j d_l F(x0),

    where T is the gradient of tr(Sigma Hess F) with Sigma held fixed.

    Why: with the generator A = -grad F . grad + (eta/2) sum_jl Sigma_jl d_j d_l of the SDE, u(t, x) = E[X(t) | X(0) = x] is
    x + t A x + (t^2/2) A A x + ..., A x = -grad F, and the noise enters A A x = Hess F grad F - (eta/2) T. Then t = eta k.
    The discrete recurrence has k (k - 1) for k^2: see `small_noise_bias`.

    Args:
        problem, client, x0, step_size, steps: as for `monte_carlo_bias`.
        covariance: Sigma of a stochastic gradient at x0, (d, d), a pytree's numbers in the order of `ravel_pytree`;
            for a problem in one number its variance sigma^2.

    Reference: dissertation, lemma lem:pde:utt and the display after it. Differs from it: 1/4 instead of 1/2 (the text's backward
    equation lacks a factor 1/2), as in the formal theorem thm:fedavg:3o:bias:ub:complete; any dimension.

    >>> from fedlocal.problems.oracle import Oracle
    >>> cubic = Oracle(lambda x, m: x**2 / 2 + x**3 / 6)
    >>> round(float(small_step_bias(cubic, 0.0, 0.01, [10], 4.0)[0] / (0.01**3 * 10**2 * 4.0)), 12)
    -0.25
    """
    owner = "small_step_bias"
    eta, ends = checks.number(owner, "step_size", step_size, above=0), ascending(owner, steps)
    with jax.enable_x64(True):
        x0 = jax.tree.map(lambda a: np.asarray(a, float), x0)
        root = covariance_root(owner, covariance, sum(a.size for a in jax.tree.leaves(x0)))
        third = np.asarray(_contraction(problem, np.asarray(client), x0, root))
    return _like(x0, -(eta**3) / 4 * ends[:, None].astype(float) ** 2 * third)


def small_noise_bias(
    problem: AbstractProblem, x0: Params, step_size: float, steps: Sequence[int], covariance: Any, *, client: int = 0
) -> Params:
    r"""The leading term of the iterate bias from x0 as the noise goes to zero, for any step size and number of steps:

        m_{k+1} = (I - eta H_k) m_k - (eta/2) T_k : C_k,   C_{k+1} = (I - eta H_k) C_k (I - eta H_k) + eta^2 Sigma,

    from zero, with H_k and T_k the second and third derivatives of F at z_gd^(k): mean and covariance of x_sgd^(k) - z_gd^(k) to
    the second order in the noise. As eta k L -> 0, H and T stay those of x0, C_k = k eta^2 Sigma, and what is left is
    -(1/4) eta^3 k (k - 1) T : Sigma. It is exact for k = 1 (zero).

    Args:
        problem, client, x0, step_size, steps: as for `monte_carlo_bias`.
        covariance: Sigma as for `small_step_bias`, the same at every point.

    Reference: none in the dissertation, whose display after lemma lem:pde:utt is the limit. Differs from it: discrete time.

    >>> from fedlocal.problems.oracle import Oracle
    >>> cubic = Oracle(lambda x, m: x**3 / 6)  # H = 0 at 0
    >>> round(float(small_noise_bias(cubic, 0.0, 0.01, [10], 4.0)[0] / (0.01**3 * 10 * 9 * 4.0)), 12)
    -0.25
    """
    owner = "small_noise_bias"
    eta, ends = checks.number(owner, "step_size", step_size, above=0), ascending(owner, steps)
    with jax.enable_x64(True):
        x0 = jax.tree.map(lambda a: np.asarray(a, float), x0)
        root = covariance_root(owner, covariance, sum(a.size for a in jax.tree.leaves(x0)))
        means = _moments(problem, np.asarray(client), np.asarray(eta), x0, root @ root.T, int(ends[-1]))
    return _like(x0, np.asarray(means)[ends])


@eqx.filter_jit
def _contraction(problem: AbstractProblem, client: Any, x0: Params, root: Any) -> jax.Array:
    """(d,) T : (root root') at x0."""
    x, unravel = _vector(x0)
    return _second_change(_gradient(problem, client, unravel), x, jnp.asarray(root))


@eqx.filter_jit
def _moments(problem: AbstractProblem, client: Any, eta: Any, x0: Params, covariance: Any, steps: int) -> jax.Array:
    """(steps + 1, d) m_k."""
    x, unravel = _vector(x0)
    gradient = _gradient(problem, client, unravel)

    def step(state: Any, _: None) -> Any:
        z, m, c = state
        contraction = jnp.eye(len(z)) - eta * jax.jacfwd(gradient)(z)
        values, vectors = jnp.linalg.eigh(c)
        pull = _second_change(gradient, z, vectors * jnp.sqrt(jnp.maximum(values, 0)))
        c = contraction @ c @ contraction.T + eta**2 * covariance
        return (z - eta * gradient(z), contraction @ m - eta / 2 * pull, c), m

    (_, last, _), means = jax.lax.scan(step, (x, jnp.zeros_like(x), jnp.zeros_like(covariance)), None, length=steps)
    return jnp.concatenate([means, last[None]])


def _second_change(gradient: VectorFn, x: jax.Array, root: jax.Array) -> jax.Array:
    """sum over the columns s of `root` of the second derivative of the gradient along s: T : (root root')."""

    def along(s: jax.Array) -> jax.Array:
        return jax.jvp(lambda a: jax.jvp(gradient, (a,), (s,))[1], (x,), (s,))[1]

    return jnp.sum(jax.lax.map(along, root.T), axis=0)


def _gradient(problem: AbstractProblem, client: Any, unravel: Callable[[jax.Array], Params]) -> VectorFn:
    return lambda x: ravel_pytree(problem.full_gradient(unravel(x), jnp.asarray(client)))[0]


def _vector(x0: Params) -> tuple[jax.Array, Callable[[jax.Array], Params]]:
    return ravel_pytree(jax.tree.map(lambda a: jnp.asarray(a, float), x0))


def _like(x0: Params, rows: np.ndarray) -> Params:
    """(n, d) numbers as the parameters that they are, with a first axis."""
    leaves, tree = jax.tree.flatten(x0)
    parts = np.split(rows, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
    return jax.tree.unflatten(tree, [a.reshape(len(rows), *b.shape) for a, b in zip(parts, leaves, strict=True)])
