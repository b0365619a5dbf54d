"""DataFrames as tables on a terminal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table


def table(frame: pd.DataFrame, title: str, formats: Mapping[str, str] | None = None) -> Table:
    """A rich table; numbers are right-aligned and written with `formats`, e.g. {"loss": "{:.4f}"}, or with four digits."""
    formats = formats or {}
    out = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in frame:
        numeric = pd.api.types.is_numeric_dtype(frame[column])
        out.add_column(str(column).replace("_", " "), justify="right" if numeric else "left", no_wrap=not numeric)
    for _, row in frame.iterrows():
        out.add_row(*(_written(value, formats.get(str(name))) for name, value in row.items()))
    return out


def _written(value: Any, format_: str | None) -> str:
    if isinstance(value, float) and np.isnan(value):
        return ""
    return (format_ or ("{:.4g}" if isinstance(value, float) else "{}")).format(value)
