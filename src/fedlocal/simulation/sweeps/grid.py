"""The grid of a sweep: its cells, the method of each cell, and the cells that share a program."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
import pandas as pd

from fedlocal.core import LocalMethod

PLAIN = (str, bool, int, float, np.generic, type(None))
RESERVED = {"cell", "round", "loss", "objective", "numbers_up", "numbers_down", "seconds", "diverged"}
Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def combinations(grid: Grid) -> list[dict[str, Any]]:
    """Return all combinations of a grid {name: values}, the last name fastest; a list of cells passes through."""
    names = grid if isinstance(grid, Mapping) else grid[0] if isinstance(grid, Sequence) and grid else ()
    taken = sorted(RESERVED & set(names))
    if taken:
        raise ValueError(f"sweep: {taken[0]!r} is a column of the history; give the grid's value another name")
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)):
                raise TypeError(f"sweep: grid[{name!r}] must be a list of values, got {values!r}")
            if len(values) == 0:
                raise ValueError(f"sweep: grid[{name!r}] has no values")
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not isinstance(grid, Sequence) or not all(isinstance(cell, Mapping) for cell in grid):
        raise TypeError(f"sweep: grid must be a dict of lists or a list of dicts, got {grid!r}")
    cells = [dict(cell) for cell in grid]
    if not cells or any(cell.keys() != cells[0].keys() for cell in cells):
        raise ValueError("sweep: grid must have at least one cell, and every cell the same names")
    return cells


def method_of(method: LocalMethod | Callable[..., LocalMethod], cell: Mapping[str, Any]) -> LocalMethod:
    """Return the method of a cell: one with fields replaced by name (`regularizer.strength` for a field of a field), or what a
    function of the cell's values returns."""
    if isinstance(method, LocalMethod):
        for name, value in cell.items():
            method = _replace(method, name.split("."), value)
        return cast(LocalMethod, method)
    if not callable(method) or isinstance(method, type):
        raise TypeError(f"sweep: method must be a method or a function of the grid's names, got {method!r}")
    made = method(**cell)
    if not isinstance(made, LocalMethod):
        raise TypeError(f"sweep: the function for method must return a LocalMethod, got {made!r}")
    return made


def table_of(cells: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the grid as a table, one row per cell; values that are not numbers or strings are shown as text."""
    rows = [{k: v if isinstance(v, PLAIN) else str(v) for k, v in cell.items()} for cell in cells]
    return pd.DataFrame(rows, index=pd.RangeIndex(len(cells), name="cell"))


def groups_of(methods: list[LocalMethod]) -> list[list[int]]:
    """Return the groups of cells that differ in numbers only, so that they share a compiled program."""
    groups: list[tuple[Any, list[int]]] = []
    for i, method in enumerate(methods):
        leaves, structure = jax.tree.flatten(method)
        kind = (structure, [np.shape(leaf) for leaf in leaves])
        members = next((members for other, members in groups if other == kind), None)
        if members is None:
            groups.append((kind, members := []))
        members.append(i)
    return [members for _, members in groups]


def stack(methods: list[LocalMethod], dtype: Any) -> LocalMethod:
    """Stack methods to one whose numbers are arrays over the cells."""

    def stacked(*leaves: Any) -> np.ndarray:
        array = np.stack([np.asarray(leaf) for leaf in leaves])
        return array.astype(dtype) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(stacked, *methods)


def _replace(thing: Any, names: list[str], value: Any) -> Any:
    """Return a copy of a dataclass or a dict with the value at a path of names replaced."""
    held = thing if isinstance(thing, dict) else {f.name: None for f in dataclasses.fields(cast(Any, thing))}
    if names[0] not in held:
        raise ValueError(f"sweep: {type(thing).__name__} has no {names[0]!r}; it has: {', '.join(map(str, held))}")
    if len(names) > 1:
        inner = thing[names[0]] if isinstance(thing, dict) else getattr(thing, names[0])
        if not isinstance(inner, dict) and not dataclasses.is_dataclass(inner):
            raise ValueError(f"sweep: {names[0]!r} of {type(thing).__name__} has no parts, got {'.'.join(names)!r}")
        value = _replace(inner, names[1:], value)
    if isinstance(thing, dict):
        return {**thing, names[0]: value}
    return dataclasses.replace(cast(Any, thing), **{names[0]: value})
