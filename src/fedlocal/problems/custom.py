"""Problem: any differentiable loss of one example."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from fedlocal.core import Params, static
from fedlocal.data.federated_data import FederatedData
from fedlocal.problems.data_problem import DataProblem, dense
from fedlocal.problems.user_functions import check_init, check_loss, name_of, renewed
from fedlocal.util.hashing import fingerprint

KEY_NAMES = ("rng", "prng_key", "random_key", "rng_key")  # other libraries' names of what is `key` here


class Problem(DataProblem):
    r"""F_m(x) = mean_i loss_fn(x, *example_i) over the examples of client m.

    Args:
        loss_fn: the loss of one example, e.g. `loss_fn(params, features, target)`; parameters are any pytree. Values that it
            reads from around it are those at the time of each call of the library: its closure, its defaults and the globals
            that it and its helpers name, in objects, classes and modules of yours (not what `globals()`, a file or an
            installed module gives it). A loss that is random itself, e.g. by dropout, has an argument `key`: local steps give
            it a random key of their own for each example, and evaluations, exact gradients and solvers give it None, for
            which it must not be random.
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
    version: str = static(repr=False)  # of the loss, with all that it reads

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
        check_init("Problem", init_fn)
        _check_arguments(loss_fn, len(data.arrays))
        self.loss_fn, self.data, self.init_fn, self.version = loss_fn, data, init_fn, fingerprint(loss_fn)

    @property
    def random_losses(self) -> bool:
        return _takes_key(self.loss_fn)

    def current(self) -> "Problem":
        return renewed(self, self.loss_fn)

    def init(self, key: jax.Array) -> Params:
        if self.init_fn is None:
            raise ValueError("Problem: no starting point; pass x0=... to the engine or init_fn=... to Problem")
        return self.init_fn(key)

    def check_losses(self, owner: str, x: Params) -> None:
        examples = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in self.data.arrays]
        given = ", ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in examples)
        begin = f"{owner}: the loss {name_of(self.loss_fn)}(x0, one example: {given})"
        for keys in self._keys():
            fixed = "key" in keys and keys["key"] is None
            advice = "; evaluations give key=None: make None its default, and the loss not random for it"
            check_loss(begin, partial(self.loss_fn, **keys), x, *examples, advice=advice if fixed else "")

    def losses(self, x: Params, examples: tuple[Any, ...], keys: jax.Array | None = None) -> jax.Array:
        if not self.random_losses:
            return jax.vmap(self.loss_fn, in_axes=(None, *(0 for _ in examples)))(x, *map(dense, examples))
        each = lambda key, *example: self.loss_fn(x, *example, key=key)  # noqa: E731
        in_axes = (None if keys is None else 0, *(0 for _ in examples))
        return jax.vmap(each, in_axes=in_axes)(keys, *map(dense, examples))

    def _keys(self) -> list[dict[str, Any]]:
        """The keys that the loss is given: none; or None in evaluations, and a random one in local steps."""
        return [{"key": None}, {"key": jax.random.key(0)}] if self.random_losses else [{}]


def _check_arguments(loss_fn: Callable[..., Any], arrays: int) -> None:
    """Raise a TypeError if a loss waits for random keys under a name that nothing is given by."""
    try:
        names = list(inspect.signature(loss_fn).parameters)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    for name in names[1 + arrays :]:
        if name in KEY_NAMES:
            told = f"has an argument {name!r}, which nothing gives it; call it key to get random keys in local steps"
            raise TypeError(f"Problem: the loss {name_of(loss_fn)} {told}")


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        return "key" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False
