"""Blocks: a different regulariser for different parts of the parameters."""

from collections.abc import Mapping
from typing import Any

import jax

from fedlocal.core import Params, Regularizer, Scalar, Zero
from fedlocal.core.regularizer import key_name


class Blocks(Regularizer):
    r"""psi(x) = sum over named blocks b of psi_b(x_b); blocks that are not named are free.

    Args:
        blocks: {b: psi_b}. A key is a key, field or position at the top of the parameters; a value is a regulariser,
            itself `Blocks` for a nested part. Naming an intercept is the way to penalise it.

    >>> from fedlocal.regularizers import L1
    >>> import jax.numpy as jnp
    >>> psi = Blocks({"weights": L1(1.0)})
    >>> x = psi.prox({"weights": jnp.array([3.0]), "intercept": jnp.array(3.0)}, 1.0)
    >>> float(x["weights"][0]), float(x["intercept"])
    (2.0, 3.0)
    """

    blocks: dict[str | int, Regularizer]

    def __init__(self, blocks: Mapping[str | int, Regularizer]):
        for key, psi in blocks.items():
            if not isinstance(psi, Regularizer):
                raise TypeError(f"Blocks: the value of {key!r} must be a Regularizer, got {psi!r}")
        self.blocks = dict(blocks)

    def parts(self, x: Params) -> list[Regularizer]:
        if jax.tree_util.all_leaves([x]):
            raise self._not_an_array()
        return [part for psi, child in named_parts("Blocks", self.blocks, x, Zero()) for part in psi.parts(child)]

    def array_value(self, x: jax.Array) -> jax.Array:
        raise self._not_an_array()

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        raise self._not_an_array()

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        raise self._not_an_array()

    def is_constraint(self) -> bool:
        return all(psi.is_constraint() for psi in self.blocks.values())

    def is_finite(self) -> bool:
        return all(psi.is_finite() for psi in self.blocks.values())

    def _not_an_array(self) -> TypeError:
        return TypeError(f"Blocks: acts on parameters with named parts {list(self.blocks)}, got a single array")


def named_parts(owner: str, named: Mapping[Any, Any], x: Params, default: Any) -> list[tuple[Any, Params]]:
    """Each part of x one level down, by key, field or position, after what has its name."""
    parts = children(x)
    unknown = [key for key in named if key not in parts]
    if unknown:
        raise ValueError(f"{owner}: the parameters have no part {unknown[0]!r}; they have: {list(parts)}")
    return [(named.get(key, default), child) for key, child in parts.items()]


def children(tree: Params) -> dict[Any, Params]:
    """What is one level down in a tree that is not a single array."""
    found = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0]
    return {key_name(path[0]): child for path, child in found}
