"""heat_map: the score of each cell of a sweep over one or two numbers of its grid."""

from collections.abc import Sequence
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fedlocal.metrics.base import larger_is_better
from fedlocal.plot.chart import PALETTE, Chart, axis_label, is_wide
from fedlocal.plot.tidy import grid_names, psi_caption
from fedlocal.report.figures import STYLE
from fedlocal.simulation.sweeps.result import Rule, SweepResult, scores_of
from fedlocal.util import checks

DIVERGED = "#c9c9c9"
MOST_TICKS = 8
RATIO = 3.0  # of the largest to the smallest value of an axis that may be logarithmic


def heat_map(
    sweep: SweepResult,
    metric: str = "objective",
    axes: Sequence[str] | None = None,
    rule: Rule = "last",
    window: int = 100,
    largest: bool | None = None,
) -> Figure:
    r"""Draw the score of every cell of a sweep: colours over two numbers of its grid, or a line over one.

    The best cell has a star, cells that diverged have crosses. The score is the mean over seeds, where the grid has a `seed`,
    and the best over what else the grid has besides `axes`. A setting of which one seed diverged has diverged; beside its cross
    stands how many of its runs did.

    Args:
        sweep: the result of `fl.sweep`.
        metric: a column of its history.
        axes: one or two names of the grid, for x and y; None takes those that have several values.
        rule: how a history becomes a score, "last", "mean" or "best", see `SweepResult.score`.
        window: the rounds that "mean" is taken over.
        largest: True if large scores are good; None: they are of "accuracy", "precision", "recall" and "f1".

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
        >>> grid = {"client_step_size": [0.01, 0.1], "server_step_size": [0.5, 1.0]}
        >>> figure = fl.plot.heat_map(fl.sweep(problem, fl.methods.FedAvg(0.1), grid, rounds=10, local_steps=1), "loss")
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('client step size', 'server step size')
    """
    checks.instance("heat_map", "sweep", sweep, SweepResult)
    names, largest = _axes(sweep, axes), larger_is_better(metric, largest)
    scores, lost = _scores(sweep, names, metric, rule, window, largest)
    label = axis_label(metric) + {
        "last": " after the last round",
        "mean": f", mean of the last {window} rounds",
        "best": ", best of all rounds",
    }.get(rule, "")
    with mpl.rc_context(STYLE):
        figure = Chart(6.2, 4.4)
        axis = figure.subplots()
        if len(names) == 1:
            _score_line(axis, names[0], scores, lost, label, largest)
        else:
            _colours(figure, axis, names, scores, lost, label, largest)
        others = [name for name in grid_names(sweep) if name not in names]
        best_over = [f"the best over {' and '.join(map(axis_label, others))}"] if others else []
        caption = [", ".join([*_mean_caption(sweep), *best_over])] if "seed" in sweep.cells or others else []
        caption += psi_caption(metric, sweep.methods)
        if caption:
            axis.set_title("\n".join(caption), fontweight="normal", fontsize=9.5)
        handles, labels = axis.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9)
    return figure


def _axes(sweep: SweepResult, axes: Sequence[str] | None) -> list[str]:
    """Return the names of the one or two numbers of the grid to draw over."""
    numeric = [name for name in grid_names(sweep) if pd.api.types.is_numeric_dtype(sweep.cells[name])]
    names = numeric if axes is None else [axes] if isinstance(axes, str) else list(axes)
    there = f"the grid has these with several values: {', '.join(numeric) or 'none'}"
    if set(names) - set(numeric) or len(set(names)) < len(names):
        raise ValueError(f"heat_map: axes must be numbers of the grid, got {names}; {there}")
    if len(names) not in (1, 2):
        raise ValueError(f"heat_map: one or two axes can be drawn, got {len(names)}; give axes=[...]: {there}")
    return names


def _mean_caption(sweep: SweepResult) -> list[str]:
    """Return what the caption says about seeds; nothing if the grid has none."""
    return [f"mean of {sweep.cells['seed'].nunique()} seeds"] if "seed" in sweep.cells else []


def _scores(
    sweep: SweepResult, names: list[str], metric: str, rule: Rule, window: int, largest: bool
) -> tuple[pd.Series, pd.Series]:
    """Return the score by the values of the axes, missing where no setting has one for all seeds, and how many runs are lost."""
    table = sweep.cells.assign(score=scores_of(sweep, metric, rule, window, largest))
    each: Any = grid_names(sweep)
    means = table.groupby(each, dropna=False)["score"].agg(lambda scores: scores.mean(skipna=False))
    grouped = means.groupby(level=names)
    scores: Any = grouped.max() if largest else grouped.min()
    if scores.isna().all():
        raise ValueError(f"heat_map: no cell has a finite {metric!r} by the rule {rule!r}; all of them diverged")
    runs: Any = table.groupby(names)["score"]
    said = [f"{size - count} of {size}" for size, count in zip(runs.size(), runs.count(), strict=True)]
    return scores, pd.Series(said if "seed" in sweep.cells else "", index=scores.index)


def _score_line(axis: Axes, name: str, scores: pd.Series, lost: pd.Series, label: str, largest: bool) -> None:
    fine: Any = scores.dropna()
    broken: Any = scores.index[scores.isna().to_numpy()]
    axis.plot(fine.index, fine, "o-", color=PALETTE[0], markersize=4.5, linewidth=1.8, label="score")
    best: Any = fine.idxmax() if largest else fine.idxmin()
    _star(axis, best, fine[best], f"{axis_label(name)} {best:.3g}")
    if is_wide(fine):
        axis.set_yscale("log")
    if len(broken):
        at_top = axis.get_xaxis_transform()
        _crosses(axis, broken, np.full(len(broken), 0.97), lost[broken], at_top)
    _set_scale(axis, "x", np.asarray(scores.index, float))
    axis.set(xlabel=axis_label(name), ylabel=label)


def _colours(
    figure: Chart, axis: Axes, names: list[str], scores: pd.Series, lost: pd.Series, label: str, largest: bool
) -> None:
    table: Any = scores.unstack(names[0])
    xs, ys = np.asarray(table.columns, float), np.asarray(table.index, float)
    edges = _edges(xs), _edges(ys)
    values = np.ma.masked_invalid(table.to_numpy(float))
    low, high = float(values.min()), float(values.max())
    norm = LogNorm(low, high) if is_wide(values.compressed()) else Normalize(low, high)
    colors = mpl.colormaps["viridis" if largest else "viridis_r"]
    axis.grid(visible=False)
    mesh = axis.pcolormesh(*edges, values, cmap=colors, norm=norm, edgecolors="white", linewidth=0.6)
    marks: Any = scores.isna().astype(float).unstack(names[0])  # 1 diverged, 0 did not, nan is not in the grid
    broken = np.ma.masked_not_equal(np.nan_to_num(marks.to_numpy(float)), 1.0)
    if broken.count():
        axis.pcolormesh(*edges, broken, cmap=ListedColormap([DIVERGED]), edgecolors="white", linewidth=0.6)
        rows, columns = np.nonzero(~np.ma.getmaskarray(broken))
        said: Any = lost.unstack(names[0]).to_numpy()[rows, columns]
        _crosses(axis, xs[columns], ys[rows], said, axis.transData)
    best: Any = scores.idxmax() if largest else scores.idxmin()
    where = ", ".join(f"{axis_label(name)} {value:.3g}" for name, value in zip(names, best, strict=True))
    _star(axis, best[0], best[1], where)
    _set_scale(axis, "x", xs)
    _set_scale(axis, "y", ys)
    axis.set(xlabel=axis_label(names[0]), ylabel=axis_label(names[1]))
    axis.set_xlim(edges[0][0], edges[0][-1])
    axis.set_ylim(edges[1][0], edges[1][-1])
    figure.colorbar(mesh, ax=axis, label=label, pad=0.02)


def _crosses(axis: Axes, xs: Any, ys: Any, lost: Any, transform: Any) -> None:
    """Draw a cross at each place, and below it how many runs are lost there."""
    axis.plot(xs, ys, "x", color="#555555", markersize=6, transform=transform, label="diverged")
    for x, y, said in zip(xs, ys, lost, strict=True):
        look: Any = {"xycoords": transform, "xytext": (0, -6), "textcoords": "offset points"}
        axis.annotate(said, (x, y), ha="center", va="top", fontsize=7.5, color="#333333", **look)


def _star(axis: Axes, x: float, y: float, said: str) -> None:
    look: Any = {"markersize": 15, "markeredgecolor": "black", "markerfacecolor": "white", "linestyle": "none"}
    axis.plot([x], [y], "*", **look, label=f"best: {said}", zorder=5)


def _is_logarithmic(places: np.ndarray) -> bool:
    """Return True if the values of an axis are positive and more evenly spaced on a logarithmic scale."""
    if places.min() <= 0 or places.max() < RATIO * places.min():
        return False
    plain, log = np.diff(places), np.diff(np.log(places))
    return bool(log.max() / log.min() <= plain.max() / plain.min())


def _edges(places: np.ndarray) -> np.ndarray:
    """Return the borders of cells around these values, half-way between them on the scale of the axis."""
    log = _is_logarithmic(places)
    at = np.log(places) if log else places
    middle = (at[1:] + at[:-1]) / 2
    edges = np.concatenate([[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]])
    return np.exp(edges) if log else edges


def _set_scale(axis: Axes, which: Literal["x", "y"], places: np.ndarray) -> None:
    """Set the scale and the ticks of an axis: at the values of the grid, of many of them at every second or third."""
    if _is_logarithmic(places):
        axis.set(**{f"{which}scale": "log"})
    own = axis.xaxis if which == "x" else axis.yaxis
    ticks = places[:: -(-len(places) // MOST_TICKS)]
    own.set_ticks(ticks, [f"{value:.3g}" for value in ticks])
    own.set_minor_locator(NullLocator())
