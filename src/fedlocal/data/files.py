"""Examples from a user's file: CSV, Parquet, NumPy's npz, or LIBSVM's text format."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedlocal.data.libsvm import read_libsvm

TABLES = (".csv", ".csv.gz", ".csv.bz2", ".parquet")
USUAL_TARGETS = ("target", "label", "y")


class Examples(NamedTuple):
    """Rows of a file."""

    features: Any  # (n, d), dense or a csr_array
    targets: np.ndarray  # (n,)
    sites: np.ndarray | None  # (n,) which client each row belongs to; None where the file does not say


def read_examples(
    path: str | os.PathLike[str],
    target: str | None = None,
    sites: str | None = None,
    *,
    missing: bool = False,
    columns: Sequence[str] | None = None,
) -> Examples:
    """The examples of a file; its name says the format: .csv (also .gz, .bz2), .parquet, .npz, anything else is LIBSVM's.

    An npz file has arrays X, y and, where rows belong to sites, sites. All arguments but the path are for tables alone.

    Args:
        path: the file.
        target: the column of the targets; None: the one called target, label or y.
        sites: the column that says which site a row belongs to; None: the file does not say it.
        missing: let empty cells of features become nan, instead of refusing them.
        columns: the features, which must be numbers, in the order that is wanted; None: all other columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two.csv"
    ...     _ = path.write_text("age,label,ward\\n50,1,a\\n60,0,b\\n")
    ...     examples = read_examples(path, sites="ward")
    >>> examples.features.tolist(), examples.targets.tolist(), examples.sites.tolist()
    ([[50.0], [60.0]], [1.0, 0.0], ['a', 'b'])
    """
    path = _existing(path)
    name = path.name.lower()
    if name.endswith(TABLES):
        return _from_table(path, _table(path), target, sites, missing, columns)
    for what, column in (("target", target), ("sites", sites)):
        if column is not None:
            raise ValueError(f"read_examples: {path} is no table and has no column {column!r} for {what}")
    if name.endswith(".npz"):
        return _from_arrays(path)
    features, targets = read_libsvm(path)
    return Examples(features, targets, None)


def feature_columns(path: str | os.PathLike[str], target: str | None = None) -> list[str] | None:
    """The names of a table's features, in order; None for files whose columns have no names.

    Args:
        path, target: as for `read_examples`.
    """
    path = _existing(path)
    if not path.name.lower().endswith(TABLES):
        return None
    columns = [str(column) for column in _table(path, rows=1).columns]
    columns.remove(_target(path, columns, target))
    return columns


def _existing(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"read_examples: there is no file {path}")
    return path


def _table(path: Path, rows: int | None = None) -> pd.DataFrame:
    return pd.read_parquet(path) if path.name.lower().endswith(".parquet") else pd.read_csv(path, nrows=rows)


def _target(path: Path, columns: list[str], target: str | None) -> str:
    if target is None:
        target = next((name for name in USUAL_TARGETS if name in columns), None)
        if target is None:
            raise ValueError(f"read_examples: say which column of {path} is the target; it has {_few(columns)}")
    if target not in columns:
        raise ValueError(f"read_examples: {path} has no column {target!r} for target; it has {_few(columns)}")
    return target


def _from_table(
    path: Path, table: pd.DataFrame, target: str | None, sites: str | None, missing: bool, wanted: Sequence[str] | None
) -> Examples:
    columns = [str(column) for column in table.columns]
    table.columns = pd.Index(columns)
    target = _target(path, columns, target)
    if sites is not None and sites not in columns:
        raise ValueError(f"read_examples: {path} has no column {sites!r} for sites; it has {_few(columns)}")
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise ValueError(f"read_examples: {path} has two columns called {twice[0]!r}")
    features = table.drop(columns=[target] if sites is None else [target, sites])
    absent = [column for column in wanted or () if column not in features.columns]
    if absent:
        raise ValueError(f"read_examples: {path} has no column {absent[0]!r}; it has {_few(columns)}")
    features = features if wanted is None else features[list(wanted)]
    if features.empty:
        raise ValueError(f"read_examples: {path} has no rows or no columns besides the target")
    words = [str(c) for c in features if not pd.api.types.is_numeric_dtype(features[c])]
    if words:
        raise ValueError(f"read_examples: column {words[0]!r} of {path} holds no numbers; encode or drop it first")
    if sites is not None and np.any(pd.isna(table[sites].to_numpy())):
        raise ValueError(f"read_examples: column {sites!r} of {path} has empty cells; every row needs a site")
    targets = np.asarray(pd.to_numeric(table[target], errors="coerce"), np.float64)
    said = np.flatnonzero(table[target].notna().to_numpy() & np.isnan(targets))
    if said.size:
        told = f"holds {table[target].iloc[said[0]]!r}, which is no number; encode it first, as 0 and 1"
        raise ValueError(f"read_examples: column {target!r} of {path} {told}")
    empty = [] if missing else list(features.columns[features.isna().any(axis=0)])
    empty += [target] if np.isnan(targets).any() else []
    if empty:
        told = "has cells that are no numbers; impute or drop them"
        raise ValueError(f"read_examples: column {empty[0]!r} of {path} {told}")
    return Examples(features.to_numpy(np.float64), targets, None if sites is None else table[sites].to_numpy())


def _from_arrays(path: Path) -> Examples:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (zipfile.BadZipFile, ValueError):
        raise ValueError(f"read_examples: {path} is no npz file; numpy.savez(path, X=..., y=...) makes one") from None
    with loaded as file:
        missing = [name for name in ("X", "y") if name not in file]
        if missing:
            raise ValueError(f"read_examples: {path} has no array {missing[0]!r}; it has {_few(list(file))}")
        return Examples(file["X"], file["y"], file.get("sites"))


def _few(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
