"""What a hospital runs. Patients stay there.

What leaves it: the number of its patients and what the columns are called; once, of every column, how many values there are,
their mean and their sum of squares around it, and how steep the hospital's loss is at most; then, round by round, the gradient
of the loss, and now and then the model's loss. The hospital's policy decides what is answered, and this copy of the app says
which settings were agreed on.
"""

import numpy as np
from flwr.app import Context

import fedlocal as fl
from fedlocal.core import AbstractProblem
from fedlocal.data.sets.heart import COLUMNS, Hospital, read_hospital
from fedlocal.deploy import own_config
from fedlocal.flower import Agreement, Policy, client_app

from .method import method_of

CONFIG = own_config(__file__)


def training_rows(hospital: Hospital) -> np.ndarray:
    """Four of five patients; the others are for testing."""
    return np.arange(len(hospital.targets)) % 5 > 0


def patients(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """The hospital's own file; nan where a value is missing."""
    hospital = read_hospital(str(context.node_config["data"]))
    train = training_rows(hospital)
    return hospital.features[train], hospital.targets[train]


def problem_for_node(context: Context, scaling: fl.data.Scaling | None = None) -> AbstractProblem:
    """The logistic loss of the hospital's patients, in units that all hospitals share; what is missing becomes the mean."""
    features, targets = patients(context)
    scaling = scaling or fl.data.Moments.of(features).scaling()  # its own, until all have agreed on one
    return fl.problems.Logistic(fl.FederatedData.from_clients([(scaling.apply(features), targets)]), intercept=True)


def moments_for_node(context: Context) -> fl.data.Moments:
    """Count, mean and sum of squares of every column."""
    return fl.data.Moments.of(patients(context)[0])


app = client_app(
    problem_for_node,
    moments_for_node=moments_for_node,
    columns_for_node=lambda context: COLUMNS,
    agreement=Agreement(method_of(CONFIG), CONFIG, chosen_step_size=True),
    # UCI has published these patients. Usually columns that tell on one or two are left out, and fewer questions answered.
    policy=Policy(smallest_cell=1, most_states_per_row=5),
)
