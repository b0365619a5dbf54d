"""fedlocal: federated optimisation with local methods.

import fedlocal as fl

data = fl.data.synthetic_lasso(config="I", seed=0)
problem = fl.problems.LeastSquares(data)
method = fl.methods.FedDualAvg(client_step_size=0.001, regularizer=fl.regularizers.L1(0.3))
result = fl.simulate(problem, method, rounds=100, clients_per_round=10, local_epochs=1, batch_size=10)

Every part is imported at its first use, so a site or a command imports only the parts that it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlocal.util import moved
from fedlocal.util.provenance import version

if TYPE_CHECKING:
    from fedlocal import (
        callbacks,
        data,
        estimators,
        methods,
        metrics,
        mirrors,
        plot,
        problems,
        regularizers,
        samplers,
        solvers,
        stopping,
        theory,
    )
    from fedlocal.core import LocalMethod, MirrorMap, Regularizer, Round
    from fedlocal.data.federated_data import FederatedData
    from fedlocal.methods.contract import check_method
    from fedlocal.problems import Problem
    from fedlocal.simulation.averages import (
        RandomIterate,
        RoundAverage,
        StronglyConvexAverage,
        ThirdOrderAverage,
        UniformAverage,
    )
    from fedlocal.simulation.plain_loop import loop
    from fedlocal.simulation.result import DivergenceWarning, Result
    from fedlocal.simulation.saved.results import load
    from fedlocal.simulation.shadow import Shadow
    from fedlocal.simulation.single_run import simulate
    from fedlocal.simulation.sweeps.comparison import compare
    from fedlocal.simulation.sweeps.grid_run import sweep
    from fedlocal.simulation.sweeps.result import SweepResult
    from fedlocal.solvers.certificates import Certificate, certificate
    from fedlocal.theory.advice.advisor import Advice, advise

__version__ = version()
moved.install()

__all__ = [
    "Advice",
    "Certificate",
    "DivergenceWarning",
    "FederatedData",
    "LocalMethod",
    "MirrorMap",
    "Problem",
    "RandomIterate",
    "Regularizer",
    "Result",
    "Round",
    "RoundAverage",
    "Shadow",
    "StronglyConvexAverage",
    "SweepResult",
    "ThirdOrderAverage",
    "UniformAverage",
    "__version__",
    "advise",
    "callbacks",
    "certificate",
    "check_method",
    "compare",
    "data",
    "estimators",
    "load",
    "loop",
    "methods",
    "metrics",
    "mirrors",
    "plot",
    "problems",
    "regularizers",
    "samplers",
    "simulate",
    "solvers",
    "stopping",
    "sweep",
    "theory",
]
MODULES = {  # of the names that are not parts of the library
    "fedlocal.core": ("LocalMethod", "MirrorMap", "Regularizer", "Round"),
    "fedlocal.data.federated_data": ("FederatedData",),
    "fedlocal.methods.contract": ("check_method",),
    "fedlocal.problems": ("Problem",),
    "fedlocal.simulation.plain_loop": ("loop",),
    "fedlocal.simulation.result": ("DivergenceWarning", "Result"),
    "fedlocal.simulation.saved.results": ("load",),
    "fedlocal.simulation.single_run": ("simulate",),
    "fedlocal.simulation.sweeps.comparison": ("compare",),
    "fedlocal.simulation.sweeps.grid_run": ("sweep",),
    "fedlocal.simulation.sweeps.result": ("SweepResult",),
    "fedlocal.simulation.averages": (
        "RandomIterate",
        "RoundAverage",
        "StronglyConvexAverage",
        "ThirdOrderAverage",
        "UniformAverage",
    ),
    "fedlocal.simulation.shadow": ("Shadow",),
    "fedlocal.solvers.certificates": ("Certificate", "certificate"),
    "fedlocal.theory.advice.advisor": ("Advice", "advise"),
}
PLACES = {name: module for module, names in MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a part of the library, or a name from one, at its first use."""
    if name in moved.MOVED:
        raise AttributeError(moved.moved_message(name))
    if name not in __all__:
        raise AttributeError(f"module 'fedlocal' has no attribute {name!r}")
    if name not in PLACES:
        return import_module(f"fedlocal.{name}")
    globals()[name] = found = getattr(import_module(PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
