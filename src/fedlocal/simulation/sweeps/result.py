"""SweepResult: what a sweep gives back, and which of its cells is best."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params, Server
from fedlocal.metrics.base import larger_is_better
from fedlocal.simulation.plan import Plan
from fedlocal.simulation.result import Divergence, Result, not_finite
from fedlocal.util import checks, html
from fedlocal.util.files import AnyPath
from fedlocal.util.hashing import fingerprint

SPREAD = {"mean": "mean", "sd": "std", "min": "min", "max": "max"}  # columns of `summary`, and pandas' names
Rule = Literal["mean", "last", "best"]
RULES: tuple[str, ...] = get_args(Rule)
BEST_CELLS = 5  # that a notebook shows
WITH_PSI = ("objective", "suboptimality")  # columns that have the method's own psi in them


def psi_differs(metric: str, methods: Iterable[LocalMethod | None]) -> bool:
    """Return True if a column of the history has psi in it and these methods have different ones, as far as they are known."""
    return metric in WITH_PSI and len({fingerprint(each.regularizer) for each in methods if each is not None}) > 1


def score_groups(
    history: Any, by: str | list[str], diverged: Any, rounds: int, metric: str, rule: Rule, window: int, largest: bool
) -> Any:
    """Return one number per group of rows of a history, by a rule of `SweepResult.score`; `diverged` is True for rows to skip."""
    checks.choice("score", "rule", rule, RULES)
    checks.whole("score", "window", window)
    values = history.assign(**{metric: history[metric].where(np.isfinite(history[metric]))})
    if rule == "best":
        grouped = values.groupby(by)[metric]
        return grouped.max() if largest else grouped.min()
    late = history["round"] > rounds - window if rule == "mean" else history["round"] == rounds
    grouped = values[late & ~diverged].groupby(by)[metric]
    return grouped.mean()[grouped.count() == grouped.size()]  # one that is not finite makes the score missing


def scores_of(result: "SweepResult", metric: str, rule: Rule, window: int, largest: bool | None) -> pd.Series:
    """Return `SweepResult.score` without its warning."""
    columns = [c for c in result.history if c not in ("cell", *result.cells)]
    checks.choice("score", "metric", metric, columns)
    dead = result.history["cell"].isin(np.flatnonzero(result.cells["diverged"].notna()).tolist())
    rounds = result.provenance["configuration"]["rounds"]
    scores = score_groups(result.history, "cell", dead, rounds, metric, rule, window, larger_is_better(metric, largest))
    return scores.reindex(result.cells.index).rename(f"{metric} ({rule})")


@dataclass(frozen=True, eq=False)
class SweepResult:
    """The outcome of a sweep: one table of all histories, and each cell as a `Result`.

    Args:
        cells: one row per cell: the grid's values, and the round of divergence (missing if the cell stayed finite).
        history: one row per cell and evaluation.
        methods: the method of each cell; None where it was loaded and could not be saved.
        points: the parameters of each cell.
        servers: the last server state of each cell.
        problem: the losses of the clients; a reference to them if the result was loaded without its problem.
        plans: who took part: `plans[i].cohort(r)` are the clients of round r in cell i; cells of one seed have the same.
        provenance: versions, machine and the configuration of the call.
    """

    cells: pd.DataFrame
    history: pd.DataFrame
    methods: list[LocalMethod | Any] = field(repr=False)  # Any: only a result that was loaded has something else here
    points: list[Params] = field(repr=False)
    servers: list[Server] = field(repr=False)
    problem: AbstractProblem | Any = field(repr=False)
    plans: list[Plan] = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def score(self, metric: str, rule: Rule = "last", window: int = 100, largest: bool | None = None) -> pd.Series:
        """Return one number per cell, by a rule about a column of the history.

        "last": after the last round; "mean": over the evaluations of the last `window` rounds; both are missing for a cell that
        diverged. "best": the smallest (or largest) of all evaluations, before a divergence too. A UserWarning says so where
        `metric` is the objective and psi differs between cells, so that the scores are of different functions. `largest` is True
        where large values are good; None: they are of "accuracy", "precision", "recall" and "f1".
        """
        self._warn_of_different_psi("score", metric)
        return scores_of(self, metric, rule, window, largest)

    def best(self, metric: str, rule: Rule = "last", window: int = 100, largest: bool | None = None) -> int:
        """Return the cell with the smallest (or largest) score; see `score` for the rules.

        With a `seed` in the grid it is the first cell of the best setting: that with the smallest mean over the seeds, as in
        `summary`, of which no run diverged. The best single run may be luck.

        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
        >>> grid = {"client_step_size": [0.01, 0.1]}
        >>> fl.sweep(problem, fl.methods.FedAvg(0.1), grid, rounds=50, local_steps=1).best("loss")
        1
        """
        self._warn_of_different_psi("best", metric)
        scores: Any = scores_of(self, metric, rule, window, largest)
        names = self._setting_names()
        setting = self.cells.groupby(names, dropna=False).ngroup() if names else np.zeros(len(scores), int)
        means = scores.groupby(setting).transform(lambda own: own.mean(skipna=False))
        if means.isna().all():
            what = "each of them has a run that diverged" if "seed" in self.cells else "all of them diverged"
            cells = "setting" if "seed" in self.cells else "cell"
            raise ValueError(f"best: no {cells} has a finite {metric!r} by the rule {rule!r}; {what}")
        return int(means.idxmax() if larger_is_better(metric, largest) else means.idxmin())

    def summary(self, metric: str, rule: Rule = "last", window: int = 100, largest: bool | None = None) -> pd.DataFrame:
        """Return the scores over the seeds: a row for each combination of the grid's other values.

        `runs` counts its cells and `diverged` those that diverged; `mean`, `sd`, `min` and `max` are over all of its cells, and
        missing if one has no score, so that a setting that may diverge is not the best. `sd` has one less than their number as
        divisor. See `score` for the rules.

        Args:
            metric: a column of the history.
            rule, window, largest: as in `score`.

        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
        >>> grid = {"client_step_size": [0.01, 0.1], "seed": [0, 1, 2]}
        >>> swept = fl.sweep(problem, fl.methods.FedAvg(0.1), grid, rounds=50, local_steps=1)
        >>> swept.summary("loss")[["client_step_size", "runs", "sd"]].to_numpy().tolist()
        [[0.01, 3.0, 0.0], [0.1, 3.0, 0.0]]
        """
        self._warn_of_different_psi("summary", metric)
        scores = scores_of(self, metric, rule, window, largest)
        names = self._setting_names()
        table = self.cells.assign(score=scores)
        groups: Any = table.groupby(names, sort=False, dropna=False) if names else [((), table)]
        rows = [
            {
                **dict(zip(names, key if isinstance(key, tuple) else (key,), strict=True)),
                "runs": len(cells),
                "diverged": int(cells["diverged"].notna().sum()),
                **{name: float(getattr(cells["score"], how)(skipna=False)) for name, how in SPREAD.items()},
            }
            for key, cells in groups
        ]
        return pd.DataFrame(rows)

    def cell(self, cell: int) -> Result:
        """Return the result of one cell, as if it had been run alone."""
        checks.whole("cell", "cell", cell, at_least=0, at_most=len(self.methods) - 1)
        rows: Any = self.history[self.history["cell"] == cell]
        when: Any = self.cells["diverged"][cell]
        return Result(
            x=self.points[cell],
            server=self.servers[cell],
            history=rows.drop(columns=["cell", *self.cells.columns.drop("diverged")]).reset_index(drop=True),
            diverged=None if pd.isna(when) else Divergence(int(when), not_finite(self.servers[cell]) or ("loss",)),
            plan=self.plans[cell],
            provenance=self.provenance | {"cell": self.cells.drop(columns="diverged").loc[cell].to_dict()},
            problem=self.problem,
            method=self.methods[cell],
        )

    def plot(self, metric: str = "objective") -> Any:
        """Draw the scores of all cells over one or two numbers of the grid, else a line for each cell.

        See `fl.plot.heat_map` and `fl.plot.curves`, which have more to choose.

        Args:
            metric: a column of the history.
        """
        from fedlocal.plot import curves, heat_map  # imported here because matplotlib is slow to import
        from fedlocal.plot.tidy import grid_names

        names = grid_names(self)
        numeric = all(pd.api.types.is_numeric_dtype(self.cells[name]) for name in names)
        return heat_map(self, metric) if numeric and len(names) in (1, 2) else curves(self, metric)

    def save(self, path: AnyPath) -> None:
        """Write all but the problem to one file, in one step and without pickle; `fl.load(path)` reads it.

        Args:
            path: the file, in NumPy's format npz; a folder that does not exist is made.
        """
        from fedlocal.simulation.saved.results import save_result  # imported here because it imports this module

        save_result(self, path)

    def __repr__(self) -> str:
        diverged = self.cells["diverged"].notna().sum()
        return f"SweepResult({len(self.cells)} cells, {diverged} diverged, {self.history['round'].max()} rounds)"

    def _repr_html_(self) -> str:
        metric = "loss" if psi_differs("objective", self.methods) else "objective"
        ranked = self.cells.drop(columns="diverged").assign(**{metric: scores_of(self, metric, "last", 1, False)})
        ranked = ranked.dropna(subset=metric).sort_values(metric).head(BEST_CELLS).reset_index()
        rows = html.table(list(map(str, ranked)), ranked.to_numpy(object).tolist())
        best = html.paragraph(f"the cells with the smallest {metric} after the last round") if len(ranked) else ""
        return html.section(repr(self), best, rows if len(ranked) else "")

    def _setting_names(self) -> list[str]:
        """Return the names of the grid without the seed: cells that agree in them are of one setting."""
        return [name for name in self.cells if name not in ("seed", "diverged")]

    def _warn_of_different_psi(self, caller: str, metric: str) -> None:
        if psi_differs(metric, self.methods):
            use = '"loss", a metric on other data such as fl.metrics.Loss(test_data), or one psi for all cells'
            text = (
                f"{caller}: {metric!r} has each cell's own psi in it, and psi differs between cells; compare by {use}"
            )
            warnings.warn(text, stacklevel=3)
