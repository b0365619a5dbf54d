"""The vocabulary on one page: Problem, Regularizer, MirrorMap, LocalMethod. Nothing here computes an algorithm.

    minimise over x:  F(x) + psi(x),   F(x) = sum_m p_m F_m(x)

A problem knows F_m and its gradients, a regulariser knows psi, a mirror map knows h, a method knows how clients step and
how the server combines what they send. The engines know the rest: data, random numbers, who takes part, the mean.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

Params: TypeAlias = Any  # a pytree of arrays: the point x, or anything of its shape (gradients, dual points)
Scalar: TypeAlias = Any  # a number, or an array of shape (), or a traced value
Server: TypeAlias = Any  # a method's server state
Client: TypeAlias = Any  # a method's client state
Message: TypeAlias = Any  # what a client sends: a change of what it received, or a gradient; messages are averaged
Memory: TypeAlias = Any  # what a client keeps between rounds; () for most methods
GradFn: TypeAlias = Callable[[Params], Params]

UNPENALIZED = frozenset({"intercept", "bias"})  # parts that a regulariser leaves alone unless Blocks names them


def is_free(path: tuple[Any, ...]) -> bool:
    """Whether an array at this place of the parameters is an intercept."""
    return any(getattr(key, "key", getattr(key, "name", None)) in UNPENALIZED for key in path)


def static(**kwargs: Any) -> Any:
    """A field that belongs to the compiled program rather than to its arguments."""
    return eqx.field(static=True, **kwargs)


class Batch(NamedTuple):
    """What a stochastic gradient is drawn from. The engine makes it, the problem reads it."""

    client: jax.Array  # index of the client
    rows: jax.Array | None  # (B,) rows of the data, for problems with data
    weights: jax.Array | None  # (B,) weights that sum to one; None means 1/B each
    keys: jax.Array | None  # (B,) random keys, for problems whose noise is not in data


class AbstractProblem(eqx.Module):
    """F(x) = sum_m p_m F_m(x): client losses with exact and stochastic gradients."""

    num_clients: eqx.AbstractVar[int]

    @abstractmethod
    def init(self, key: jax.Array) -> Params:
        """The starting point when the user gives none."""

    @abstractmethod
    def gradient(self, x: Params, batch: Batch) -> Params:
        """A stochastic gradient of F_m at x."""

    @abstractmethod
    def full_gradient(self, x: Params, client: jax.Array) -> Params:
        """The exact gradient of F_m at x."""

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
    def loss(self, x: Params, loss_weights: jax.Array) -> jax.Array:
        """F(x), traced in float64 by the engines."""


class Separable(NamedTuple):
    """psi(x) = sum_j l1 |x_j| + l2/2 x_j^2 for lower <= x_j <= upper, so that its proximal map acts on each number alone:
    prox(x, t) = clip(soft(x, t l1) / (1 + t l2), lower, upper)."""

    l1: Scalar = 0.0
    l2: Scalar = 0.0
    lower: Scalar = -np.inf
    upper: Scalar = np.inf


class Regularizer(eqx.Module):
    """psi. A concrete one says what it does to one array; this class carries it over to any pytree of parameters.

    It acts on every array of the parameters on its own, except on those called `intercept` or `bias`.
    """

    @abstractmethod
    def array_value(self, x: jax.Array) -> jax.Array:
        """psi(x) for one array; inf outside a constraint."""

    @abstractmethod
    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        """argmin_z 1/2 ||z - x||^2 + t psi(z) for one array."""

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        """An element of the subdifferential of psi at x, where psi is finite everywhere."""
        raise TypeError(f"{type(self).__name__} is a constraint and has no subgradient; use FedMiD or FedDualAvg")

    def array_violation(self, x: jax.Array) -> jax.Array:
        """How far x is outside the constraint; zero for what is finite everywhere."""
        return jnp.zeros((), x.dtype)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        """psi^*(y) = max_x <y, x> - psi(x) for one array; inf outside its domain. Only duality gaps need it,
        and `array_gauge` with it where the domain is not everything."""
        raise TypeError(f"{type(self).__name__} has no conjugate")

    def array_gauge(self, y: jax.Array) -> jax.Array:
        """The smallest c >= 0 for which psi^*(y / c) is finite: the dual norm over the strength for a norm, 0 (the default)
        for what has a conjugate that is finite everywhere."""
        return jnp.zeros((), y.dtype)

    def separable(self) -> Separable | None:
        """psi as a sum over coordinates of this simple form, where it is one; engines may then be faster."""
        return None

    def parts(self, x: Params) -> "list[Regularizer]":
        """The regulariser of each array of x, in the order of `jax.tree.leaves`."""
        from fedlocal.regularizers.zero import Zero

        return [Zero() if is_free(path) else self for path, _ in jax.tree_util.tree_flatten_with_path(x)[0]]

    def value(self, x: Params) -> jax.Array:
        """psi(x)."""
        return sum((r.array_value(a) for r, a in zip(self.parts(x), jax.tree.leaves(x), strict=True)), jnp.zeros(()))

    def prox(self, x: Params, t: Scalar) -> Params:
        """argmin_z 1/2 ||z - x||^2 + t psi(z)."""
        return self._map(lambda r, a: jnp.asarray(r.array_prox(a, t), jnp.result_type(a)), x)

    def subgradient(self, x: Params) -> Params:
        """An element of the subdifferential of psi at x."""
        return self._map(lambda r, a: r.array_subgradient(a), x)

    def violation(self, x: Params) -> jax.Array:
        """The largest distance outside the constraint over all arrays; zero when x is feasible."""
        each = [r.array_violation(a) for r, a in zip(self.parts(x), jax.tree.leaves(x), strict=True)]
        return jnp.max(jnp.stack(each))

    def conjugate(self, y: Params) -> jax.Array:
        """psi^*(y) = max_x <y, x> - psi(x)."""
        return sum(
            (r.array_conjugate(a) for r, a in zip(self.parts(y), jax.tree.leaves(y), strict=True)), jnp.zeros(())
        )

    def gauge(self, y: Params) -> jax.Array:
        """The smallest c >= 0 for which psi^*(y / c) is finite."""
        each = [r.array_gauge(a) for r, a in zip(self.parts(y), jax.tree.leaves(y), strict=True)]
        return jnp.max(jnp.stack(each))

    def _map(self, fn: Callable[["Regularizer", jax.Array], jax.Array], x: Params) -> Params:
        leaves, treedef = jax.tree.flatten(x)
        return jax.tree.unflatten(treedef, [fn(r, a) for r, a in zip(self.parts(x), leaves, strict=True)])


class MirrorMap(eqx.Module):
    """h, a distance-generating function, known by its value and two maps between primal and dual points."""

    def value(self, x: Params) -> jax.Array:
        """h(x). Only divergences need it."""
        raise TypeError(f"{type(self).__name__} has no value")

    @abstractmethod
    def grad(self, x: Params) -> Params:
        """grad h(x): from the primal to the dual."""

    def check(self, x0: Params) -> None:
        """Say what is wrong with a starting point outside the domain of h; nothing by default."""

    @abstractmethod
    def conjugate_grad(self, y: Params, regularizer: Regularizer, t: Scalar) -> Params:
        """grad (h + t psi)^*(y) = argmin_x h(x) + t psi(x) - <y, x>: from the dual to the primal."""

    def divergence(self, x: Params, z: Params) -> jax.Array:
        """The Bregman divergence D_h(x, z) = h(x) - h(z) - <grad h(z), x - z>."""
        return self.value(x) - self.value(z) - optax.tree.vdot(self.grad(z), optax.tree.sub(x, z))

    def generalized_divergence(self, x: Params, y: Params, regularizer: Regularizer, t: Scalar) -> jax.Array:
        r"""The divergence of g = h + t psi, which need not be differentiable, from the primal point of a dual point y.

        g(x) - g(z) - <y, x - z> with z = grad g^*(y); at least D_h(x, z).
        Reference: dissertation, definition generalized_bregman. Differs from it: nothing.
        """
        z = self.conjugate_grad(y, regularizer, t)
        psi = t * (regularizer.value(x) - regularizer.value(z))
        return self.value(x) - self.value(z) + psi - optax.tree.vdot(y, optax.tree.sub(x, z))


class Proximal(NamedTuple):
    """Where a regulariser enters an otherwise affine recurrence of one vector.

    Dual (averaging): the gradient is taken at prox(query'S, walked), where walked, the last part of the server's state, grows
    by `step` in each local step and by server_step times the clients' mean in a round. Otherwise (mirror descent): prox(., step)
    after each local step, and prox(., server_step times the mean length walked) after the server's.
    """

    psi: Separable
    step: Scalar
    server_step: Scalar
    dual: bool
    on_clients: bool


class Affine(NamedTuple):
    """A method whose rounds are affine recurrences of vectors of the shape of x, so that an engine may fuse them.

    With V the server's vectors (its state, in order) and S a client's:
        S = start V;   K times: g = gradient at query'S, S <- transition S - gain g;   V <- keep V + take mean(S).
    """

    query: Any  # (s,)
    transition: Any  # (s, s)
    gain: Any  # (s,)
    start: Any  # (s, v)
    keep: Any  # (v, v)
    take: Any  # (v, s)
    proximal: Proximal | None = None


class LocalMethod(eqx.Module):
    """A federated method: data plus pure functions. It never sees data, random keys, other clients or a network."""

    @abstractmethod
    def init(self, x0: Params) -> Server:
        """Server state before round 0."""

    def init_memory(self, x0: Params) -> Memory:
        """What a client remembers before it first takes part; () for methods without client memory."""
        return ()

    def broadcast(self, server: Server) -> Server:
        """What of the server state goes down the wire: the `server` of `start` and `finish`. All of it by default."""
        return server

    @abstractmethod
    def start(self, server: Server, memory: Memory) -> Client:
        """What a client holds when a round begins."""

    @abstractmethod
    def step(self, client: Client, grad_fn: GradFn) -> Client:
        """One local step; `grad_fn(x)` is the stochastic gradient at x."""

    @abstractmethod
    def finish(self, server: Server, client: Client) -> tuple[Message, Memory]:
        """What goes up the wire and is averaged, and what the client keeps."""

    @abstractmethod
    def update(self, server: Server, mean_message: Message) -> Server:
        """The server's step."""

    @abstractmethod
    def solution(self, server: Server) -> Params:
        """The primal point to evaluate and to give to the user."""

    @abstractmethod
    def primal(self, client: Client) -> Params:
        """The primal point of a client state, or of a mean of client states: what the theorems average."""

    def affine(self, local_steps: int) -> Affine | None:
        """The method as an affine recurrence, where it is one; None by default."""
        return None
