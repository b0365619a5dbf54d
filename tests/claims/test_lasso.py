"""Chapter 4's claim on LASSO data set I: dual averaging recovers the pattern, primal averaging smooths it out."""

import jax
import pytest

import fedlocal as fl

SAMPLING = {"clients_per_round": 10, "local_epochs": 1, "batch_size": 10, "eval_every": 20}
PSI = fl.regularizers.L1(0.3)


def run(method: fl.LocalMethod, rounds: int) -> fl.Result:
    with jax.enable_x64(False):
        data = fl.data.synthetic_lasso("I", seed=0)
        metrics = [fl.metrics.SparseRecovery(data.truth)]
        return fl.simulate(fl.problems.LeastSquares(data), method, rounds=rounds, metrics=metrics, **SAMPLING)


def test_fed_dual_avg_recovers_the_pattern_and_fed_mid_does_not():
    dual = run(fl.methods.FedDualAvg(0.001, 1.0, PSI), rounds=200).history.iloc[-1]
    primal = run(fl.methods.FedMiD(0.001, 0.3, PSI), rounds=200).history.iloc[-1]
    assert dual["f1"] > 0.99
    assert primal["f1"] < 0.8
    assert primal["density"] > 0.75 > 0.55 > dual["density"]


def test_the_texts_best_pair_diverges_on_its_own_data():
    with pytest.warns(fl.DivergenceWarning):
        result = run(fl.methods.FedDualAvg(0.01, 1.0, PSI), rounds=200)
    assert result.diverged is not None
