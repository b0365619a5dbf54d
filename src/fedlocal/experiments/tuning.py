"""Methods over all pairs of step sizes, and the best pair of each: what the studies of composite methods share."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params, Regularizer
from fedlocal.engines import DivergenceWarning, sweep
from fedlocal.engines.sweep_result import score_groups
from fedlocal.experiments.claims import Findings, Tuned
from fedlocal.experiments.loading import load
from fedlocal.experiments.settings.shared import Grid
from fedlocal.experiments.settings.tuned import TunedStudy
from fedlocal.methods import FedDualAvg, FedMiD, SubgradientFedAvg
from fedlocal.metrics import Metric
from fedlocal.report.figures import COLORS, legend_below, panels, plain_log_scale

METHODS: dict[str, Callable[..., LocalMethod]] = {  # of client_step_size, server_step_size and regularizer
    "FedDualAvg": FedDualAvg,
    "FedDualAvg-OSP": partial(FedDualAvg, prox_on_clients=False),
    "FedMiD": FedMiD,
    "FedMiD-OSP": partial(FedMiD, prox_on_clients=False),
    "SubgradientFedAvg": SubgradientFedAvg,
}
TIE = 1e-9  # scores that differ by less are the same
PAIR = ["client_step_size", "server_step_size"]
References = Mapping[str, Mapping[str, float]]  # what tuned methods are shown beside: name -> column -> value


def method(name: str, psi: Regularizer, client_step_size: float = 1.0, server_step_size: float = 1.0) -> LocalMethod:
    """A method of METHODS with its regulariser."""
    return METHODS[name](client_step_size=client_step_size, server_step_size=server_step_size, regularizer=psi)


def options(settings: TunedStudy) -> dict[str, Any]:
    """How the study's runs are done, for `simulate` and `sweep`."""
    names = ("rounds", "clients_per_round", "batch_size", "local_epochs", "weights")
    return {name: getattr(settings, name) for name in names}


def tried(
    problem: AbstractProblem,
    psi: Regularizer,
    name: str,
    settings: TunedStudy,
    metrics: Sequence[Metric | Callable[[Params], Any]],
    seed: int,
    checkpoint: Path,
) -> pd.DataFrame:
    """The history of one method with all pairs of step sizes; its column `diverged` is the round in which a pair diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # the table says how many
        result = sweep(
            problem,
            method(name, psi),
            settings.grid.model_dump(),
            **options(settings),
            eval_every=settings.eval_every,
            seed=seed,
            metrics=metrics,
            checkpoint=checkpoint,
        )
    return result.history.merge(result.cells["diverged"], left_on="cell", right_index=True)


def findings(settings: TunedStudy, history: pd.DataFrame, elsewhere: Any = lambda _: None) -> Findings:
    """What claims are checked against, from the history of all runs with its columns `method` and `seed`."""
    methods = {name: tune(settings, history[history["method"] == name]) for name in settings.methods}
    return Findings(methods, settings.grid, text_grid(settings), settings.rounds, elsewhere)


def text_grid(settings: TunedStudy) -> Grid:
    """The grid of the text for this experiment."""
    text: Any = load(settings.name, "paper", "text")
    return text.grid


def tune(settings: TunedStudy, history: Any) -> Tuned:
    """The pair of step sizes with the best score, on average over the seeds. Pairs that diverged for a seed are out.

    Of several with the same score (many find the whole pattern) the one that is best on average over all rounds is taken, which
    is the fastest.
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
    return Tuned(best[0], best[1], curve, late, diverged.to_dict(), list(tied))


def table(settings: TunedStudy, methods: Mapping[str, Tuned], references: References) -> pd.DataFrame:
    """One row per tuned method, averaged over the last rounds, and one per reference."""
    rows = [
        {
            "method": name,
            "step_sizes": f"{tuned.client_step_size:g}, {tuned.server_step_size:g}",
            "diverged": str(len(tuned.diverged)),
            **{column: tuned.late[column] for column in settings.columns},
        }
        for name, tuned in methods.items()
    ]
    rows += [
        {
            "method": name,
            "step_sizes": "",
            "diverged": "",
            **{column: values.get(column, np.nan) for column in settings.columns},
        }
        for name, values in references.items()
    ]
    return pd.DataFrame(rows)


def draw_curves(
    settings: TunedStudy,
    methods: Mapping[str, Tuned],
    references: References,
    target: Path,
    dashed: Collection[str] = (),
) -> None:
    """The panels of the settings: each tuned method's column against rounds, references as level lines. Methods that lie on
    others may be dashed."""
    with panels(len(settings.panels), target, settings.title, width=4.0, height=3.6) as axes:
        for axis, panel in zip(axes, settings.panels, strict=True):
            for name, tuned in methods.items():
                look: Any = {"color": COLORS[name], "linestyle": "--" if name in dashed else "-", "linewidth": 1.6}
                axis.plot(tuned.curve["round"], tuned.curve[panel.column], label=name, **look)
            for name, values in references.items():
                if panel.column in values:
                    color = COLORS.get(name, "black")
                    axis.axhline(values[panel.column], color=color, linestyle=":", linewidth=1.3, label=name)
            axis.set(title=panel.title, xlabel="communication rounds")
            if panel.log:
                plain_log_scale(axis)
        legend_below(axes)
