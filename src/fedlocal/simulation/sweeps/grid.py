"""The grid of a sweep: its cells, the method of each cell, and the cells that share a program."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import jax
import numpy as np
import pandas as pd

from fedlocal.core import LocalMethod
from fedlocal.simulation.plan import Sampling

PLAIN = (str, bool, int, float, np.generic, type(None))
DRAWN = ("seed", "local_steps", "local_epochs", "batch_size", "clients_per_round")  # names of `Sampling` in a grid
RESERVED = {"cell", "round", "loss", "objective", "numbers_up", "numbers_down", "seconds", "diverged"}
Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


Make = LocalMethod | Callable[..., LocalMethod]  # a method, or a function of the grid's values that returns one


def cells_of(methods: Make | Mapping[str, Make], grid: Grid) -> list[dict[str, Any]]:
    """Return the values of all cells; where methods have names, "method" is the first of them."""
    cells = combinations(grid)
    if not isinstance(methods, Mapping):
        return cells
    if not methods or not all(isinstance(name, str) for name in methods):
        raise ValueError(f"sweep: method must be a method or a dict {{name: method}}, got {methods!r}")
    if "method" in cells[0]:
        raise ValueError(
            "sweep: 'method' is the column of the names of the methods; give the grid's value another name"
        )
    return [{"method": name, **cell} for name in methods for cell in cells]


def combinations(grid: Grid) -> list[dict[str, Any]]:
    """Return all combinations of a grid {name: values}, the last name fastest; a list of cells passes through."""
    names = grid if isinstance(grid, Mapping) else grid[0] if isinstance(grid, Sequence) and grid else ()
    taken = sorted(RESERVED & set(names))
    if taken:
        raise ValueError(f"sweep: {taken[0]!r} is a column of the history; give the grid's value another name")
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray, range)):
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


def sampling_of(sampling: Sampling, cell: Mapping[str, Any]) -> Sampling:
    """Return the sampling of a cell: what all cells share, with what the grid gives for it."""
    given = {name: cell[name] for name in DRAWN if name in cell}
    if "local_steps" in given and sampling.local_epochs is not None:
        raise ValueError("sweep: give local_epochs or local_steps in the grid, not both")
    return replace(sampling, **given)


def method_of(methods: Make | Mapping[str, Make], cell: Mapping[str, Any]) -> LocalMethod:
    """Return the method of a cell: one with fields replaced by name (`regularizer.strength` for a field of a field), or what a
    function of the cell's values returns; it is given the seed and the local steps of the grid if it names them."""
    method = methods[cell["method"]] if isinstance(methods, Mapping) else methods
    cell = {name: value for name, value in cell.items() if name != "method" or not isinstance(methods, Mapping)}
    own = {name: value for name, value in cell.items() if name not in DRAWN}
    if isinstance(method, LocalMethod):
        for name, value in own.items():
            method = _replace(method, name.split("."), value)
        return cast(LocalMethod, method)
    if not callable(method) or isinstance(method, type):
        raise TypeError(f"sweep: method must be a method or a function of the grid's names, got {method!r}")
    made = method(**{name: value for name, value in cell.items() if name in own or _names(method, name)})
    if not isinstance(made, LocalMethod):
        raise TypeError(f"sweep: the function for method must return a LocalMethod, got {made!r}")
    return made


def _names(function: Callable[..., Any], argument: str) -> bool:
    return argument in inspect.signature(function).parameters


def table_of(cells: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the grid as a table, one row per cell; values that are not numbers or strings are shown as text."""
    rows = [{k: v if isinstance(v, PLAIN) else str(v) for k, v in cell.items()} for cell in cells]
    return pd.DataFrame(rows, index=pd.RangeIndex(len(cells), name="cell"))


def groups_of(methods: Sequence[LocalMethod], samplings: Sequence[Sampling]) -> list[list[int]]:
    """Return the groups of cells that differ in numbers and seeds only, so that they share a compiled program."""
    groups: list[tuple[Any, list[int]]] = []
    for i, (method, sampling) in enumerate(zip(methods, samplings, strict=True)):
        leaves, structure = jax.tree.flatten(method)
        kind = (structure, [np.shape(leaf) for leaf in leaves], repr(replace(sampling, seed=0)))
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
