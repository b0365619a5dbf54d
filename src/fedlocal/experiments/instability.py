"""The instability of accelerated gradient descent: two runs from nearly the same point part exponentially; FedAc-I's do not."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedlocal.experiments.claims import Verdict
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.instability import Instability
from fedlocal.experiments.store import Store
from fedlocal.methods import FedAc
from fedlocal.report.figures import COLORS, panels, powers_of_two
from fedlocal.theory.instability import (
    agd_trajectory,
    distances,
    gradient_descent_distances,
    growth_factor,
    unstable_objective,
    worst_distances,
)

AGD, STABLE, PLAIN, GREY = COLORS["FedAvg"], COLORS["FedAc"], COLORS["MB-AC-SGD"], "#777777"
TEXT = 1.02  # the text's factor in three steps
DASHED: dict[str, Any] = {"color": GREY, "linestyle": (0, (5, 4)), "linewidth": 1.2}


def study(settings: Instability, store: Store, elsewhere: Any) -> Outcome:
    """Construct the objectives, run twice on each, and look for the worst that could happen at all."""
    runs, points, worst = _made(settings, store)
    table = _table(settings, runs)
    return Outcome(
        runs,
        table,
        _verdicts(settings, runs, table, worst),
        {
            "figure-distances": lambda target: _draw_distances(settings, runs, target),
            "figure-objective": lambda target: _draw_objective(settings, points, target),
            "figure-worst": lambda target: _draw_worst(settings, worst, target),
        },
        notes=[
            f"distances after {settings.blocks} times three steps, in units of the first one; theory: 2 (1 - 1/sqrt(kappa))^3",
            "stiff step 1: curvatures mu, L, mu as in the text's proof; 0: L, mu, mu",
        ],
        extra={"points": points, "worst": worst},
    )


def _made(settings: Instability, store: Store) -> list[pd.DataFrame]:
    """Runs, queries and worst cases, each of several parts."""
    kappas = sorted({*settings.kappas, settings.shown_kappa})
    groups: list[dict[str, Callable[[], pd.DataFrame]]] = [
        {f"runs-{kappa:g}-{stiff}": partial(two_runs, settings, kappa, stiff) for kappa in kappas for stiff in (1, 0)},
        {"points": partial(_points, settings)},
        {f"worst-{kappa:g}": partial(worst_cases, settings, kappa) for kappa in settings.worst_kappas},
    ]
    return store.frames(groups)


def two_runs(settings: Instability, kappa: float, stiff_step: int) -> pd.DataFrame:
    """Distances of two runs, of AGD and of gradient descent, step by step, in units of the first one."""
    objective = unstable_objective(kappa, settings.blocks, stiff_step)
    steps = 3 * settings.blocks + settings.further_steps
    apart = distances(objective, objective.largest_epsilon, steps)
    return pd.DataFrame(
        {
            "kappa": kappa,
            "stiff_step": stiff_step,
            "step": np.arange(steps + 1),
            "ag": apart[:, 0],
            "w": apart[:, 1],
            "gd": gradient_descent_distances(objective, objective.largest_epsilon, steps),
            "digits": objective.digits,
            "log10_neighbourhood": _log10(objective.neighbourhood),
        }
    )


def worst_cases(settings: Instability, kappa: float) -> pd.DataFrame:
    """The largest distances after K steps, over all curvatures, of AGD and of FedAc-I with the gamma for this K."""
    vanilla = FedAc.vanilla(step_size=1 / kappa, strong_convexity=1.0)
    agd = worst_distances(vanilla, kappa, 1.0, settings.longest_agd)
    rows = [("AGD", kappa, k, agd[k, 0], agd[k, 1], np.nan) for k in range(1, settings.longest_agd + 1)]
    for k in settings.worst_local_steps:
        method = FedAc.one(step_size=1 / kappa, strong_convexity=1.0, local_steps=k)
        ag, w = worst_distances(method, kappa, 1.0, k).max(axis=0)
        rows.append(("FedAc-I", kappa, k, ag, w, stability_bound(method, kappa, k)))
    return pd.DataFrame(rows, columns=["method", "kappa", "local_steps", "ag", "w", "bound"])


def stability_bound(method: FedAc, kappa: float, steps: int) -> float:
    r"""What the text's norm says of |x_ag - y_ag| after some steps from distances of 1, with mu = 1 and eta = 1/kappa:
    ||X^-1 (x_ag, x)|| grows by at most 1 + 2 gamma^2 mu / eta a step (1 where gamma = eta), X^-1 = [[g, 0], [-g, 1]] with
    g = gamma / eta. Reference: dissertation, proposition fedaci:stab:2. Differs from it: no noise.
    """
    ratio = float(method.gamma) * kappa
    factor = 1.0 if ratio <= 1 else (1 + 2 * float(method.gamma) * ratio) ** steps
    return float(np.hypot(ratio, 1 + ratio) / ratio * factor)


def _points(settings: Instability) -> pd.DataFrame:
    """The queries of AGD on the objective of the figure, and the widths of its intervals."""
    objective = unstable_objective(settings.shown_kappa, settings.blocks)
    path = agd_trajectory(objective)[:-1]
    widths = [_log10(2 * bump.radius) for bump in objective.bumps]
    return pd.DataFrame(
        {
            "step": range(len(path)),
            "md": [float(step.md) for step in path],
            "curvature": [objective.curvature(step.md) for step in path],
            "slope": [float(objective.gradient(step.md)) for step in path],
            "log10_width": [widths[t // 3] if t % 3 == 1 else np.nan for t in range(len(path))],
        }
    )


def _log10(number: Any) -> float:
    """Also of numbers that are too small for a float."""
    return float(mpmath.log10(number))


def _table(settings: Instability, runs: Any) -> pd.DataFrame:
    rows = []
    for (kappa, stiff), part in runs.groupby(["kappa", "stiff_step"], sort=False):
        at = part.set_index("step")
        last, before = at.loc[3 * settings.blocks], at.loc[3 * settings.blocks - 3]
        rows.append(
            {
                "kappa": kappa,
                "stiff_step": stiff,
                "K": settings.blocks,
                "factor": last["ag"] / before["ag"],
                "theory": growth_factor(kappa),
                "w_ag": last["ag"],
                "w": last["w"],
                "1.02^K": TEXT**settings.blocks,
                "largest": at["w"].max(),
                "at_last": at["w"].iloc[-1],
                "digits": int(last["digits"]),
                "log10_delta": last["log10_neighbourhood"],
            }
        )
    return pd.DataFrame(rows)


def _verdicts(settings: Instability, runs: Any, table: Any, worst: Any) -> list[Verdict]:
    covered = table[table["kappa"] >= 25]
    text, shifted = covered[covered["stiff_step"] == 1], covered[covered["stiff_step"] == 0]
    off = (table["factor"] / table["theory"] - 1).abs().max()
    level, last = TEXT**settings.blocks, settings.blocks
    agd, stable = worst[worst["method"] == "AGD"], worst[worst["method"] == "FedAc-I"]
    end = runs[runs["step"] == runs["step"].max()]

    def said(part: Any, column: str) -> str:
        return f"at least {(part[column] / level).min():.3f} eps 1.02^{last}"

    return [
        Verdict.of(
            "the distance grows by 2 (1 - 1/sqrt(kappa))^3 in three steps",
            f"to {off:.1e} for kappa from {table['kappa'].min():g} to {table['kappa'].max():g}",
            bool(off < 0.01),
        ),
        Verdict.of(
            "proof: |w_ag - u_ag| >= eps/2 1.02^K and |w - u| >= eps 1.02^K, kappa >= 25",
            f"w_ag {said(text, 'w_ag')}, w {said(text, 'w')}",
            bool((text["w_ag"] >= level / 2).all() and (text["w"] >= level).all()),
        ),
        Verdict.of(
            "theorem: |w_ag - u_ag| >= eps 1.02^K and |w - u| >= eps/2 1.02^K, on the objective of its proof",
            f"w_ag {said(text, 'w_ag')}, w {said(text, 'w')}",
            bool((text["w_ag"] >= level).all() and (text["w"] >= level / 2).all()),
        ),
        Verdict.of(
            "theorem, on the objective whose first of three steps sees curvature L",
            f"w_ag {said(shifted, 'w_ag')}, w {said(shifted, 'w')}",
            bool((shifted["w_ag"] >= level).all() and (shifted["w"] >= level / 2).all()),
        ),
        Verdict.of(
            "this does not contradict convergence: the distance first expands and then shrinks",
            f"after {settings.further_steps} more steps at most {max(end['ag'].max(), end['w'].max()):.1e} eps are left",
            bool(max(end["ag"].max(), end["w"].max()) < 1),
        ),
        Verdict.of(
            "two runs of gradient descent do not part on the same objective",
            f"their distance is never above {runs['gd'].max():.6g} eps",
            bool(runs["gd"].max() <= 1),
        ),
        Verdict.of(
            "FedAc-I's gamma keeps |x_ag - y_ag| within K local steps bounded, whatever the curvatures",
            f"at most {stable['ag'].max():.3g} eps at K = {', '.join(map(str, settings.worst_local_steps))}, where AGD comes to "
            f"{agd['ag'].max():.1e} eps in {settings.longest_agd} steps; |x - y|, which is not judged, comes to "
            f"{stable['w'].max():.3g} eps",
            bool((stable["ag"] <= stable["bound"]).all() and stable["ag"].max() < 10),
        ),
        _fastest(worst, settings.longest_agd),
    ]


def _fastest(worst: Any, steps: int) -> Verdict:
    """The worst growth of AGD a step, over the last five steps, against that of the text's period of three."""
    rates = {}
    for kappa, part in worst[worst["method"] == "AGD"].groupby("kappa"):
        w = part.set_index("local_steps")["w"]
        rates[kappa] = (w[steps] / w[steps - 5]) ** 0.2
    listed = ", ".join(f"{rate:.4f} (kappa {k:g}, text {growth_factor(k) ** (1 / 3):.4f})" for k, rate in rates.items())
    five = max(abs(rate / ((1 - k**-0.5) * 4**0.2) - 1) for k, rate in rates.items())
    return Verdict.of(
        "curvature L in one of five steps is worse than in one of three: 4 (1 - 1/sqrt(kappa))^5 in five steps, the worst of all",
        f"a step multiplies by {listed}",
        five < 1e-3,
    )


def _draw_distances(settings: Instability, runs: Any, target: Path) -> None:
    """Two runs: apart for 3 K steps, together in the end."""
    kappa, last = settings.shown_kappa, 3 * settings.blocks
    part = runs[(runs["kappa"] == kappa) & (runs["stiff_step"] == 1)]
    with panels(2, target, f"{settings.title}, $\\kappa$ = {kappa:g}", width=5.6, height=4.2) as axes:
        _draw_runs(axes[0], part[part["step"] <= last])
        blocks, steps = np.arange(settings.blocks + 1), 3 * np.arange(settings.blocks + 1)
        exact = (1 + kappa**0.5) / 2 * growth_factor(kappa) ** blocks
        axes[0].plot(steps[1:], exact[1:], "o", color="black", markersize=3.5, label="theory, w", zorder=5)
        axes[0].plot(steps, TEXT**blocks, label="$1.02^{t/3}$", **DASHED)
        method = FedAc.one(step_size=1 / kappa, strong_convexity=1.0, local_steps=last)
        stable = worst_distances(method, kappa, 1.0, last)
        axes[0].plot(stable[:, 1], color=STABLE, label="FedAc-I, x, any curvatures")
        axes[0].plot(stable[:, 0], color=STABLE, linewidth=1.2, label="FedAc-I, $x_{ag}$, any curvatures")
        axes[0].set(title=f"The first {last} steps", ylim=(0.2, None))
        _draw_runs(axes[1], part)
        axes[1].axvline(last, **DASHED)
        late = part["step"][part[["w", "ag"]].max(axis=1) > 1e-6].max()
        axes[1].set(title="Later, both runs converge to the optimum", ylim=(1e-6, None), xlim=(-5, 1.05 * late))
        for axis in axes:
            axis.set(xlabel="step t", ylabel="distance of the two runs / $\\varepsilon$", yscale="log")
        _legend(axes[0], columns=4)


def _draw_runs(axis: Axes, part: Any) -> None:
    axis.plot(part["step"], part["w"], color=AGD, label="AGD, w")
    thirds = part[part["step"] % 3 == 0]  # between them it is 0 once
    look: dict[str, Any] = {"linestyle": (0, (1, 1)), "linewidth": 1.6}
    axis.plot(thirds["step"], thirds["ag"], color=AGD, label="AGD, $w_{ag}$, every third step", **look)
    axis.plot(part["step"], part["gd"], color=PLAIN, linestyle=(0, (4, 1.5)), label="gradient descent", zorder=4)


def _legend(axis: Axes, columns: int) -> None:
    """Below all panels, in rows."""
    figure: Any = axis.get_figure()
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def _draw_objective(settings: Instability, points: Any, target: Path) -> None:
    """Where AGD queries, what curvature it sees there, and how thin the intervals of curvature L are."""
    stiff = points[points["curvature"] > 1]
    soft = points[points["curvature"] == 1]
    title = f"The objective, $\\mu$ = 1, L = {settings.shown_kappa:g}"
    with panels(3, target, title, width=4.4, height=3.7) as axes:
        axes[0].plot(points["step"], points["md"], color="#bbbbbb", linewidth=1, zorder=1)
        axes[0].scatter(soft["step"], soft["md"], s=14, color=PLAIN, label="curvature $\\mu$", zorder=2)
        axes[0].scatter(stiff["step"], stiff["md"], s=26, color=AGD, label="curvature L", zorder=3)
        axes[0].set(title="Points that AGD queries", xlabel="step t", ylabel="$w_{md}$", yscale="log")
        axes[1].vlines(stiff["md"], 1, settings.shown_kappa, color=AGD, linewidth=1.4)
        axes[1].axhline(1, color=PLAIN, linewidth=1.8)
        axes[1].scatter(soft["md"], np.ones(len(soft)), s=14, color=PLAIN, zorder=3)
        axes[1].scatter(stiff["md"], np.full(len(stiff), settings.shown_kappa), s=26, color=AGD, zorder=3)
        axes[1].set(
            title="Curvature F''(w)", xlabel="w", xscale="log", yscale="log", ylim=(0.6, 2 * settings.shown_kappa)
        )
        axes[2].plot(range(len(stiff)), stiff["log10_width"], color=AGD, marker="o", markersize=4)
        axes[2].set(title="Widths of the intervals", xlabel="interval k", ylabel="$\\log_{10}$ width")
        axes[0].legend(loc="lower left")


def _draw_worst(settings: Instability, worst: Any, target: Path) -> None:
    """The worst distance that can be after K steps."""
    title = "The worst distance within K steps, over all curvatures in $[\\mu, L]$"
    with panels(len(settings.worst_kappas), target, title, width=4.6, height=4.0, share_y=True) as axes:
        for axis, kappa in zip(axes, settings.worst_kappas, strict=True):
            part = worst[worst["kappa"] == kappa]
            agd, stable = part[part["method"] == "AGD"], part[part["method"] == "FedAc-I"]
            thin: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.8}
            axis.plot(agd["local_steps"], agd["ag"], color=AGD, label="AGD, $x_{ag}$")
            axis.plot(agd["local_steps"], agd["w"], color=AGD, label="AGD, x", **thin)
            thrice = growth_factor(kappa) ** (agd["local_steps"] / 3)
            axis.plot(agd["local_steps"], thrice, label="$(2(1 - 1/\\sqrt{\\kappa})^3)^{K/3}$", **DASHED)
            axis.plot(
                stable["local_steps"], stable["ag"], color=STABLE, marker="o", markersize=4.5, label="FedAc-I, $x_{ag}$"
            )
            axis.plot(stable["local_steps"], stable["w"], color=STABLE, label="FedAc-I, x", **thin)
            look: dict[str, Any] = {"color": STABLE, "linestyle": (0, (1, 1.5)), "linewidth": 1.4}
            axis.plot(stable["local_steps"], stable["bound"], label="FedAc-I, $x_{ag}$, theory", **look)
            axis.set(title=f"$\\kappa$ = {kappa:g}", xlabel="local steps K", yscale="log", ylim=(0.5, 1e8))
            powers_of_two(axis, settings.worst_local_steps)
        axes[0].set_ylabel("largest distance / $\\varepsilon$")
        _legend(axes[0], columns=6)
