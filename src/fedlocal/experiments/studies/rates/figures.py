"""Figures of the study of rates."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from fedlocal.experiments.studies.rates.cases import INVERSE, METHODS
from fedlocal.experiments.studies.rates.settings import RatesSettings
from fedlocal.report.figures import COLORS, MARKERS, legend_below, panels, powers_of_two

LOOK: Any = {name: {"color": COLORS[name], "marker": MARKERS[name]} for name in ("FedAvg", "FedAc-I", "FedAc-II")}
GUIDE: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.3, "alpha": 0.55, "zorder": 1}
AXES = {"rounds": ("R", "rounds R"), "local_steps": ("K", "local steps K")}


def draw_overhead(settings: RatesSettings, history: Any, table: Any, target: Path) -> None:
    """Draw overheads: above against R (for mu > 0 against 1/(mu gamma K)) at the largest K, below against K at the largest R."""
    over = table[table["term"] == "overhead"]
    assumptions = list(dict.fromkeys(over["assumption"]))
    title = "Overhead of local steps with infinitely many clients, best step size; dashed: the slope of the text"
    with panels(2 * len(assumptions), target, title, (3.7, 3.3), columns=len(assumptions)) as axes:
        for i, axis in enumerate(axes):
            along = "rounds" if i < len(assumptions) else "local_steps"
            fixed = "local_steps" if along == "rounds" else "rounds"
            assumption = assumptions[i % len(assumptions)]
            strong = assumption.endswith("mu > 0")
            shown = over[over["assumption"] == assumption]
            later = shown[shown["of"].isin(["R", INVERSE])].set_index("method")["measured"]
            own = shown[shown["of"].isin(["R", INVERSE] if along == "rounds" else ["K"])]
            for row in own.itertuples():
                name = f"{assumption}-{row.method}-overhead-{row.instance}".replace(" ", "")
                points = history[(history["case"] == name) & (history[fixed] == history[fixed].max())]
                x, errors = points[along], points["error"]
                if strong and along == "rounds":
                    x = points["rounds"] / points["reach"]
                elif strong:
                    errors = errors * (points["reach"] / points["rounds"]) ** later[row.method]
                method, label = str(row.method), f"{row.method}: {row.measured:.2f} (text {row.text:.2f})"
                axis.plot(x, errors, markersize=5, label=label, **LOOK[method])
                _guide(axis, method, x, errors, float(row.text), x)
            value = int(getattr(settings, fixed)[-1])
            axis.set(title=f"{_written(assumption)}, {AXES[fixed][0]} = {value}", xlabel=AXES[along][1])
            axis.set_yscale("log")
            if strong and along == "rounds":
                axis.set(xlabel=r"$1/(\mu \gamma K)$, of the best step size", xscale="log")
                axis.xaxis.set_minor_formatter(NullFormatter())
            else:
                powers_of_two(axis, getattr(settings, along))
            low, high = axis.get_ylim()
            axis.set_ylim(low * (low / high) ** (0.16 * len(own)), high)  # room for the legend
            axis.legend(loc="lower left", fontsize=8.5, handlelength=1.6)
            axis.yaxis.set_minor_formatter(NullFormatter())
            below = strong and along == "local_steps"
            axis.set_ylabel(r"error / $(\mu \gamma K)^p$, p: slope above" if below else "error")


def draw_statistical(settings: RatesSettings, history: Any, target: Path) -> None:
    """Draw errors on noisy quadratics against the number of all gradients, whatever M, K and R."""
    title = "Statistical term on noisy quadratics, best step size, every M, K and R; dashed: the slope of the text"
    with panels(2, target, title, (5.0, 3.6)) as axes:
        for axis, (sign, slope) in zip(axes, ((">", -1.0), ("=", -0.5)), strict=True):
            for name in METHODS:
                own = history[history["case"] == f"second-order,mu{sign}0-{name}-statistical-quadratic"]
                total = own["clients"] * own["local_steps"] * own["rounds"]
                errors = own["error"] / (own["reach"] if sign == ">" else 1.0)
                axis.scatter(total, errors, s=22, alpha=0.75, linewidth=0, label=name, zorder=3, **LOOK[name])
                _guide(axis, name, total, errors, slope, [total.min(), total.max()])
            title = _written(f"mu {sign} 0") + f", slope {slope:g}"
            axis.set(title=title, xlabel="gradients M K R", xscale="log", yscale="log")
            axis.set_ylabel(r"error / $(\mu \gamma K R)$" if sign == ">" else "error")
        legend_below(axes)


def draw_speedup(settings: RatesSettings, speedup: Any, needed: Any, target: Path) -> None:
    """Draw the error over that of communication in every step, for some M, and the rounds needed against M."""
    s = settings.speedup
    shown = [s.clients[0], s.clients[len(s.clients) // 2], s.clients[-1]]
    title = "Rounds that linear speed-up takes, on a kink with curvatures L and mu: M clients, T = "
    with panels(2, target, f"{title}{s.steps} steps each", (5.0, 3.7)) as axes:
        for name in METHODS:
            for m, alpha in zip(shown, (0.35, 0.65, 1.0), strict=True):
                own = speedup[(speedup["method"] == name) & (speedup["clients"] == m)].sort_values("rounds")
                ratio = own["error"] / own["error"].iloc[-1]
                axes[0].plot(own["rounds"], ratio, markersize=3.5, alpha=alpha, label=f"{name}, M = {m}", **LOOK[name])
            own = needed[needed["method"] == name]
            axes[1].plot(own["clients"], own["rounds"], label=f"{name}, measured", **LOOK[name])
            slope, word = (1.0, "M") if name == "FedAvg" else (1 / 3, "M^{1/3}")
            label = f"order of the text, ${word}$"
            _guide(axes[1], name, own["clients"], own["rounds"], slope, own["clients"], label=label)
        axes[0].axhline(2.0, color="#9a9a9a", **GUIDE)
        axes[0].set(title="error over that with K = 1", xlabel="rounds R", yscale="log", ylabel="ratio")
        axes[1].set(title="rounds until the ratio is 2", xlabel="clients M", ylabel="rounds R", yscale="log")
        powers_of_two(axes[0], sorted(speedup["rounds"].unique().tolist()))
        powers_of_two(axes[1], s.clients)
        axes[1].set_yscale("log", base=2)
        axes[1].yaxis.set_major_formatter("{x:g}")
        for axis in axes:
            axis.legend(fontsize=8.5, handlelength=1.8)


def _guide(axis: Axes, name: str, x: Any, y: Any, slope: float, at: Any, **look: Any) -> None:
    """Draw the line with this slope through the middle of the points (x, y)."""
    middle = np.exp(np.mean(np.log(y)) - slope * np.mean(np.log(x)))
    axis.plot(at, middle * np.asarray(at, float) ** slope, color=LOOK[name]["color"], **GUIDE, **look)


def _written(assumption: str) -> str:
    return assumption.replace("mu", r"$\mu$").replace("-order", " order")
