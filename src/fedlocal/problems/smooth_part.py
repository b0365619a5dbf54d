"""Means over all examples, taken at one place or client by client: what certificates and solvers are computed from."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Params
from fedlocal.core.types import WEIGHTS, Weights
from fedlocal.problems.data_problem import DataProblem, cast_like, mean_of_block, rows_of_block
from fedlocal.util import checks
from fedlocal.util.placement import on_device
from fedlocal.util.serialization import path_name

SMALL_BLOCK = 256  # rows; fewer at once cost as much time

SumsFn = Callable[[tuple[Any, ...], jax.Array], Any]  # (B examples, their (B,) weights) -> weighted sums, any pytree


class SmoothPart(eqx.Module):
    """F, known by its value and gradient at a point, in the precision of the point."""

    @abstractmethod
    def value_and_gradient(self, x: Params) -> tuple[jax.Array, Params]:
        """F(x) and grad F(x)."""


class ExampleMean(SmoothPart):
    """sum_m p_m mean over the examples of client m. How the mean is taken is all that concrete ones differ in."""

    problem: eqx.AbstractVar[DataProblem]

    @abstractmethod
    def __call__(self, sums_fn: SumsFn) -> Any:
        """The mean over all examples of what `sums_fn` adds up over some of them."""

    def value_and_gradient(self, x: Params) -> tuple[jax.Array, Params]:
        def sums(examples: tuple[Any, ...], weights: jax.Array) -> tuple[jax.Array, Params]:
            return jax.value_and_grad(lambda x: jnp.sum(weights * self.problem.losses(x, examples)))(x)

        return jax.tree.map(jnp.add, self(sums), jax.value_and_grad(self.problem.penalty)(x))


class PooledMean(ExampleMean):
    """One weighted sum over all examples."""

    problem: DataProblem
    example_weights: jax.Array  # (n,)

    @classmethod
    def of_equal(cls, problem: DataProblem) -> "PooledMean":
        """The mean over examples that all count the same."""
        n = problem.data.num_examples
        return cls(problem, jnp.full(n, 1 / n))

    def __call__(self, sums_fn: SumsFn) -> Any:
        n, block = self.problem.data.num_examples, self.problem.loss_block()

        def sums(i: jax.Array | int) -> Any:
            rows, inside = rows_of_block(i, block, n)
            return _sums(self.problem, sums_fn, rows, jnp.where(inside, self.example_weights[rows], 0))

        return _add_up(-(-n // block), sums)


class ClientMean(ExampleMean):
    """Every client takes the mean over its own examples alone; the server adds up what they send, times p."""

    problem: DataProblem
    client_weights: jax.Array  # (M,)

    def __call__(self, sums_fn: SumsFn) -> Any:
        data, p = self.problem.data, self.client_weights
        # a small client costs a whole block, so a block is no longer than about two usual clients
        usual = max(SMALL_BLOCK, 2 * data.num_examples // data.num_clients)
        block = min(self.problem.loss_block(), data.largest, usual)

        def message(m: jax.Array | int) -> Any:
            start, size = data.client_starts[m], data.client_sizes[m]

            def sums(i: jax.Array | int) -> Any:
                return _sums(self.problem, sums_fn, *mean_of_block(i, block, start, size, p.dtype))

            return _add_up(-(-size // block), sums)

        return _add_up(data.num_clients, lambda m: jax.tree.map(lambda a: p[m] * a, message(m)))


class OracleMean(SmoothPart):
    """sum_m p_m F_m for problems without examples: clients send exact gradients."""

    problem: AbstractProblem
    client_weights: jax.Array  # (M,)
    loss_weights: jax.Array

    def value_and_gradient(self, x: Params) -> tuple[jax.Array, Params]:
        def message(m: jax.Array | int) -> Params:
            return jax.tree.map(lambda g: self.client_weights[m] * g, self.problem.full_gradient(x, jnp.asarray(m)))

        return self.problem.loss(x, self.loss_weights), _add_up(self.problem.num_clients, message)


def smooth_part_of(problem: AbstractProblem, client_weights: np.ndarray, federated: bool = False) -> SmoothPart:
    """F of a problem, from all its data or from what clients send."""
    problem, p = problem.current(), on_device(client_weights)
    if not isinstance(problem, DataProblem):
        return OracleMean(problem, p, on_device(problem.loss_weights(client_weights)))
    if federated:
        return ClientMean(problem, p)
    return PooledMean(problem, on_device(problem.loss_weights(client_weights)))


def client_weights(owner: str, problem: AbstractProblem, weights: Weights) -> np.ndarray:
    """(M,) weights p of the clients, with sum 1: given one by one, uniform, or by their numbers of examples."""
    if not isinstance(weights, str):
        return _given_weights(owner, weights, problem.num_clients)
    checks.choice(owner, "weights", weights, WEIGHTS)
    if weights == "uniform":
        return np.full(problem.num_clients, 1 / problem.num_clients)
    sizes, name = problem.sizes(), type(problem).__name__
    if sizes is None:
        raise ValueError(f"{owner}: weights='examples' needs examples; {name} has none, use 'uniform'")
    return sizes / sizes.sum()


def _given_weights(owner: str, weights: Any, clients: int) -> np.ndarray:
    """Weights as a user gave them, checked, with sum 1."""
    wanted = f"{owner}: weights must be 'uniform', 'examples' or a number > 0 for each of the {clients} clients"
    try:
        given = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {weights!r}") from None
    if given.shape != (clients,):
        raise ValueError(f"{wanted}, got {weights!r}" if given.ndim == 0 else f"{wanted}, got shape {given.shape}")
    wrong = given[~(np.isfinite(given) & (given > 0))]
    if len(wrong):
        raise ValueError(f"{wanted}, got {wrong[0]:g}")
    return given / given.sum()


def point(owner: str, name: str, problem: AbstractProblem, x: Params) -> Params:
    """A point of a problem in float64, checked; call it where float64 is enabled."""
    try:
        x = jax.tree.map(lambda a: on_device(np.asarray(a, np.float64)), x)
    except (TypeError, ValueError):
        raise TypeError(f"{owner}: {name} must hold numbers, got {x!r}") from None
    check_shapes(owner, name, problem, x)
    problem.check_losses(owner, x)
    return x


def check_shapes(owner: str, name: str, problem: AbstractProblem, x: Params) -> None:
    """Compare with the problem's own starting point: a wrong shape may broadcast and mean something else."""
    try:
        own = jax.eval_shape(lambda: problem.init(jax.random.key(0)))  # JAX would compare bound methods by their data
    except ValueError:  # it has none to compare with
        return
    want, got = _shapes(own), _shapes(x)
    if want != got:
        want, got = ({k: v for k, v in a.items() if b.get(k) != v} for a, b in ((want, got), (got, want)))
        kind = type(problem).__name__
        raise ValueError(f"{owner}: {name} does not fit the problem {kind}: it must have {want}, got {got}")


def _shapes(x: Params) -> dict[str, tuple[int, ...]]:
    return {path_name(path): np.shape(a) for path, a in jax.tree_util.tree_flatten_with_path(x)[0]}


def _sums(problem: DataProblem, sums_fn: SumsFn, rows: jax.Array, weights: jax.Array) -> Any:
    return sums_fn(cast_like(problem.data.take(rows), weights), weights)


def _add_up(count: Any, term: Callable[[jax.Array | int], Any]) -> Any:
    """sum over i < count of term(i), one after the other."""
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(term, 0))
    return jax.lax.fori_loop(0, count, lambda i, total: jax.tree.map(jnp.add, total, term(i)), zero)
