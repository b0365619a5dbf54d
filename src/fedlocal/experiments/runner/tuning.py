"""Run methods with all pairs of step sizes and take the best pair of each: shared by the studies of composite methods."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, Params, Regularizer
from fedlocal.core.types import WeightsName
from fedlocal.experiments.runner.claims import TunedMethod, TunedResults
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.runner.methods import composite_method
from fedlocal.experiments.runner.settings import TunedStudySettings
from fedlocal.experiments.runner.store import Store
from fedlocal.metrics import Metric, measure_point
from fedlocal.report.figures import COLORS, legend_below, panels, plain_log_scale
from fedlocal.simulation.result import DivergenceWarning
from fedlocal.simulation.sweeps.grid import Grid
from fedlocal.simulation.sweeps.grid_run import sweep
from fedlocal.simulation.sweeps.result import score_groups
from fedlocal.solvers import centralized

TIE = 1e-9  # scores that differ by less are the same
PAIR = ["client_step_size", "server_step_size"]
References = Mapping[str, Mapping[str, float]]  # level lines and last rows of the table: name -> column -> value


class CompositeObjective(NamedTuple):
    """F + psi, and what is measured at its points."""

    problem: AbstractProblem
    regularizer: Regularizer
    metrics: Sequence[Metric]

    def optimum(self, weights: WeightsName) -> tuple[dict[str, Any], Params]:
        """Return the numbers of the centralised solution, which `optimum` marks in the figures, and the solution."""
        solution = centralized(self.problem, self.regularizer, weights=weights)
        kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
        measured = measure_point(self.problem, self.metrics, solution.x)
        return {"objective": solution.objective, **measured, "kkt_residual": kkt, "duality_gap": gap}, solution.x


def options(settings: TunedStudySettings) -> dict[str, Any]:
    """Return the arguments of `simulate` and `sweep` that the settings fix."""
    names = ("rounds", "clients_per_round", "batch_size", "local_epochs", "weights")
    return {name: getattr(settings, name) for name in names}


def sweep_history(problem: AbstractProblem, method: Any, grid: Grid, **options: Any) -> Any:
    """Return the history of a sweep; its column `diverged`, of which nothing warns, is the round in which a cell diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        result = sweep(problem, method, grid, **options)
    return result.history.merge(result.cells["diverged"], left_on="cell", right_index=True)


def sweep_methods(
    objective: CompositeObjective, settings: TunedStudySettings, seed: int, store: Store
) -> list[pd.DataFrame]:
    """Return the histories of all methods with all step sizes and one seed; stored ones are read, others are run."""
    run = {"eval_every": settings.eval_every, "seed": seed, "metrics": objective.metrics, **options(settings)}

    def swept(name: str, checkpoint: Path) -> pd.DataFrame:
        method, grid = composite_method(name, objective.regularizer), settings.grid.pairs()
        return sweep_history(objective.problem, method, grid, checkpoint=checkpoint, **run)

    names = settings.methods
    return [store.frame(f"{name}-{seed}", partial(swept, name)).assign(method=name, seed=seed) for name in names]


def tuned_results(settings: TunedStudySettings, history: pd.DataFrame, store: Store | None = None) -> TunedResults:
    """Return the tuned methods and what else claims are compared with.

    Args:
        settings: settings of the study.
        history: rows of all runs, with the columns `method` and `seed`.
        store: the run's store, beside which runs of other experiments are looked for; None: claims see no other experiment.
    """
    methods = {name: tune(settings, history[history["method"] == name]) for name in settings.methods}

    def results_of(name: str) -> TunedResults | None:
        run = None if store is None else store.finished_run_of(name)
        configuration = None if run is None else run.configuration()
        if run is None or configuration is None:
            return None
        of: Any = load(name, configuration["scale"], configuration["grid_name"], seeds=configuration["seeds"])
        return tuned_results(of, pd.read_parquet(run.directory / "history.parquet"))

    text: Any = load(settings.name, "paper", "text")
    return TunedResults(methods, settings.grid, text.grid, settings.rounds, text.rounds, results_of)


def tune(settings: TunedStudySettings, history: Any) -> TunedMethod:
    """Return a method with the pair of step sizes that has the best score, on average over the seeds.

    Pairs that diverged with any seed are left out. Of several pairs with the same score (many find the whole pattern) it
    takes the one that is best on average over all rounds, which is the fastest.
    """
    score = settings.score
    diverged = history[history["diverged"].notna()].groupby(PAIR)["diverged"].min()
    out = history.set_index(PAIR).index.isin(diverged.index)
    if out.all():
        raise ValueError(f"run: {history['method'].iloc[0]} diverged with every pair of step sizes; add smaller ones")
    rule = (score.metric, score.rule, score.window, score.largest)
    each = score_groups(history[~out], [*PAIR, "seed"], history[~out]["diverged"].notna(), settings.rounds, *rule)
    scores = each.groupby(PAIR).mean()
    sign = 1 if score.largest else -1
    tied = scores.index[sign * (scores - sign * (sign * scores).max()) > -TIE]
    overall = history[~out].groupby(PAIR)[score.metric].mean()[tied]
    best = overall.idxmax() if score.largest else overall.idxmin()
    own = history.set_index(PAIR).loc[[best]]
    curve = own.groupby("round").mean(numeric_only=True).reset_index()
    late = curve[curve["round"] > settings.rounds - score.window].mean(numeric_only=True).to_dict()
    return TunedMethod(best[0], best[1], curve, late, diverged.to_dict(), list(tied))


def table(settings: TunedStudySettings, methods: Mapping[str, TunedMethod], references: References) -> pd.DataFrame:
    """Return one row per tuned method, averaged over the last rounds, and one per reference."""
    rows = [
        (name, f"{tuned.client_step_size:g}, {tuned.server_step_size:g}", str(len(tuned.diverged)), tuned.late)
        for name, tuned in methods.items()
    ]
    rows += [(name, "", "", values) for name, values in references.items()]
    return pd.DataFrame(
        [(*words, *(values.get(column, np.nan) for column in settings.columns)) for *words, values in rows],
        columns=["method", "step_sizes", "diverged", *settings.columns],
    )


def draw_curves(
    settings: TunedStudySettings,
    methods: Mapping[str, TunedMethod],
    target: Path,
    *,
    references: References | None = None,
    dashed: Collection[str] = (),
    first_round: float = 0,
) -> None:
    """Draw the panels of the settings: a column of each tuned method against rounds.

    Args:
        settings: settings of the study.
        methods: tuned methods by label.
        target: the file.
        references: values that are drawn as level lines.
        dashed: labels of methods whose curves are dashed, for they may lie on others.
        first_round: rounds before this one are not drawn.
    """
    references = references or {}
    with panels(len(settings.panels), target, settings.title, size=(4.0, 3.6)) as axes:
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
        legend_below(axes)
