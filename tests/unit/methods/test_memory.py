"""A method with client memory: SCAFFOLD."""

from typing import Any

import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import SIZES, closeness, federation, numpy_gradient, start


@pytest.mark.thorough
def test_memory_survives_between_rounds_in_both_engines():
    """Three rounds of two of the five clients: at least one takes part again. So does one in two rounds of three clients,
    in `conformance/test_methods.py::test_simulate_equals_loop`."""
    arguments: dict[str, Any] = {
        "rounds": 3,
        "local_epochs": 1,
        "batch_size": 3,
        "clients_per_round": 2,
        "x0": start(False),
    }
    fast, slow = (run(federation(), fl.methods.Scaffold(0.05), **arguments) for run in (fl.simulate, fl.loop))
    assert closeness(fast.x, slow.x) < 1e-12


def test_scaffold_removes_the_drift_that_fed_avg_keeps():
    """With full gradients SCAFFOLD converges to the optimum of the mean loss; FedAvg with several steps does not."""
    problem = federation()
    arguments: dict[str, Any] = {"rounds": 20_000, "local_steps": 4, "eval_every": 20_000}
    gradients = [numpy_gradient(problem, sum(SIZES[:m]) + np.arange(n)) for m, n in enumerate(SIZES)]

    def norm(result: fl.Result) -> float:
        x = np.concatenate([[result.x["intercept"]], result.x["weights"].ravel()])
        return float(np.linalg.norm(np.mean([g(x) for g in gradients], axis=0)))

    assert norm(fl.simulate(problem, fl.methods.Scaffold(0.01), **arguments)) < 1e-6
    assert norm(fl.simulate(problem, fl.methods.FedAvg(0.01), **arguments)) > 1e-3
