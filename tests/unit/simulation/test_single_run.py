"""The simulator: reproducible to the bit, honest about divergence, in float32 and float64."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import SIZES, closeness, federation, start
from fedlocal.core.types import Weights
from fedlocal.simulation import engines
from fedlocal.simulation import rounds as rounds_module

METHOD = fl.methods.FedDualAvg(0.05, 0.7, fl.regularizers.L1(0.3))
SAMPLING: dict[str, Any] = {"local_epochs": 1, "batch_size": 3, "clients_per_round": 3}


def bits(result: fl.Result) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in jax.tree.leaves((result.x, result.server))]


def test_the_same_seed_gives_the_same_bits_whatever_the_evaluation_interval():
    runs = [fl.simulate(federation(), METHOD, rounds=150, eval_every=e, seed=4, **SAMPLING) for e in (1, 7, 100, 1000)]
    assert all(bits(run) == bits(runs[0]) for run in runs)
    assert bits(fl.simulate(federation(), METHOD, rounds=150, seed=5, **SAMPLING)) != bits(runs[0])


def test_history_has_a_row_before_the_first_and_after_the_last_round():
    history = fl.simulate(federation(), METHOD, rounds=7, eval_every=3, **SAMPLING).history
    assert history["round"].tolist() == [0, 3, 6, 7]
    assert {"loss", "objective", "numbers_up", "numbers_down", "seconds"} <= set(history)


def test_objective_is_loss_plus_psi():
    row = fl.simulate(federation(), METHOD, rounds=5, **SAMPLING).history.iloc[-1]
    x = fl.simulate(federation(), METHOD, rounds=5, **SAMPLING).x
    assert row["objective"] - row["loss"] == pytest.approx(0.3 * np.abs(x["weights"]).sum(), rel=1e-12)


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_loss_is_the_weighted_mean_of_client_losses(weights: Weights):
    problem = federation()
    features, targets = (np.asarray(a) for a in problem.data.arrays)
    x = start(False)
    errors = (np.tensordot(features, x["weights"], 2) + x["intercept"] - targets) ** 2
    starts = np.cumsum((0, *SIZES[:-1]))
    means = [errors[s : s + n].mean() for s, n in zip(starts, SIZES, strict=True)]
    want = np.average(means, weights=None if weights == "uniform" else SIZES)
    got = fl.simulate(problem, METHOD, rounds=0, x0=x, local_steps=1, weights=weights).history["loss"].iloc[0]
    assert got == pytest.approx(want, rel=1e-13)


def test_numbers_sent_are_counted():
    """FedDualAvg sends 7 dual numbers and `walked`, both ways, for each of three clients."""
    row = fl.simulate(federation(), METHOD, rounds=4, **SAMPLING).history.iloc[-1]
    assert row["numbers_up"] == row["numbers_down"] == 4 * 3 * 8


def test_divergence_is_a_result_that_says_when_and_where():
    method = fl.methods.FedAvg(1e60)
    with pytest.warns(fl.DivergenceWarning, match="diverged in round"):
        result = fl.simulate(federation(), method, rounds=200, eval_every=50, local_steps=3)
    assert result.diverged is not None
    assert 1 <= result.diverged.round < 200
    assert result.history["round"].iloc[-1] == result.diverged.round
    assert "x/weights" in result.diverged.where
    with pytest.warns(fl.DivergenceWarning):
        slow = fl.loop(federation(), method, rounds=200, eval_every=50, local_steps=3)
    assert slow.diverged == result.diverged


@pytest.mark.parametrize(
    ("loss", "what", "round"),
    [
        (lambda x, a, b: jnp.log(a @ x) - b, "F", 0),
        (lambda x, a, b: jnp.sqrt(jnp.sum(x**2)) + 0 * a[0] * b, "the gradient of F", 1),
    ],
)
def test_what_is_not_finite_at_the_start_is_no_matter_of_step_sizes(loss: Any, what: str, round: int):
    data = fl.FederatedData.from_clients([(np.ones((2, 3)), np.zeros(2))] * 2)
    problem, run = fl.problems.Problem(loss, data), {"rounds": 3, "local_steps": 2, "x0": np.zeros(3)}
    said = f"FedAvg diverged in round {round}: {what} is not finite at x0; no step size helps, give another x0"
    for simulate in (fl.simulate, fl.loop):
        with pytest.warns(fl.DivergenceWarning, match=f"^{said}$"):
            result = simulate(problem, fl.methods.FedAvg(0.1), **run)
        assert result.diverged is not None
        assert result.diverged.round == round
    with pytest.warns(fl.DivergenceWarning) as told:
        fl.sweep(problem, lambda eta: fl.methods.FedAvg(eta), {"eta": [0.1, 0.2]}, **run)
    assert ("in 2 of them F is not finite at x0, where no step size helps" in str(told[0].message)) == (round == 0)


def test_a_loss_that_grows_a_million_times_is_told():
    """All numbers are finite still; a user would take them for a result."""
    with pytest.warns(fl.DivergenceWarning, match=r"FedAvg diverges: the loss grew from .* to .*; try smaller step"):
        result = fl.simulate(federation(), fl.methods.FedAvg(10.0), rounds=6, eval_every=6, local_steps=3)
    assert np.isfinite(result.history["loss"]).all()
    assert result.diverged is None


def test_results_can_be_compared_without_an_error():
    first, second = (fl.simulate(federation(), fl.methods.FedAvg(0.01), rounds=1, local_steps=1) for _ in range(2))
    assert first == first
    assert first != second
    assert first in [second, first]


@pytest.mark.parametrize("blocks", [(1, 2), pytest.param((3,), marks=pytest.mark.thorough)])
def test_clients_in_blocks_agree_with_clients_side_by_side(blocks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch):
    """Blocks of two with one client of padding, of one, and all at once: the same means, memory and steps."""
    arguments: dict[str, Any] = {
        "rounds": 4,
        "weights": "examples",
        "x0": start(False),
        "local_epochs": 1,
        "batch_size": 3,
    }
    want, asked = fl.simulate(federation(), METHOD, **arguments), []
    program: Any = engines._advance
    for block in blocks:
        program.clear_cache()  # its arguments do not show the blocks
        monkeypatch.setattr(
            rounds_module, "chunk_size", lambda sent, clients, block=block: asked.append(block) or block
        )
        got = fl.simulate(federation(), METHOD, **arguments)
        assert closeness((got.x, got.server), (want.x, want.server)) < 1e-13
        assert asked[-1] == block
    program.clear_cache()


def test_float32_runs_evaluate_in_float64():
    data = fl.data.synthetic_lasso("III", seed=1, dimension=64)
    with jax.enable_x64(False):
        data32 = fl.data.synthetic_lasso("III", seed=1, dimension=64)
        problem = fl.problems.LeastSquares(data32)
        method = fl.methods.FedDualAvg(0.002, 1.0, fl.regularizers.L1(0.2))
        result = fl.simulate(problem, method, rounds=20, clients_per_round=8, local_epochs=1, batch_size=16)
    assert result.x["weights"].dtype == np.float32
    features, targets = (np.asarray(a, np.float64) for a in data32.arrays)
    loss = np.mean((features @ result.x["weights"].astype(float) + float(result.x["intercept"]) - targets) ** 2)
    assert result.history["loss"].iloc[-1] == pytest.approx(loss, rel=1e-13)
    full = fl.simulate(
        fl.problems.LeastSquares(data), method, rounds=20, clients_per_round=8, local_epochs=1, batch_size=16
    )
    assert closeness(full.x, result.x) < 1e-4


def test_sparse_features_give_what_dense_ones_give():
    X, y = fl.data.a9a()
    rows, method = slice(0, 200), fl.methods.FedAvg(0.5)
    groups = fl.data.partition.dirichlet(y[rows], num_clients=7, concentration=0.5, seed=0)
    results = []
    for features in (X[rows], X[rows].toarray()):
        problem = fl.problems.Logistic(
            fl.FederatedData.from_groups((features, y[rows]), groups), l2=1e-3, intercept=True
        )
        arguments: dict[str, Any] = {"rounds": 5, "local_epochs": 1, "batch_size": 8, "clients_per_round": 3}
        results.append(fl.simulate(problem, method, engine="jax", **arguments))
    assert closeness(results[0].x, results[1].x) < 1e-12


def test_any_loss_and_any_pytree():
    """A user's own loss on nested parameters equals the built-in problem."""
    data = fl.data.synthetic_lasso("III", seed=0, dimension=16)
    own = fl.Problem(lambda p, a, b: (a @ p["linear"]["w"] + p["shift"][0] - b) ** 2, data)
    x0 = {"linear": {"w": np.zeros(16)}, "shift": [np.zeros(())]}
    arguments: dict[str, Any] = {"rounds": 3, "local_epochs": 1, "batch_size": 32, "clients_per_round": 4}
    got = fl.simulate(own, fl.methods.FedAvg(0.01), x0=x0, **arguments).x
    want = fl.simulate(fl.problems.LeastSquares(data), fl.methods.FedAvg(0.01), **arguments).x
    assert closeness([got["linear"]["w"], got["shift"][0]], [want["weights"], want["intercept"]]) < 1e-12


def test_noise_of_an_oracle_has_the_variance_of_a_batch():
    """After one step of size one from the optimum, 4,000 clients are spread by the noise of a mean of four draws."""
    problem = fl.problems.Oracle(
        lambda x, m: 0.0 * x.sum(),
        noise=fl.problems.normal_noise(0.6),
        num_clients=4000,
        init_fn=lambda key: np.zeros(2),
    )
    metrics = [fl.metrics.ClientDiscrepancy()]
    result = fl.simulate(problem, fl.methods.FedAvg(1.0), rounds=1, local_steps=1, batch_size=4, metrics=metrics)
    want = 2 * 0.36 / 4
    assert abs(result.history["discrepancy"].iloc[-1] - want) < 4 * want / np.sqrt(4000)


def test_the_piecewise_quadratic_drifts_to_the_flat_side():
    """The text's iterate bias: from the optimum, the mean of many SGD runs moves left, by more than four standard errors."""
    problem = fl.problems.piecewise_quadratic(num_clients=4096)
    metrics = [fl.metrics.ClientDiscrepancy()]
    result = fl.simulate(problem, fl.methods.FedAvg(0.01), rounds=1, local_steps=512, batch_size=1, metrics=metrics)
    error = np.sqrt(result.history["discrepancy"].iloc[-1] / 4096)
    assert float(result.x) < -4 * error


def test_very_long_runs_can_be_asked_for():
    """rounds times local_steps beyond 32 bits: the first rounds run, and Ctrl-C stops them."""
    problem, stop = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[1.0]]), [0]

    def patience(x: np.ndarray) -> float:
        stop[0] += 1
        if stop[0] == 3:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=10**6, local_steps=5000, metrics=[patience])


def test_the_result_knows_who_took_part():
    """Only clients 0 and 1 have examples with a non-zero first feature; its weight moves when one of them takes part."""
    clients = [(np.eye(2)[[0 if m < 2 else 1]], np.ones(1)) for m in range(6)]
    problem = fl.problems.LeastSquares(fl.FederatedData.from_clients(clients), intercept=False)
    weights: list[float] = []
    arguments: dict[str, Any] = {
        "rounds": 20,
        "local_steps": 1,
        "clients_per_round": 2,
        "metrics": [lambda x: weights.append(x["weights"][0]) or 0.0],
    }
    result = fl.simulate(problem, fl.methods.FedAvg(0.01), **arguments)
    for r in range(20):
        assert (weights[r + 1] != weights[r]) == bool({0, 1} & set(result.plan.cohort(r).tolist()))


def test_provenance_names_the_run():
    provenance = fl.simulate(federation(), METHOD, rounds=1, seed=9, **SAMPLING).provenance
    assert provenance["fedlocal"] == fl.__version__
    assert provenance["configuration"]["seed"] == 9
    assert "FedDualAvg" in provenance["configuration"]["method"]
    assert {"jax", "numpy"} <= set(provenance["libraries"])


def test_stop_when_ends_a_run_and_keeps_its_result(tmp_path: Path):
    """It sees the rows of the history and the points; a checkpoint of the stopped run does not go on either."""
    problem, asked = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[1.0]]), []

    def small(row: dict[str, float], x: np.ndarray) -> bool:
        asked.append((row["round"], row["loss"], float(x[0])))
        return row["round"] >= 4

    arguments: dict[str, Any] = {"local_steps": 1, "eval_every": 2, "x0": np.zeros(1), "checkpoint": tmp_path / "c"}
    result = fl.simulate(problem, fl.methods.FedAvg(0.5), rounds=10, stop_when=small, **arguments)
    assert result.history["round"].tolist() == [0, 2, 4]
    assert [r for r, _, _ in asked] == [0, 2, 4]
    assert [loss for _, loss, _ in asked] == result.history["loss"].tolist()
    np.testing.assert_allclose([x for _, _, x in asked], [0, 0.75, 1 - 0.5**4], rtol=1e-12)
    np.testing.assert_array_equal(result.x, asked[-1][2])
    assert result.provenance["configuration"]["stopped"] == "stopped by stop_when in round 4"
    again = fl.simulate(problem, fl.methods.FedAvg(0.5), rounds=10, stop_when=small, **arguments)
    assert again.history["round"].tolist() == [0, 2, 4]
    longer = fl.simulate(problem, fl.methods.FedAvg(0.5), rounds=6, **arguments)
    assert longer.history["round"].tolist() == [0, 2, 4, 6]
    assert "stopped" not in longer.provenance["configuration"]


def test_stop_when_that_is_no_function_is_refused():
    problem = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[1.0]])
    with pytest.raises(TypeError, match=r"stop_when must be a function of \(row, x\), got 3"):
        fl.simulate(problem, fl.methods.FedAvg(0.5), rounds=1, local_steps=1, stop_when=3)  # pyright: ignore


class RoundSeen(fl.metrics.Metric):
    def measure(self, evaluation: fl.metrics.Evaluation) -> dict[str, float]:
        return {"seen": evaluation.round}


def test_metrics_know_the_round():
    problem = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[1.0]])
    common: dict[str, Any] = {"rounds": 5, "local_steps": 1, "eval_every": 2, "metrics": [RoundSeen()]}
    for history in (
        fl.simulate(problem, fl.methods.FedAvg(0.5), **common).history,
        fl.loop(problem, fl.methods.FedAvg(0.5), **common).history,
        fl.sweep(problem, fl.methods.FedAvg(0.5), {"client_step_size": [0.5]}, **common).history,
    ):
        assert history["seen"].tolist() == history["round"].tolist() == [0, 2, 4, 5]


TARGET, HELPERS = 1.0, {"scale": 2.0}


def _pull(x: Any) -> Any:
    return HELPERS["scale"] * (x - TARGET) ** 2


def _to_target(x: Any, a: Any) -> Any:
    return _pull(x[0]) + 0 * a


def test_a_loss_is_compiled_anew_when_what_it_reads_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A global of a function that it calls, a value in a dictionary, a closure: in runs, solvers and certificates."""
    problem = fl.Problem(_to_target, fl.FederatedData.from_clients([(np.ones(2),)]))
    method, file = fl.methods.FedAvg(0.1), tmp_path / "run.npz"

    def ends(**more: Any) -> float:
        return float(fl.simulate(problem, method, rounds=50, local_steps=1, x0=np.zeros(1), eval_every=50, **more).x[0])

    assert ends(checkpoint=file) == pytest.approx(1.0, abs=1e-3)
    assert ends(checkpoint=file) == pytest.approx(1.0, abs=1e-3)
    fl.sweep(problem, method, {"client_step_size": [0.1]}, rounds=50, local_steps=1, x0=np.zeros(1), eval_every=50)
    fl.loop(problem, method, rounds=1, local_steps=1, x0=np.zeros(1))
    fl.solvers.centralized(problem, x0=np.zeros(1), progress=False)
    fl.certificate(problem, None, np.array([3.0]))
    monkeypatch.setitem(globals(), "TARGET", 3.0)
    assert ends() == pytest.approx(3.0, abs=1e-3)
    work: dict[str, Any] = {"rounds": 50, "local_steps": 1, "x0": np.zeros(1), "eval_every": 50}
    assert fl.sweep(problem, method, {"client_step_size": [0.1]}, **work).points[0][0] == pytest.approx(3, abs=1e-3)
    assert fl.loop(problem, method, **work).x[0] == pytest.approx(3, abs=1e-3)
    assert fl.solvers.centralized(problem, x0=np.zeros(1), progress=False).x[0] == pytest.approx(3.0, abs=1e-8)
    assert fl.certificate(problem, None, np.array([3.0])).kkt_residual < 1e-8
    augmented = fl.problems.augmented(problem, 1.0, np.zeros(1))
    assert fl.solvers.centralized(augmented, progress=False).x[0] == pytest.approx(3 * 4 / 5, abs=1e-8)
    with pytest.raises(ValueError, match=r"run\.npz belongs to another run: data of the problem was"):
        ends(checkpoint=file)
    monkeypatch.setitem(HELPERS, "scale", 0.0)
    assert ends() == 0.0

    strength = 1.0
    closed = fl.Problem(lambda x, a: strength * (x[0] - 1) ** 2 + 0 * a, problem.data)
    first = fl.simulate(closed, method, rounds=1, local_steps=1, x0=np.zeros(1)).x[0]
    strength = 2.0
    assert fl.simulate(closed, method, rounds=1, local_steps=1, x0=np.zeros(1)).x[0] == pytest.approx(2 * first)
