"""Take the best pair of step sizes of each method: shared by the studies of composite methods."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from fedlocal.experiments.runner.claims import TunedMethod, TunedResults
from fedlocal.experiments.runner.configuration import load, same_options
from fedlocal.experiments.runner.halving import Halving, grid_pairs, reached_rounds
from fedlocal.experiments.runner.methods import composite_method
from fedlocal.experiments.runner.pair_sweeps import (
    PAIR,
    CompositeObjective,
    ended_pairs,
    options,
    pair_scores,
    sweep_history,
)
from fedlocal.experiments.runner.settings import TunedStudySettings
from fedlocal.experiments.runner.store import Store
from fedlocal.report.figures import COLORS, legend_below, panels, plain_log_scale
from fedlocal.report.tables import HALF_WIDTH

TIE = 1e-9  # scores that differ by less are the same
References = Mapping[str, Mapping[str, float]]  # level lines and last rows of the table: name -> column -> value


def sweep_methods(
    objectives: Mapping[int, CompositeObjective], settings: TunedStudySettings, store: Store
) -> list[pd.DataFrame]:
    """Return the histories of all methods and seeds, over the pairs of step sizes; stored ones are read, others are run.

    Args:
        objectives: objective of each seed.
        settings: settings of the study, whose `tuning` says whether all pairs run to the end.
        store: the run's store.
    """
    if settings.tuning.search == "halving":
        halvings = [Halving(name, objectives, settings, store) for name in settings.methods]
        return [history for each in halvings for history in each.histories()]
    run = {"eval_every": settings.eval_every, **options(settings)}

    def swept(name: str, seed: int, checkpoint: Path) -> pd.DataFrame:
        objective, grid = objectives[seed], settings.grid.pairs()
        method, own = composite_method(name, objective.regularizer), {"seed": seed, "metrics": objective.metrics}
        return sweep_history(objective.problem, method, grid, checkpoint=checkpoint, **own, **run)

    return [
        store.frame(f"{name}-{seed}", partial(swept, name, seed)).assign(method=name, seed=seed)
        for seed in objectives
        for name in settings.methods
    ]


def tuned_results(settings: TunedStudySettings, history: pd.DataFrame, store: Store | None = None) -> TunedResults:
    """Return the tuned methods and what else claims are compared with; with several seeds also those of each seed alone.

    Args:
        settings: settings of the study.
        history: rows of all runs, with the columns `method` and `seed`.
        store: the run's store, beside which runs of other experiments are looked for; None: claims see no other experiment.
    """
    text: Any = load(settings.name, "paper", "text")

    @cache
    def results_of(name: str) -> TunedResults | None:
        run = None if store is None else store.finished_run_of(name)
        configuration = None if run is None else run.configuration()
        if run is None or configuration is None:
            return None
        of: Any = same_options(name, configuration)
        return tuned_results(of, pd.read_parquet(run.directory / "history.parquet"))

    def results_of_seed(seed: int, name: str) -> TunedResults | None:
        found = results_of(name)
        return None if found is None else found.of_seed.get(seed)

    def found(rows: Any, others: Callable[[str], TunedResults | None]) -> TunedResults:
        methods = {name: tune(settings, rows[rows["method"] == name]) for name in settings.methods}
        return TunedResults(methods, settings.grid, text.grid, settings.rounds, text.rounds, others)

    if len(settings.seeds) == 1:
        return found(history, results_of)
    alone = {s: found(history[history["seed"] == s], partial(results_of_seed, s)) for s in settings.seeds}
    return replace(found(history, results_of), of_seed=alone)


def tune(settings: TunedStudySettings, history: Any) -> TunedMethod:
    """Return a method with the pair of step sizes that has the best score, on average over the seeds.

    Pairs that diverged with any seed, and those that halving dropped, are left out. Of several pairs with the same score (many
    find the whole pattern) it takes the one that is best on average over all rounds, which is the fastest.
    """
    score, diverged = settings.score, ended_pairs(history, "diverged")
    scores: Any = pair_scores(history, score, settings.rounds, score.window)
    if scores.empty:
        raise ValueError(f"run: {history['method'].iloc[0]} diverged with every pair of step sizes; add smaller ones")
    sign = 1 if score.largest else -1
    signed = sign * scores["score"]
    tied = scores.index[signed - signed.max() > -TIE]
    overall = scores["overall"][tied]
    best = overall.idxmax() if score.largest else overall.idxmin()
    own = history.set_index(PAIR).loc[[best]]
    curve = own.groupby("round").mean(numeric_only=True).reset_index()
    late_rounds = settings.rounds - score.window
    late = curve[curve["round"] > late_rounds].mean(numeric_only=True).to_dict()
    widths: Any = {}
    if len(settings.seeds) > 1 and set(own["seed"]) == {*settings.seeds}:
        widths = half_widths(own[own["round"] > late_rounds].groupby("seed").mean(numeric_only=True)).to_dict()
        spread = own.groupby("round").std(numeric_only=True) * t_factor(len(settings.seeds))
        curve = curve.join(spread.add_suffix(HALF_WIDTH), on="round")
    dropped = {pair: r for pair, r in ended_pairs(history, "dropped").items() if pair not in diverged}
    return TunedMethod(best[0], best[1], curve, late, diverged, list(tied), dropped, widths)


def notes_of(settings: TunedStudySettings, history: pd.DataFrame) -> list[str]:
    """Return what a reader of the table must know about seeds and tuning; nothing for one seed and all pairs."""
    several = "numbers are means over {} seeds, with 95 % t intervals; pairs of step sizes are the best on average"
    means = [several.format(len(settings.seeds))] if len(settings.seeds) > 1 else []
    return [*means, *reached_rounds(settings, history)]


def half_widths(of_seeds: pd.DataFrame) -> pd.Series:
    """Return half the width of the 95 % t interval of the mean of each column, whose rows are seeds."""
    return of_seeds.std(ddof=1, numeric_only=True) * t_factor(len(of_seeds))


def t_factor(n: int) -> float:
    """Return the half width of the 95 % t interval of a mean over n standard deviations of a single value."""
    return float(stats.t.ppf(0.975, n - 1)) / n**0.5


def table(settings: TunedStudySettings, methods: Mapping[str, TunedMethod], references: References) -> pd.DataFrame:
    """Return one row per tuned method, averaged over the last rounds, and one per reference.

    With several seeds each column is followed by that of the half widths of 95 % t intervals, with halving `diverged` by
    `dropped`: how many pairs after how many rounds.
    """
    halving, seeds = settings.tuning.search == "halving", len(settings.seeds)
    suffixes = ["", HALF_WIDTH] if seeds > 1 else [""]
    columns = [f"{column}{suffix}" for column in settings.columns for suffix in suffixes]
    rows: list[dict[str, Any]] = []
    for name, tuned in methods.items():
        pair, diverged = f"{tuned.client_step_size:g}, {tuned.server_step_size:g}", str(len(tuned.diverged))
        values = {**tuned.late, **{f"{column}{HALF_WIDTH}": width for column, width in tuned.half_widths.items()}}
        ends = {"dropped": tuned.dropped_in_words} if halving else {}
        rows.append({"method": name, "step_sizes": pair, "diverged": diverged, **ends, **_only(columns, values)})
    empty = {"step_sizes": "", "diverged": "", **({"dropped": ""} if halving else {})}
    rows += [{"method": name, **empty, **_only(columns, values)} for name, values in references.items()]
    return pd.DataFrame(rows)


def reference_row(of_seeds: pd.DataFrame) -> dict[str, float]:
    """Return the means of a reference over its rows, one for each seed, and of several seeds the half widths of their intervals.

    Args:
        of_seeds: numbers, one row per seed.
    """
    found: Any = of_seeds.mean(numeric_only=True).to_dict()
    if len(of_seeds) > 1:
        found |= half_widths(of_seeds).add_suffix(HALF_WIDTH).to_dict()
    return found


def draw_curves(
    settings: TunedStudySettings,
    methods: Mapping[str, TunedMethod],
    target: Path,
    *,
    references: References | None = None,
    dashed: Collection[str] = (),
    first_round: float = 0,
) -> None:
    """Draw the panels of the settings: a column of each tuned method against rounds, with several seeds in a band.

    Args:
        settings: settings of the study.
        methods: tuned methods by label.
        target: the file.
        references: values that are drawn as level lines.
        dashed: labels of methods whose curves are dashed, for they may lie on others.
        first_round: rounds before this one are not drawn.
    """
    references = references or {}
    with panels(len(settings.panels), target, _title(settings, methods), size=(4.0, 3.6)) as axes:
        for axis, panel in zip(axes, settings.panels, strict=True):
            for name, tuned in methods.items():
                curve: Any = tuned.curve[tuned.curve["round"] >= first_round]
                look: Any = {"color": COLORS[name], "linestyle": "--" if name in dashed else "-", "linewidth": 1.6}
                axis.plot(curve["round"], curve[panel.column], label=name, **look)
            for name, values in references.items():
                if panel.column in values:
                    color = COLORS.get(name, "black")
                    axis.axhline(values[panel.column], color=color, linestyle=":", linewidth=1.3, label=name)
            axis.set(title=panel.title, xlabel="communication rounds")
            if panel.log:
                plain_log_scale(axis)
            _draw_bands(axis, panel.column, methods, first_round)
        legend_below(axes)


def _draw_bands(axis: Axes, column: str, methods: Mapping[str, TunedMethod], first_round: float) -> None:
    """Draw the intervals, if there are any. The axis stays that of the lines: intervals of two seeds are very wide."""
    limits = axis.get_ylim()
    for name, tuned in methods.items():
        if (width := f"{column}{HALF_WIDTH}") in tuned.curve:
            curve: Any = tuned.curve[tuned.curve["round"] >= first_round]
            ends = curve[column] - curve[width], curve[column] + curve[width]
            axis.fill_between(curve["round"], *ends, color=COLORS[name], alpha=0.18, linewidth=0)
    axis.set_ylim(limits)


def _only(columns: Sequence[str], values: Mapping[str, float]) -> dict[str, float]:
    return {column: values.get(column, np.nan) for column in columns}


def _title(settings: TunedStudySettings, methods: Mapping[str, TunedMethod]) -> str:
    """Return the title, with what a reader of the figure alone must know about seeds and tuning."""
    said, every = [], len(grid_pairs(settings))
    if len(settings.seeds) > 1:
        said.append(f"mean of {len(settings.seeds)} seeds, bands are 95 % t intervals")
    if settings.tuning.search == "halving":
        left = [every - len(tuned.diverged) - len(tuned.dropped) for tuned in methods.values()]
        most = f"{min(left)}" if min(left) == max(left) else f"{min(left)} to {max(left)}"
        said.append(f"step sizes by halving: {most} of {every} pairs ran all {settings.rounds} rounds")
    return "\n".join([settings.title, *(["; ".join(said)] if said else [])])
