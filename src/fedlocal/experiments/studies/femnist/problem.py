"""The problem of the constrained study: handwriting by writer, softmax regression or a network, and a ball."""

import jax

from fedlocal import data as loaders
from fedlocal.core import AbstractProblem, Params, Regularizer
from fedlocal.data.federated_data import FederatedData
from fedlocal.experiments.studies.femnist.settings import FemnistSettings
from fedlocal.metrics import Accuracy, ConstraintViolation, Metric
from fedlocal.problems import MLP, Softmax
from fedlocal.problems.data_problem import DataProblem
from fedlocal.regularizers import L1Ball, L2Ball

BALLS = {"l1": L1Ball, "l2": L2Ball}
CLASSES = {"softmax": 10, "2nn": 62}  # of FEMNIST, as in the text
DIGITS = 10  # classes of the other data sets


def make_problem(settings: FemnistSettings, *, seed: int, clients: int | None) -> AbstractProblem:
    """Return the problem with the examples of a seed; `clients` must be None or the number of writers."""
    return HandwritingTask(settings, seed).problem


def make_regularizer(settings: FemnistSettings, *, seed: int) -> Regularizer:
    """Return the constraint on the kernels; biases are free."""
    return BALLS[settings.norm](settings.radius)


class ConstrainedMLP(MLP):
    """A network whose initial weights are projected onto the constraint, for fresh weights lie outside of it."""

    constraint: Regularizer  # pyright: ignore[reportGeneralTypeIssues]  (no default, and given by __init__)

    def __init__(self, data: FederatedData, constraint: Regularizer, hidden: list[int], num_classes: int):
        super().__init__(data, hidden, num_classes)
        self.constraint = constraint

    def init(self, key: jax.Array) -> Params:
        return self.constraint.prox(super().init(key), 1.0)


class HandwritingTask:
    """The data of a seed, which draws the training examples, its problem, the constraint, and what is measured."""

    def __init__(self, settings: FemnistSettings, seed: int):
        train, test = examples(settings, seed)
        self.seed, self.train, self.test = seed, train, test
        self.constraint = make_regularizer(settings, seed=seed)
        classes = CLASSES[settings.model] if settings.data == "femnist" else DIGITS
        self.problem: DataProblem = Softmax(train, classes)
        if settings.model != "softmax":
            self.problem = ConstrainedMLP(train, self.constraint, settings.hidden, classes)
        accuracies = [Accuracy(name="training_accuracy"), Accuracy(test, "test_accuracy")]
        self.metrics: list[Metric] = [*accuracies, ConstraintViolation()]


def examples(settings: FemnistSettings, seed: int) -> tuple[FederatedData, FederatedData]:
    """Return training and test data. The seed draws the training examples of each writer; all test examples are used."""
    if settings.data == "digits":
        return loaders.digits(seed=seed), loaders.digits(seed=seed, split="test")
    drawn = {"fraction": settings.fraction, "seed": seed}
    if settings.data == "mnist_by_writer":
        read, which = loaders.mnist_by_writer, {}
    else:
        read, which = loaders.femnist, {"digits_only": settings.model == "softmax"}
    return read(settings.folder, **which, **drawn), read(settings.folder, **which, split="test")
