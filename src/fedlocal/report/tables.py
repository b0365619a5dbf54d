"""Data frames as tables on a terminal."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich import box, get_console
from rich.table import Table


def table(
    frame: pd.DataFrame, title: str, formats: Mapping[str, str] | None = None, fold: Collection[str] = ()
) -> Table:
    """Return a rich table with right-aligned numbers, which are never broken: on narrow screens headers are folded.

    Args:
        frame: rows and columns.
        title: title above the table.
        formats: format of numbers by column, e.g. {"loss": "{:.4f}"}; the default has four digits.
        fold: columns whose text may take several lines.
    """
    formats = formats or {}
    narrow = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    out = Table(title=title, title_justify="left", title_style="bold", header_style="bold", **narrow)
    written = {column: [_written(value, formats.get(str(column))) for value in frame[column]] for column in frame}
    numeric = {column for column in frame if pd.api.types.is_numeric_dtype(frame[column])}
    names = {column: str(column).replace("_", " ") for column in frame}
    numbers = {column: max(map(len, written[column]), default=1) for column in frame}
    words = {column: max([numbers[column], *map(len, names[column].split())]) for column in frame}
    lines = {column: max(numbers[column], len(names[column])) for column in frame}
    # the widest headers that leave room for all numbers: on one line, a word on a line, or folded where there is no room
    room = get_console().width - 2 * len(names)
    widths = next((kind for kind in (lines, words) if sum(kind.values()) <= room), dict(numbers))
    for _ in range(room - sum(widths.values())):
        folded = max(numeric, key=lambda column: words[column] / widths[column], default=None)
        if folded is None or widths[folded] >= words[folded]:
            break
        widths[folded] += 1
    for column, name in names.items():
        if column in numeric:
            out.add_column(name, justify="right", overflow="fold", width=widths[column])
        else:
            out.add_column(name, no_wrap=column not in fold)
    for texts in zip(*written.values(), strict=True):
        out.add_row(*texts)
    return out


def _written(value: Any, format_: str | None) -> str:
    if isinstance(value, float) and np.isnan(value):
        return ""
    return (format_ or ("{:.4g}" if isinstance(value, float) else "{}")).format(value)
