"""Other problems made from a given one: with an added quadratic, on one client alone, on all data gathered."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Batch, Params, Scalar
from fedlocal.data.federated_data import FederatedData
from fedlocal.problems.data_problem import DataProblem
from fedlocal.util import checks
from fedlocal.util.placement import Rounding


class Augmented(AbstractProblem):
    """F_m(x) + strength / 2 ||x - center||^2; made by `augmented`."""

    base: AbstractProblem
    strength: Scalar
    center: Params

    def __init__(self, base: AbstractProblem, strength: Scalar, center: Params):
        self.base, self.strength, self.center = base, strength, center

    @property
    def num_clients(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.num_clients

    def init(self, key: jax.Array) -> Params:
        return self.center

    def gradient(self, x: Params, batch: Batch) -> Params:
        return self._add_pull(self.base.gradient(x, batch), x)

    def full_gradient(self, x: Params, client: Scalar) -> Params:
        return self._add_pull(self.base.full_gradient(x, client), x)

    def current(self) -> "Augmented":
        return Augmented(self.base.current(), self.strength, self.center)

    def check_losses(self, owner: str, x: Params) -> None:
        self.base.check_losses(owner, x)

    @property
    def rounding(self) -> Rounding:
        return self.base.rounding

    def sizes(self) -> np.ndarray | None:
        return self.base.sizes()

    def starts(self) -> np.ndarray | None:
        return self.base.starts()

    def loss_weights(self, client_weights: np.ndarray) -> np.ndarray:
        return self.base.loss_weights(client_weights)

    def loss(self, x: Params, loss_weights: jax.Array | np.ndarray) -> jax.Array:
        squares = jax.tree.map(lambda a, c: jnp.sum((a - c) ** 2), x, self.center)
        return self.base.loss(x, loss_weights) + self.strength / 2 * sum(jax.tree.leaves(squares))

    def _add_pull(self, g: Params, x: Params) -> Params:
        return jax.tree.map(lambda g, a, c: g + self.strength * (a - c), g, x, self.center)


def augmented(problem: AbstractProblem, strength: Scalar, center: Params | None = None) -> Augmented:
    r"""F(x) + strength / 2 ||x - center||^2: makes a convex F strongly convex, so that FedAc applies.

    Args:
        problem: F.
        strength: above 0.
        center: a pytree like the parameters; also the starting point. None: the problem's own.

    Reference: dissertation, eq. aug (FedAc for general convex objectives). Differs from it: nothing.

    >>> from fedlocal.problems.oracle import piecewise_quadratic
    >>> problem = augmented(piecewise_quadratic(), strength=2.0, center=jnp.array(1.0))
    >>> float(problem.full_gradient(jnp.array(2.0), 0))
    6.0
    """
    if center is None:
        center = problem.init(jax.random.key(0))
    if jax.tree.leaves(center) == []:
        raise ValueError("augmented: center must have the structure of the parameters, got an empty one")
    strength = checks.number("augmented", "strength", strength, above=0)
    return Augmented(problem, strength, jax.tree.map(jnp.asarray, center))


def only(problem: AbstractProblem, client: int) -> DataProblem:
    """The problem of one client alone: what `local` and single-client baselines run on.

    Args:
        problem: one with data.
        client: its number, from 0.
    """
    return _with_data("only", problem, lambda data: data.only(client))


def pooled(problem: AbstractProblem) -> DataProblem:
    """All examples at a single client: what centralised baselines run on.

    Args:
        problem: one with data.
    """
    return _with_data("pooled", problem, FederatedData.pooled)


def _with_data(owner: str, problem: AbstractProblem, view: Callable[[FederatedData], FederatedData]) -> DataProblem:
    if not isinstance(problem, DataProblem):
        raise TypeError(f"{owner}: needs a problem with data, got {type(problem).__name__}")
    return problem.with_data(view(problem.data))
