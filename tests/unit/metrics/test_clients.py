"""Metrics of clients against plain NumPy, on unequal clients that count by their examples, in every way of running."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from conformance.federation import SIZES, federation
from fedlocal.simulation import plan as plan_module

METHOD = fl.methods.FedAvg(0.02)
SAMPLING: dict[str, Any] = {"local_steps": 2, "clients_per_round": 2, "weights": "examples", "seed": 3, "eval_every": 2}
RUNS = ("simulate", "loop", "sweep")


def history(run: str, problem: Any, *metrics: Any, rounds: int = 6) -> tuple[pd.DataFrame, list[Any]]:
    """The rows of a run by one of the functions, and the points at which they were measured."""
    points: list[Any] = []
    arguments = {"rounds": rounds, "metrics": [*metrics, lambda x: points.append(x) or 0.0], **SAMPLING}
    if run == "sweep":
        return fl.sweep(problem, METHOD, {"client_step_size": [0.02]}, **arguments).history, points
    return {"simulate": fl.simulate, "loop": fl.loop}[run](problem, METHOD, **arguments).history, points


def numpy_losses(problem: fl.problems.MatrixSensing, x: dict[str, np.ndarray]) -> np.ndarray:
    """(M,) mean squared errors, client by client."""
    return np.array([np.mean((np.tensordot(a, x["weights"], 2) + x["intercept"] - b) ** 2) for a, b in problem.data])


@pytest.mark.parametrize("run", RUNS)
def test_client_losses_are_those_of_each_client_alone(run: str):
    problem = federation()
    rows, points = history(run, problem, fl.metrics.ClientLosses())
    found = rows[[f"loss_{m}" for m in range(len(SIZES))]].to_numpy()
    np.testing.assert_allclose(found, [numpy_losses(problem, x) for x in points], rtol=1e-12)
    np.testing.assert_allclose(found @ (np.array(SIZES) / sum(SIZES)), rows["loss"], rtol=1e-12)


def test_a_summary_has_the_smallest_the_median_and_the_largest():
    rows, points = history("simulate", federation(), fl.metrics.ClientLosses(summary=True))
    each = np.sort([numpy_losses(federation(), x) for x in points], axis=1)
    found = rows[["loss_smallest", "loss_median", "loss_largest"]]
    np.testing.assert_allclose(found, each[:, [0, 2, 4]], rtol=1e-12)
    assert "loss_0" not in rows


def test_client_losses_of_several_cells_are_those_of_each_cell_alone():
    grid = {"client_step_size": [0.01, 0.02, 0.03]}
    metrics = [fl.metrics.ClientLosses(), fl.metrics.ParticipationGap()]
    common: dict[str, Any] = {"rounds": 4, "metrics": metrics, **SAMPLING}
    swept = fl.sweep(federation(), METHOD, grid, **common)
    for cell, eta in enumerate(grid["client_step_size"]):
        alone = fl.simulate(federation(), fl.methods.FedAvg(eta), **common).history.drop(columns="seconds")
        found = swept.cell(cell).history[list(alone)]
        np.testing.assert_allclose(found, alone, rtol=1e-10)


def test_client_losses_with_penalty_sparse_rows_and_blocks(monkeypatch: pytest.MonkeyPatch):
    """The penalty is part of every F_m; blocks of three rows do not end where clients end."""
    import scipy.sparse

    monkeypatch.setattr("fedlocal.problems.data_problem.SPARSE_LOSS_NUMBERS", 9)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((10, 3)), np.where(rng.random(10) < 0.5, -1, 1)
    data = fl.FederatedData((scipy.sparse.csr_array(X), y), [0, 1, 8], [1, 7, 2])
    x = {"weights": rng.standard_normal(3)}
    metric = fl.metrics.ClientLosses()
    row = fl.simulate(
        fl.problems.Logistic(data, l2=0.5), METHOD, rounds=0, local_steps=1, x0=x, metrics=[metric]
    ).history.iloc[0]
    each = np.log1p(np.exp(-y * (X @ x["weights"])))
    want = [each[a:b].mean() + 0.25 * np.sum(x["weights"] ** 2) for a, b in ((0, 1), (1, 8), (8, 10))]
    np.testing.assert_allclose(row[["loss_0", "loss_1", "loss_2"]].tolist(), want, rtol=1e-12)


def test_client_losses_where_there_are_no_examples_or_all_share_them():
    x, metric = np.array([3.0, -1.0]), fl.metrics.ClientLosses()
    common: dict[str, Any] = {"rounds": 0, "local_steps": 1, "metrics": [metric]}
    quadratic = fl.problems.quadratics(matrices=[np.eye(2), 2 * np.eye(2)], optima=[[0.0, 0.0], [1.0, 1.0]])
    row = fl.simulate(quadratic, METHOD, x0=x, **common).history.iloc[0]
    assert (row["loss_0"], row["loss_1"]) == (5.0, 8.0)
    features, targets = np.random.default_rng(0).standard_normal((4, 2)), np.ones(4)
    shared = fl.problems.LeastSquares(fl.FederatedData.shared(features, targets, num_clients=3), intercept=False)
    row = fl.simulate(shared, METHOD, x0={"weights": x}, **common).history.iloc[0]
    want = np.mean((features @ x - targets) ** 2)
    np.testing.assert_allclose(row[["loss_0", "loss_1", "loss_2", "loss"]].tolist(), want, rtol=1e-12)


@pytest.mark.parametrize("run", RUNS)
def test_participation_gap_compares_those_who_took_part_with_those_who_did_not(run: str):
    problem, p = federation(), np.array(SIZES)
    rows, points = history(run, problem, fl.metrics.ParticipationGap())
    plan = fl.simulate(problem, METHOD, rounds=0, **SAMPLING).plan
    numbers = set()
    for row, x in zip(rows.to_dict("records"), points, strict=True):
        seen = sorted({int(m) for r in range(int(row["round"])) for m in plan.cohort(r)})
        unseen = sorted(set(range(len(SIZES))) - set(seen))
        losses = numpy_losses(problem, x)
        inside, outside = (
            sum(p[m] * losses[m] for m in some) / sum(p[m] for m in some) if some else np.nan for some in (seen, unseen)
        )
        found = [row["loss_seen"], row["loss_unseen"], row["participation_gap"]]
        np.testing.assert_allclose(found, [inside, outside, outside - inside], rtol=1e-12)
        numbers.add(len(seen))
    assert {0, 5} <= numbers  # nan on both sides was seen
    assert len(numbers) > 2


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_participation_gap_with_data_of_clients_that_never_take_part(weights: Any):
    problem, other = federation(), federation(seed=1)
    metric = fl.metrics.ParticipationGap(other.data, weights)
    rows, points = history("simulate", problem, metric)
    _, inside = history("simulate", problem, fl.metrics.ParticipationGap())[0].align(rows, axis=1, join="right")
    want = [np.average(numpy_losses(other, x), weights=SIZES if weights == "examples" else None) for x in points]
    np.testing.assert_allclose(rows["loss_unseen"], want, rtol=1e-12)
    np.testing.assert_allclose(rows["loss_seen"], inside["loss_seen"], rtol=1e-12)
    np.testing.assert_allclose(rows["participation_gap"], rows["loss_unseen"] - rows["loss_seen"], rtol=1e-12)


def test_a_diverged_cell_is_measured_with_those_who_had_taken_part_by_then():
    """Its row belongs to an earlier round than the rows of the other cells, which are measured at the same time."""
    common: dict[str, Any] = {"rounds": 40, **SAMPLING, "eval_every": 40, "metrics": [seen := Seen()]}
    with pytest.warns(fl.DivergenceWarning):
        result = fl.sweep(federation(), METHOD, {"client_step_size": [0.01, 1e150]}, **common)
    rounds = result.cells["diverged"].tolist()[1]
    assert rounds < 10
    want = np.zeros(len(SIZES), bool)
    want[np.concatenate([result.plans[0].cohort(r) for r in range(rounds)])] = True
    assert seen.masks[rounds].tolist() == want.tolist()
    assert seen.masks[40].all()


class Seen(fl.metrics.Metric):
    """Keeps who had taken part at every round."""

    def __init__(self):
        self.masks: dict[int, np.ndarray] = {}

    def measure(self, evaluation: fl.metrics.Evaluation) -> dict[str, float]:
        self.masks[evaluation.round] = evaluation.seen
        return {"seen": float(evaluation.seen.sum())}


def test_every_block_of_cohorts_is_drawn_once(monkeypatch: pytest.MonkeyPatch):
    drawn: list[int] = []
    whole: Callable[..., np.ndarray] = plan_module.cohort_table.__wrapped__

    def counting(seed: int, clients: int, per_round: int, block: int) -> np.ndarray:
        drawn.append(block)
        return whole(seed, clients, per_round, block)

    monkeypatch.setattr(plan_module, "cohort_table", plan_module.lru_cache(maxsize=8)(counting))
    data = fl.FederatedData.shared(np.ones((2, 1)), np.ones(2), num_clients=10_000)
    plan = plan_module.Plan.make(
        fl.problems.LeastSquares(data), plan_module.Sampling(local_steps=1, clients_per_round=2)
    )
    participation = plan.chosen
    for rounds in (0, 1, 64, 65, 1000, 3):
        mask = participation.seen(rounds)
        assert mask.sum() == len({int(m) for r in range(rounds) for m in whole(0, 10_000, 2, r // 64)[r % 64]})
    assert drawn == list(range(16))


def test_bad_arguments_are_told():
    with pytest.raises(TypeError, match="ClientLosses: summary must be a bool, got 3"):
        fl.metrics.ClientLosses(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="ParticipationGap: unseen must be FederatedData or a problem, got list"):
        fl.metrics.ParticipationGap([1])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="ParticipationGap: weights must be one of 'uniform', 'examples', got 'sites'"):
        fl.metrics.ParticipationGap(weights="sites")  # pyright: ignore[reportArgumentType]
    quadratic = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[0.0]])
    metric = fl.metrics.ParticipationGap(federation().data)
    with pytest.raises(TypeError, match="ParticipationGap: Oracle has no data; give another problem"):
        fl.simulate(quadratic, METHOD, rounds=1, local_steps=1, metrics=[metric])
