"""The style of all figures: one colour and one marker per method, panels, axes, legends."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fedlocal.methods.table import ROWS
from fedlocal.util.files import AnyPath, write_atomically

COLORS = {row.label: row.color for row in ROWS} | {"centralized": "#3d5a80", "local": "#8d8d8d"}
MARKERS = {row.label: row.marker for row in ROWS}
STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
}
FORMATS: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}  # and metadata


@contextmanager
def panels(
    count: int,
    path: Path,
    title: str,
    size: tuple[float, float] = (4.6, 3.5),
    columns: int | None = None,
    share_y: bool = False,
) -> Iterator[list[Axes]]:
    """Yield the axes of panels with a common title; the figure is saved when the block ends.

    Args:
        count: number of panels.
        path: the file; its ending says the format, .png, .pdf or .svg. Without an ending PNG and PDF are written.
        title: title above all panels.
        size: width and height of one panel, in inches.
        columns: panels per row; None puts all in one row.
        share_y: give all panels the same y axis.
    """
    columns = min(count, columns or count)
    rows = -(-count // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
        for unused in axes[count:]:
            unused.remove()
        axes = axes[:count]
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5)
        yield axes
        if path.suffix:
            save_figure(figure, path)
            return
        for kind in ("png", "pdf"):
            save_figure(figure, path.with_name(f"{path.name}.{kind}"))
            figure.set_layout_engine("none")  # the next format has the layout of the first


def save_figure(figure: Figure, path: AnyPath) -> None:
    """Write a figure as PNG, PDF or SVG. The file holds no date: the same figure gives the same bytes.

    Args:
        figure: any figure of Matplotlib.
        path: the file; its ending says the format. A folder that does not exist is made.
    """
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise ValueError(f"save: the path must end in .{', .'.join(FORMATS)}, got {str(path)!r}")
    picture = io.BytesIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": "fedlocal", "pdf.fonttype": 42}):  # 42: fonts that publishers accept
        figure.savefig(picture, format=kind, metadata=FORMATS[kind])
    write_atomically(Path(path), picture.getvalue())


def plain_log_scale(axis: Axes) -> None:
    """Make the y axis logarithmic with ticks such as 0.8, 1, 2, 4. An axis over a decade or more labels powers of ten only."""
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    low, high = axis.get_ylim()
    axis.yaxis.set_minor_formatter("{x:g}" if high < 10 * low else NullFormatter())


def powers_of_two(axis: Axes, values: list[int], most: int = 7) -> None:
    """Make the x axis logarithmic with plain numbers at its ticks; of many numbers every second or third gets a label."""
    axis.set_xscale("log", base=2)
    every = -(-len(values) // most)
    axis.set_xticks(values[::every], [str(v) for v in values[::every]])
    axis.set_xticks(values, minor=True, labels=[""] * len(values))


def legend_below(axes: list[Axes], columns: int | None = None) -> None:
    """Put one legend for all panels below them, in one row or with this many columns."""
    handles, labels = axes[0].get_legend_handles_labels()
    figure = axes[0].get_figure()
    assert isinstance(figure, Figure)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns or len(labels))
