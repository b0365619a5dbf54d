"""The recovery study: composite methods, each with its best step sizes, beside the centralised optimum.

Each method runs with every pair of step sizes; the pair with the best score over the last rounds is its tuned one.
"""

from typing import Any

import pandas as pd

from fedlocal.core import Regularizer
from fedlocal.core.types import Weights
from fedlocal.experiments.runner import tuning
from fedlocal.experiments.runner.claims import judge
from fedlocal.experiments.runner.outcome import StudyOutcome
from fedlocal.experiments.runner.store import Store
from fedlocal.experiments.studies.recovery.problem import RecoveryTask, choose_strength
from fedlocal.experiments.studies.recovery.settings import RecoverySettings
from fedlocal.solvers import centralized


def run_study(settings: RecoverySettings, store: Store) -> StudyOutcome:
    """Run what is not stored yet, tune the methods, judge the claims."""
    histories, optima, notes = [], [], []
    for seed in settings.seeds:
        task = RecoveryTask(settings, seed)
        strength, note = _strength(settings, task, store)
        notes.append(note)
        psi = task.regularizer(strength)
        optimum = store.frame(f"optimum-{seed}", lambda _, task=task, psi=psi: _optimum(task, psi, settings.weights))
        optima.append(optimum.assign(seed=seed, strength=strength))
        objective = tuning.CompositeObjective(task.problem, psi, task.metrics)
        histories += tuning.sweep_methods(objective, settings, seed, store)
    history, optimum = pd.concat(histories, ignore_index=True), pd.concat(optima, ignore_index=True)
    results = tuning.tuned_results(settings, history, store)
    references: Any = {"optimum": optimum.mean(numeric_only=True).to_dict()}
    return StudyOutcome(
        history=history,
        table=tuning.table(settings, results.methods, references),
        verdicts=[judge(claim, results) for claim in settings.claims],
        extra={"optimum": optimum},
        notes=notes,
        figures={"figure": lambda target: tuning.draw_curves(settings, results.methods, target, references=references)},
    )


def _strength(settings: RecoverySettings, task: RecoveryTask, store: Store) -> tuple[float, str]:
    """Return lambda, and a note that says how it was found."""
    if settings.strength != "recover":
        return settings.strength, f"lambda = {settings.strength:g}"
    path = store.frame(f"strength-{task.seed}", lambda _: choose_strength(task, settings.weights))
    strength = float(path["chosen"].iloc[0])
    return strength, f"lambda = {strength:g} (seed {task.seed}), {_rule(task, path)}"


def _optimum(task: RecoveryTask, psi: Regularizer, weights: Weights) -> pd.DataFrame:
    """Return one row about the centralised solution, which `optimum` marks in the figures."""
    solution = centralized(task.problem, psi, weights=weights)
    kkt, gap = solution.certificate.kkt_residual, solution.certificate.duality_gap
    row = {"objective": solution.objective, **task.measure(solution.x), "kkt_residual": kkt, "duality_gap": gap}
    return pd.DataFrame([row])


def _rule(task: RecoveryTask, path: Any) -> str:
    """Describe how a strength was chosen from a path."""
    of = path[path["recovers"]]["strength"]
    if task.low_rank and path["rank_error"].min() > 0:
        return "for the rank nearest to the true one: no strength recovers it centrally"
    return f"by the text's rule: the centralised solution recovers the pattern from {of.min():.2g} to {of.max():.2g}"
