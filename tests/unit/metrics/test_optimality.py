"""The gradient norm against plain NumPy."""

from typing import Any

import jax
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import SIZES, federation

RUN: dict[str, Any] = {"rounds": 4, "local_steps": 2, "clients_per_round": 2, "weights": "examples", "seed": 1}


def numpy_norm(problem: fl.problems.MatrixSensing, x: dict[str, np.ndarray], p: np.ndarray) -> float:
    """||sum_m p_m grad F_m||, with the intercept."""
    weights, intercept = np.zeros_like(x["weights"]), 0.0
    for share, (features, targets) in zip(p, problem.data, strict=True):
        errors = np.tensordot(features, x["weights"], 2) + x["intercept"] - targets
        weights += share * 2 * np.tensordot(errors, features, 1) / len(targets)
        intercept += share * 2 * errors.mean()
    return np.sqrt(np.sum(weights**2) + intercept**2)


@pytest.mark.parametrize("run", ["simulate", "loop", "sweep"])
@pytest.mark.parametrize("double", [True, False])
def test_gradient_norm_is_that_of_the_weighted_loss_in_float64(run: str, double: bool):
    """The regulariser does not enter, and neither does the precision of the run."""
    points: list[Any] = []
    metrics = [fl.metrics.GradientNorm(), lambda x: points.append(x) or 0.0]
    with jax.enable_x64(double):
        problem, method = federation(), fl.methods.FedDualAvg(0.02, 1.0, fl.regularizers.L1(0.3))
        if run == "sweep":
            rows = fl.sweep(problem, method, {"client_step_size": [0.02]}, metrics=metrics, **RUN).history
        else:
            rows = {"simulate": fl.simulate, "loop": fl.loop}[run](problem, method, metrics=metrics, **RUN).history
    p = np.array(SIZES) / sum(SIZES)
    np.testing.assert_allclose(rows["gradient_norm"], [numpy_norm(problem, x, p) for x in points], rtol=1e-10)


def test_gradient_norm_where_there_are_no_examples():
    """F(x) = 1/2 (x^2 + 3 (x - 1)^2) / 2 has the gradient (x + 3 (x - 1)) / 2."""
    problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
    common: dict[str, Any] = {"rounds": 0, "local_steps": 1, "metrics": [fl.metrics.GradientNorm()]}
    for x, want in ((0.0, 1.5), (0.75, 0.0), (2.0, 2.5)):
        row = fl.simulate(problem, fl.methods.FedAvg(0.1), x0=np.array([x]), **common).history.iloc[0]
        assert row["gradient_norm"] == pytest.approx(want, abs=1e-15)
