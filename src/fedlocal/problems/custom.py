"""Problem: any differentiable loss of one example."""

from collections.abc import Callable
from typing import Any

import jax

from fedlocal.core import Params, static
from fedlocal.data.federated_data import FederatedData
from fedlocal.problems.data_problem import DataProblem, dense


class Problem(DataProblem):
    r"""F_m(x) = mean_i loss_fn(x, *example_i) over the examples of client m.

    Args:
        loss_fn: the loss of one example, e.g. `loss_fn(params, features, target)`; parameters are any pytree.
        data: the examples of the clients.
        init_fn: the starting point as a function of a key; None: give `x0` to the engine.

    >>> import jax.numpy as jnp, numpy as np
    >>> data = FederatedData.from_clients([(np.ones((2, 1)), np.zeros(2))])
    >>> problem = Problem(lambda params, a, b: (a @ params["w"] - b) ** 2, data)
    >>> problem.full_gradient({"w": jnp.ones(1)}, 0)["w"].tolist()
    [2.0]
    """

    loss_fn: Callable[..., jax.Array] = static()
    data: FederatedData
    init_fn: Callable[[jax.Array], Params] | None = static()

    def __init__(
        self,
        loss_fn: Callable[..., jax.Array],
        data: FederatedData,
        init_fn: Callable[[jax.Array], Params] | None = None,
    ):
        if not callable(loss_fn):
            raise TypeError(f"Problem: loss_fn must be a function loss_fn(params, *example), got {loss_fn!r}")
        if not isinstance(data, FederatedData):
            raise TypeError(f"Problem: data must be FederatedData, got {type(data).__name__}")
        self.loss_fn, self.data, self.init_fn = loss_fn, data, init_fn

    def init(self, key: jax.Array) -> Params:
        if self.init_fn is None:
            raise ValueError("Problem: no starting point; pass x0=... to the engine or init_fn=... to Problem")
        return self.init_fn(key)

    def losses(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        return jax.vmap(self.loss_fn, in_axes=(None, *(0 for _ in examples)))(x, *map(dense, examples))
