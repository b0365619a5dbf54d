"""Metrics: what is measured at every evaluation besides loss and objective, in float64.

A metric is an object with `measure(evaluation)`, or a function of the parameters, or of them and the round, that returns
numbers, one or a dict.
"""

from fedlocal.metrics.base import Evaluation, Metric
from fedlocal.metrics.base import measure as measure
from fedlocal.metrics.base import measure_point as measure_point
from fedlocal.metrics.base import metric_name as metric_name
from fedlocal.metrics.clients import ClientDiscrepancy, ClientLosses, ParticipationGap
from fedlocal.metrics.loss import Accuracy, Loss, Suboptimality
from fedlocal.metrics.loss import losses_in_float64 as losses_in_float64
from fedlocal.metrics.optimality import ConstraintViolation, GradientNorm, Potentials
from fedlocal.metrics.recovery import Density, FrobeniusError, Rank, SparseRecovery

__all__ = [
    "Accuracy",
    "ClientDiscrepancy",
    "ClientLosses",
    "ConstraintViolation",
    "Density",
    "Evaluation",
    "FrobeniusError",
    "GradientNorm",
    "Loss",
    "Metric",
    "ParticipationGap",
    "Potentials",
    "Rank",
    "SparseRecovery",
    "Suboptimality",
]


def __dir__() -> list[str]:
    return sorted(__all__)
