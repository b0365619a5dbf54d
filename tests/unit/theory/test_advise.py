"""What the advisor says: the right kind of method, numbers that can be run, and warnings where assumptions fail."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlocal as fl


def logistic(clients: int = 4, l2: float = 0.01, separable: bool = False, shared: bool = True) -> Any:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((120, 5))
    scores = features @ np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    labels = np.where(scores + (0 if separable else 1) * rng.standard_normal(120) > 0, 1.0, -1.0)
    if shared:
        data = fl.FederatedData.shared(features, labels, num_clients=clients)
    else:
        data = fl.FederatedData.from_groups((features, labels), np.arange(120) % clients)
    return fl.problems.Logistic(data, l2=l2)


@pytest.fixture(scope="module")
def advice() -> fl.Advice:
    return fl.advise(logistic(), rounds=20, local_steps=8, progress=False)


def test_methods_are_ranked_by_what_is_predicted(advice: fl.Advice):
    table = advice.table()
    assert set(table["method"]) == {"FedAvg", "FedAc-I", "FedAc-II", "MB-SGD", "MB-AC-SGD"}
    assert table["predicted_error"].is_monotonic_increasing
    assert (table["guaranteed_error"] >= table["predicted_error"]).all()
    assert set(table["local_steps"]) <= {1, 2, 4, 8}


def test_the_choice_runs_and_does_about_what_was_predicted(advice: fl.Advice):
    ends = [
        fl.simulate(logistic(), advice.method, **advice.options, seed=s, eval_every=20, progress=False).history["loss"].iloc[-1]
        for s in range(12)
    ]  # fmt: skip
    reached = np.mean(ends) - advice.estimate.optimum
    assert advice.best.predicted == pytest.approx(reached, rel=1.0)


def test_its_code_builds_the_same_method(advice: fl.Advice):
    space: dict[str, Any] = {"fl": fl, "problem": logistic()}
    exec(advice.code().replace("batch_size=1", "batch_size=1, progress=False"), space)
    assert type(space["method"]) is type(advice.method)
    assert str(space["method"]).split("(")[0] == str(advice.method).split("(")[0]
    assert len(space["result"].history) == 21


def test_the_figure_and_the_curves_end_at_the_prediction(advice: fl.Advice, tmp_path: Path):
    advice.figure(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    curves = advice.curves()
    last = curves[(curves["method"] == advice.best.family.name) & (curves["round"] == 20)]
    assert last["predicted_error"].iloc[0] == pytest.approx(advice.best.predicted)


def test_fewer_rounds_never_promise_more():
    few, many = (fl.advise(logistic(), rounds=r, local_steps=4, progress=False) for r in (4, 40))
    assert many.best.score < few.best.score


def test_without_strong_convexity_the_modulus_is_a_choice():
    found = fl.advise(logistic(l2=0.0), rounds=10, local_steps=4, progress=False)
    accelerated = [choice for choice in found.choices if choice.family.accelerated]
    assert all(choice.numbers.strong_convexity > 0 for choice in accelerated)
    if found.best.family.accelerated:
        assert any("mu is not known" in warning for warning in found.warnings)


def test_a_regulariser_asks_for_composite_methods():
    psi = fl.regularizers.L1(0.05)
    found = fl.advise(logistic(), rounds=20, local_steps=8, regularizer=psi, progress=False)
    assert {choice.family.name for choice in found.choices} == {"FedDualAvg", "FedMiD"}
    assert found.best.family.name == "FedDualAvg"
    space: dict[str, Any] = {"fl": fl, "problem": logistic(), "regularizer": psi}
    exec(found.code().replace("batch_size=1", "batch_size=1, progress=False"), space)
    reached = space["result"].history["objective"].iloc[-1] - found.estimate.optimum
    assert reached < 0.5 * found.estimate.constants.gap  # pyright: ignore[reportOptionalOperand]


def test_a_constraint_is_only_bounded_and_says_so():
    found = fl.advise(logistic(), rounds=10, local_steps=4, regularizer=fl.regularizers.L2Ball(1.0), progress=False)
    assert found.model is None
    assert any("only bounded" in warning for warning in found.warnings)
    assert "Low confidence" in found.confidence
    with pytest.raises(ValueError, match="nothing was predicted"):
        found.figure("nowhere.png")


def test_a_pilot_measures_and_decides():
    found = fl.advise(logistic(), rounds=10, local_steps=4, pilot=True, progress=False)
    measured = [choice.measured for choice in found.choices if choice.measured is not None]
    assert len(measured) == 3
    assert found.best.measured == min(measured)
    assert "Measured by a pilot" in found.confidence


def test_clients_that_differ_and_take_turns():
    problem = logistic(clients=6, shared=False)
    found = fl.advise(problem, rounds=10, local_steps=4, clients=2, progress=False)
    assert found.options["clients_per_round"] == 2
    everyone = fl.advise(problem, rounds=10, local_steps=4, progress=False)
    assert everyone.best.score < found.best.score
    assert everyone.best.guarantee is not None
    assert found.best.guarantee is None  # the theorems let all clients take part
    assert any("no theorem" in warning for warning in found.warnings)


def test_separable_classes_have_no_optimum_and_that_is_said():
    found = fl.advise(logistic(l2=0.0, separable=True), rounds=5, local_steps=2, progress=False)
    assert any("separa" in warning or "converge" in warning for warning in found.warnings)
    assert "High confidence" not in found.confidence


def test_a_network_is_not_convex_and_that_is_said():
    rng = np.random.default_rng(0)
    data = fl.FederatedData.shared(rng.standard_normal((40, 3)), rng.integers(0, 2, 40), num_clients=2)
    found = fl.advise(fl.problems.MLP(data, hidden=(4,)), rounds=5, local_steps=2, progress=False)
    assert any("not convex" in warning for warning in found.warnings)
    assert math.isfinite(found.best.numbers.step_size)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rounds": 0}, "advise: rounds must be a whole number >= 1, got 0"),
        ({"rounds": 3, "local_steps": 0}, "advise: local_steps must be a whole number >= 1, got 0"),
        ({"rounds": 3, "clients": 9}, "advise: clients must be a whole number >= 1 and <= 4, got 9"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message.replace(">", "\\>")):
        fl.advise(logistic(), **wrong)
