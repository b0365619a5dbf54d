"""Figures of the instability study: distances of two runs, the objective, and the largest possible distances."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedlocal.experiments.studies.instability.claims import TEXT
from fedlocal.experiments.studies.instability.settings import InstabilitySettings
from fedlocal.methods import FedAc
from fedlocal.report.figures import COLORS, legend_below, panels, powers_of_two
from fedlocal.theory.constructions.instability import growth_factor, worst_distances

AGD, STABLE, PLAIN, GREY = COLORS["FedAvg"], COLORS["FedAc-I"], COLORS["MB-AC-SGD"], "#777777"
DASHED: dict[str, Any] = {"color": GREY, "linestyle": (0, (5, 4)), "linewidth": 1.2}


def draw_distances(settings: InstabilitySettings, runs: Any, target: Path) -> None:
    """Draw the distance of two runs: it grows for 3 K steps and vanishes later."""
    kappa, last = settings.shown_kappa, 3 * settings.blocks
    part = runs[(runs["kappa"] == kappa) & (runs["stiff_step"] == 1)]
    with panels(2, target, f"{settings.title}, $\\kappa$ = {kappa:g}", size=(5.6, 4.2)) as axes:
        _plot_runs(axes[0], part[part["step"] <= last])
        blocks, steps = np.arange(settings.blocks + 1), 3 * np.arange(settings.blocks + 1)
        exact = (1 + kappa**0.5) / 2 * growth_factor(kappa) ** blocks
        axes[0].plot(steps[1:], exact[1:], "o", color="black", markersize=3.5, label="theory, w", zorder=5)
        axes[0].plot(steps, TEXT**blocks, label="$1.02^{t/3}$", **DASHED)
        method = FedAc.one(step_size=1 / kappa, strong_convexity=1.0, local_steps=last)
        stable = worst_distances(method, kappa, 1.0, last)
        axes[0].plot(stable[:, 1], color=STABLE, label="FedAc-I, x, any curvatures")
        axes[0].plot(stable[:, 0], color=STABLE, linewidth=1.2, label="FedAc-I, $x_{ag}$, any curvatures")
        axes[0].set(title=f"The first {last} steps", ylim=(0.2, None))
        _plot_runs(axes[1], part)
        axes[1].axvline(last, **DASHED)
        late = part["step"][part[["w", "ag"]].max(axis=1) > 1e-6].max()
        axes[1].set(title="Later, both runs converge to the optimum", ylim=(1e-6, None), xlim=(-5, 1.05 * late))
        for axis in axes:
            axis.set(xlabel="step t", ylabel="distance of the two runs / $\\varepsilon$", yscale="log")
        legend_below(axes, columns=4)


def _plot_runs(axis: Axes, part: Any) -> None:
    axis.plot(part["step"], part["w"], color=AGD, label="AGD, w")
    thirds = part[part["step"] % 3 == 0]  # it is 0 at one step between two of them
    look: dict[str, Any] = {"linestyle": (0, (1, 1)), "linewidth": 1.6}
    axis.plot(thirds["step"], thirds["ag"], color=AGD, label="AGD, $w_{ag}$, every third step", **look)
    axis.plot(part["step"], part["gd"], color=PLAIN, linestyle=(0, (4, 1.5)), label="gradient descent", zorder=4)


def draw_objective(settings: InstabilitySettings, points: Any, target: Path) -> None:
    """Draw the points that AGD queries, the curvatures there, and the widths of the intervals of curvature L."""
    stiff, soft, kappa = points[points["curvature"] > 1], points[points["curvature"] == 1], settings.shown_kappa
    title = f"The objective, $\\mu$ = 1, L = {kappa:g}"
    with panels(3, target, title, size=(4.4, 3.7)) as axes:
        axes[0].plot(points["step"], points["md"], color="#bbbbbb", linewidth=1, zorder=1)
        axes[0].scatter(soft["step"], soft["md"], s=14, color=PLAIN, label="curvature $\\mu$", zorder=2)
        axes[0].scatter(stiff["step"], stiff["md"], s=26, color=AGD, label="curvature L", zorder=3)
        axes[0].set(title="Points that AGD queries", xlabel="step t", ylabel="$w_{md}$", yscale="log")
        axes[1].vlines(stiff["md"], 1, kappa, color=AGD, linewidth=1.4)
        axes[1].axhline(1, color=PLAIN, linewidth=1.8)
        axes[1].scatter(soft["md"], np.ones(len(soft)), s=14, color=PLAIN, zorder=3)
        axes[1].scatter(stiff["md"], np.full(len(stiff), kappa), s=26, color=AGD, zorder=3)
        axes[1].set(title="Curvature F''(w)", xlabel="w", xscale="log", yscale="log", ylim=(0.6, 2 * kappa))
        axes[2].plot(range(len(stiff)), stiff["log10_width"], color=AGD, marker="o", markersize=4)
        axes[2].set(title="Widths of the intervals", xlabel="interval k", ylabel="$\\log_{10}$ width")
        axes[0].legend(loc="lower left")


def draw_worst(settings: InstabilitySettings, worst: Any, target: Path) -> None:
    """Draw the largest possible distance after K steps."""
    title = "The worst distance within K steps, over all curvatures in $[\\mu, L]$"
    with panels(len(settings.worst_kappas), target, title, size=(4.6, 4.0), share_y=True) as axes:
        for axis, kappa in zip(axes, settings.worst_kappas, strict=True):
            part = worst[worst["kappa"] == kappa]
            agd, stable = part[part["method"] == "AGD"], part[part["method"] == "FedAc-I"]
            thin: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.8}
            axis.plot(agd["local_steps"], agd["ag"], color=AGD, label="AGD, $x_{ag}$")
            axis.plot(agd["local_steps"], agd["w"], color=AGD, label="AGD, x", **thin)
            thrice = growth_factor(kappa) ** (agd["local_steps"] / 3)
            axis.plot(agd["local_steps"], thrice, label="$(2(1 - 1/\\sqrt{\\kappa})^3)^{K/3}$", **DASHED)
            k = stable["local_steps"]
            axis.plot(k, stable["ag"], color=STABLE, marker="o", markersize=4.5, label="FedAc-I, $x_{ag}$")
            axis.plot(k, stable["w"], color=STABLE, label="FedAc-I, x", **thin)
            look: dict[str, Any] = {"color": STABLE, "linestyle": (0, (1, 1.5)), "linewidth": 1.4}
            axis.plot(k, stable["bound"], label="FedAc-I, $x_{ag}$, theory", **look)
            axis.set(title=f"$\\kappa$ = {kappa:g}", xlabel="local steps K", yscale="log", ylim=(0.5, 1e8))
            powers_of_two(axis, settings.worst_local_steps)
        axes[0].set_ylabel("largest distance / $\\varepsilon$")
        legend_below(axes, columns=6)
