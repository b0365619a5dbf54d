"""Tables of pandas: names of columns that are there once, and series that belong to the rows of a table by their index."""

from typing import Any

import pandas as pd


def check_names(owner: str, X: Any) -> None:
    """Raise an error for a table in which several columns have one name."""
    if isinstance(X, pd.DataFrame) and not X.columns.is_unique:
        name, times = next((name, times) for name, times in X.columns.value_counts(sort=False).items() if times > 1)
        advice = "rename the columns, or keep the first of each name with X.loc[:, ~X.columns.duplicated()]"
        raise ValueError(f"{owner}: X must have every column name once, got {name!r} {times} times; {advice}")


def in_row_order(owner: str, name: str, given: Any, X: Any, y: Any) -> Any:
    """Return what is given for each row, in the order of the rows: a series by its index where X, or else y, has an index.

    Args:
        owner, name: who asks for it and what it is called, for messages.
        given: a series with the same labels as the rows, in any order; anything else is returned as it is.
        X, y: the examples, of which y counts only where X has no index.

    >>> in_row_order("model", "sites", pd.Series(["a", "b"], [7, 3]), pd.DataFrame({"age": [50, 60]}, [3, 7]), None).tolist()
    ['b', 'a']
    """
    tables = [(at, table) for at, table in (("X", X), ("y", y)) if isinstance(table, pd.DataFrame | pd.Series)]
    if not isinstance(given, pd.Series) or not tables or len(given) != len(tables[0][1]):
        return given
    at, rows = tables[0][0], tables[0][1].index
    if given.index.equals(rows):
        return given
    others = given.index[~given.index.isin(rows)]
    if not len(others) and rows.is_unique and given.index.is_unique:
        return given.reindex(rows)
    unknown = "".join(f"the label {label!r}, which {at} has not" for label in others[:1].tolist())
    got = unknown or "another order of labels that occur twice"
    advice = f"where its order is that of the rows, use {name}.to_numpy()"
    raise ValueError(f"{owner}: {name} must have the same index as {at}, in any order, got {got}; {advice}")
