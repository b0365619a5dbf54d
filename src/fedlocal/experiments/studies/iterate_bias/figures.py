"""Figures of the iterate bias: densities and means, growth between the bounds, the constant."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedlocal.experiments.studies.iterate_bias.settings import IterateBiasSettings
from fedlocal.report.figures import panels, powers_of_two
from fedlocal.theory.bias.quadrature import Law

GREEN, RED, BLUE, SAND, GREY = "#0b6e4f", "#c8553d", "#3d5a80", "#e9b44c", "#8d8d88"
BINS = 81
TITLES = {"piecewise": "Piecewise quadratic", "log_cosh": "log cosh, third-order smooth"}
ORDERS = {
    "piecewise": {"steps": "k^{3/2}", "step_size": r"\eta^2"},
    "log_cosh": {"steps": "k^2", "step_size": r"\eta^3"},
}


def draw_densities(settings: IterateBiasSettings, samples: pd.DataFrame, law: Law, target: Path) -> None:
    """Draw the objective, the density after each number of steps, and the mean against the number of steps."""
    last: Any = samples[str(settings.steps[-1])]
    shown = (1.15 * float(last.quantile(0.0005)), 2.0 * float(last.quantile(0.9995)))
    with panels(len(settings.steps) + 2, target, settings.title, size=(4.3, 3.1), columns=3) as axes:
        _objective(axes[0], settings, shown)
        top = max(float(law.density[law.steps == k].max()) for k in settings.steps)
        for axis, k in zip(axes[1:-1], settings.steps, strict=True):
            _density(axis, samples[str(k)].to_numpy(), law, k, shown)
            axis.set_ylim(0, 1.08 * top)
        axes[1].legend(loc="upper left", fontsize=9, handlelength=1.4)
        _means(axes[-1], settings, samples, law)


def _objective(axis: Axes, settings: IterateBiasSettings, shown: tuple[float, float]) -> None:
    x = np.linspace(*shown, 401)
    axis.plot(x, 1000 * np.where(x >= 0, settings.right, settings.left) * x**2, color=BLUE)
    axis.plot([0], [0], "o", color=GREY, ms=6)
    look: Any = {"textcoords": "offset points", "ha": "right", "va": "bottom", "color": GREY}
    axis.annotate("start: the optimum", (0, 0), (0, 40), **look)
    axis.set(title="Objective F, in thousandths", xlabel="x", xlim=shown)


def _density(axis: Axes, x: np.ndarray, law: Law, k: int, shown: tuple[float, float]) -> None:
    i = int(np.flatnonzero(law.steps == k)[0])
    axis.hist(x, bins=list(np.linspace(*shown, BINS)), density=True, color=GREEN, alpha=0.28, label="SGD, repeats")
    inside = (law.points >= shown[0]) & (law.points <= shown[1])
    axis.plot(law.points[inside], law.density[i][inside], color=GREEN, lw=1.8, label="exact density")
    axis.axvline(0, color=GREY, lw=1.4, ls=":", label="optimum")
    axis.axvline(law.bias[i], color=RED, lw=1.8, label="mean")
    axis.set(title=f"After {k} steps: mean {law.bias[i]:.4f}", xlabel="x", xlim=shown)


def _means(axis: Axes, settings: IterateBiasSettings, samples: pd.DataFrame, law: Law) -> None:
    kept: Any = samples[[str(k) for k in settings.steps]]
    error = 4 * kept.std().to_numpy() / np.sqrt(len(kept))
    axis.axhline(0, color=GREY, lw=1.2, ls=":")
    axis.plot([0, *law.steps], [0, *law.bias], color=RED, label="exact")
    look: Any = {"fmt": "o", "color": GREEN, "ms": 5, "capsize": 3, "lw": 1.4}
    label = f"{len(kept):,} repeats, 4 standard errors"
    axis.errorbar(settings.steps, kept.mean().to_numpy(), error, label=label, **look)
    axis.set(title="Mean of SGD", xlabel="steps k", xticks=[0, *settings.steps[1:]])
    axis.legend(loc="center right", fontsize=9)


def draw_growth(
    settings: IterateBiasSettings, scales: pd.DataFrame, slopes: dict[tuple[str, str], float], target: Path
) -> None:
    """Draw |bias| against k and eta, in the band between the theorems' bounds."""
    title = "Growth of the bias from the optimum, between the bounds of the text"
    with panels(4, target, title, size=(5.4, 3.7), columns=2) as axes:
        for axis, (name, along) in zip(axes, slopes, strict=True):
            rows: Any = scales[(scales["instance"] == name) & (scales["along"] == along) & (scales["steps"] > 1)]
            x, size = rows[along].to_numpy(), np.abs(rows["bias"].to_numpy())
            low, high = rows["lower_bound"].to_numpy(), rows["upper_bound"].to_numpy()
            axis.fill_between(x, low, high, color=SAND, alpha=0.18, lw=0)
            axis.plot(x, high, color=SAND, lw=1.6, label="upper bound")
            axis.plot(x, low, color=SAND, lw=1.6, ls="--", label="lower bound")
            axis.plot(x, size, "o-", color=GREEN, ms=5, label=f"exact, measured exponent {slopes[name, along]:.2f}")
            axis.set(yscale="log", ylabel="|bias|")
            axis.set_title(f"{TITLES[name]}: ${ORDERS[name][along]}$")
            if along == "steps":
                powers_of_two(axis, [int(v) for v in x])
                axis.set_xlabel(f"steps k, at $\\eta$ = {settings.scaling.step_size:g}")
            else:
                axis.set_xscale("log")
                axis.set_xticks(x, [f"{v:g}" for v in x])
                axis.set_xticks([], minor=True)
                axis.set_xlabel(f"step size $\\eta$, at k = {settings.scaling.at_steps}")
            axis.legend(loc="upper left", fontsize=9)


def draw_constant(settings: IterateBiasSettings, constants: pd.DataFrame, target: Path) -> None:
    """Draw the constant of the expansion, and the bias itself beside the expansion with either constant."""
    c, time = settings.constant, constants["time"]
    unit = (time / (c.smoothness * c.steps)) ** 3 * c.steps**2 * c.noise**2 * c.third_order
    circle: Any = {"color": BLUE, "ms": 8, "mfc": "none", "mew": 1.5}
    title = "The constant of the bias of a smooth function is 1/4, not 1/2"
    with panels(2, target, title, size=(6.2, 4.1)) as (ratio, both):
        ratio.axhline(0.5, color=RED, lw=1.2, ls=":")
        ratio.axhline(0.25, color=GREEN, lw=1.2, ls=":")
        label = r"backward equation with $\eta\sigma^2 u_{xx}$ (text)"
        ratio.plot(time, constants["backward_of_the_text"], color=RED, label=label)
        ratio.plot(time, constants["backward"], color=GREEN, label=r"with $\frac{1}{2}\eta\sigma^2 u_{xx}$ (right)")
        look: Any = {"fmt": "s", "color": SAND, "ms": 4, "capsize": 3, "lw": 1.4}
        errors = 4 * constants["sde_error"]
        ratio.errorbar(time, constants["sde"], errors, label="paths of the SDE, 4 standard errors", **look)
        ratio.plot(time, constants["sgd"], "o", zorder=5, label=f"law of SGD, k = {c.steps}", **circle)
        ratio.set_xscale("log")
        ratio.set(ylim=(0, 0.62), yticks=[0, 0.125, 0.25, 0.375, 0.5], xlabel=r"$\eta L k$")
        ratio.set_title(r"$-$bias / $(\eta^3 k^2 \sigma^2 F''')$, log cosh")
        ratio.legend(loc="lower left", fontsize=9)
        both.loglog(time, unit / 2, color=RED, ls="--", label=r"$\frac{1}{2}\eta^3k^2\sigma^2F'''$ (text)")
        both.loglog(time, unit / 4, color=GREEN, ls="--", label=r"$\frac{1}{4}\eta^3k^2\sigma^2F'''$")
        both.loglog(time, unit * constants["sgd"], "o", label="SGD, exact", **circle)
        both.set(xlabel=r"$\eta L k$")
        both.set_title(r"$-$bias from the optimum, log cosh")
        both.legend(loc="upper left", fontsize=9)
