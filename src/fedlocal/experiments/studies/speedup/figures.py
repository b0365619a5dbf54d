"""Figures of a speed-up study: suboptimality against clients and against local steps."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedlocal.experiments.studies.speedup.settings import SpeedupSettings
from fedlocal.report.figures import COLORS, MARKERS, legend_below, panels, powers_of_two

PER_ROW = 3  # panels


def shown(wanted: list[int], grid: list[int]) -> list[int]:
    """Return the wanted values that are in the grid, and the last value of the grid."""
    return [value for value in grid if value in wanted or value == grid[-1]]


def draw_clients(settings: SpeedupSettings, tuned: Any, target: Path) -> None:
    """Draw suboptimality against clients, one panel per number of local steps, with the line of linear speed-up."""
    values, chosen = settings.grid.clients, shown(settings.panels.local_steps, settings.grid.local_steps)
    first = tuned[(tuned["clients"] == values[0]) & (tuned["local_steps"] == chosen[0])]
    ideal = [float(first["suboptimality"].min()) * values[0] / m for m in values]
    with panels(len(chosen), target, _title(settings), (3.7, 3.3), columns=PER_ROW, share_y=True) as axes:
        for axis, k in zip(axes, chosen, strict=True):
            _draw_lines(axis, settings, tuned[tuned["local_steps"] == k], "clients")
            look: dict[str, Any] = {"color": "#9a9a9a", "linestyle": (0, (5, 4)), "linewidth": 1.1, "zorder": 1}
            axis.plot(values, ideal, label="linear speed-up", **look)
            axis.set(title=f"K = {k}: {settings.steps // k} rounds", xlabel="clients M")
            powers_of_two(axis, values)
        _finish(axes)


def draw_local_steps(settings: SpeedupSettings, tuned: Any, target: Path) -> None:
    """Draw suboptimality against local steps, one panel per number of clients."""
    values, chosen = settings.grid.local_steps, shown(settings.panels.clients, settings.grid.clients)
    with panels(len(chosen), target, _title(settings), (3.7, 3.3), columns=PER_ROW, share_y=True) as axes:
        for axis, m in zip(axes, chosen, strict=True):
            _draw_lines(axis, settings, tuned[tuned["clients"] == m], "local_steps")
            axis.set(title=f"M = {m} clients", xlabel=f"local steps K ({settings.steps} / K rounds)")
            powers_of_two(axis, values, most=9)
        _finish(axes)


def _draw_lines(axis: Axes, settings: SpeedupSettings, tuned: Any, column: str) -> None:
    for i, name in enumerate(settings.methods):
        own = tuned[(tuned["method"] == name) & np.isfinite(tuned["suboptimality"])].sort_values(column)
        look: dict[str, Any] = {"color": COLORS[name], "marker": MARKERS[name], "markersize": 4.5, "linewidth": 1.7}
        axis.plot(own[column], own["suboptimality"], label=name, zorder=3 - i / 10, **look)  # the first one on top
        if len(settings.seeds) > 1:
            axis.fill_between(own[column], own["smallest"], own["largest"], color=COLORS[name], alpha=0.18, linewidth=0)


def _finish(axes: list[Axes]) -> None:
    axes[0].set_yscale("log")
    for axis in axes[::PER_ROW]:
        axis.set_ylabel("best suboptimality")
    legend_below(axes)


def _title(settings: SpeedupSettings) -> str:
    """Return the title, with what a reader of the figure alone must know about data and seeds."""
    title, seeds = settings.title, len(settings.seeds)
    if settings.data.name == "epsilon-like" and "generated" not in title:
        title += " (generated data)"
    return title + (f"\nmean of {seeds} seeds, bands from the smallest to the largest" if seeds > 1 else "")
