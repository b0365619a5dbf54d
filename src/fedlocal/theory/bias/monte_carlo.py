"""The iterate bias of SGD, by Monte Carlo: how far the mean of SGD is from gradient descent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Params, Scalar
from fedlocal.simulation.plan import Plan, Sampling
from fedlocal.util import checks

NUMBERS_AT_ONCE = 1 << 23  # largest number of floats that a chunk of repeats holds in memory


@dataclass(frozen=True)
class BiasEstimate:
    """E x^(k) - z^(k) at several k, from samples. Like x, with a first axis for the n numbers of steps."""

    steps: np.ndarray  # (n,) k
    bias: Params  # (n, ...)
    standard_error: Params  # (n, ...)
    samples: Params | None = None  # (n, repeats, ...) points x^(k), with `keep_samples`


def monte_carlo_bias(
    problem: AbstractProblem,
    x0: Params,
    step_size: float,
    steps: Sequence[int],
    repeats: int,
    seed: int = 0,
    *,
    client: int = 0,
    batch_size: int = 1,
    keep_samples: bool = False,
) -> BiasEstimate:
    r"""The iterate bias E x_sgd^(k) - z_gd^(k) of one client's loss F from x0, at every k of `steps`.

        x_sgd^(k+1) = x_sgd^(k) - eta g(x_sgd^(k)),   z_gd^(k+1) = z_gd^(k) - eta grad F(z_gd^(k)),   both from x0,

    g the stochastic gradient of a minibatch.

    Args:
        problem, client: F is the loss of this client, counted from 0.
        x0: the starting point, a pytree.
        step_size: eta > 0.
        steps: the numbers of steps k >= 1, in ascending order.
        repeats: runs of SGD, at least 2; repeat r draws what the engines draw in round r.
        seed: everything random is a function of this integer.
        batch_size: examples per step, drawn with replacement.
        keep_samples: return the points of all repeats, too; else the memory used does not grow with their number.

    Reference: dissertation, definition def:fedavg:bias. Differs from it: the definition forgets the (k) of z_gd in grad F.

    >>> from fedlocal.problems.oracle import piecewise_quadratic
    >>> found = monte_carlo_bias(piecewise_quadratic(), x0=0.0, step_size=0.1, steps=[1, 64], repeats=2000)
    >>> bool(abs(found.bias[0]) < 4 * found.standard_error[0]), bool(found.bias[1] < -4 * found.standard_error[1])
    (True, True)
    """
    owner = "monte_carlo_bias"
    eta = checks.number(owner, "step_size", step_size, above=0)
    ends = ascending(owner, steps)
    repeats = checks.whole(owner, "repeats", repeats, at_least=2)
    batch_size = checks.whole(owner, "batch_size", batch_size)
    checks.whole(owner, "client", client, at_least=0, at_most=problem.num_clients - 1)
    with jax.enable_x64(True):
        x0 = jax.tree.map(lambda a: np.asarray(a, float), x0)
        plan = Plan.make(problem, Sampling(local_steps=int(ends[-1]), batch_size=batch_size, seed=seed), owner)
        eta, client_number = np.asarray(eta), np.asarray(client)  # arrays, so that one program serves all
        z: Params = jax.tree.map(np.asarray, _descent(problem, client_number, eta, x0, ends))
        chunk = _repeats_at_once(plan, x0, len(ends), repeats)
        zero = jax.tree.map(np.zeros_like, z)
        moments, kept = (0, zero, zero), []
        for first in range(0, repeats, chunk):
            numbers = np.arange(first, first + chunk, dtype=np.uint32)
            drawn = _sample_paths(problem, plan, client_number, eta, x0, ends, numbers)
            x = jax.tree.map(lambda a, left=repeats - first: np.asarray(a)[:left], drawn)
            moments = _with_chunk(moments, jax.tree.map(np.subtract, x, z))
            if keep_samples:
                kept.append(x)
    samples = jax.tree.map(lambda *parts: np.swapaxes(np.concatenate(parts), 0, 1), *kept) if keep_samples else None
    count, mean, squares = moments
    return BiasEstimate(ends, mean, jax.tree.map(lambda s: np.sqrt(s / (count - 1) / count), squares), samples)


def ascending(owner: str, steps: Sequence[int]) -> np.ndarray:
    """Return the numbers of steps as an array; raise an error if they do not ascend."""
    ends = np.array([checks.whole(owner, "steps", int(k) if isinstance(k, np.integer) else k) for k in steps], int)
    if len(ends) == 0 or (np.diff(ends) <= 0).any():
        raise ValueError(f"{owner}: steps must be numbers of steps that ascend, e.g. [128, 256], got {list(steps)}")
    return ends


def _with_chunk(moments: tuple[int, Params, Params], x: Params) -> tuple[int, Params, Params]:
    """Number, mean and sum of squared deviations of all samples so far, with those of one more chunk."""
    before, old_mean, old_squares = moments
    count = len(jax.tree.leaves(x)[0])
    total = before + count
    mean = jax.tree.map(lambda a: a.mean(axis=0), x)
    shift = jax.tree.map(np.subtract, mean, old_mean)

    def squares(old: Any, a: Any, m: Any, s: Any) -> Any:
        return old + ((a - m) ** 2).sum(axis=0) + s**2 * before * count / total

    new_mean = jax.tree.map(lambda m, s: m + s * count / total, old_mean, shift)
    return total, new_mean, jax.tree.map(squares, old_squares, x, mean, shift)


def _repeats_at_once(plan: Plan, x0: Params, records: int, repeats: int) -> int:
    """Return how many repeats fit into a chunk; chunks are about equal, so that one compiled program serves all."""
    size = sum(a.size for a in jax.tree.leaves(x0))
    batch = plan.batch_size or 1
    each = size * (records + batch + 2) + (0 if plan.sizes is None else plan.most_steps * batch)
    chunks = -(-repeats // max(1, NUMBERS_AT_ONCE // each))
    return -(-repeats // chunks)


@eqx.filter_jit
def _descent(problem: AbstractProblem, client: Any, eta: Scalar, x0: Params, ends: Any) -> Params:
    return _recorded(lambda k, x: _step(x, problem.full_gradient(x, client), eta), x0, ends)


@eqx.filter_jit
def _sample_paths(
    problem: AbstractProblem, plan: Plan, client: Any, eta: Scalar, x0: Params, ends: Any, repeats: Any
) -> Params:
    """(repeats, n, ...) points of SGD."""
    client = jnp.asarray(client)

    def path(repeat: jax.Array) -> Params:
        draws = plan.draws(plan.round_key(repeat), client)
        return _recorded(lambda k, x: _step(x, problem.gradient(x, plan.batch(draws, client, k)), eta), x0, ends)

    return jax.vmap(path)(repeats)


def _step(x: Params, g: Params, eta: Scalar) -> Params:
    return jax.tree.map(lambda a, b: a - eta * b, x, g)


def _recorded(step: Any, x0: Params, ends: Any) -> Params:
    """The points after each of the numbers of steps, from x0."""

    def segment(x: Params, bounds: tuple[jax.Array, jax.Array]) -> tuple[Params, Params]:
        x = jax.lax.fori_loop(*bounds, step, x)
        return x, x

    ends, x0 = jnp.asarray(ends), jax.tree.map(jnp.asarray, x0)
    starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    return jax.lax.scan(segment, x0, (starts, ends))[1]
