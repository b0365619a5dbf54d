"""The speed-up study: M clients with the same number of gradients each, exchanged in fewer and fewer rounds.

l2-regularised logistic regression; every client draws one example a step, with replacement, from the whole set. Each method
runs with every number of clients M, of local steps K and every step size; K times the number of rounds is the same for all. What
counts of a run is the best suboptimality of its evaluations, the one at the start among them; of a method, that with its best
step size.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedlocal import data as sets
from fedlocal.core import LocalMethod
from fedlocal.engines import DivergenceWarning, sweep
from fedlocal.experiments.claims import UNMEASURED, Verdict
from fedlocal.experiments.loading import load
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.speedup import Speedup
from fedlocal.experiments.speedup_claims import Speeds, judge
from fedlocal.experiments.store import Store
from fedlocal.federated_data import FederatedData
from fedlocal.methods import FedAc, FedAvg, MinibatchAcSGD, MinibatchSGD
from fedlocal.problems import Logistic
from fedlocal.progress import ProgressBar
from fedlocal.report.figures import COLORS, MARKERS, legend_below, panels, powers_of_two
from fedlocal.solvers import centralized

METHODS: dict[str, Callable[[float, float, int], LocalMethod]] = {  # of the step size, mu and K
    "FedAc": lambda eta, mu, k: FedAc.one(step_size=eta, strong_convexity=mu, local_steps=k),
    "FedAc-vanilla": lambda eta, mu, k: FedAc.vanilla(step_size=eta, strong_convexity=mu),
    "FedAvg": lambda eta, mu, k: FedAvg(eta),
    "MB-AC-SGD": lambda eta, mu, k: MinibatchAcSGD(eta, mu),
    "MB-SGD": lambda eta, mu, k: MinibatchSGD(eta),
}
SETTING = ["method", "clients", "local_steps"]
PER_ROW = 3  # panels
RUN = ["method", "step_size", "clients", "local_steps", "seed"]


class Case(NamedTuple):
    """One sweep over the step sizes."""

    seed: int
    local_steps: int
    method: str
    clients: int

    @property
    def part(self) -> str:
        """Its name in the store."""
        return f"{self.method}-{self.clients}-{self.local_steps}-{self.seed}"


class Task:
    """The data, stored once for all numbers of clients, and the start that all runs have in common."""

    def __init__(self, settings: Speedup):
        self.settings = settings
        self.problems: dict[int, Logistic] = {}

    @cached_property
    def data(self) -> FederatedData:
        wanted = self.settings.data
        if wanted.name == "a9a":
            examples = sets.a9a()
        elif wanted.name == "epsilon-like":
            examples = sets.epsilon_like(**wanted.generator)
        else:
            try:
                examples = sets.epsilon()
            except (ValueError, OSError) as error:
                raise ValueError(f"{error}; --set data.name=epsilon-like runs with generated data instead") from None
        return FederatedData.shared(*examples, num_clients=1)

    def problem(self, clients: int) -> Logistic:
        if clients not in self.problems:
            data = FederatedData.shared(*self.data.arrays, num_clients=clients)
            self.problems[clients] = Logistic(data, l2=self.settings.l2, intercept=False)
        return self.problems[clients]

    @cached_property
    def start(self) -> np.ndarray:
        """A standard normal vector: that of the author's published runs, where `start_seed` is 1."""
        features: Any = self.data.arrays[0]
        return np.random.RandomState(self.settings.start_seed).standard_normal(features.shape[1])


def study(settings: Speedup, store: Store, elsewhere: Any) -> Outcome:
    """Run the sweeps that are not in the store yet, tune, compare."""
    task = Task(settings)
    optimum = store.frame("optimum", lambda _: _optimum(task))
    best_loss = float(optimum["loss"].iloc[0])
    history = _histories(task, store)
    results = summary(history, best_loss)
    tuned = tune(results)
    speeds = Speeds(tuned, settings.grid, text_step_sizes(settings), settings.steps)
    start_loss = float(history[history["round"] == 0]["loss"].iloc[0])
    return Outcome(
        history=history,
        table=table(settings, tuned),
        verdicts=[_about(settings, judge(claim, speeds)) for claim in settings.claims],
        notes=_notes(settings, optimum, results, start_loss),
        numbers={"optimum": best_loss, "start_loss": start_loss},
        results=results,
        extra={"optimum": optimum, "tuned": tuned},
        figures={
            "figure-clients": lambda target: _draw_clients(settings, tuned, target),
            "figure-local-steps": lambda target: _draw_local_steps(settings, tuned, target),
        },
    )


def _about(settings: Speedup, verdict: Verdict) -> Verdict:
    """Generated data cannot tell whether a claim about epsilon holds."""
    if settings.data.name != "epsilon-like":
        return verdict
    return replace(verdict, measured=f"on generated data: {verdict.measured}", outcome=UNMEASURED)


def _histories(task: Task, store: Store) -> Any:
    """All evaluations of all runs; sweeps that are in the store are read, the others are made."""
    grid, settings = task.settings.grid, task.settings
    cases = [
        Case(seed, k, name, m)
        for seed in settings.seeds
        for k in grid.local_steps
        for name in settings.methods
        for m in grid.clients
    ]
    missing = {case for case in cases if not store.has(case.part)}
    million, done = settings.steps / 1e6, 0
    total = sum(case.clients for case in missing)
    frames = []
    with ProgressBar("million gradients", max(1, round(total * million))) as bar:
        for case in cases:
            if case in missing:
                note = f"{case.method}, K = {case.local_steps}, M = {case.clients}, seed {case.seed}"
                bar.advance_to(int(done * million), note)
                done += case.clients
            frames.append(store.frame(case.part, lambda _, case=case: _tried(task, case)))
    return pd.concat(frames, ignore_index=True)


def _tried(task: Task, case: Case) -> pd.DataFrame:
    """Every evaluation of every step size."""
    settings = task.settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # results.csv says which
        result = sweep(
            task.problem(case.clients),
            lambda step_size: METHODS[case.method](step_size, settings.l2, case.local_steps),
            {"step_size": settings.grid.step_size},
            rounds=settings.steps // case.local_steps,
            local_steps=case.local_steps,
            batch_size=1,
            eval_every=max(1, settings.eval_steps // case.local_steps),
            x0={"weights": task.start},
            seed=case.seed,
            progress=False,
        )
    seen: Any = result.history.merge(result.cells["diverged"], left_on="cell", right_index=True)
    seen = seen.sort_values(["cell", "round"], kind="stable").assign(**case._asdict())
    return seen[[*RUN, "round", "loss", "diverged"]].astype({"diverged": "Int64"})


def _optimum(task: Task) -> pd.DataFrame:
    """F*, by our own solver, in float64."""
    solution = centralized(task.problem(1))
    kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
    return pd.DataFrame([{"loss": solution.objective, "kkt_residual": kkt, "duality_gap": gap}])


def summary(history: pd.DataFrame, optimum: float) -> pd.DataFrame:
    """One row per run: the best and the last of its evaluations; inf for the last one of a run that diverged, and for the best
    where there is no finite one."""
    losses: Any = history.assign(loss=history["loss"].where(np.isfinite(history["loss"])))
    runs = losses.groupby(RUN, sort=False)
    best = runs["loss"].min().fillna(np.inf)
    last = history.drop_duplicates(RUN, keep="last").set_index(RUN)
    final = last["loss"].where(last["diverged"].isna(), np.inf).reindex(best.index)
    out = pd.DataFrame({"best_loss": best, "final_loss": final, "best_suboptimality": best - optimum})
    return out.reset_index()


def tune(results: pd.DataFrame) -> pd.DataFrame:
    """The best step size of each method, M and K: that with the smallest suboptimality on average over the seeds; beside it this
    mean, and the smallest and the largest over the seeds."""
    seeds: Any = results.groupby([*SETTING, "step_size"], sort=False)["best_suboptimality"]
    scores = seeds.agg(suboptimality="mean", smallest="min", largest="max", seeds="size").reset_index()
    best = scores.groupby(SETTING, sort=False)["suboptimality"].idxmin()
    return scores.loc[best].reset_index(drop=True)


def rounds_needed(tuned: pd.DataFrame, steps: int, level: float) -> Any:
    """The fewest rounds in which the best step size comes to the level, by method and clients, for those that ever do."""
    there: Any = tuned[tuned["suboptimality"] <= level]
    return steps // there.groupby(["method", "clients"])["local_steps"].max()


def table(settings: Speedup, tuned: pd.DataFrame) -> pd.DataFrame:
    """Rounds needed, one row per level and number of clients, one column per method; missing where no number of rounds does."""
    rows = []
    for level in settings.levels:
        rounds = rounds_needed(tuned, settings.steps, level)
        for m in shown(settings.panels.clients, settings.grid.clients):
            row = {name: float(rounds.get((name, m), np.nan)) for name in settings.methods}
            rows.append({"suboptimality": level, "clients": m, **row})
    return pd.DataFrame(rows)


def shown(wanted: list[int], grid: list[int]) -> list[int]:
    """Those of the wanted values that are in the grid, and the last one of the grid."""
    return [value for value in grid if value in wanted or value == grid[-1]]


def text_step_sizes(settings: Speedup) -> list[float]:
    """The step sizes of the text for this experiment."""
    text: Any = load(settings.name, "paper", "text")
    return text.grid.step_size


def _notes(settings: Speedup, optimum: pd.DataFrame, results: Any, start_loss: float) -> list[str]:
    generated = "the data are generated by fedlocal to be like epsilon; they are not epsilon, of which the text speaks"
    first = optimum.iloc[0]
    worse = int((results["best_loss"] >= start_loss).sum())
    infinite = int(np.isinf(results["final_loss"]).sum())
    seeds = len(settings.seeds)
    return [
        *([generated] if settings.data.name == "epsilon-like" else []),
        "rounds needed, of those tried, for a suboptimality with the best step size"
        + (f", on average over {seeds} seeds" if seeds > 1 else "")
        + "; blank where none were enough",
        f"F* = {first['loss']:.13f} (KKT residual {first['kkt_residual']:.0e}), F at the start = {start_loss:.6f}",
        f"of {len(results)} runs {worse} were at no evaluation better than at the start, {infinite} diverged to infinity",
    ]


def _draw_clients(settings: Speedup, tuned: Any, target: Path) -> None:
    """Suboptimality against clients, a panel for each of some numbers of local steps, beside the line of linear speed-up."""
    values, chosen = settings.grid.clients, shown(settings.panels.local_steps, settings.grid.local_steps)
    first = tuned[(tuned["clients"] == values[0]) & (tuned["local_steps"] == chosen[0])]
    ideal = [float(first["suboptimality"].min()) * values[0] / m for m in values]
    with panels(len(chosen), target, _title(settings), 3.7, 3.3, columns=PER_ROW, share_y=True) as axes:
        for axis, k in zip(axes, chosen, strict=True):
            _draw_lines(axis, settings, tuned[tuned["local_steps"] == k], "clients")
            look: dict[str, Any] = {"color": "#9a9a9a", "linestyle": (0, (5, 4)), "linewidth": 1.1, "zorder": 1}
            axis.plot(values, ideal, label="linear speed-up", **look)
            axis.set(title=f"K = {k}: {settings.steps // k} rounds", xlabel="clients M")
            powers_of_two(axis, values)
        _finish(axes)


def _draw_local_steps(settings: Speedup, tuned: Any, target: Path) -> None:
    """Suboptimality against local steps, a panel for each of some numbers of clients."""
    values, chosen = settings.grid.local_steps, shown(settings.panels.clients, settings.grid.clients)
    with panels(len(chosen), target, _title(settings), 3.7, 3.3, columns=PER_ROW, share_y=True) as axes:
        for axis, m in zip(axes, chosen, strict=True):
            _draw_lines(axis, settings, tuned[tuned["clients"] == m], "local_steps")
            axis.set(title=f"M = {m} clients", xlabel=f"local steps K ({settings.steps} / K rounds)")
            powers_of_two(axis, values, most=9)
        _finish(axes)


def _draw_lines(axis: Axes, settings: Speedup, tuned: Any, column: str) -> None:
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


def _title(settings: Speedup) -> str:
    """The title with all that a figure must say when it is seen alone."""
    title, seeds = settings.title, len(settings.seeds)
    if settings.data.name == "epsilon-like" and "generated" not in title:
        title += " (generated data)"
    return title + (f"\nmean of {seeds} seeds, bands from the smallest to the largest" if seeds > 1 else "")
