"""fedlocal: federated optimisation with local methods.

import fedlocal as fl

data = fl.data.synthetic_lasso(config="I", seed=0)
problem = fl.problems.LeastSquares(data)
method = fl.methods.FedDualAvg(client_step_size=0.001, regularizer=fl.regularizers.L1(0.3))
result = fl.simulate(problem, method, rounds=100, clients_per_round=10, local_epochs=1, batch_size=10)
"""

from fedlocal import data, methods, metrics, mirrors, problems, regularizers, solvers, theory
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
from fedlocal.provenance import version
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
