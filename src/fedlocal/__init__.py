"""fedlocal: federated optimisation with local methods.

import fedlocal as fl

data = fl.data.synthetic_lasso(config="I", seed=0)
problem = fl.problems.LeastSquares(data)
method = fl.methods.FedDualAvg(client_step_size=0.001, regularizer=fl.regularizers.L1(0.3))
result = fl.simulate(problem, method, rounds=100, clients_per_round=10, local_epochs=1, batch_size=10)

Everything is imported when it is first used: a site or a command that needs a part of it starts with that part.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlocal.provenance import version

if TYPE_CHECKING:
    from fedlocal import data, estimators, methods, metrics, mirrors, problems, regularizers, solvers, theory
    from fedlocal.certificates import Certificate, certificate
    from fedlocal.core import LocalMethod, MirrorMap, Regularizer
    from fedlocal.engines import DivergenceWarning, Result, SweepResult, loop, simulate, sweep
    from fedlocal.engines.averages import (
        RandomIterate,
        RoundAverage,
        StronglyConvexAverage,
        ThirdOrderAverage,
        UniformAverage,
    )
    from fedlocal.engines.shadow import Shadow
    from fedlocal.federated_data import FederatedData
    from fedlocal.problems import Problem
    from fedlocal.theory.advise import Advice, advise

__version__ = version()

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
    "RoundAverage",
    "Shadow",
    "StronglyConvexAverage",
    "SweepResult",
    "ThirdOrderAverage",
    "UniformAverage",
    "__version__",
    "advise",
    "certificate",
    "data",
    "estimators",
    "loop",
    "methods",
    "metrics",
    "mirrors",
    "problems",
    "regularizers",
    "simulate",
    "solvers",
    "sweep",
    "theory",
]
PLACES = {  # of the names that are not parts of the library
    "Certificate": "fedlocal.certificates",
    "certificate": "fedlocal.certificates",
    "LocalMethod": "fedlocal.core",
    "MirrorMap": "fedlocal.core",
    "Regularizer": "fedlocal.core",
    "DivergenceWarning": "fedlocal.engines",
    "Result": "fedlocal.engines",
    "SweepResult": "fedlocal.engines",
    "loop": "fedlocal.engines",
    "simulate": "fedlocal.engines",
    "sweep": "fedlocal.engines",
    "RandomIterate": "fedlocal.engines.averages",
    "RoundAverage": "fedlocal.engines.averages",
    "StronglyConvexAverage": "fedlocal.engines.averages",
    "ThirdOrderAverage": "fedlocal.engines.averages",
    "UniformAverage": "fedlocal.engines.averages",
    "Shadow": "fedlocal.engines.shadow",
    "FederatedData": "fedlocal.federated_data",
    "Problem": "fedlocal.problems",
    "Advice": "fedlocal.theory.advise",
    "advise": "fedlocal.theory.advise",
}


def __getattr__(name: str) -> Any:
    """A part of the library, or a name from one."""
    if name not in __all__:
        raise AttributeError(f"module 'fedlocal' has no attribute {name!r}")
    if name not in PLACES:
        return import_module(f"fedlocal.{name}")
    globals()[name] = found = getattr(import_module(PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
