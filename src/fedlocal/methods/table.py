"""The table of methods: one row per method, which studies, figures, deployments, advice and estimators read."""

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fedlocal.core import LocalMethod, Regularizer, Scalar, Zero
from fedlocal.methods.accelerated_proximal_gradient import AcceleratedProximalGradient
from fedlocal.methods.fed_ac import FedAc, Variant
from fedlocal.methods.fed_avg import FedAvg
from fedlocal.methods.fed_dual_avg import FedDualAvg
from fedlocal.methods.fed_mid import FedMiD
from fedlocal.methods.fed_prox import FedProx
from fedlocal.methods.minibatch_ac_sgd import MinibatchAcSGD
from fedlocal.methods.minibatch_sgd import MinibatchSGD
from fedlocal.methods.mirror_method import MirrorMethod
from fedlocal.methods.scaffold import Scaffold
from fedlocal.methods.subgradient_fed_avg import SubgradientFedAvg
from fedlocal.util import checks

STEP_SIZES = ("client_step_size", "step_size")  # fields of methods


@dataclass(frozen=True)
class MethodArguments:
    """What the methods of the table are made from; each takes what it needs."""

    step_size: Scalar  # of the clients; of the server where clients only send gradients
    server_step_size: Scalar = 1.0
    _: KW_ONLY
    local_steps: int = 1
    strong_convexity: Scalar = 0.0
    proximity: Scalar | None = None  # mu of FedProx, which has no usual value
    regularizer: Regularizer = Zero()  # noqa: RUF009  (frozen)


Make = Callable[[MethodArguments], LocalMethod]


@dataclass(frozen=True)
class MethodRow:
    """A method under all its names, with how it is made and drawn."""

    key: str  # in configurations, on the command line and in file names
    label: str  # in tables and figures
    make: Make
    color: str
    marker: str = "o"
    largest_step: float | None = None  # the largest step size times L for which its theorems hold
    composite: bool = False  # it takes a regulariser
    accelerated: bool = False  # it needs a modulus of strong convexity
    needs: tuple[str, ...] = ()  # arguments without a usual value, which a study does not give

    def largest_step_size(self, smoothness: float) -> float:
        """The largest client step size for which the theorems of the method hold, for L-smooth losses."""
        if self.largest_step is None:
            raise ValueError(f"{self.label}: no theorem says which step size is the largest")
        return self.largest_step / float(checks.number(self.label, "smoothness", smoothness, above=0))


def _fed_ac(variant: Variant) -> Make:
    return lambda n: FedAc(n.step_size, n.strong_convexity, n.local_steps, variant)


def _composite(method: type[MirrorMethod], prox_on_clients: bool = True) -> Make:
    return lambda n: method(n.step_size, n.server_step_size, n.regularizer, prox_on_clients=prox_on_clients)


def _fed_mid(client_share: float) -> Make:
    return lambda n: FedMiD(n.step_size, n.server_step_size, n.regularizer, client_share=client_share)


def _fed_prox(n: MethodArguments) -> LocalMethod:
    if n.proximity is None:
        raise ValueError("FedProx: proximity has no default; give MethodArguments(..., proximity=mu)")
    return FedProx(n.step_size, n.proximity, n.server_step_size)


def _subgradient(n: MethodArguments) -> LocalMethod:
    return SubgradientFedAvg(n.step_size, n.regularizer, n.server_step_size)


def _minibatch_ac_sgd(n: MethodArguments) -> LocalMethod:
    return MinibatchAcSGD(n.step_size, n.strong_convexity)


def _fista(n: MethodArguments) -> LocalMethod:
    return AcceleratedProximalGradient(n.step_size, n.regularizer)


# largest steps: thm:fedavg:2o:ub and 3o:ub; fedaci:full; fedacii:a1:full and a2; thm:1 and thm:2 for FedDualAvg, and as for
# it for FedMiD, for which no theorem limits the step size (`fed_mid_constraint_bound`)
ROWS = (
    MethodRow("fed_avg", "FedAvg", lambda n: FedAvg(n.step_size, n.server_step_size), "#c8553d", "s", 1 / 4),
    MethodRow("fed_ac_one", "FedAc-I", _fed_ac("one"), "#0b6e4f", largest_step=1.0, accelerated=True),
    MethodRow("fed_ac_two", "FedAc-II", _fed_ac("two"), "#2a9d8f", "P", largest_step=1.0, accelerated=True),
    MethodRow("fed_ac_vanilla", "FedAc-vanilla", _fed_ac("vanilla"), "#e9b44c", "D", accelerated=True),
    MethodRow("fed_dual_avg", "FedDualAvg", _composite(FedDualAvg), "#0b6e4f", largest_step=1 / 4, composite=True),
    MethodRow("fed_dual_avg_osp", "FedDualAvg-OSP", _composite(FedDualAvg, False), "#7fb685", "P", composite=True),
    MethodRow("fed_mid", "FedMiD", _composite(FedMiD), "#c8553d", "s", largest_step=1 / 4, composite=True),
    MethodRow("fed_mid_osp", "FedMiD-OSP", _composite(FedMiD, False), "#e9b44c", "D", composite=True),
    MethodRow("fed_mid_half", "FedMiD-half", _fed_mid(0.5), "#7d5ba6", "v", composite=True),
    MethodRow("fed_mid_ocp", "FedMiD-OCP", _fed_mid(1.0), "#3d5a80", "^", composite=True),
    MethodRow("subgradient_fed_avg", "SubgradientFedAvg", _subgradient, "#7d5ba6", "X", composite=True),
    MethodRow("minibatch_ac_sgd", "MB-AC-SGD", _minibatch_ac_sgd, "#3d5a80", "^", accelerated=True),
    MethodRow("minibatch_sgd", "MB-SGD", lambda n: MinibatchSGD(n.step_size), "#98c1d9", "v"),
    MethodRow("scaffold", "SCAFFOLD", lambda n: Scaffold(n.step_size, n.server_step_size), "#8a5a44", "<"),
    MethodRow("fed_prox", "FedProx", _fed_prox, "#d88c9a", ">", needs=("proximity",)),
    MethodRow(
        "accelerated_proximal_gradient", "AcceleratedProximalGradient", _fista, "#3d5a80", "^", 1.0, composite=True
    ),
)
METHODS = {row.key: row for row in ROWS}


def method_row(owner: str, name: str) -> MethodRow:
    """The row of a method, by its key or its label.

    >>> method_row("example", "FedAc-I").key, method_row("example", "fed_ac_one").label
    ('fed_ac_one', 'FedAc-I')
    """
    found = METHODS.get(name) or next((row for row in ROWS if row.label == name), None)
    if found is None:
        raise ValueError(f"{owner}: there is no method {name!r} in the table; there are: {', '.join(METHODS)}")
    return found


def largest_step_size(method: str, smoothness: float) -> float:
    """The largest client step size for which the theorems of a method hold, for losses of clients that are L-smooth.

    With stochastic gradients smaller ones may do better: see `fl.advise`.

    Args:
        method: a key or label of the table, such as "fed_avg" or "fed_dual_avg".
        smoothness: L.

    >>> largest_step_size("fed_dual_avg", smoothness=2.0)
    0.125
    """
    return method_row("largest_step_size", method).largest_step_size(smoothness)


def with_step_size(method: LocalMethod, value: float) -> LocalMethod:
    """The method with this step size of its clients, or of its server where clients only send gradients.

    >>> from fedlocal.methods import FedAvg
    >>> with_step_size(FedAvg(0.1), 0.5).client_step_size
    0.5
    """
    fields = fields_of(method)
    name = next((name for name in STEP_SIZES if name in fields), None)
    if name is None:
        raise ValueError(f"with_step_size: {type(method).__name__} has none of {', '.join(STEP_SIZES)}")
    return type(method)(**{**fields, name: value})


def fields_of(method: LocalMethod) -> dict[str, Any]:
    """The numbers and objects that a method holds, by name.

    >>> from fedlocal.methods import Scaffold
    >>> fields_of(Scaffold(0.1))
    {'client_step_size': 0.1, 'server_step_size': 1.0}
    """
    return {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
