"""Figures of the study of discrepancies: growth inside a round, and potentials."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedlocal.experiments.studies.discrepancy import lemmas
from fedlocal.experiments.studies.discrepancy.settings import DiscrepancySettings
from fedlocal.report.figures import COLORS, legend_below, panels
from fedlocal.theory import Setting

Tasks = dict[str, lemmas.LemmaProblem]


def draw_growth(settings: DiscrepancySettings, tasks: Tasks, history: Any, target: Path) -> None:
    """Draw what each lemma bounds against the local step, with the lemma's bound."""
    shown = [(p, name) for p, names in lemmas.RUNS.items() for name in names if name != "FedAc-vanilla"]
    with panels(len(shown), target, settings.title, size=(4.4, 3.6), columns=4) as axes:
        for axis, (problem, name) in zip(axes, shown, strict=False):
            for place, k in enumerate(settings.local_steps):
                shade = 0.35 + 0.65 * (place + 1) / len(settings.local_steps)
                curve = lemmas.growth(_rows(history, problem, name, k))
                bound = lemmas.LEMMAS[name].bound(tasks[problem], Setting(settings.clients, settings.rounds, k))
                axis.plot(curve.index, curve, color=_color(name), alpha=shade, marker="o" if k < 8 else None, ms=3)
                axis.plot([1, k], [bound, bound], color="#444444", alpha=shade, lw=1.2, ls="--")
                _beside(axis, k, curve.iloc[-1], f"K = {k}", above=name.startswith("FedAc"))
            if name == "FedAc-I":
                k = max(settings.local_steps)
                curve = lemmas.growth(_rows(history, problem, "FedAc-vanilla", k))
                axis.plot(curve.index, curve, color=COLORS["FedAc-vanilla"])
                _beside(axis, k, curve.iloc[-1], "vanilla", above=True)
            axis.set(xscale="log", yscale="log", title=f"{name}, {lemmas.TITLES[problem]}", xlabel="local step k")
            axis.set_ylabel(lemmas.LEMMAS[name].written)
            axis.set_xticks(settings.local_steps, [str(k) for k in settings.local_steps])
            axis.minorticks_off()
            axis.set_xlim(right=2.6 * max(settings.local_steps))
        axes[0].plot([], [], color="#444444", label="measured, mean over rounds and seeds")
        axes[0].plot([], [], color="#444444", lw=1.2, ls="--", label="the lemma's bound, for each K")
        axes[0].plot([], [], color=COLORS["FedAc-vanilla"], label="FedAc-vanilla at the largest K")
        legend_below(axes)


def draw_potentials(settings: DiscrepancySettings, tasks: Tasks, history: Any, target: Path) -> None:
    """Draw the potentials against all local steps, with the right side of the convergence lemma after every round."""
    k = settings.local_steps[len(settings.local_steps) // 2]
    ends = k * np.arange(1, settings.rounds + 1)
    shown = [("quadratic", ["FedAc-I", "FedAc-vanilla"]), ("a9a", ["FedAc-I", "FedAc-vanilla"]), ("a9a", ["FedAc-II"])]
    with panels(3, target, f"Potentials inside rounds, K = {k}", size=(5.0, 3.8)) as axes:
        for axis, (problem, names) in zip(axes, shown, strict=True):
            for name in names:
                rows = _rows(history, problem, name, k)
                seen = lemmas.over_seeds(rows, "potential")
                x, color = seen["round"] * k + seen["step"], _color(name)
                axis.plot(x, seen["mean"], color=color, label=name)
                low, high = seen["mean"] - seen["error"], seen["mean"] + seen["error"]
                axis.fill_between(x, low, high, color=color, alpha=0.25, lw=0)
                right = lemmas.potential_bound(settings, tasks[problem], rows, name, k)
                axis.plot(ends, right, color=color, ls="--", lw=1.3, label=f"{name}, lemma")
            letter = "Φ" if names == ["FedAc-II"] else "Ψ"
            axis.set(yscale="log", title=f"{letter} on {lemmas.TITLES[problem]}", xlabel="local steps r K + k")
            axis.set_ylabel(f"{letter}, mean over {len(settings.seeds)} seeds")
            axis.legend(fontsize=8.5)


def _rows(history: Any, problem: str, name: str, k: int) -> Any:
    return history[(history[["problem", "method", "local_steps"]] == [problem, name, k]).all(axis=1)]


def _beside(axis: Axes, x: float, y: float, text: str, above: bool) -> None:
    """Put a label at the end of a curve, above or below it."""
    place: dict[str, Any] = {"xytext": (4, 5 if above else -6), "textcoords": "offset points", "va": "center"}
    axis.annotate(text, (x, y), fontsize=8.5, color="#444444", **place)


def _color(name: str) -> str:
    return COLORS.get(name, COLORS["FedAc-I"])
