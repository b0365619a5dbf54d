"""How far clients drift apart inside a round, against the lemmas that say how far they may.

All runs take the step size 1/(4 L). The problems are quadratics with normal noise, the same for all clients or with optima
of their own, and logistic regression on a9a, whose clients draw single examples from one pool.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedlocal import data
from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.engines import simulate
from fedlocal.engines.shadow import Shadow
from fedlocal.experiments.claims import Verdict
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.schema import Discrepancy
from fedlocal.experiments.store import Store
from fedlocal.federated_data import FederatedData
from fedlocal.methods import FedAc, FedAvg, FedDualAvg
from fedlocal.problems import Logistic, quadratics
from fedlocal.progress import ProgressBar
from fedlocal.regularizers import L1
from fedlocal.report.figures import COLORS, legend_below, panels
from fedlocal.solvers import centralized
from fedlocal.theory import Constants, Setting
from fedlocal.theory.composite_bounds import fed_dual_avg_quadratic_discrepancy_bound
from fedlocal.theory.fed_ac_stability import (
    fed_ac_one_discrepancy_bound,
    fed_ac_one_perturbed_bound,
    fed_ac_two_perturbed_bound,
    fed_ac_two_third_order_discrepancy_bound,
)
from fedlocal.theory.fed_avg_stability import client_discrepancy_bound, shadow_bound
from fedlocal.theory.linear_constants import fourth_moment

SIGMOID_THIRD = 1 / (6 * math.sqrt(3))  # the largest third derivative of log(1 + exp)
ERRORS = 4  # standard errors that count as chance
KEY = ["problem", "method", "local_steps"]


class Task(NamedTuple):
    """A problem with what the lemmas need to know about it."""

    problem: AbstractProblem
    constants: Constants
    x0: Params
    solution: Params
    optimum: float

    @property
    def step_size(self) -> float:
        return 1 / (4 * self.constants.smoothness)

    @property
    def vanilla_gamma(self) -> float:
        return math.sqrt(self.step_size / self.constants.strong_convexity)


class Lemma(NamedTuple):
    """What a lemma bounds: a column of the shadow, and the text for it."""

    label: str
    column: str
    written: str
    bound: Callable[[Task, Setting], float]
    potential: str | None = None  # the column that the analysis decreases


def _one(task: Task, setting: Setting, vanilla: bool = False) -> float:
    gamma = task.vanilla_gamma if vanilla else None
    return fed_ac_one_discrepancy_bound(task.constants, setting, task.step_size, gamma)


CROSS = "mean |Δmd| |Δ(x, ag)|"
LEMMAS = {
    "FedAvg": Lemma(
        "lem:fedavg:2o:ub:2",
        "discrepancy",
        "mean |x_m - mean x|²",
        lambda t, s: client_discrepancy_bound(t.constants, s, t.step_size).value,
    ),
    "FedDualAvg": Lemma(
        "quad:stability",
        "discrepancy_y",
        "mean |y_m - mean y|²",
        lambda t, s: fed_dual_avg_quadratic_discrepancy_bound(t.constants, s, t.step_size),
    ),
    "FedAc-I": Lemma("fedaci:stab:main", "cross_term", CROSS, _one, "psi"),
    "FedAc-vanilla": Lemma("fedaci:stab:main", "cross_term", CROSS, partial(_one, vanilla=True), "psi"),
    "FedAc-II": Lemma(
        "fedacii:stab:main",
        "gradient_discrepancy",
        "|∇F(mean md) - mean ∇F(md_m)|²",
        lambda t, s: fed_ac_two_third_order_discrepancy_bound(t.constants, s, t.step_size),
        "phi",
    ),
}
RUNS = {
    "quadratic": ["FedAvg", "FedAc-I", "FedAc-vanilla"],
    "unequal": ["FedAvg", "FedDualAvg"],
    "a9a": ["FedAvg", "FedAc-I", "FedAc-vanilla", "FedAc-II"],
}
TITLES = {"quadratic": "equal quadratics", "unequal": "unequal quadratics", "a9a": "a9a"}


def study(settings: Discrepancy, store: Store, elsewhere: Any) -> Outcome:
    """Every method at every number of local steps, looked at in every local step."""
    tasks = {"quadratic": quadratic(settings, 0.0), "unequal": quadratic(settings, settings.spread)}
    tasks["a9a"] = logistic(settings)
    cases = [(p, name, k) for p, names in RUNS.items() for name in names for k in settings.local_steps]
    frames = []
    with ProgressBar("cases", len(cases)) as bar:
        for i, (p, name, k) in enumerate(cases):
            make = partial(walked, settings, tasks[p], name, k)
            frames.append(store.frame(f"{p}-{name}-{k}", lambda _, make=make: make()).assign(problem=p))
            bar.advance_to(i + 1, f"{name} on {TITLES[p]}, K = {k}")
    history: Any = pd.concat(frames, ignore_index=True)
    table = pd.DataFrame([_row(settings, tasks[str(key[0])], part, *key) for key, part in _groups(history)])
    figures = {
        "figure": partial(_draw_growth, settings, tasks, history),
        "potentials": partial(_draw_potentials, settings, tasks, history),
    }
    return Outcome(history, table, _verdicts(settings, table), figures, _notes(tasks))


def quadratic(settings: Discrepancy, spread: float) -> Task:
    """1/2 (x - c_m)' A (x - c_m) with eigenvalues of A from mu to 1, and |A (c_m - mean c)| up to `spread`."""
    d, clients, mu = settings.dimension, settings.clients, settings.strong_convexity
    curvature = np.geomspace(mu, 1.0, d)
    away = np.random.default_rng(0).standard_normal((clients, d))
    away -= away.mean(axis=0)
    away *= spread / np.linalg.norm(away, axis=1).max()  # A (c_m - mean c) = grad F(x) - grad F_m(x) at every x
    problem = quadratics(np.tile(np.diag(curvature), (clients, 1, 1)), away / curvature, settings.noise / math.sqrt(d))
    x0 = np.ones(d)
    optimum = float(np.mean(np.sum(away**2 / curvature, axis=1)) / 2)
    constants = Constants(1.0, settings.noise, math.sqrt(d), mu, heterogeneity=spread, gap=float(curvature.sum() / 2))
    return Task(problem, constants, x0, np.zeros(d), optimum)


def logistic(settings: Discrepancy) -> Task:
    """a9a, or its first examples. An example's gradient is at most as long as its features, which bounds the noise."""
    features, labels = data.a9a()
    features, labels = features[: settings.examples].toarray(), labels[: settings.examples]
    problem = Logistic(FederatedData.shared(features, labels, num_clients=settings.clients), l2=settings.l2)
    solution = centralized(problem, progress=False)
    lengths = np.linalg.norm(features, axis=1)
    top = float(np.linalg.eigvalsh(features.T @ features / len(features))[-1])
    variance = float(np.mean(lengths**2))
    constants = Constants(
        smoothness=top / 4 + settings.l2,
        noise=math.sqrt(variance),
        distance=float(np.linalg.norm(solution.x["weights"])),
        strong_convexity=settings.l2,
        fourth_moment=fourth_moment(lengths, variance) ** 0.25,
        third_order=SIGMOID_THIRD * float(lengths.max()) * top,
        gap=math.log(2) - solution.objective,
    )
    return Task(problem, constants, {"weights": np.zeros(features.shape[1])}, solution.x, solution.objective)


def method(name: str, task: Task, local_steps: int) -> LocalMethod:
    """A method of the study with the step size of its task."""
    eta, mu = task.step_size, task.constants.strong_convexity
    if name == "FedAvg":
        return FedAvg(eta)
    if name == "FedDualAvg":
        return FedDualAvg(eta, 1.0, L1(task.constants.heterogeneity or 0.0))
    if name == "FedAc-vanilla":
        return FedAc.vanilla(step_size=eta, strong_convexity=mu)
    make = {"FedAc-I": FedAc.one, "FedAc-II": FedAc.two}[name]
    return make(step_size=eta, strong_convexity=mu, local_steps=local_steps)


def walked(settings: Discrepancy, task: Task, name: str, local_steps: int) -> pd.DataFrame:
    """Every local step of every seed: what the lemma bounds, the shadow's suboptimality and distance, and the potential."""
    shadow = Shadow(task.solution, task.optimum, task.constants.strong_convexity)
    lemma, frames = LEMMAS[name], []
    for seed in settings.seeds:
        sampling: dict[str, Any] = {"local_steps": local_steps, "batch_size": 1, "seed": seed, "x0": task.x0}
        result = simulate(
            task.problem,
            method(name, task, local_steps),
            rounds=settings.rounds,
            eval_every=settings.rounds,
            progress=False,
            shadow=shadow,
            **sampling,
        )
        rows: Any = result.shadow
        seen = rows[["round", "step", "distance"]].assign(measured=rows[lemma.column], gap=rows["loss"] - task.optimum)
        seen["potential"] = rows[lemma.potential] if lemma.potential else np.nan
        frames.append(seen.assign(seed=seed))
    return pd.concat(frames, ignore_index=True).assign(method=name, local_steps=local_steps)


def _groups(history: pd.DataFrame) -> Any:
    return history.groupby(KEY, sort=False)


def over_seeds(part: Any, column: str) -> Any:
    """Mean and standard error of a column for every round and step."""
    grouped = part.groupby(["round", "step"])[column]
    seen = grouped.agg(["mean", "std", "count"]).reset_index()
    seen["error"] = seen["std"].fillna(0) / np.sqrt(seen["count"])
    return seen[["round", "step", "mean", "error"]]


def growth(part: Any) -> Any:
    """What the lemma bounds against the local step, averaged over rounds and seeds."""
    return part[part["step"] > 0].groupby("step")["measured"].mean()


def _row(settings: Discrepancy, task: Task, part: Any, problem: str, name: str, k: int) -> dict[str, Any]:
    """A case beside its lemmas. Ratios are of mean plus four standard errors and bound: up to one is what the text says."""
    setting = Setting(settings.clients, settings.rounds, k)
    lemma, seen, curve = LEMMAS[name], over_seeds(part, "measured"), growth(part)
    inside = seen[seen["step"] < k]
    bound = lemma.bound(task, setting)
    exponent = np.polyfit(np.log(curve.index), np.log(curve), 1)[0] if len(curve) > 1 else np.nan
    return {
        "problem": problem,
        "method": name,
        "local_steps": k,
        "lemma": lemma.label,
        "largest": float(inside["mean"].max()),
        "bound": bound,
        "ratio": float((inside["mean"] + ERRORS * inside["error"]).max() / bound),
        "exponent": float(exponent),
        "convergence_ratio": _convergence(settings, task, part, name, k),
    }


def _convergence(settings: Discrepancy, task: Task, part: Any, name: str, k: int) -> float:
    """The left side of the method's convergence lemma over its right side with the discrepancy that was measured."""
    if name == "FedDualAvg":  # its lemma is about the mean of all shadow points
        return math.nan
    if LEMMAS[name].potential is not None:
        seen = over_seeds(part, "potential")
        seen = seen[(seen["step"] == 0) & (seen["round"] > 0)]
        above = seen["mean"] + ERRORS * seen["error"]
        right = potential_bound(settings, task, part, name, k)
        return float(np.max(above.to_numpy() / right))
    inside = part[part["step"] < k]
    steps = k * settings.rounds
    apart = float(inside["measured"].sum()) * settings.clients / len(settings.seeds)
    each: Any = part[part["step"] > 0].groupby("seed")["gap"].mean()
    last = part[part["round"] == settings.rounds].groupby("seed")["distance"].mean()
    left = each + last / (2 * task.step_size * steps)
    right = shadow_bound(task.constants, Setting(settings.clients, settings.rounds, k), task.step_size, apart).value
    return float((left.mean() + ERRORS * left.std(ddof=1) / math.sqrt(len(left))) / right)


def potential_bound(settings: Discrepancy, task: Task, part: Any, name: str, k: int) -> np.ndarray:
    """(R,) the lemma's right side after each round, with the largest discrepancy that was measured."""
    inside = over_seeds(part[part["step"] < k], "measured")
    apart = float(inside["mean"].max())
    bound = fed_ac_two_perturbed_bound if name == "FedAc-II" else fed_ac_one_perturbed_bound
    gamma = task.vanilla_gamma if name == "FedAc-vanilla" else None
    after = [Setting(settings.clients, r, k) for r in range(1, settings.rounds + 1)]
    return np.array([bound(task.constants, s, task.step_size, apart, gamma).value for s in after])


def _verdicts(settings: Discrepancy, table: Any) -> list[Verdict]:
    verdicts = []
    for name, lemma in LEMMAS.items():
        rows = table[table["method"] == name]
        worst = rows["ratio"].max()
        claim = f"{name} stays below lemma {lemma.label} at every step"
        verdicts.append(
            Verdict.of(claim, f"at most {worst:.2g} of the bound, over {len(rows)} cases", bool(worst <= 1))
        )
    rows = table[table["convergence_ratio"].notna()]
    worst = rows["convergence_ratio"].max()
    claim = "shadow and potentials converge as the lemmas say, given the discrepancy that was measured"
    verdicts.append(Verdict.of(claim, f"at most {worst:.2g} of the right side", bool(worst <= 1)))
    longest = table[table["local_steps"] == max(settings.local_steps)].set_index(["problem", "method"])
    for problem, limit, word in (("quadratic", 1, "linearly"), ("unequal", 2, "quadratically"), ("a9a", 1, "linearly")):
        found = longest["exponent"][problem, "FedAvg"]
        claim = f"FedAvg's discrepancy grows at most {word} in k on {TITLES[problem]}"
        verdicts.append(Verdict.of(claim, f"like k^{found:.2f}", bool(found <= limit + 0.05)))
    for problem in ("quadratic", "a9a"):
        vanilla, stable = longest.loc[problem, "FedAc-vanilla"], longest.loc[problem, "FedAc-I"]
        factor = vanilla["largest"] / stable["largest"]
        claim = f"vanilla acceleration drifts further and faster than FedAc-I on {TITLES[problem]}"
        measured = f"{factor:.3g} times as far, like k^{vanilla['exponent']:.2f} against k^{stable['exponent']:.2f}"
        faster = vanilla["exponent"] > stable["exponent"]
        verdicts.append(Verdict.of(claim, measured, bool(factor > 1 and faster)))
    return verdicts


def _notes(tasks: dict[str, Task]) -> list[str]:
    return [
        f"{TITLES[name]}: L = {c.smoothness:.3g}, mu = {c.strong_convexity:.3g}, sigma = {c.noise:.3g}, "
        f"zeta = {c.heterogeneity:.3g}, step size {task.step_size:.3g}"
        for name, task in tasks.items()
        for c in [task.constants]
    ]


def _color(name: str) -> str:
    return COLORS.get(name, COLORS["FedAc"])


def _draw_growth(settings: Discrepancy, tasks: dict[str, Task], history: Any, target: Path) -> None:
    """What each lemma bounds against the local step, with the lemma's bound above it."""
    shown = [(p, name) for p, names in RUNS.items() for name in names if name != "FedAc-vanilla"]
    with panels(len(shown), target, settings.title, width=4.4, height=3.6, columns=4) as axes:
        for axis, (problem, name) in zip(axes, shown, strict=False):
            part = history[(history["problem"] == problem) & (history["method"] == name)]
            for place, k in enumerate(settings.local_steps):
                shade = 0.35 + 0.65 * (place + 1) / len(settings.local_steps)
                curve = growth(part[part["local_steps"] == k])
                bound = LEMMAS[name].bound(tasks[problem], Setting(settings.clients, settings.rounds, k))
                axis.plot(curve.index, curve, color=_color(name), alpha=shade, marker="o" if k < 8 else None, ms=3)
                axis.plot([1, k], [bound, bound], color="#444444", alpha=shade, lw=1.2, ls="--")
                _beside(axis, k, curve.iloc[-1], f"K = {k}", above=name.startswith("FedAc"))
            if name == "FedAc-I":
                k = max(settings.local_steps)
                vanilla = history[(history["problem"] == problem) & (history["method"] == "FedAc-vanilla")]
                curve = growth(vanilla[vanilla["local_steps"] == k])
                axis.plot(curve.index, curve, color=COLORS["FedAc-vanilla"])
                _beside(axis, k, curve.iloc[-1], "vanilla", above=True)
            axis.set(xscale="log", yscale="log", title=f"{name}, {TITLES[problem]}", xlabel="local step k")
            axis.set_ylabel(LEMMAS[name].written)
            axis.set_xticks(settings.local_steps, [str(k) for k in settings.local_steps])
            axis.minorticks_off()
            axis.set_xlim(right=2.6 * max(settings.local_steps))
        axes[0].plot([], [], color="#444444", label="measured, mean over rounds and seeds")
        axes[0].plot([], [], color="#444444", lw=1.2, ls="--", label="the lemma's bound, for each K")
        axes[0].plot([], [], color=COLORS["FedAc-vanilla"], label="FedAc-vanilla at the largest K")
        legend_below(axes)


def _beside(axis: Axes, x: float, y: float, text: str, above: bool) -> None:
    """A label at the end of a curve, on the side where no longer curve runs."""
    place: dict[str, Any] = {"xytext": (4, 5 if above else -6), "textcoords": "offset points", "va": "center"}
    axis.annotate(text, (x, y), fontsize=8.5, color="#444444", **place)


def _draw_potentials(settings: Discrepancy, tasks: dict[str, Task], history: Any, target: Path) -> None:
    """The potentials against all local steps, with the right side of the convergence lemma after every round."""
    k = settings.local_steps[len(settings.local_steps) // 2]
    shown = [("quadratic", ["FedAc-I", "FedAc-vanilla"]), ("a9a", ["FedAc-I", "FedAc-vanilla"]), ("a9a", ["FedAc-II"])]
    with panels(3, target, f"Potentials inside rounds, K = {k}", width=5.0, height=3.8) as axes:
        for axis, (problem, names) in zip(axes, shown, strict=True):
            for name in names:
                rows = history[(history["problem"] == problem) & (history["method"] == name)]
                rows = rows[rows["local_steps"] == k]
                seen = over_seeds(rows, "potential")
                x, color = seen["round"] * k + seen["step"], _color(name)
                axis.plot(x, seen["mean"], color=color, label=name)
                axis.fill_between(
                    x, seen["mean"] - seen["error"], seen["mean"] + seen["error"], color=color, alpha=0.25, lw=0
                )
                right = potential_bound(settings, tasks[problem], rows, name, k)
                after = k * np.arange(1, settings.rounds + 1)
                axis.plot(after, right, color=color, ls="--", lw=1.3, label=f"{name}, lemma")
            letter = "Φ" if names == ["FedAc-II"] else "Ψ"
            axis.set(yscale="log", title=f"{letter} on {TITLES[problem]}", xlabel="local steps r K + k")
            axis.set_ylabel(f"{letter}, mean over {len(settings.seeds)} seeds")
            axis.legend(fontsize=8.5)
