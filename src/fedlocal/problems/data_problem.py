"""What all problems with data share: gradients of minibatches, exact gradients in blocks, the loss in float64."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, Batch, Params
from fedlocal.core.types import Scalar
from fedlocal.data.federated_data import FederatedData, SparseMatrix, SparseRows
from fedlocal.util import checks
from fedlocal.util.placement import Rounding

BLOCK_NUMBERS = 1 << 18  # numbers of one client's examples that are looked at at once in an exact gradient
LOSS_NUMBERS = 1 << 20  # the same for the loss of all examples
SPARSE_LOSS_NUMBERS = 1 << 16  # the same where rows are gathered number by number, which should stay in the cache


class DataProblem(AbstractProblem):
    """F_m(x) = mean over the examples of client m of a loss, plus a smooth penalty."""

    data: eqx.AbstractVar[FederatedData]

    @abstractmethod
    def losses(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        """(B,) losses of the examples at x."""

    def penalty(self, x: Params) -> jax.Array:
        """A smooth term that every client adds to its loss; none by default."""
        return jnp.zeros(())

    @property
    def rounding(self) -> Rounding:
        return self.data.rounding

    @property
    def num_clients(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.data.num_clients

    def sizes(self) -> np.ndarray:
        return np.asarray(self.data.client_sizes)

    def starts(self) -> np.ndarray:
        return np.asarray(self.data.client_starts)

    def gradient(self, x: Params, batch: Batch) -> Params:
        inside = any(checks.is_traced(a) for a in jax.tree.leaves((self, x, batch)))
        return _gradient(self, x, batch) if inside else _compiled_gradient(self, x, batch)

    def full_gradient(self, x: Params, client: Scalar) -> Params:
        return _full_gradient(self, x, client, min(self._rows_at_once(BLOCK_NUMBERS), self.data.largest))

    def loss_weights(self, client_weights: np.ndarray) -> np.ndarray:
        return self.data.example_weights(client_weights)

    def loss(self, x: Params, loss_weights: jax.Array | np.ndarray) -> jax.Array:
        return self.weighted_sum(self.losses, x, loss_weights) + self.penalty(x)

    def weighted_sum(self, fn: Callable[..., jax.Array], x: Params, weights: jax.Array | np.ndarray) -> jax.Array:
        """sum_i weights_i fn(x, example_i) over all examples, a block at a time, in the precision of x."""
        n, block = self.data.num_examples, self.loss_block()

        def add_block(i: jax.Array, total: jax.Array) -> jax.Array:
            rows, inside = rows_of_block(i, block, n)
            values = fn(x, cast_like(self.data.take(rows), x))
            return total + jnp.sum(jnp.where(inside, weights[rows] * values, 0))

        return jax.lax.fori_loop(0, -(-n // block), add_block, jnp.zeros((), weights.dtype))

    def prepare(self, data: FederatedData) -> FederatedData:
        """Check data for this problem and bring labels into its form; nothing to do by default."""
        return data

    def with_data(self, data: FederatedData) -> Self:
        """The same problem on other data, e.g. one client's or a validation set."""
        return eqx.tree_at(lambda p: p.data, self, self.prepare(data))

    def loss_block(self) -> int:
        """How many examples the loss looks at at once."""
        sparse = isinstance(self.data.arrays[0], SparseMatrix)
        return self._rows_at_once(SPARSE_LOSS_NUMBERS if sparse else LOSS_NUMBERS)

    def _rows_at_once(self, numbers: int) -> int:
        features = self.data.arrays[0]
        per_row = getattr(features, "longest_row", int(np.prod(features.shape[1:])))
        return max(1, min(self.data.num_examples, numbers // max(per_row, 1)))


def _gradient(problem: DataProblem, x: Params, batch: Batch) -> Params:
    """The gradient of the mean loss of a minibatch."""
    assert batch.rows is not None
    examples = problem.data.take(batch.rows)
    keys = {"keys": batch.keys} if problem.random_losses else {}

    def objective(x: Params) -> jax.Array:
        losses = problem.losses(x, examples, **keys)
        mean = jnp.mean(losses) if batch.weights is None else jnp.sum(batch.weights * losses)
        return mean + problem.penalty(x)

    return jax.grad(objective)(x)


_compiled_gradient = jax.jit(
    _gradient
)  # outside of programs, where JAX would compile the loops of a loss in every step


@partial(jax.jit, static_argnames="block")
def _full_gradient(problem: DataProblem, x: Params, client: Scalar, block: int) -> Params:
    """The gradient of F_m in blocks of examples."""
    data, dtype = problem.data, optax.tree.dtype(x, "promote")
    start, size = data.client_starts[client], data.client_sizes[client]

    def add_block(i: jax.Array | int, total: Params) -> Params:
        rows, weights = mean_of_block(i, block, start, size, dtype)
        examples = data.take(rows)
        return optax.tree.add(total, jax.grad(lambda x: jnp.sum(weights * problem.losses(x, examples)))(x))

    return jax.lax.fori_loop(0, -(-data.largest // block), add_block, jax.grad(problem.penalty)(x))


def rows_of_block(i: jax.Array | int, block: int, n: int) -> tuple[jax.Array, jax.Array]:
    """(block,) the rows of block i of n examples, and which of them are there; the others are row 0."""
    rows = i * block + jnp.arange(block)
    return jnp.where(rows < n, rows, 0), rows < n


def mean_of_block(
    i: jax.Array | int, block: int, start: jax.Array, size: jax.Array, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """(block,) the rows of block i of a client's examples, and their weights in the client's mean."""
    rows = i * block + jnp.arange(block)
    return start + jnp.minimum(rows, size - 1), (rows < size).astype(dtype) / size.astype(dtype)


def cast_like(examples: tuple[Any, ...], x: Params) -> tuple[Any, ...]:
    """Floating-point examples in the precision of x."""
    dtype = optax.tree.dtype(x, "promote")
    return jax.tree.map(lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, examples)


def dense(features: Any) -> jax.Array:
    """Features as an ordinary array; sparse rows are filled in for these few examples only."""
    return features.dense() if isinstance(features, SparseRows) else features
