"""DataFrames as tables on a terminal."""

from collections.abc import Mapping

import pandas as pd
from rich.table import Table


def table(frame: pd.DataFrame, title: str, formats: Mapping[str, str] | None = None) -> Table:
    """A rich table; numbers are right-aligned and written with `formats`, e.g. {"loss": "{:.4f}"}."""
    formats = formats or {}
    out = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in frame:
        numeric = pd.api.types.is_numeric_dtype(frame[column])
        out.add_column(str(column).replace("_", " "), justify="right" if numeric else "left")
    for _, row in frame.iterrows():
        out.add_row(*(formats.get(str(name), "{}").format(value) for name, value in row.items()))
    return out
