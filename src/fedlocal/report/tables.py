"""DataFrames as tables on a terminal."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

DIGITS = 6  # that a number may take; its header folds rather than the number being cut


def table(
    frame: pd.DataFrame, title: str, formats: Mapping[str, str] | None = None, fold: Collection[str] = ()
) -> Table:
    """A rich table; numbers are right-aligned and written with `formats`, e.g. {"loss": "{:.4f}"}, or with four digits; the words
    of columns in `fold` may take several lines."""
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
