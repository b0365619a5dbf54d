"""How figures look here: one colour per method, everywhere the same."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fedlocal.engines.checkpoint import write_atomically

COLORS = {
    "FedDualAvg": "#0b6e4f",
    "FedDualAvg-OSP": "#7fb685",
    "FedMiD": "#c8553d",
    "FedMiD-OSP": "#e9b44c",
    "FedAc": "#0b6e4f",
    "FedAc-vanilla": "#e9b44c",
    "FedAvg": "#c8553d",
    "MB-AC-SGD": "#3d5a80",
    "MB-SGD": "#98c1d9",
    "SubgradientFedAvg": "#7d5ba6",
    "centralized": "#3d5a80",
    "local": "#8d8d8d",
}
MARKERS = {"FedAc": "o", "FedAc-vanilla": "D", "FedAvg": "s", "MB-AC-SGD": "^", "MB-SGD": "v"}
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


@contextmanager
def panels(
    count: int,
    path: Path,
    title: str,
    width: float = 4.6,
    height: float = 3.5,
    columns: int | None = None,
    share_y: bool = False,
) -> Iterator[list[Axes]]:
    """Panels with a common title, saved as PNG when the block ends: one row, or rows of at most `columns` of them."""
    columns = min(count, columns or count)
    rows = -(-count // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
        for unused in axes[count:]:
            unused.remove()
        axes = axes[:count]
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5)
        yield axes
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        write_atomically(path, picture.getvalue())


def plain_log_scale(axis: Axes) -> None:
    """A logarithmic y axis whose ticks read 0.8, 1, 2, 4; those between powers of ten only where it spans little."""
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    low, high = axis.get_ylim()
    axis.yaxis.set_minor_formatter("{x:g}" if high < 10 * low else NullFormatter())


def powers_of_two(axis: Axes, values: list[int], most: int = 7) -> None:
    """A logarithmic x axis with ticks at these numbers, written out; at every second or third one where there are many."""
    axis.set_xscale("log", base=2)
    every = -(-len(values) // most)
    axis.set_xticks(values[::every], [str(v) for v in values[::every]])
    axis.set_xticks(values, minor=True, labels=[""] * len(values))


def legend_below(axes: list[Axes]) -> None:
    """One legend for all panels, in a row below them."""
    handles, labels = axes[0].get_legend_handles_labels()
    figure = axes[0].get_figure()
    assert isinstance(figure, Figure)
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
