"""The recovery study: composite methods, each with its best pair of step sizes, beside the centralised optimum."""

from functools import partial
from typing import Any

import pandas as pd

from fedlocal.experiments.runner import tuning
from fedlocal.experiments.runner.claims import judge
from fedlocal.experiments.runner.pair_sweeps import CompositeObjective
from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.recovery.problem import RecoveryTask, choose_strength
from fedlocal.experiments.studies.recovery.settings import RecoverySettings


def run_study(settings: RecoverySettings, store: Store) -> StudyOutcome:
    """Run what is not stored yet, tune the methods, judge the claims."""
    objectives, optima, notes = {}, [], []
    for seed in settings.seeds:
        task = RecoveryTask(settings, seed)
        strength, note = find_strength(settings, task, store)
        notes.append(note)
        objectives[seed] = CompositeObjective(task.problem, task.regularizer(strength), task.metrics)
        solve = partial(objectives[seed].optimum, settings.weights)
        optimum = store.frame(f"optimum-{seed}", lambda _, solve=solve: pd.DataFrame([solve()[0]]))
        optima.append(optimum.assign(seed=seed, strength=strength))
    history = pd.concat(tuning.sweep_methods(objectives, settings, store), ignore_index=True)
    optimum = pd.concat(optima, ignore_index=True)
    results = tuning.tuned_results(settings, history, store)
    references: Any = {"optimum": tuning.reference_row(optimum)}
    return StudyOutcome(
        history=history,
        table=tuning.table(settings, results.methods, references),
        verdicts=[judge(claim, results) for claim in settings.claims],
        extra={"optimum": optimum},
        notes=[*notes, *tuning.notes_of(settings, history)],
        figures={"figure": lambda target: tuning.draw_curves(settings, results.methods, target, references=references)},
    )


def find_strength(settings: RecoverySettings, task: RecoveryTask, store: Store) -> tuple[float, str]:
    """Return lambda, and a note that says how it was found."""
    if settings.strength != "recover":
        return settings.strength, f"lambda = {settings.strength:g}"
    path: Any = store.frame(f"strength-{task.seed}", lambda _: choose_strength(task, settings.weights))
    strength, of = float(path["chosen"].iloc[0]), path[path["recovers"]]["strength"]
    rule = f"by the text's rule: the centralised solution recovers the pattern from {of.min():.2g} to {of.max():.2g}"
    if task.low_rank and path["rank_error"].min() > 0:
        rule = "for the rank nearest to the true one: no strength recovers it centrally"
    return strength, f"lambda = {strength:g} (seed {task.seed}), {rule}"
