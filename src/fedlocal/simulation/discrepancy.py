"""Client discrepancy: the vectors that clients hold and send, and how far they are from their mean."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedlocal.core import Client, LocalMethod, Message, Params


def message_fields(method: LocalMethod, x0: Params) -> dict[str, str | None]:
    """Return the column name and the field of each part of a method's message that has the shape of the parameters."""
    fields = vector_fields(partial(first_message, method), x0)
    return {"discrepancy" if len(fields) == 1 else f"discrepancy_{f}": f for f in sorted(fields, key=str)}


def first_client(method: LocalMethod, x0: Params) -> Client:
    """Return a client's state when round 0 begins."""
    return method.start(method.broadcast(method.init(x0)), method.init_memory(x0))


def first_message(method: LocalMethod, x0: Params) -> Message:
    """Return what a client sends in round 0 if it takes no step."""
    return method.finish(method.broadcast(method.init(x0)), first_client(method, x0))[0]


def vector_fields(tree_of: Callable[[Params], Any], x: Params) -> list[str | None]:
    """Return the fields of the NamedTuple tree_of(x) that have the shape of x, or [None] if the whole tree has that shape.

    If x is one number, counts and step lengths have its shape, too. They are told apart by giving tree_of an x of shape (1,),
    which they do not follow.
    """

    def shapes(tree: Any) -> Any:
        return jax.tree.map(jnp.shape, tree, is_leaf=lambda a: hasattr(a, "shape"))

    x = jax.eval_shape(lambda x: x, x)
    if shapes(x) == ():
        x = jax.ShapeDtypeStruct((1,), x.dtype)
    tree, wanted = jax.eval_shape(tree_of, x), shapes(x)
    if shapes(tree) == wanted:
        return [None]
    return [f for f in getattr(tree, "_fields", ()) if shapes(getattr(tree, f)) == wanted]


def message_spread(fields: dict[str, str | None], messages: Any, center: Any, weights: jax.Array) -> dict[str, Any]:
    """Return mean_m ||message_m - mean||^2 for each of these fields."""

    def spread(field: str | None) -> jax.Array:
        vectors, middle = (tree if field is None else getattr(tree, field) for tree in (messages, center))
        squares = jax.tree.map(lambda a, c: jnp.sum((a - c) ** 2, axis=tuple(range(1, a.ndim))), vectors, middle)
        return jnp.sum(weights * sum(jax.tree.leaves(squares))).astype(jnp.result_type(float))

    return {name: spread(field) for name, field in fields.items()}
