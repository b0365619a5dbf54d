"""The problem of the fMRI study: sparse logistic regression on scans, runs of the recording as clients."""

from collections.abc import Sequence

from fedlocal.core import AbstractProblem, Regularizer
from fedlocal.data.sets.fmri_scans import faces_against, haxby_scans
from fedlocal.experiments.studies.fmri.settings import FmriSettings
from fedlocal.metrics import Accuracy, Density, Evaluation, Loss, Metric
from fedlocal.problems import Logistic
from fedlocal.problems.data_problem import DataProblem
from fedlocal.regularizers import L1


def make_problem(settings: FmriSettings, *, seed: int, clients: int | None) -> AbstractProblem:
    """Return the problem of the training scans; nothing is drawn, and `clients` must be None or the number of their runs."""
    return FmriTask(settings).problem


def make_regularizer(settings: FmriSettings, *, seed: int) -> Regularizer:
    """Return the l1 norm with the strength of the settings."""
    return L1(settings.strength)


class RegularizedLoss(Metric):
    """F + psi on another problem, e.g. on validation data."""

    def __init__(self, problem: DataProblem, psi: Regularizer, name: str):
        self.loss, self.psi, self.name = Loss(problem, name), psi, name

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        losses = (loss[self.name] for loss in self.loss.measure_many(evaluations))
        values = (float(self.psi.value(evaluation.x)) for evaluation in evaluations)
        return [{self.name: loss + value} for loss, value in zip(losses, values, strict=True)]


class FmriTask:
    """The scans, their problem, and what is measured."""

    def __init__(self, settings: FmriSettings):
        data = settings.data
        scans = haxby_scans(source=data.source, subjects=data.subjects, mask=data.mask)
        self.num_subjects = len(scans)
        self.positions, self.shape = scans[0].positions, scans[0].shape  # the same voxels for all
        train, self.validation = faces_against(scans, data.against)
        self.problem, self.psi = Logistic(train), L1(settings.strength)
        self.metrics: list[Metric] = [
            RegularizedLoss(self.problem.with_data(self.validation), self.psi, "validation_objective"),
            Accuracy(self.validation, "validation_accuracy"),
            Density(settings.threshold),
        ]

    @property
    def num_clients(self) -> int:
        return self.problem.num_clients
