"""Data frames as tables on a terminal."""

import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions
from rich.table import Table

LEAST_FOLDED = 20  # characters of a column that may take several lines
HALF_WIDTH = "_half_width"  # ends the name of a column with half the widths of intervals about another column


@dataclass(frozen=True)
class Column:
    """A column as texts.

    Args:
        name: the words of its header.
        texts: its cells.
        numeric: True for numbers, which stand to the right.
        folded: True if a cell may take several lines.
    """

    name: str
    texts: list[str]
    numeric: bool
    folded: bool

    @property
    def least(self) -> int:
        """The width at which no number, no text and no word of the header is broken."""
        cells = [min(len(text), LEAST_FOLDED) if self.folded else len(text) for text in self.texts]
        return max([1, *cells, *map(len, self.name.split())])

    @property
    def most(self) -> int:
        """The width at which everything is on one line."""
        return max([1, len(self.name), *map(len, self.texts)])


@dataclass(frozen=True)
class FrameTable:
    """A data frame as a table of the width of the console that prints it.

    Headers take several lines where there is no room for them on one. Columns for which there is no room even then come in a
    second table below the first, beside the first column again.

    Args:
        columns: the columns from left to right.
        title: above the table.
    """

    columns: list[Column]
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | str]:
        for number, part in enumerate(_parts(self.columns, options.max_width)):
            if number:
                yield ""  # a blank line
            yield _drawn(part, self.title if number == 0 else None, options.max_width)


def table(
    frame: pd.DataFrame, title: str, formats: Mapping[str, str] | None = None, fold: Collection[str] = ()
) -> FrameTable:
    """Return a table with right-aligned numbers; numbers and words of headers are never broken.

    Args:
        frame: rows and columns.
        title: title above the table.
        formats: format of numbers by column, e.g. {"loss": "{:.4f}"}; the default has four digits.
        fold: columns whose text may take several lines.
    """
    formats = formats or {}
    columns = [
        Column(
            str(column).replace("_", " "),
            [_written(value, formats.get(str(column))) for value in frame[column]],
            pd.api.types.is_numeric_dtype(frame[column]),
            column in fold,
        )
        for column in frame
    ]
    return FrameTable(columns, title)


def with_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with "mean ± half width" as the text of each column that has another one with its half widths.

    >>> with_intervals(pd.DataFrame({"f1": [0.5], "f1_half_width": [0.0123]})).to_dict("list")
    {'f1': ['0.5 ± 0.012']}
    """
    widths = {name: f"{name}{HALF_WIDTH}" for name in frame if f"{name}{HALF_WIDTH}" in frame}
    texts = {
        name: [
            _written(mean, None) + ("" if np.isnan(half) else f" ± {half:.2g}")
            for mean, half in zip(frame[name], frame[width], strict=True)
        ]
        for name, width in widths.items()
    }
    return frame.drop(columns=[*widths.values()]).assign(**texts)


def _parts(columns: list[Column], width: int) -> list[list[Column]]:
    """Return the columns of each table, as many in each as have room with one blank between two columns."""
    parts, part = [], columns[:1]
    for column in columns[1:]:
        if _total([*part, column], 1) > width and len(part) > 1:
            parts.append(part)
            part = columns[:1]
        part = [*part, column]
    return [*parts, part]


def _total(part: list[Column], gap: int) -> int:
    return sum(column.least for column in part) + gap * (len(part) - 1)


def _drawn(part: list[Column], title: str | None, width: int) -> Table:
    """Return one table. What room is left goes to the column with the longest header or folded text for its width."""
    gap = 2 if _total(part, 2) <= width else 1
    widths = [column.least for column in part]
    for _ in range(width - _total(part, gap)):
        lines = [column.most / now for column, now in zip(part, widths, strict=True)]
        widest = int(np.argmax(lines))
        if lines[widest] <= 1:
            break
        widths[widest] += 1
    style: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "header_style": "bold"}
    style |= {"box": box.SIMPLE_HEAD, "show_edge": False, "padding": (0, gap - 1, 0, 0), "pad_edge": False}
    out = Table(title=title, **style)
    fits = _total(part, gap) <= width  # False for two columns whose text is wider than the screen
    for column, now in zip(part, widths, strict=True):
        header = "\n".join(textwrap.wrap(column.name, now, break_long_words=False, break_on_hyphens=False))
        kept = column.numeric or (fits and not column.folded)
        side = "right" if column.numeric else "left"
        out.add_column(header, justify=side, no_wrap=kept, overflow="fold", width=now if fits or kept else None)
    for texts in zip(*(column.texts for column in part), strict=True):
        out.add_row(*texts)
    return out


def _written(value: Any, format_: str | None) -> str:
    if isinstance(value, float) and np.isnan(value):
        return ""
    return (format_ or ("{:.4g}" if isinstance(value, float) else "{}")).format(value)
