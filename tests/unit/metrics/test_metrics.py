"""Metrics against their definitions."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fedlocal as fl

RNG = np.random.default_rng(0)


def at(problem: Any, x: Any, *metrics: Any, method: fl.LocalMethod | None = None) -> dict[str, float]:
    method = method or fl.methods.FedAvg(0.1)
    return fl.simulate(problem, method, rounds=0, local_steps=1, x0=x, metrics=metrics).history.iloc[0].to_dict()


def least_squares(weights: int = 4) -> fl.problems.LeastSquares:
    return fl.problems.LeastSquares(fl.FederatedData.from_clients([(RNG.standard_normal((6, weights)), np.ones(6))]))


def test_sparse_recovery():
    x = {"weights": np.array([1.0, 0.02, 0.005, 0.0]), "intercept": np.array(9.0)}
    row = at(least_squares(), x, fl.metrics.SparseRecovery(np.array([1.0, 0.0, 1.0, 0.0])))
    assert (row["density"], row["precision"], row["recall"], row["f1"]) == (0.5, 0.5, 0.5, 0.5)


def test_nothing_found_has_no_precision():
    x = {"weights": np.zeros(4), "intercept": np.array(9.0)}
    row = at(least_squares(), x, fl.metrics.SparseRecovery({"weights": np.ones(4), "intercept": 1.0}))
    assert (row["precision"], row["recall"], row["f1"]) == (0.0, 0.0, 0.0)


def test_density_leaves_the_intercept_out():
    x = {"weights": np.array([1.0, 1e-5, 0.0, 0.0]), "intercept": np.array(9.0)}
    assert at(least_squares(), x, fl.metrics.Density())["density"] == 0.5
    assert at(least_squares(), x, fl.metrics.Density(threshold=1e-4))["density"] == 0.25


def test_rank_and_frobenius_error():
    data = fl.FederatedData.from_clients([(RNG.standard_normal((6, 3, 3)), np.ones(6))])
    x = {"weights": np.diag([2.0, 0.02, 0.001]), "intercept": np.array(0.0)}
    row = at(fl.problems.MatrixSensing(data), x, fl.metrics.Rank(), fl.metrics.FrobeniusError(np.diag([2.0, 0.0, 0.0])))
    assert row["rank"] == 2
    assert row["frobenius_error"] == pytest.approx(np.hypot(0.02, 0.001), rel=1e-12)


def test_accuracy_on_training_and_other_data():
    X, y = RNG.standard_normal((40, 3)), np.where(RNG.random(40) < 0.5, 0, 1)
    w = np.array([1.0, -2.0, 0.5])
    problem = fl.problems.Logistic(fl.FederatedData.from_clients([(X[:30], y[:30])]), intercept=True)
    test = fl.FederatedData.from_clients([(X[30:], y[30:])])
    metrics = [fl.metrics.Accuracy(), fl.metrics.Accuracy(test, name="test_accuracy")]
    row = at(problem, {"weights": w, "intercept": np.array(0.2)}, *metrics)
    right = (X @ w + 0.2 > 0) == (y == 1)
    assert row["accuracy"] == pytest.approx(right[:30].mean(), abs=1e-12)
    assert row["test_accuracy"] == pytest.approx(right[30:].mean(), abs=1e-12)


def test_a_score_of_zero_counts_as_the_negative_class_as_in_scikit_learn():
    X, y = RNG.standard_normal((10, 3)), np.arange(10) % 5 > 0
    X[:2] = 0.0  # one of each class
    problem = fl.problems.Logistic(fl.FederatedData.from_clients([(X, y.astype(int))]))
    model = LogisticRegression(fit_intercept=False).fit(X, y)
    for w in (np.zeros(3), np.array([1.0, -2.0, 0.5])):
        model.coef_ = w[None]
        assert at(problem, {"weights": w}, fl.metrics.Accuracy())["accuracy"] == pytest.approx(
            model.score(X, y), abs=1e-12
        )
    assert not problem.correct({"weights": np.full(3, np.nan)}, problem.data.arrays).any()


def test_accuracy_of_softmax_and_mlp_is_the_right_argmax():
    X, y = RNG.standard_normal((30, 5)), RNG.integers(0, 3, 30)
    data = fl.FederatedData.from_clients([(X, y)])
    x = {"weights": RNG.standard_normal((5, 3)), "intercept": RNG.standard_normal(3)}
    want = (np.argmax(X @ x["weights"] + x["intercept"], axis=1) == y).mean()
    assert at(fl.problems.Softmax(data), x, fl.metrics.Accuracy())["accuracy"] == pytest.approx(want, abs=1e-12)
    layers = [
        {"weights": RNG.standard_normal((5, 4)), "bias": np.ones(4)},
        {"weights": RNG.standard_normal((4, 3)), "bias": np.ones(3)},
    ]
    hidden = np.maximum(X @ layers[0]["weights"] + 1, 0)
    want = (np.argmax(hidden @ layers[1]["weights"] + 1, axis=1) == y).mean()
    assert at(fl.problems.MLP(data, hidden=(4,)), layers, fl.metrics.Accuracy())["accuracy"] == pytest.approx(
        want, abs=1e-12
    )


def test_suboptimality_and_validation_loss():
    problem, other = least_squares(), least_squares()
    x = {"weights": RNG.standard_normal(4), "intercept": np.array(0.1)}
    row = at(problem, x, fl.metrics.Suboptimality(0.5), fl.metrics.Loss(other))
    assert row["suboptimality"] == row["objective"] - 0.5
    assert row["validation_loss"] == at(other, x)["loss"]


def test_the_loss_on_other_data_is_that_of_the_same_problem_there():
    problem, x = least_squares(), {"weights": RNG.standard_normal(4), "intercept": np.array(0.1)}
    other = fl.FederatedData.from_clients([(RNG.standard_normal((9, 4)), RNG.standard_normal(9))])
    row = at(problem, x, fl.metrics.Loss(other))
    assert row["validation_loss"] == at(problem.with_data(other), x)["loss"]
    with pytest.raises(TypeError, match="Loss: other must be FederatedData or a problem, got ndarray"):
        fl.metrics.Loss(np.ones(3))  # pyright: ignore[reportArgumentType]
    quadratic = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[0.0]])
    with pytest.raises(TypeError, match="Loss: Oracle has no data; give another problem"):
        fl.simulate(quadratic, fl.methods.FedAvg(0.1), rounds=1, local_steps=1, metrics=[fl.metrics.Loss(other)])


def test_constraint_violation_is_that_of_the_method():
    x = {"weights": np.array([3.0, 0.0, 4.0, 0.0]), "intercept": np.array(100.0)}
    method = fl.methods.FedMiD(0.1, 1.0, fl.regularizers.L2Ball(2.0))
    row = at(least_squares(), x, fl.metrics.ConstraintViolation(), method=method)
    assert row["constraint_violation"] == pytest.approx(3.0, rel=1e-12)
    assert row["objective"] == np.inf


def test_two_metrics_with_one_name_are_refused():
    x = {"weights": np.ones(4), "intercept": np.array(0.0)}
    with pytest.raises(ValueError, match="two metrics give the column 'density'"):
        at(least_squares(), x, fl.metrics.Density(), fl.metrics.SparseRecovery(np.ones(4)))


def test_intercepts_are_known_in_named_tuples_too():
    class Linear(NamedTuple):
        weights: np.ndarray
        intercept: np.ndarray

    data = fl.FederatedData.from_clients([(np.ones((2, 3)), np.ones(2))])
    problem = fl.Problem(lambda p, a, b: (a @ p.weights + p.intercept - b) ** 2, data)
    assert at(problem, Linear(np.zeros(3), np.array(5.0)), fl.metrics.Density())["density"] == 0


def test_plain_functions_are_metrics():
    def largest(x: dict) -> float:
        return np.abs(x["weights"]).max()

    x = {"weights": np.array([3.0, 0.0, -4.0, 0.0]), "intercept": np.array(0.0)}
    row = at(least_squares(), x, largest, lambda x: {"a": 1.0, "b": 2.0})
    assert (row["largest"], row["a"], row["b"]) == (4.0, 1.0, 2.0)


def test_potentials_of_fed_ac_are_their_formulas_and_shrink():
    matrices, optima = [np.diag([1.0, 4.0]), np.diag([3.0, 2.0])], [np.array([1.0, 0.0]), np.array([0.0, 2.0])]
    problem = fl.problems.quadratics(matrices=matrices, optima=optima)
    mean = sum(matrices) / 2
    solution = np.linalg.solve(mean, sum(a @ b for a, b in zip(matrices, optima, strict=True)) / 2)

    def loss(x: np.ndarray) -> float:
        return float(np.mean([(x - b) @ a @ (x - b) / 2 for a, b in zip(matrices, optima, strict=True)]))

    method = fl.methods.FedAc.one(step_size=0.1, strong_convexity=2.0, local_steps=1)
    metric = fl.metrics.Potentials(loss(solution), solution, strong_convexity=2.0)
    result = fl.simulate(problem, method, rounds=30, local_steps=1, x0=np.array([3.0, -1.0]), metrics=[metric])
    x, ag = (np.asarray(part) for part in result.server)
    last = result.history.iloc[-1]
    np.testing.assert_allclose(last["psi"], loss(ag) - loss(solution) + np.sum((x - solution) ** 2), rtol=1e-9)
    np.testing.assert_allclose(last["phi"], loss(ag) - loss(solution) + np.sum((x - solution) ** 2) / 3, rtol=1e-9)
    rate = 1 - method.gamma * 2.0  # one client's gradient is exact, so the lemma holds without noise
    assert (result.history["psi"] <= result.history["psi"][0] * rate ** result.history["round"] + 1e-12).all()
    with pytest.raises(TypeError, match=r"needs a method with \(x, x_ag\) such as FedAc, got FedAvg"):
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=1, local_steps=1, metrics=[metric])


def test_a_metric_that_returns_no_number_is_told():
    def nothing(x: Any) -> None:
        return None

    problem = fl.problems.quadratics(matrices=[np.eye(2)], optima=[np.ones(2)])
    with pytest.raises(TypeError, match="nothing must return a number or a dict of numbers, got None"):
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=1, local_steps=1, metrics=[nothing])


def test_functions_may_take_the_round():
    """A second argument that has a default keeps it, unless its name is `round`."""

    def needed(x: Any, now: int) -> float:
        return now

    def named(x: Any, round: int = -1) -> float:
        return round

    def other(x: Any, scale: float = 7.0) -> float:
        return scale

    def alone(x: Any, *, round: int = -1) -> float:
        return round

    problem = fl.problems.quadratics(matrices=[np.eye(2)], optima=[np.ones(2)])
    common: dict[str, Any] = {"rounds": 3, "local_steps": 1, "eval_every": 2, "metrics": [needed, named, other, alone]}
    for history in (
        fl.simulate(problem, fl.methods.FedAvg(0.1), **common).history,
        fl.loop(problem, fl.methods.FedAvg(0.1), **common).history,
        fl.sweep(problem, fl.methods.FedAvg(0.1), {"client_step_size": [0.1]}, **common).history,
    ):
        assert history["needed"].tolist() == history["named"].tolist() == [0, 2, 3]
        assert set(history["other"]) == {7.0}
        assert set(history["alone"]) == {-1}


def test_a_function_with_other_arguments_is_told_before_the_run():
    def three(x: Any, round: int, more: int) -> float:
        return 0.0

    problem = fl.problems.quadratics(matrices=[np.eye(2)], optima=[np.ones(2)])
    with pytest.raises(TypeError, match=r"simulate: metrics: three must take \(x, round\), but its arguments are \(x"):
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=1, local_steps=1, metrics=[three])
