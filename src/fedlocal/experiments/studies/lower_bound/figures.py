"""Figures of the lower-bound study: the error against the step size, and the best errors against R and K."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedlocal.experiments.studies.lower_bound.settings import LowerBoundSettings
from fedlocal.report.figures import COLORS, MARKERS, legend_below, panels, powers_of_two

LOOK: dict[str, dict[str, Any]] = {
    "FedAvg": {"color": COLORS["FedAvg"], "marker": MARKERS["FedAvg"]},
    "MB-SGD": {"color": COLORS["MB-AC-SGD"], "marker": MARKERS["MB-SGD"]},
    "one client": {"color": COLORS["FedAc-vanilla"], "marker": "D"},
}
GUIDE: dict[str, Any] = {"color": "#555555", "linestyle": (0, (5, 4)), "linewidth": 1.2}
FLOOR = 1e-9  # errors below it are not drawn


def draw_step_sizes(settings: LowerBoundSettings, history: Any, best: Any, target: Path) -> None:
    """Draw the error against the step size: small steps are slow, large ones drift, and none in between is good enough."""
    chosen = settings.cases[-2:]
    title = f"{settings.title}: all step sizes"
    with panels(len(chosen) + 1, target, title, size=(4.6, 3.9), share_y=True) as axes:
        for axis, case in zip(axes, chosen, strict=False):
            extra = f", $\\zeta_*$ = {case.heterogeneity:g}" if case.heterogeneity else ""
            label = f"M = {case.clients}, K = {case.local_steps}, R = {case.rounds}{extra}"
            _draw_curves(axis, history, best, case.model_dump(), label)
        k, r = settings.limit.fit_local_steps, settings.limit.rounds[-1]
        limit = {"clients": np.inf, "local_steps": k, "rounds": r, "heterogeneity": 0.0}
        _draw_curves(axes[-1], history, best, limit, f"M = $\\infty$, K = {k}, R = {r}")
        axes[0].set_ylabel("error $E\\,F(x^{(R,0)}) - F^*$")
        top = settings.smoothness * settings.distance**2
        axes[0].set_ylim(1e-6 * top, top)
        for axis in axes:
            axis.set_xlim(1e-5 / settings.smoothness, 10 / settings.smoothness)
        legend_below(axes)


def draw_function(settings: LowerBoundSettings, function: Any, target: Path) -> None:
    """Draw the piecewise quadratic part of the problem and its first two derivatives, as figure step of the text."""
    titles = {"value": "(a) $F^{(1)}$", "slope": "(b) first derivative", "curvature": "(c) second derivative"}
    with panels(len(titles), target, "The function on which SGD drifts to the left", size=(3.8, 3.2)) as axes:
        for axis, (column, title) in zip(axes, titles.items(), strict=True):
            for side in (function["x"] < 0, function["x"] > 0):  # apart, for the second derivative jumps at 0
                axis.plot(function["x"][side], function[column][side], color=COLORS["FedAvg"])
            axis.axvline(0, **GUIDE)
            axis.set(title=title, xlabel="$x_1$")
        axes[2].set_ylim(0, settings.smoothness / 10)


def draw_rates(settings: LowerBoundSettings, best: Any, slopes: dict[str, float], target: Path) -> None:
    """Draw the best errors against R and against K, with infinitely many clients."""
    limit = best[np.isinf(best["clients"])]
    k, r = settings.limit.fit_local_steps, settings.limit.rounds[-1]
    views = [("rounds", "local_steps", k, "K", "rounds R"), ("local_steps", "rounds", r, "R", "local steps K")]
    with panels(2, target, f"{settings.title}: the best step size", size=(5.4, 4.1), share_y=True) as axes:
        for axis, (column, fixed, value, letter, label) in zip(axes, views, strict=True):
            part = limit[limit[fixed] == value]
            title = f"{letter} = {value}: FedAvg like ${label[-1]}^{{{slopes[column]:.2f}}}$"
            for name, look in LOOK.items():
                own = part[(part["method"] == name) & (part["error"] > FLOOR)].sort_values(column)
                axis.plot(own[column], own["error"], label=name, markersize=5.5, **look)
            own = part[part["method"] == "FedAvg"].sort_values(column)
            floor = own["order"] * own["constant"].min()
            axis.plot(own[column], floor, label="lower bound with the measured constant", **GUIDE)
            axis.set(yscale="log", title=title, xlabel=label)
            powers_of_two(axis, own[column].tolist())
        axes[0].set_ylabel("error with the best step size")
        legend_below(axes)


def _draw_curves(axis: Axes, history: Any, best: Any, key: dict[str, float], title: str) -> None:
    part = history[(history[[*key]] == [*key.values()]).all(axis=1)]
    means: Any = part.groupby(["method", "step_size"])["error"].mean()
    for name, look in LOOK.items():
        drawn = means[name] if name in means.index.levels[0] else means.iloc[:0]
        drawn, width = drawn.clip(upper=1e9), 2.4 if name == "FedAvg" else 1.6  # divergence is a line upwards
        axis.plot(drawn.index, drawn.to_numpy(), label=name, color=look["color"], linewidth=width)
    own = best[(best[[*key]] == [*key.values()]).all(axis=1)].set_index("method").loc["FedAvg"]
    axis.plot(own["step_size"], own["error"], "o", color=LOOK["FedAvg"]["color"], markersize=7, markeredgecolor="white")
    axis.axhline(own["order"], label="$\\mu B^2$", **GUIDE)
    axis.set(xscale="log", yscale="log", title=title, xlabel="step size")
