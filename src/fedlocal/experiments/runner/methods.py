"""Methods of the experiments by the labels that configurations, tables and figures use."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from pydantic import AfterValidator

from fedlocal.core import LocalMethod, Regularizer
from fedlocal.methods.table import ROWS, MethodArguments, method_row

COMPOSITE = tuple(row.label for row in ROWS if row.composite)
SMOOTH = tuple(row.label for row in ROWS if not row.composite and not row.needs)

# names of methods in the author's published tables
PUBLISHED_NAMES: Mapping[str, str] = {
    "fed_ac_1": "FedAc-I",
    "vanilla_fed_ac": "FedAc-vanilla",
    "fed_avg": "FedAvg",
    "minibatch_ac_sgd": "MB-AC-SGD",
    "minibatch_sgd": "MB-SGD",
}
# where they are, and their numbers of methods; its FedAc-II (2) has another beta than the text's, so that it has no counterpart
PUBLISHED_TABLE = "https://github.com/hongliny/FedAc-NeurIPS20, file out/a9a_1e-03/summary.csv"
PUBLISHED_NUMBERS: Mapping[int, str] = {
    -1: "FedAc-vanilla",
    0: "FedAvg",
    1: "FedAc-I",
    3: "MB-SGD",
    4: "MB-AC-SGD",
}
ONLY_SERVER_PROXIMAL = ("FedDualAvg-OSP", "FedMiD-OSP")  # drawn dashed: their curves may lie on those of the others


def _known(labels: tuple[str, ...], label: str) -> str:
    if label not in labels:
        raise ValueError(f"methods must be among {', '.join(labels)}, got {label!r}")
    return label


CompositeLabel = Annotated[str, AfterValidator(partial(_known, COMPOSITE))]  # of a method that takes a regulariser
SmoothLabel = Annotated[str, AfterValidator(partial(_known, SMOOTH))]


def composite_method(
    label: str, regularizer: Regularizer, client_step_size: float = 1.0, server_step_size: float = 1.0
) -> LocalMethod:
    """Make a method for a regularised objective.

    Args:
        label: of a method of the table that takes a regulariser.
        regularizer: psi.
        client_step_size: eta_c.
        server_step_size: eta_s.
    """
    arguments = MethodArguments(client_step_size, server_step_size, regularizer=regularizer)
    return method_row("run", label).make(arguments)


def smooth_method(label: str, step_size: float, strong_convexity: float, local_steps: int) -> LocalMethod:
    """Make a method for a smooth objective.

    Args:
        label: of a method of the table.
        step_size: eta.
        strong_convexity: mu, for accelerated methods; the others ignore it.
        local_steps: K, for FedAc; the others ignore it.
    """
    arguments = MethodArguments(step_size, local_steps=local_steps, strong_convexity=strong_convexity)
    return method_row("run", label).make(arguments)
