"""curves: a column of histories over rounds, time or communication, with a band over seeds."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlocal.plot.chart import PALETTE, Chart, axis_label, is_wide
from fedlocal.plot.tidy import Curves, method_name, methods_of, psi_caption, tidy_table
from fedlocal.report.figures import STYLE
from fedlocal.simulation.result import ProblemReference, Result

MOST_LINES = 30  # that a legend can tell apart
LINE_STYLES = ("-", "--", "-.", ":")
ABOVE = 10.0  # times the largest value of lines that stay finite: where a line that diverges is cut off
LEGEND_WIDTH = 86  # characters
LINE_HEIGHT = 0.2  # inches of a line of the legend


def curves(results: Curves, y: str = "objective", x: str = "round") -> Figure:
    r"""Draw one line for each method, with a band over seeds.

    The line is the mean over seeds and the band reaches from the smallest to the largest value; both end where a seed diverges,
    and have the evaluations that all seeds have, which the legend says where some have more.
    The y axis is logarithmic where values are positive and span more than a decade.

    Args:
        results: a `Result`; a list of them, whose labels are what differs between them; a dict {label: result or list of
            results}; a `SweepResult`, with a line for each cell; or a table with the columns x and y, and `method` and `seed`
            where there are several.
        y: the column of the history to draw, such as "loss" or "f1".
        x: the column to draw it against: "round", "seconds", "numbers_up" or "numbers_down".

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]], noise_std=0.1)
        >>> runs = [
        ...     fl.simulate(problem, fl.methods.FedAvg(eta), rounds=20, local_steps=2, batch_size=1, seed=seed)
        ...     for eta in (0.01, 0.1)
        ...     for seed in range(3)
        ... ]
        >>> [text.get_text() for text in fl.plot.curves(runs).legends[0].get_texts()]
        ['FedAvg, client step size 0.01', 'FedAvg, client step size 0.1']
    """
    table: Any = tidy_table(results, x, y)
    lines = {str(label): rows for label, rows in table.groupby("label", sort=False)}
    if len(lines) > MOST_LINES:
        advice = "give fewer results; of a sweep, fl.plot.heat_map shows all cells"
        raise ValueError(f"curves: at most {MOST_LINES} lines can be told apart, got {len(lines)}; {advice}")
    with mpl.rc_context(STYLE):
        figure = Chart(6.4, 4.0)
        axis = figure.subplots()
        for i, (label, rows) in enumerate(lines.items()):
            _line(axis, label, rows, i, len(lines))
        axis.set(xlabel=axis_label(x), ylabel=axis_label(y))
        if isinstance(results, Result):
            problem = results.problem
            of = problem.name if isinstance(problem, ProblemReference) else type(problem).__name__
            axis.set_title(f"{method_name(results)} on {of}")
        _scale(axis, table)
        _legend(figure, axis, table, psi_caption(y, methods_of(results)))
    return figure


def _line(axis: Axes, label: str, rows: Any, number: int, count: int) -> None:
    """Draw the mean over the seeds of one label, its band, and a cross where a seed diverges."""
    seeds, rows = rows["seed"].nunique(), rows.assign(y=rows["y"].where(np.isfinite(rows["y"])))
    moments = rows.groupby("moment")
    summary: Any = moments.agg(
        x=("x", "mean"), y=("y", "mean"), low=("y", "min"), high=("y", "max"), seen=("y", "count")
    )
    whole = summary[summary["seen"] == seeds]
    color: Any = (
        PALETTE[number % len(PALETTE)] if count <= len(PALETTE) else mpl.colormaps["viridis"](number / (count - 1))
    )
    broken = rows.loc[~rows["finite"], "seed"].unique()
    said = []
    if len(broken):
        said.append(f"{len(broken)} of {seeds} seeds diverged" if seeds > 1 else "diverged")
    steady = rows[~rows["seed"].isin(broken)].groupby("moment")["y"].count()
    if ((steady > 0) & (steady < seeds - len(broken))).any():  # where a seed was stopped, or was not evaluated
        said.append(f"the {len(whole)} of {(summary['seen'] > 0).sum()} evaluations that all seeds have")
    shown = f"{label} ({'; '.join(said)})" if said else label
    shown = shown.strip() or "_"  # Matplotlib leaves labels that begin with _ out of legends
    style = LINE_STYLES[number % len(LINE_STYLES)]
    axis.plot(whole["x"], whole["y"], color=color, linestyle=style, linewidth=1.8, label=shown, zorder=3)
    if seeds > 1:
        axis.fill_between(whole["x"], whole["low"], whole["high"], color=color, alpha=0.2, linewidth=0, zorder=2)
    if len(broken):
        axis.plot(whole["x"].tail(1), whole["y"].tail(1), "x", color=color, markersize=8, markeredgewidth=2, zorder=4)


def _scale(axis: Axes, table: Any) -> None:
    """Choose the scale of y, and cut off what lies far above all lines that stay finite."""
    finite = table[np.isfinite(table["y"])]
    diverged = table.loc[~table["finite"], "label"].unique()
    steady = finite[~finite["label"].isin(diverged)]
    first = finite.groupby(["label", "seed"])["y"].first()
    top = max(steady["y"].max() if len(steady) else -np.inf, first.max() if len(first) else -np.inf)
    shown = finite["y"]
    cut = len(diverged) > 0 and 0 < top < np.inf and shown.max() > ABOVE * top
    if cut:
        shown = shown[shown <= ABOVE * top]
    if is_wide(shown):
        axis.set_yscale("log")
    if cut:
        low, high = float(shown.min()), float(shown.max())
        space = 0.05 * (high - low) or high  # high is at least top, if all values are the same
        axis.set_ylim((low / 1.3, high * 1.3) if is_wide(shown) else (low - space, high + space))
    axis.margins(x=0.02)


def _legend(figure: Chart, axis: Axes, table: Any, caption: list[str]) -> None:
    """Put a legend below the axis, with a caption that says what the band is; none for a single line without a band."""
    handles, labels = axis.get_legend_handles_labels()
    seeds = set(table.groupby("label")["seed"].nunique())
    if max(seeds) > 1:
        text = f"mean of {max(seeds)} seeds; the band is" if len(seeds) == 1 else "mean over seeds; the band is"
        caption = [f"{text} from the smallest to the largest", *caption]
    if caption and not labels:
        axis.set_title("\n".join(caption), fontsize=9, fontweight="normal")
    elif len(labels) > 1 or caption or "diverged" in "".join(labels):
        columns = max(1, min(len(labels), LEGEND_WIDTH // (8 + max(map(len, labels)))))
        figure.set_figheight(figure.get_figheight() + LINE_HEIGHT * (len(caption) - (-len(labels) // columns)))
        title = "\n".join(caption) or None
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, title=title, fontsize=9, title_fontsize=9
        )
