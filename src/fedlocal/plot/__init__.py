"""Figures of results: curves over rounds, scores over a grid. Each function returns a figure of Matplotlib."""

from fedlocal.plot.grid_chart import heat_map
from fedlocal.plot.line_chart import curves
from fedlocal.report.figures import save_figure as save

__all__ = ["curves", "heat_map", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
