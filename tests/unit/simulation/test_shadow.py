"""The view from inside a round against plain NumPy, and that looking changes nothing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from conformance.federation import MASK, federation, flat, numpy_gradient, rounds_of, start
from fedlocal.simulation import driver

ROUNDS, STEPS, ETA, MU, OPTIMUM = 3, 4, 0.02, 0.3, 0.17
SAMPLING: dict[str, Any] = {"local_steps": STEPS, "batch_size": 2, "seed": 5, "weights": "examples"}
STAR = {"weights": np.arange(6.0).reshape(2, 3) / 10, "intercept": np.array(0.4)}
METHODS = {
    "fed_avg": fl.methods.FedAvg(ETA),
    "fed_ac": fl.methods.FedAc.one(step_size=ETA, strong_convexity=MU, local_steps=STEPS),
    "fed_dual_avg": fl.methods.FedDualAvg(ETA, 1.0, fl.regularizers.L1(0.3)),
}
FULL = fl.Shadow(solution=STAR, optimum=OPTIMUM, strong_convexity=MU)
Rows = list[dict[str, float]]


def all_rows(problem: fl.problems.MatrixSensing) -> np.ndarray:
    return np.arange(problem.data.num_examples)


def value(problem: fl.problems.MatrixSensing, x: np.ndarray) -> float:
    """F(x) for weights by examples: the mean squared error over all of them."""
    features, targets = (np.asarray(a) for a in problem.data.arrays)
    design = np.concatenate([np.ones((len(targets), 1)), features.reshape(len(targets), -1)], axis=1)
    return float(np.mean((design @ x - targets) ** 2))


def spread(name: str, vectors: list[np.ndarray], p: np.ndarray) -> dict[str, float]:
    middle = sum(w * v for w, v in zip(p, vectors, strict=True))
    squares = [float(np.sum((v - middle) ** 2)) for v in vectors]
    return {
        f"discrepancy{name}": sum(w * s for w, s in zip(p, squares, strict=True)),
        f"fourth_moment{name}": sum(w * s**2 for w, s in zip(p, squares, strict=True)),
        f"largest_discrepancy{name}": max(squares),
    }


def mean(vectors: list[np.ndarray], p: np.ndarray) -> np.ndarray:
    return np.sum([w * v for w, v in zip(p, vectors, strict=True)], axis=0)


def fed_avg_rows(problem: Any, x: np.ndarray, rounds: list) -> Rows:
    rows = []
    for clients in rounds:
        p, points = np.array([w for w, _ in clients]), [x.copy() for _ in clients]
        for k in range(STEPS + 1):
            middle = mean(points, p)
            loss = value(problem, middle)
            distance = float(np.sum((middle - flat(STAR)) ** 2))
            rows.append({"loss": loss, "objective": loss, "distance": distance, **spread("", points, p)})
            if k < STEPS:
                points = [z - ETA * grads[k](z) for z, (_, grads) in zip(points, clients, strict=True)]
        x = mean(points, p)
    return rows


def fed_dual_avg_rows(problem: Any, x: np.ndarray, rounds: list) -> Rows:
    def primal(y: np.ndarray, walked: float) -> np.ndarray:
        return np.where(MASK, np.sign(y) * np.maximum(np.abs(y) - 0.3 * walked, 0), y)

    rows, y, walked = [], x, 0.0
    for clients in rounds:
        p, duals = np.array([w for w, _ in clients]), [y.copy() for _ in clients]
        for k in range(STEPS + 1):
            length = walked + k * ETA
            point, own = primal(mean(duals, p), length), [primal(z, length) for z in duals]
            loss = value(problem, point)
            row = {"loss": loss, "objective": loss + 0.3 * float(np.abs(point[MASK]).sum())}
            row["distance"] = float(np.sum((point - flat(STAR)) ** 2))
            rows.append({**row, **spread("_y", duals, p), **spread("_query", own, p)})
            if k < STEPS:
                duals = [z - ETA * grads[k](q) for z, q, (_, grads) in zip(duals, own, clients, strict=True)]
        y, walked = mean(duals, p), walked + STEPS * ETA
    return rows


def fed_ac_rows(problem: Any, start: np.ndarray, rounds: list) -> Rows:
    gamma = max(np.sqrt(ETA / (MU * STEPS)), ETA)
    alpha, c = 1 / (gamma * MU), gamma * MU
    beta, grad, star = alpha + 1, numpy_gradient(problem, all_rows(problem)), flat(STAR)
    rows, x, ag = [], start, start
    for clients in rounds:
        p = np.array([w for w, _ in clients])
        xs, ags = [x.copy() for _ in clients], [ag.copy() for _ in clients]
        for k in range(STEPS + 1):
            mds = [a / beta + (1 - 1 / beta) * b for a, b in zip(xs, ags, strict=True)]
            mx, mag, mmd = mean(xs, p), mean(ags, p), mean(mds, p)
            away = float(np.sum((mx - star) ** 2))
            loss = value(problem, mag)
            mixed = [(mx - a) / (1 + c) + c / (1 + c) * (mag - b) for a, b in zip(xs, ags, strict=True)]
            products = [np.linalg.norm(mmd - d) * np.linalg.norm(e) for d, e in zip(mds, mixed, strict=True)]
            rows.append(
                {"loss": loss, "objective": loss, "distance": float(np.sum((mag - star) ** 2))}
                | spread("_x", xs, p)
                | spread("_ag", ags, p)
                | spread("_md", mds, p)
                | {
                    "cross_term": float(np.dot(p, products)),
                    "gradient_discrepancy": float(np.sum((grad(mmd) - mean([grad(d) for d in mds], p)) ** 2)),
                    "psi": float(np.dot(p, [value(problem, b) for b in ags])) - OPTIMUM + MU / 2 * away,
                    "phi": loss - OPTIMUM + MU / 6 * away,
                }
            )
            if k < STEPS:
                gs = [grads[k](d) for d, (_, grads) in zip(mds, clients, strict=True)]
                ags = [d - ETA * g for d, g in zip(mds, gs, strict=True)]
                xs = [(1 - 1 / alpha) * a + d / alpha - gamma * g for a, d, g in zip(xs, mds, gs, strict=True)]
        x, ag = mean(xs, p), mean(ags, p)
    return rows


BY_HAND = {"fed_avg": fed_avg_rows, "fed_ac": fed_ac_rows, "fed_dual_avg": fed_dual_avg_rows}


CASES = [(name, engine, some) for name in METHODS for engine in ("simulate", "loop") for some in (None, 3)]
PLAIN = [("fed_avg", "loop", 3), ("fed_ac", "simulate", 3), ("fed_dual_avg", "loop", 3)]


@pytest.mark.parametrize(
    ("name", "engine", "per_round"),
    [pytest.param(*case, marks=() if case in PLAIN else pytest.mark.thorough) for case in CASES],
)
def test_columns_agree_with_plain_numpy(name: str, engine: str, per_round: int | None):
    """Unequal clients with weights by examples, minibatches, all clients and some of them."""
    problem, x0 = federation(), start(False)
    sampling = {**SAMPLING, "clients_per_round": per_round}
    want = pd.DataFrame(BY_HAND[name](problem, flat(x0), rounds_of(problem, ROUNDS, **sampling)))
    got = getattr(fl, engine)(problem, METHODS[name], rounds=ROUNDS, x0=x0, shadow=FULL, **sampling).shadow
    assert got is not None
    assert got["round"].tolist() == [r for r in range(ROUNDS) for _ in range(STEPS + 1)] + [ROUNDS]
    assert got["step"].tolist() == [*range(STEPS + 1)] * ROUNDS + [0]
    inside = got.iloc[:-1]
    assert set(got.columns) == {"round", "step", *want.columns}
    for column in want:
        np.testing.assert_allclose(inside[column], want[column], rtol=0, atol=1e-10, err_msg=column)


def test_gradients_of_a_curved_loss_do_not_average():
    """F = mean_m log cosh(x - c_m) has the gradient mean_m tanh(x - c_m); the clients of FedAc-I stand at two points."""
    shifts, eta, mu = jnp.array([-1.0, 2.0]), 0.5, 0.25
    problem = fl.problems.Oracle(lambda x, m: jnp.sum(jnp.log(jnp.cosh(x - shifts[m]))), num_clients=2)
    method = fl.methods.FedAc.one(step_size=eta, strong_convexity=mu, local_steps=1)  # gamma = sqrt 2, c = sqrt 2 / 4
    rows = fl.simulate(problem, method, rounds=1, local_steps=1, x0=np.zeros(1), shadow=fl.Shadow()).shadow
    assert rows is not None
    g, c = np.tanh(np.array([1.0, -2.0])), np.sqrt(2) / 4
    md = (c * -np.sqrt(2) * g - eta * g) / (1 + c)  # x = -gamma g, ag = -eta g, md = (c x + ag) / (1 + c)
    gradient = np.vectorize(lambda x: (np.tanh(x + 1) + np.tanh(x - 2)) / 2)
    want = (gradient(md.mean()) - gradient(md).mean()) ** 2
    assert want > 1e-4
    np.testing.assert_allclose(rows["gradient_discrepancy"], [0.0, want, 0.0], atol=1e-14)


@pytest.mark.parametrize(
    "name", ["fed_avg", *(pytest.param(n, marks=pytest.mark.thorough) for n in METHODS if n != "fed_avg")]
)
def test_looking_changes_no_bit(name: str):
    problem = federation()
    common: dict[str, Any] = {**SAMPLING, "rounds": 7, "eval_every": 3, "engine": "jax", "clients_per_round": 3}
    common["metrics"] = [fl.metrics.ClientDiscrepancy()]
    plain = fl.simulate(problem, METHODS[name], **common)
    looked = fl.simulate(problem, METHODS[name], shadow=fl.Shadow(every=2, points=True), **common)
    for a, b in zip(*map(jax.tree.leaves, (plain.x, looked.x)), strict=True):
        assert np.array_equal(a, b)
    pd.testing.assert_frame_equal(
        plain.history.drop(columns="seconds"), looked.history.drop(columns="seconds"), check_exact=True
    )
    assert plain.shadow is None
    assert looked.shadow is not None
    assert sorted(set(looked.shadow["round"])) == [0, 2, 4, 6, 7]
    assert {"distance", "psi", "phi", "cross_term"}.isdisjoint(looked.shadow.columns)


@pytest.mark.parametrize("name", ["fed_avg", pytest.param("fed_ac", marks=pytest.mark.thorough)])
def test_points_are_the_mean_trajectory_and_meet_between_rounds(name: str):
    problem = fl.problems.quadratics([[[1.0]], [[2.0]]], [[1.0], [3.0]])
    result = fl.simulate(problem, METHODS[name], rounds=3, local_steps=STEPS, shadow=fl.Shadow(points=True))
    points = result.shadow_points
    assert points is not None
    assert points.shape == (3, STEPS + 1, 1)
    assert points.dtype == np.float64
    np.testing.assert_allclose(points[:-1, -1], points[1:, 0], atol=1e-13)
    np.testing.assert_allclose(points[-1, -1], result.x, atol=1e-13)
    assert result.shadow is not None
    assert result.shadow["loss"].iloc[-1] == pytest.approx(result.history["loss"].iloc[-1], rel=1e-13)


def test_the_last_row_is_after_the_servers_step():
    """With a server step of a half, (R, 0) is half way from (R - 1, 0) to (R - 1, K)."""
    problem = fl.problems.quadratics(np.ones((2, 1, 1)), [[1.0], [3.0]])
    shadow = fl.Shadow(solution=np.zeros(1))
    rows = fl.simulate(problem, fl.methods.FedAvg(0.5, 0.5), rounds=1, local_steps=1, shadow=shadow).shadow
    assert rows is not None
    np.testing.assert_allclose(rows["distance"], [0.0, 1.0, 0.25], atol=1e-14)  # points 0, 1 and 1/2


def test_a_resumed_run_has_the_same_rows(tmp_path: Path):
    problem, method, file = federation(), METHODS["fed_ac"], tmp_path / "run.npz"
    sampling = {**SAMPLING, "clients_per_round": 3, "x0": start(False)}
    whole = fl.simulate(problem, method, rounds=5, shadow=FULL, **sampling).shadow
    fl.simulate(problem, method, rounds=2, shadow=FULL, checkpoint=file, **sampling)
    resumed = fl.simulate(problem, method, rounds=5, shadow=FULL, checkpoint=file, **sampling).shadow
    assert whole is not None
    assert resumed is not None
    pd.testing.assert_frame_equal(resumed, whole, check_exact=True)
    with pytest.raises(ValueError, match="belongs to another run: shadow"):
        fl.simulate(problem, method, rounds=6, shadow=fl.Shadow(), checkpoint=file, **sampling)
    with pytest.raises(ValueError, match="a checkpoint keeps no shadow points"):
        fl.simulate(problem, method, rounds=6, shadow=fl.Shadow(points=True), checkpoint=file, **sampling)


def test_single_precision_is_measured_in_double():
    """The run's own numbers are float32; what is said about them is exact to float64."""
    problem = fl.problems.quadratics(np.ones((2, 1, 1)), [[1.0], [1.0 + 2.0**-20]])
    x0 = np.ones(1, np.float32)
    result = fl.simulate(problem, fl.methods.FedAvg(0.5), rounds=1, local_steps=1, x0=x0, shadow=fl.Shadow())
    assert result.x.dtype == np.float32
    assert result.shadow is not None
    assert result.shadow["discrepancy"].iloc[1] == pytest.approx(2.0**-44, rel=1e-12)  # clients at 1 and 1 + 2^-21


@pytest.mark.parametrize(
    ("engine", "sizes"),
    [("simulate", (1, 1, 1)), pytest.param("simulate", (1, 2, 3), marks=pytest.mark.thorough), ("loop", (1, 1, 1))],
)
def test_weights_add_up_to_one_in_single_precision(engine: str, sizes: tuple[int, ...]):
    """Three thirds in float32 are 1 + 3e-8. Clients step to (7 + c_m) / 2, which float32 holds."""
    targets, p = np.array([1.0, 2.0, 4.0]), np.array(sizes) / sum(sizes)
    clients = [(np.zeros((n, 1)), np.full(n, c)) for n, c in zip(sizes, targets, strict=True)]
    sampling: dict[str, Any] = {"rounds": 1, "local_steps": 1, "batch_size": 1, "weights": "examples"}
    with jax.enable_x64(False):
        problem = fl.Problem(lambda x, _, c: (x[0] - c) ** 2 / 2, fl.FederatedData.from_clients(clients))
        shadow, x0 = fl.Shadow(solution=np.zeros(1)), np.full(1, 7, np.float32)
        result = getattr(fl, engine)(problem, fl.methods.FedAvg(0.5), x0=x0, shadow=shadow, **sampling)
    rows = result.shadow
    assert result.x.dtype == np.float32
    points = np.array([7.0, p @ (7 + targets) / 2, result.x[0]])
    loss = [p @ (x - targets) ** 2 / 2 for x in points]
    np.testing.assert_allclose(rows["distance"], points**2, rtol=1e-12)
    np.testing.assert_allclose(rows["loss"], loss, rtol=1e-12)
    assert rows["discrepancy"].iloc[[0, 2]].max() < 1e-28
    assert rows["discrepancy"].iloc[1] == pytest.approx(p @ (targets / 2 - p @ targets / 2) ** 2, rel=1e-12)


@pytest.mark.parametrize(
    ("method", "inside", "sent"),
    [
        pytest.param(fl.methods.FedMiD(0.1, 1.0, fl.regularizers.L1(0.1)), {""}, {""}, marks=pytest.mark.thorough),
        (fl.methods.FedDualAvg(0.1, 1.0, fl.regularizers.L1(0.1)), {"_y", "_query"}, {""}),
        pytest.param(fl.methods.MinibatchSGD(0.1), {"_x", "_total"}, {""}, marks=pytest.mark.thorough),
        pytest.param(
            fl.methods.FedAc.one(step_size=0.1, strong_convexity=MU, local_steps=2),
            {"_x", "_ag", "_md"},
            {"_x", "_ag"},
            marks=pytest.mark.thorough,  # it has no numbers beside its vectors
        ),
    ],
)
def test_one_number_is_looked_at_as_a_vector_of_length_one(method: fl.LocalMethod, inside: set[str], sent: set[str]):
    """Step lengths and counts have the shape of such parameters, and are no vectors."""
    shifts = jnp.array([-1.0, 2.0])
    problem = fl.problems.Oracle(lambda x, m: jnp.sum((x - shifts[m]) ** 2) / 2, num_clients=2)
    common: dict[str, Any] = {"rounds": 2, "local_steps": 2, "metrics": [fl.metrics.ClientDiscrepancy()]}
    number, vector = (
        fl.simulate(problem, method, x0=np.full(shape, 0.5), shadow=fl.Shadow(), **common) for shape in ((), 1)
    )
    for frame, names in ((number.shadow, inside), (number.history, sent)):
        assert frame is not None
        assert {c for c in frame if c.startswith("discrepancy")} == {f"discrepancy{name}" for name in names}
    assert number.shadow is not None
    assert vector.shadow is not None
    pd.testing.assert_frame_equal(number.shadow, vector.shadow, rtol=1e-13, atol=1e-15)
    sent_number, sent_vector = (result.history.drop(columns="seconds") for result in (number, vector))
    pd.testing.assert_frame_equal(sent_number, sent_vector, rtol=1e-13, atol=1e-15)
    slow = fl.loop(problem, method, x0=np.full((), 0.5), shadow=fl.Shadow(), **common)
    assert slow.shadow is not None
    pd.testing.assert_frame_equal(number.shadow, slow.shadow, rtol=1e-12, atol=1e-14)


def test_saving_takes_at_most_a_twentieth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A round takes a second and so does saving, by a clock that only they move: 21 rounds from one to the next."""
    now, saves = [0.0], []

    def second(x: np.ndarray) -> float:
        now[0] += 1
        return 0.0

    def save(self: Any, rounds: int, state: Any, extra: dict[str, Any]) -> None:
        now[0] += 1
        saves.append((rounds, len(extra["shadow"])))

    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(driver.Checkpoint, "save", save)
    problem = fl.problems.quadratics(np.ones((2, 1, 1)), [[1.0], [3.0]])
    arguments: dict[str, Any] = {"rounds": 50, "local_steps": 1, "metrics": [second], "checkpoint": tmp_path / "c"}
    fl.simulate(problem, METHODS["fed_avg"], shadow=fl.Shadow(every=10), **arguments)
    assert saves == [(1, 1), (22, 3), (43, 5), (50, 5)]


@pytest.mark.thorough
def test_other_methods_name_their_vectors():
    problem = federation()
    rows: Any = fl.simulate(problem, fl.methods.MinibatchSGD(0.01), rounds=1, shadow=fl.Shadow(), **SAMPLING).shadow
    assert rows is not None
    assert (rows["discrepancy_x"] < 1e-30).all()  # they all stay where the server is
    assert rows["discrepancy_total"].iloc[1] > 0
    rows = fl.simulate(
        problem, fl.methods.FedMiD(0.01, 1.0, fl.regularizers.L1(0.1)), rounds=1, shadow=fl.Shadow(), **SAMPLING
    ).shadow
    assert rows is not None
    assert {"discrepancy", "fourth_moment", "largest_discrepancy"} <= set(rows.columns)


def test_what_cannot_be_looked_at_is_said():
    problem, method = federation(), METHODS["fed_avg"]
    with pytest.raises(ValueError, match="shadow needs the same number of local steps"):
        fl.simulate(problem, method, rounds=1, local_steps=[1, 2, 3, 4, 5], shadow=fl.Shadow())
    with pytest.raises(TypeError, match="shadow must be"):
        fl.simulate(problem, method, rounds=1, local_steps=1, shadow={})  # pyright: ignore[reportArgumentType]
    shadow = fl.Shadow(solution={"weights": np.zeros(3), "intercept": 0.0})
    with pytest.raises(ValueError, match=r"shadow\.solution does not fit"):
        fl.simulate(problem, method, rounds=1, local_steps=1, shadow=shadow)
    with pytest.raises(ValueError, match="Shadow: every"):
        fl.Shadow(every=0)
    with pytest.raises(ValueError, match="Shadow: strong_convexity"):
        fl.Shadow(strong_convexity=0.0)
    data = fl.FederatedData.from_clients([(np.eye(3), np.array([1.0, -1.0, 1.0]))] * 2)
    logistic = fl.problems.Logistic(data)
    with pytest.raises(ValueError, match="a shadow looks at every local step"):
        fl.simulate(logistic, method, rounds=1, local_steps=1, engine="linear", shadow=fl.Shadow())
    result = fl.simulate(logistic, method, rounds=1, local_steps=1, shadow=fl.Shadow())
    assert result.provenance["configuration"]["engine"] == "jax"
