"""The constrained study: softmax regression or a network whose kernels are kept in a ball, on handwriting by writer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from fedlocal import data as loaders
from fedlocal.core import Params, Regularizer
from fedlocal.experiments import tuning
from fedlocal.experiments.claims import Tuned, Verdict, judge
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.femnist import Femnist
from fedlocal.experiments.store import Store
from fedlocal.federated_data import FederatedData
from fedlocal.metrics import Accuracy, ConstraintViolation, Metric
from fedlocal.problems import MLP, Softmax
from fedlocal.problems.data_problem import DataProblem
from fedlocal.regularizers import L1Ball, L2Ball
from fedlocal.regularizers.balls import FEASIBILITY
from fedlocal.report.figures import COLORS, legend_below, panels, plain_log_scale

BALLS = {"l1": L1Ball, "l2": L2Ball}
CLASSES = {"softmax": 10, "2nn": 62}  # of FEMNIST, as in the text
DIGITS = 10  # classes of the other data sets
WHO = {"digits": "clients", "mnist_by_writer": "writers", "femnist": "writers"}
CALLED = {"digits": "scikit-learn's digits", "mnist_by_writer": "MNIST by writer", "femnist": "FEMNIST"}


class Constrained(MLP):
    """The network, started inside the constraint: fresh weights lie outside of it."""

    constraint: Regularizer  # pyright: ignore[reportGeneralTypeIssues]  (no default, and given by __init__)

    def __init__(self, data: FederatedData, constraint: Regularizer, hidden: list[int], num_classes: int):
        super().__init__(data, hidden, num_classes)
        self.constraint = constraint

    def init(self, key: jax.Array) -> Params:
        return self.constraint.prox(super().init(key), 1.0)


class Task:
    """The data of a seed, its problem, the constraint, and what is measured."""

    def __init__(self, settings: Femnist, seed: int):
        train, test = examples(settings, seed)
        self.seed, self.train, self.test = seed, train, test
        self.constraint: Regularizer = BALLS[settings.norm](settings.radius)  # on kernels; biases are free
        classes = CLASSES[settings.model] if settings.data == "femnist" else DIGITS
        self.problem: DataProblem = (
            Softmax(train, classes)
            if settings.model == "softmax"
            else Constrained(train, self.constraint, settings.hidden, classes)
        )
        self.metrics: list[Metric] = [
            Accuracy(name="training_accuracy"),
            Accuracy(test, "test_accuracy"),
            ConstraintViolation(),
        ]


def examples(settings: Femnist, seed: int) -> tuple[FederatedData, FederatedData]:
    """Training and test data. The seed draws which of a writer's examples are trained on; all are tested on."""
    if settings.data == "digits":
        return loaders.digits(seed=seed), loaders.digits(seed=seed, split="test")
    thinned = {"fraction": settings.fraction, "seed": seed}
    if settings.data == "mnist_by_writer":
        read, which = loaders.mnist_by_writer, {}
    else:
        read, which = loaders.femnist, {"digits_only": settings.model == "softmax"}
    return read(settings.folder, **which, **thinned), read(settings.folder, **which, split="test")


def study(settings: Femnist, store: Store, elsewhere: Any) -> Outcome:
    """Run what is not in the store yet, tune, compare."""
    histories, notes = [], []
    for seed in settings.seeds:
        task = Task(settings, seed)
        notes.append(_described(settings, task))
        for name in settings.methods:
            history = store.frame(
                f"{name}-{seed}",
                lambda checkpoint, task=task, name=name: tuning.tried(
                    task.problem, task.constraint, name, settings, task.metrics, task.seed, checkpoint
                ),
            )
            histories.append(history.assign(method=name, seed=seed))
    history = pd.concat(histories, ignore_index=True)
    found = tuning.findings(settings, history, elsewhere)
    return Outcome(
        history=history,
        table=tuning.table(settings, found.methods, {}),
        verdicts=[*(judge(claim, found) for claim in settings.claims), feasible(settings, history)],
        notes=notes,
        figures={"figure": lambda target: _draw(settings, found.methods, target)},
    )


def feasible(settings: Femnist, history: Any) -> Verdict:
    """Whether every evaluated point of every run that stayed finite is in the ball, up to rounding."""
    worst = float(history[history["diverged"].isna()]["constraint_violation"].max()) / settings.radius
    said = f"at most {worst:.1g} of the radius outside, over all pairs, methods and evaluations"
    return Verdict.of("the constraints are always satisfied", said, worst <= FEASIBILITY)


def _draw(settings: Femnist, methods: Mapping[str, Tuned], target: Path) -> None:
    """The panels of the settings from a tenth of the rounds on, where methods begin to differ; variants are dashed."""
    with panels(len(settings.panels), target, settings.title, width=4.0, height=3.6) as axes:
        for axis, panel in zip(axes, settings.panels, strict=True):
            for name, tuned in methods.items():
                curve: Any = tuned.curve[tuned.curve["round"] >= settings.rounds / 10]
                style = "--" if name.endswith("OSP") else "-"
                axis.plot(curve["round"], curve[panel.column], style, color=COLORS[name], label=name, linewidth=1.6)
            axis.set(title=panel.title, xlabel="communication rounds")
            if panel.log:
                plain_log_scale(axis)
        legend_below(axes)


def _described(settings: Femnist, task: Task) -> str:
    """What was run, and how much of the text's 5,000 rounds and 25 pairs."""
    part = "" if settings.fraction == 1 or settings.data == "digits" else f" ({settings.fraction:.0%} of each writer's)"
    pairs = len(settings.grid.client_step_size) * len(settings.grid.server_step_size)
    return (
        f"{CALLED[settings.data]}, seed {task.seed}: {task.train.num_examples:,} examples{part} by {task.train.num_clients:,} "
        f"{WHO[settings.data]}, {task.test.num_examples:,} for testing; {settings.rounds:,} rounds (the text has 5,000), "
        f"{pairs} pairs of step sizes (the text has 25)"
    )
