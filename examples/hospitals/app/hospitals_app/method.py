"""The method of a run. Hospitals and coordinator make it, each from its own copy of pyproject.toml."""

from typing import Any

import fedlocal as fl
from fedlocal.core import LocalMethod


def method_of(config: dict[str, Any]) -> LocalMethod:
    """One full gradient a round. Its step size is chosen in the run, from the curvature of the hospitals' losses."""
    psi = fl.regularizers.L1(config["l1"])  # of the weights, not of the intercept
    return fl.methods.AcceleratedProximalGradient(step_size=1.0, regularizer=psi)
