"""The instability of accelerated gradient descent: two runs from close points separate exponentially, FedAc-I's do not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.instability import figures
from fedlocal.experiments.studies.instability.claims import TEXT, verdicts
from fedlocal.experiments.studies.instability.settings import InstabilitySettings
from fedlocal.methods import FedAc
from fedlocal.theory.constructions import instability


def run_study(settings: InstabilitySettings, store: Store) -> StudyOutcome:
    """Construct the objectives, run twice on each, and compute the largest distances over all curvatures."""
    kappas = sorted({*settings.kappas, settings.shown_kappa})
    groups: list[dict[str, Callable[[], pd.DataFrame]]] = [
        {f"runs-{kappa:g}-{stiff}": partial(two_runs, settings, kappa, stiff) for kappa in kappas for stiff in (1, 0)},
        {"points": partial(_points, settings)},
        {f"worst-{kappa:g}": partial(worst_cases, settings, kappa) for kappa in settings.worst_kappas},
    ]
    runs, points, worst = store.frames(groups)
    table = _table(settings, runs)
    return StudyOutcome(
        runs,
        table,
        verdicts(settings, runs, table, worst),
        {
            "figure-distances": lambda target: figures.draw_distances(settings, runs, target),
            "figure-objective": lambda target: figures.draw_objective(settings, points, target),
            "figure-worst": lambda target: figures.draw_worst(settings, worst, target),
        },
        notes=[
            f"distances after {settings.blocks} times three steps, in units of the first one; theory: 2 (1 - 1/sqrt(kappa))^3",
            "stiff step 1: curvatures mu, L, mu as in the text's proof; 0: L, mu, mu",
        ],
        extra={"points": points, "worst": worst},
    )


def two_runs(settings: InstabilitySettings, kappa: float, stiff_step: int) -> pd.DataFrame:
    """Return the distances of two runs, of AGD and of gradient descent, step by step, in units of the first one."""
    objective = instability.unstable_objective(kappa, settings.blocks, stiff_step)
    steps = 3 * settings.blocks + settings.further_steps
    apart = instability.distances(objective, objective.largest_epsilon, steps)
    return pd.DataFrame(
        {
            "kappa": kappa,
            "stiff_step": stiff_step,
            "step": np.arange(steps + 1),
            "ag": apart[:, 0],
            "w": apart[:, 1],
            "gd": instability.gradient_descent_distances(objective, objective.largest_epsilon, steps),
            "digits": objective.digits,
            "log10_neighbourhood": _log10(objective.neighbourhood),
        }
    )


def worst_cases(settings: InstabilitySettings, kappa: float) -> pd.DataFrame:
    """Return the largest distances after K steps, over all curvatures, of AGD and of FedAc-I with the gamma for this K."""
    vanilla = FedAc.vanilla(step_size=1 / kappa, strong_convexity=1.0)
    agd = instability.worst_distances(vanilla, kappa, 1.0, settings.longest_agd)
    rows = [("AGD", kappa, k, agd[k, 0], agd[k, 1], np.nan) for k in range(1, settings.longest_agd + 1)]
    for k in settings.worst_local_steps:
        method = FedAc.one(step_size=1 / kappa, strong_convexity=1.0, local_steps=k)
        ag, w = instability.worst_distances(method, kappa, 1.0, k).max(axis=0)
        rows.append(("FedAc-I", kappa, k, ag, w, stability_bound(method, kappa, k)))
    return pd.DataFrame(rows, columns=["method", "kappa", "local_steps", "ag", "w", "bound"])


def stability_bound(method: FedAc, kappa: float, steps: int) -> float:
    r"""Return the bound by the text's norm on |x_ag - y_ag| after some steps from distances of 1, with mu = 1 and eta = 1/kappa:
    ||X^-1 (x_ag, x)|| grows by at most 1 + 2 gamma^2 mu / eta a step (1 where gamma = eta), X^-1 = [[g, 0], [-g, 1]] with
    g = gamma / eta. Reference: dissertation, proposition fedaci:stab:2. Differs from it: no noise.
    """
    ratio = float(method.gamma) * kappa
    factor = 1.0 if ratio <= 1 else (1 + 2 * float(method.gamma) * ratio) ** steps
    return float(np.hypot(ratio, 1 + ratio) / ratio * factor)


def _points(settings: InstabilitySettings) -> pd.DataFrame:
    """Return the queries of AGD on the objective of the figure, and the widths of its intervals."""
    objective = instability.unstable_objective(settings.shown_kappa, settings.blocks)
    path = instability.agd_trajectory(objective)[:-1]
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
    """Return the logarithm, also of numbers that are too small for a float."""
    import mpmath  # here, because it is an optional dependency

    return float(mpmath.log10(number))


def _table(settings: InstabilitySettings, runs: Any) -> pd.DataFrame:
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
                "theory": instability.growth_factor(kappa),
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
