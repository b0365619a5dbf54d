"""What a hospital runs. Patients stay there.

What leaves it: the number of its patients; once, of every column, how many values there are, their mean and their sum of squares
around it; then where its own steps moved the model, and the model's loss.
"""

import numpy as np
from flwr.app import Context

import fedlocal as fl
from fedlocal.core import AbstractProblem
from fedlocal.data.heart import Hospital, read_hospital
from fedlocal.engines.flower import client_app


def training_rows(hospital: Hospital) -> np.ndarray:
    """Four of five patients; the others are for testing."""
    return np.arange(len(hospital.targets)) % 5 > 0


def patients(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """The hospital's own file; nan where a value is missing."""
    hospital = read_hospital(context.node_config["data"])
    train = training_rows(hospital)
    return hospital.features[train], hospital.targets[train]


def problem_for_node(context: Context, scaling: fl.data.Scaling | None = None) -> AbstractProblem:
    """The logistic loss of the hospital's patients, in units that all hospitals share; what is missing becomes the mean."""
    features, targets = patients(context)
    features = np.nan_to_num(features) if scaling is None else scaling.apply(features)
    return fl.problems.Logistic(fl.FederatedData.from_clients([(features, targets)]), intercept=True)


def moments_for_node(context: Context) -> fl.data.Moments:
    """Count, mean and sum of squares of every column."""
    return fl.data.Moments.of(patients(context)[0])


app = client_app(problem_for_node, moments_for_node=moments_for_node)
