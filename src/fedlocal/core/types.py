"""The words that all parts share: parameters, scalars, and what travels between clients and server."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import equinox as eqx
import numpy as np

Params: TypeAlias = Any  # a pytree of arrays: the point x, or anything of its shape (gradients, dual points)
Scalar: TypeAlias = Any  # a number, or an array of shape (), or a traced value
Server: TypeAlias = Any  # a server state of any method
Client: TypeAlias = Any  # a client state of any method
Message: TypeAlias = Any  # what a client sends: a change of what it received, or a gradient; messages are averaged
Memory: TypeAlias = Any  # what a client keeps between rounds; () for most methods
NoMemory: TypeAlias = tuple[()]  # of methods whose clients keep nothing
GradFn: TypeAlias = Callable[[Params], Params]
WeightsName: TypeAlias = Literal["uniform", "examples"]  # of clients in a mean: all alike, or by number of examples
WEIGHTS: tuple[str, ...] = get_args(WeightsName)
Weights: TypeAlias = WeightsName | Sequence[float] | np.ndarray  # or a number above 0 for each client


def static(**kwargs: Any) -> Any:
    """A field that belongs to the compiled program rather than to its arguments."""
    return eqx.field(static=True, **kwargs)
