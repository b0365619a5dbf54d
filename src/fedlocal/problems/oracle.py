"""Oracle: client losses given by formulas, with noise instead of data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import AbstractProblem, Batch, Params, Scalar, static
from fedlocal.problems.user_functions import check_init, check_loss, name_of, renewed
from fedlocal.util import checks
from fedlocal.util.hashing import IDENTITY, fingerprint
from fedlocal.util.placement import Rounding


class Oracle(AbstractProblem):
    r"""F_m(x) = value(x, m) with stochastic gradients grad F_m(x) + noise(key, x, m).

    A batch of size B averages B draws of noise; batch_size=None means no noise.

    Args:
        value: F_m(x) as a function of (x, m), differentiable by JAX unless `gradient` is given.
        gradient: grad F_m(x) as a function of (x, m); None differentiates `value`.
        noise: a function of (key, x, m) that returns something of the shape of x; None for none.
        num_clients: M, at least 1; m is in 0..M-1.
        init_fn: the starting point as a function of a key; None: give `x0` to the engine.
        rounded: what JAX rounded of arrays that the functions use; None: nothing.

    >>> oracle = Oracle(lambda x, m: jnp.sum(x**2), num_clients=2)
    >>> oracle.full_gradient(jnp.array([1.0]), 0).tolist()
    [2.0]
    """

    value: Callable[[Params, Scalar], jax.Array]
    gradient_fn: Callable[[Params, Scalar], Params] | None
    noise: Callable[[jax.Array, Params, Scalar], Params] | None
    init_fn: Callable[[jax.Array], Params] | None
    num_clients: int = static()
    version: str = static(repr=False, metadata={IDENTITY: False})  # of the functions, with all that they read
    rounded: Rounding = static(repr=False, metadata={IDENTITY: False})  # of the arrays that are bound to them

    def __init__(
        self,
        value: Callable[[Params, Scalar], jax.Array],
        gradient: Callable[[Params, Scalar], Params] | None = None,
        noise: Callable[[jax.Array, Params, Scalar], Params] | None = None,
        num_clients: int = 1,
        init_fn: Callable[[jax.Array], Params] | None = None,
        rounded: Rounding | None = None,
    ):
        check_init("Oracle", init_fn)
        self.value, self.gradient_fn, self.noise, self.init_fn = map(_partial, (value, gradient, noise, init_fn))
        self.num_clients = checks.whole("Oracle", "num_clients", num_clients)
        self.version, self.rounded = fingerprint(self._functions()), rounded or Rounding()

    def _functions(self) -> list[Any]:
        """The functions without the arrays that are bound to them, which are arguments of programs."""
        return [_bare(fn) for fn in (self.value, self.gradient_fn, self.noise, self.init_fn)]

    @property
    def rounding(self) -> Rounding:
        return self.rounded

    def current(self) -> "Oracle":
        return renewed(self, self._functions())

    def init(self, key: jax.Array) -> Params:
        if self.init_fn is None:
            raise ValueError("Oracle: no starting point; pass x0=... to the engine or init_fn=... to Oracle")
        return self.init_fn(key)

    def check_losses(self, owner: str, x: Params) -> None:
        begin = f"{owner}: the value {name_of(_bare(self.value))}(x0, client)"
        check_loss(begin, self.value, x, jax.ShapeDtypeStruct((), jnp.int32))

    def gradient(self, x: Params, batch: Batch) -> Params:
        exact = self.full_gradient(x, batch.client)
        if self.noise is None:
            return exact
        draws = jax.vmap(lambda key: self.noise(key, x, batch.client))(batch.keys)  # pyright: ignore[reportOptionalCall]
        return optax.tree.add(exact, jax.tree.map(lambda d: jnp.mean(d, axis=0), draws))

    def full_gradient(self, x: Params, client: Scalar) -> Params:
        return (self.gradient_fn or jax.grad(self.value))(x, client)

    def sizes(self) -> None:
        return None

    def starts(self) -> None:
        return None

    def loss_weights(self, client_weights: np.ndarray) -> np.ndarray:
        return client_weights

    def loss(self, x: Params, loss_weights: jax.Array | np.ndarray) -> jax.Array:
        clients = jnp.arange(self.num_clients)
        return jnp.sum(loss_weights * jax.lax.map(lambda m: self.value(x, m), clients, batch_size=1024))


def quadratics(matrices: Any, optima: Any, noise_std: Scalar = 0.0) -> Oracle:
    """F_m(x) = 1/2 (x - c_m)' A_m (x - c_m) with independent normal noise in every coordinate.

    Args:
        matrices, optima: A_m (M, d, d) and c_m (M, d).
        noise_std: standard deviation of the noise, at least 0.

    >>> problem = quadratics(matrices=np.eye(2)[None], optima=np.ones((1, 2)))
    >>> problem.full_gradient(jnp.zeros(2), 0).tolist()
    [-1.0, -1.0]
    """
    given = matrices, optima
    matrices, optima = (jnp.array(a, jnp.result_type(float)) for a in given)
    if matrices.ndim != 3 or optima.shape != matrices.shape[:2] or matrices.shape[1] != matrices.shape[2]:
        got = f"{matrices.shape} and {optima.shape}"
        raise ValueError(f"quadratics: matrices must be (M, d, d) and optima (M, d), got {got}")
    value = jax.tree_util.Partial(quadratic_value, matrices, optima)
    start = jax.tree_util.Partial(_zeros, optima[0])
    rounded = Rounding.of(given, (matrices, optima))
    return Oracle(value, noise=normal_noise(noise_std), num_clients=len(matrices), init_fn=start, rounded=rounded)


def piecewise_quadratic(
    noise_std: Scalar = 0.1, right: Scalar = 1.0, left: Scalar = 0.1, num_clients: int = 1
) -> Oracle:
    """F(x) = right x^2 for x >= 0, left x^2 for x < 0, in one dimension: the text's picture of the iterate bias.

    Args:
        noise_std: standard deviation of normal noise in the gradients, at least 0.
        right, left: the factors of x^2.
        num_clients: at least 1, all with the same F.

    Reference: dissertation, figure fig:bias. Differs from it: nothing (noise N(0, 0.01) is a standard deviation of 0.1).

    >>> [round(float(piecewise_quadratic().value(jnp.array(x), 0)), 6) for x in (2.0, -2.0)]
    [4.0, 0.4]
    """
    value = jax.tree_util.Partial(piecewise_value, right, left)
    start = jax.tree_util.Partial(_zeros, jnp.zeros(()))
    return Oracle(value, noise=normal_noise(noise_std), num_clients=num_clients, init_fn=start)


def normal_noise(noise_std: Scalar) -> Callable[[jax.Array, Params, Scalar], Params]:
    """Independent normal noise in every coordinate of every client, for `Oracle`.

    Args:
        noise_std: standard deviation, at least 0.
    """
    return jax.tree_util.Partial(normal_draw, checks.number("normal_noise", "noise_std", noise_std, at_least=0))


def quadratic_value(matrices: jax.Array, optima: jax.Array, x: jax.Array, client: jax.Array) -> jax.Array:
    shift = x - optima[client]
    return shift @ matrices[client] @ shift / 2


def piecewise_value(right: Scalar, left: Scalar, x: jax.Array, client: jax.Array) -> jax.Array:
    return jnp.where(x >= 0, right, left) * x**2


def normal_draw(noise_std: Scalar, key: jax.Array, x: Params, client: jax.Array) -> Params:
    return jax.tree.map(lambda a: noise_std * a, optax.tree.random_like(key, x, jax.random.normal))


def _zeros(like: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.zeros_like(like)


def _bare(fn: Any) -> Any:
    """The function that `_partial` was given, without the arrays that are bound to it."""
    return None if fn is None else fn.func


def _partial(fn: Any) -> Any:
    """A function as a pytree, so that arrays bound with `jax.tree_util.Partial` are arguments of compiled programs."""
    return fn if fn is None or isinstance(fn, jax.tree_util.Partial) else jax.tree_util.Partial(fn)
