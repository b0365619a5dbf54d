"""Chapter 4's claim on LASSO data set I: dual averaging recovers the pattern, primal averaging smooths it out."""

from typing import Any

import jax
import pytest

import fedlocal as fl

SAMPLING: dict[str, Any] = {"clients_per_round": 10, "local_epochs": 1, "batch_size": 10, "eval_every": 20}
PSI = fl.regularizers.L1(0.3)


def run(method: fl.LocalMethod, rounds: int) -> fl.Result:
    with jax.enable_x64(False):
        data = fl.data.synthetic_lasso("I", seed=0)
        metrics = [fl.metrics.SparseRecovery(data.truth)]
        return fl.simulate(fl.problems.LeastSquares(data), method, rounds=rounds, metrics=metrics, **SAMPLING)


@pytest.mark.thorough
def test_fed_dual_avg_recovers_the_pattern_and_fed_mid_does_not():
    """The same runs are a part of the demonstration, whose test asserts the same."""
    dual = run(fl.methods.FedDualAvg(0.001, 1.0, PSI), rounds=200).history.iloc[-1]
    primal = run(fl.methods.FedMiD(0.001, 0.3, PSI), rounds=200).history.iloc[-1]
    assert dual["f1"] > 0.99
    assert primal["f1"] < 0.8
    assert primal["density"] > 0.75 > 0.55 > dual["density"]


def test_the_texts_best_pair_diverges_on_its_own_data():
    with pytest.warns(fl.DivergenceWarning):
        result = run(fl.methods.FedDualAvg(0.01, 1.0, PSI), rounds=200)
    assert result.diverged is not None


def test_fed_mid_recovers_the_pattern_with_a_client_step_size_below_the_texts_grid():
    primal = run(fl.methods.FedMiD(0.0003, 3.0, fl.regularizers.L1(0.19)), rounds=300).history.iloc[-1]
    assert primal["f1"] > 0.98


@pytest.mark.parametrize("kind", [fl.methods.FedDualAvg, fl.methods.FedMiD])
def test_client_step_sizes_from_0_003_on_diverge(kind: type):
    grid = {"client_step_size": [0.003, 0.03, 1.0], "server_step_size": [0.01, 1.0]}
    with jax.enable_x64(False):
        problem = fl.problems.LeastSquares(fl.data.synthetic_lasso("I", seed=0))
        with pytest.warns(fl.DivergenceWarning, match="6 of 6 cells diverged"):
            fl.sweep(problem, kind(0.1, 1.0, PSI), grid, rounds=50, **SAMPLING)
