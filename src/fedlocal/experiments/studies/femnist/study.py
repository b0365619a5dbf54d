"""The constrained study: softmax regression or a network whose kernels are kept in a ball, on handwriting by writer."""

from functools import partial
from typing import Any

import pandas as pd

from fedlocal.core.gauges import FEASIBILITY
from fedlocal.experiments.runner import tuning
from fedlocal.experiments.runner.claims import Verdict, judge
from fedlocal.experiments.runner.methods import ONLY_SERVER_PROXIMAL
from fedlocal.experiments.runner.pair_sweeps import CompositeObjective
from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.femnist.problem import HandwritingTask
from fedlocal.experiments.studies.femnist.settings import FemnistSettings

CLIENTS = {"digits": "clients", "mnist_by_writer": "writers", "femnist": "writers"}
TITLES = {"digits": "scikit-learn's digits", "mnist_by_writer": "MNIST by writer", "femnist": "FEMNIST"}


def run_study(settings: FemnistSettings, store: Store) -> StudyOutcome:
    """Run what is not stored yet, tune the methods, judge the claims."""
    objectives, notes = {}, []
    for seed in settings.seeds:
        task = HandwritingTask(settings, seed)
        notes.append(_description(settings, task))
        objectives[seed] = CompositeObjective(task.problem, task.constraint, task.metrics)
    history = pd.concat(tuning.sweep_methods(objectives, settings, store), ignore_index=True)
    results = tuning.tuned_results(settings, history, store)
    late = settings.rounds / 10  # before it the methods hardly differ
    look: Any = {"dashed": ONLY_SERVER_PROXIMAL, "first_round": late}
    return StudyOutcome(
        history=history,
        table=tuning.table(settings, results.methods, {}),
        verdicts=[*(judge(claim, results) for claim in settings.claims), feasible(settings, history)],
        notes=[*notes, *tuning.notes_of(settings, history)],
        figures={"figure": partial(tuning.draw_curves, settings, results.methods, **look)},
    )


def _description(settings: FemnistSettings, task: HandwritingTask) -> str:
    """Describe the data, and how many of the text's 5,000 rounds and 25 pairs of step sizes are run."""
    part = "" if settings.fraction == 1 or settings.data == "digits" else f" ({settings.fraction:.0%} of each writer's)"
    pairs = len(settings.grid.pairs())
    return (
        f"{TITLES[settings.data]}, seed {task.seed}: {task.train.num_examples:,} examples{part} by {task.train.num_clients:,} "
        f"{CLIENTS[settings.data]}, {task.test.num_examples:,} for testing; {settings.rounds:,} rounds (the text has 5,000), "
        f"{pairs} pairs of step sizes (the text has 25)"
    )


def feasible(settings: FemnistSettings, history: Any) -> Verdict:
    """Judge that every evaluated point of every run that stayed finite is in the ball, up to rounding."""
    worst = float(history[history["diverged"].isna()]["constraint_violation"].max()) / settings.radius
    measured = f"at most {worst:.1g} of the radius outside, over all pairs, methods and evaluations"
    return Verdict.of("the constraints are always satisfied", measured, worst <= FEASIBILITY)
