"""Tables as nodes of JSON with named arrays, and back; see `values`."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pandas as pd

INTEGER, FLOATING = pd.arrays.IntegerArray, pd.arrays.FloatingArray
ARRAYS = {"i": INTEGER, "u": INTEGER, "f": FLOATING, "b": pd.arrays.BooleanArray}  # with missing values
TEXTS = ("object", "str", "string")  # dtypes of columns whose values are saved one by one


def frame_node(frame: pd.DataFrame, node: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return a table as its columns and its index; `node` turns a value with its name into JSON."""
    index, column_of = frame.index, cast(Any, frame)
    if isinstance(index, pd.RangeIndex):
        rows: Any = {"range": [index.start, index.stop, index.step]}
    else:
        rows = {"column": _column_node("index", index.to_series(), node)}
    columns = [[node("columns", name), _column_node(str(name), column_of[name], node)] for name in frame.columns]
    return {"columns": columns, "index": rows, "name": node("name", index.name)}


def read_frame(content: Any, value: Callable[[Any], Any]) -> pd.DataFrame:
    """Return the table of a node; `value` turns JSON into a value."""
    rows = content["index"]
    index = pd.RangeIndex(*rows["range"]) if "range" in rows else pd.Index(_read_column(rows["column"], value))
    columns = {value(name): pd.Series(_read_column(column, value), index=index) for name, column in content["columns"]}
    frame = pd.DataFrame(columns, index=index)
    frame.index.name = value(content["name"])
    return frame


def _column_node(name: str, column: pd.Series, node: Callable[[str, Any], Any]) -> dict[str, Any]:
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufc":
        return {"array": node(name, column.to_numpy())}
    if isinstance(column.array, tuple(ARRAYS.values())):
        plain: Any = column.fillna(False if isinstance(dtype, pd.BooleanDtype) else 0)
        missing = node(f"{name} is missing", column.isna().to_numpy())
        return {"masked": [node(name, plain.to_numpy(str(dtype).lower().replace("boolean", "bool"))), missing]}
    if str(dtype) not in TEXTS:
        raise TypeError(f"save: the column {name!r} is of {dtype}, which cannot be saved; numbers and text can")
    return {"values": [str(dtype), [node(f"{name}/{i}", each) for i, each in enumerate(column.tolist())]]}


def _read_column(content: Any, value: Callable[[Any], Any]) -> Any:
    ((kind, parts),) = content.items()
    if kind == "array":
        return value(parts)
    if kind == "masked":
        values, missing = map(value, parts)
        return ARRAYS[values.dtype.kind](values, missing)
    dtype, nodes = parts
    if kind != "values" or dtype not in TEXTS:
        raise ValueError(f"its header has a column of the unknown kind {kind!r}, {dtype!r}")
    return pd.Series([value(node) for node in nodes], dtype=dtype).array
