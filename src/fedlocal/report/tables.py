"""Data frames as tables on a terminal."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

DIGITS = 6  # width kept for numbers; a long header is folded so that numbers are never cut


def table(
    frame: pd.DataFrame, title: str, formats: Mapping[str, str] | None = None, fold: Collection[str] = ()
) -> Table:
    """Return a rich table with right-aligned numbers.

    Args:
        frame: rows and columns.
        title: title above the table.
        formats: format of numbers by column, e.g. {"loss": "{:.4f}"}; the default has four digits.
        fold: columns whose text may take several lines.
    """
    formats = formats or {}
    narrow = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    out = Table(title=title, title_justify="left", title_style="bold", header_style="bold", **narrow)
    for column in frame:
        numeric = pd.api.types.is_numeric_dtype(frame[column])
        name = str(column).replace("_", " ")
        if numeric:
            out.add_column(name, justify="right", overflow="fold", min_width=DIGITS)
        else:
            out.add_column(name, no_wrap=column not in fold)
    for _, row in frame.iterrows():
        out.add_row(*(_written(value, formats.get(str(name))) for name, value in row.items()))
    return out


def _written(value: Any, format_: str | None) -> str:
    if isinstance(value, float) and np.isnan(value):
        return ""
    return (format_ or ("{:.4g}" if isinstance(value, float) else "{}")).format(value)
