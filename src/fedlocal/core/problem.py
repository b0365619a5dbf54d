"""AbstractProblem: the losses of the clients, with exact and stochastic gradients."""

import dataclasses
import reprlib
from abc import abstractmethod
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import numpy as np

from fedlocal.core.types import Params, Scalar
from fedlocal.util import html
from fedlocal.util.placement import Rounding


class Batch(NamedTuple):
    """What a stochastic gradient is drawn from. The engine makes it, the problem reads it."""

    client: jax.Array  # index of the client
    rows: jax.Array | None  # (B,) rows of the data, for problems with data
    weights: jax.Array | None  # (B,) weights that sum to one; None means 1/B each
    keys: jax.Array | None  # (B,) random keys, for problems whose noise is not in data, or not in data alone


class AbstractProblem(eqx.Module):
    """F(x) = sum_m p_m F_m(x): client losses with exact and stochastic gradients."""

    num_clients: eqx.AbstractVar[int]

    @property
    def random_losses(self) -> bool:
        """True if stochastic gradients of a minibatch take random keys besides its rows."""
        return False

    @abstractmethod
    def init(self, key: jax.Array) -> Params:
        """The starting point when the user gives none."""

    @abstractmethod
    def gradient(self, x: Params, batch: Batch) -> Params:
        """A stochastic gradient of F_m at x."""

    @abstractmethod
    def full_gradient(self, x: Params, client: Scalar) -> Params:
        """The exact gradient of F_m at x."""

    def current(self) -> Self:
        """The problem as it is now: another one if what its functions read has changed, so that it is compiled anew."""
        return self

    def check_losses(self, owner: str, x: Params) -> None:
        """Raise an error that begins with `owner` and says what is wrong with the losses at x; nothing by default."""

    @property
    def rounding(self) -> Rounding:
        """What JAX rounded of the numbers that the problem was made of; nothing by default."""
        return Rounding()

    @abstractmethod
    def sizes(self) -> np.ndarray | None:
        """(M,) examples of each client; None where there is no data to go through."""

    @abstractmethod
    def starts(self) -> np.ndarray | None:
        """(M,) first row of each client; None where there is no data."""

    @abstractmethod
    def loss_weights(self, client_weights: np.ndarray) -> np.ndarray:
        """What `loss` needs of p, the weights of the clients: computed once, on the host."""

    @abstractmethod
    def loss(self, x: Params, loss_weights: jax.Array | np.ndarray) -> jax.Array:
        """F(x), traced in float64 by the engines."""

    def summary(self) -> dict[str, str]:
        """Return the fields that are not None as short text, arrays by type and shape."""
        fields = {field.name: getattr(self, field.name, None) for field in dataclasses.fields(self) if field.repr}
        return {name: _short(value) for name, value in fields.items() if value is not None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.summary().items())})"

    def _repr_html_(self) -> str:
        return html.section(type(self).__name__, html.facts(self.summary()))


def _short(value: Any) -> str:
    """A field in one line."""
    if isinstance(value, jax.tree_util.Partial):
        value = value.func
    if isinstance(value, eqx.Module):
        return " ".join(repr(value).split())
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    shortened = jax.tree.map(
        lambda a: _Text(f"{a.dtype}[{','.join(map(str, a.shape))}]") if hasattr(a, "dtype") else a, value
    )
    return reprlib.repr(shortened)


class _Text(str):
    """Text that stands without quotes in a tuple or a dict."""

    def __repr__(self) -> str:
        return str(self)
