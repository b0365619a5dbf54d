"""What the advisor says: the right kind of method, numbers that can be run, and warnings where assumptions fail."""

import math
from pathlib import Path
from typing import Any

import jax
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
    table: Any = advice.table()
    assert set(table["method"]) == {"FedAvg", "FedAc-I", "FedAc-II", "MB-SGD", "MB-AC-SGD"}
    assert table["predicted_error"].is_monotonic_increasing
    assert (table["best_bound"] >= table["predicted_error"]).all()
    assert table["theorem"].str.len().all()
    assert set(table["local_steps"]) <= {1, 2, 4, 8}


def test_the_choice_runs_and_does_about_what_was_predicted(advice: fl.Advice):
    ends = [
        fl.simulate(logistic(), advice.method, **advice.options, seed=s, eval_every=20, progress=False).history["loss"].iloc[-1]
        for s in range(12)
    ]  # fmt: skip
    assert advice.best.predicted is not None
    reached = np.mean(ends) - advice.estimate.optimum
    assert abs(np.log(advice.best.predicted / reached)) < np.log(2)


def test_its_code_builds_the_same_method(advice: fl.Advice):
    space: dict[str, Any] = {"fl": fl, "problem": logistic()}
    exec(advice.code().replace("batch_size=1", "batch_size=1, progress=False"), space)
    assert jax.tree.structure(space["method"]) == jax.tree.structure(advice.method)
    np.testing.assert_allclose(jax.tree.leaves(space["method"]), jax.tree.leaves(advice.method), rtol=1e-5)
    assert len(space["result"].history) == 21


def test_the_figure_and_the_curves_end_at_the_prediction(advice: fl.Advice, tmp_path: Path):
    advice.figure(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    curves: Any = advice.curves()
    last = curves[(curves["method"] == advice.best.family.name) & (curves["round"] == 20)]
    assert last["predicted_error"].iloc[0] == pytest.approx(advice.best.predicted)


def test_fewer_rounds_never_promise_more():
    few, many = (fl.advise(logistic(), rounds=r, local_steps=4, progress=False) for r in (4, 40))
    assert many.best.score < few.best.score


@pytest.fixture(scope="module")
def not_strongly_convex() -> fl.Advice:
    """Where FedAc-II is best."""
    return fl.advise(logistic(l2=0.0), rounds=10, local_steps=4, progress=False)


@pytest.mark.parametrize("rounds", [10, 100])
def test_without_strong_convexity_what_needs_it_runs_on_the_augmented_objective(rounds: int):
    found = fl.advise(logistic(l2=0.0), rounds=rounds, local_steps=16, progress=False)
    accelerated = {choice.family.name: choice for choice in found.choices if choice.family.accelerated}
    assert accelerated.keys() == {"FedAc-I", "FedAc-II", "MB-AC-SGD"}
    for choice in found.choices:
        mu = choice.parameters.strong_convexity if choice.family.name in accelerated else 0
        assert choice.regularization == mu  # lambda of the objective is the mu of the method
        if choice.bound is not None:  # and that of the bound beside it
            assert (choice.bound.regularization or 0) == choice.regularization
    assert all(choice.regularization > 0 for choice in accelerated.values())
    for name in ("FedAc-I", "FedAc-II"):
        bound = accelerated[name].bound
        assert bound is not None
        assert bound.theorem.startswith("fedac")
        assert bound.value >= (accelerated[name].predicted or 0)
    assert accelerated["MB-AC-SGD"].bound is None  # the text's theorem needs F itself to be strongly convex
    table: Any = found.table().set_index("method")
    for name, choice in accelerated.items():
        assert table.loc[name, "regularization"] == choice.regularization
    assert table.loc[["FedAvg", "MB-SGD"], "regularization"].isna().all()


def test_with_strong_convexity_no_bound_is_about_the_augmented_objective(advice: fl.Advice):
    assert all(choice.regularization == 0 for choice in advice.choices)
    assert all(choice.bound is not None and choice.bound.regularization is None for choice in advice.choices)
    assert "regularization" not in advice.table()
    assert "augmented" not in advice.code()


def test_the_program_augments_with_the_same_lambda(not_strongly_convex: fl.Advice):
    found = not_strongly_convex
    lam = found.best.regularization
    assert found.best.family.name == "FedAc-II"
    assert any(f"with lambda = {lam:.3g}; original_loss is F" in warning for warning in found.warnings)
    space: dict[str, Any] = {"fl": fl, "problem": logistic(l2=0.0)}
    exec(found.code().replace("batch_size=1", "batch_size=1, progress=False"), space)
    assert float(space["augmented"].strength) == pytest.approx(lam, rel=1e-5)
    assert float(space["method"].strong_convexity) == pytest.approx(lam, rel=1e-5)
    last = space["result"].history.iloc[-1]
    x = space["result"].x["weights"]
    assert last["objective"] == pytest.approx(last["original_loss"] + lam / 2 * x @ x, rel=1e-5)  # x0 = 0
    same = fl.simulate(found.problem, found.method, **found.options, progress=False).history.iloc[-1]
    assert same["original_loss"] == pytest.approx(last["original_loss"], rel=1e-4)


def test_the_augmented_run_does_about_what_was_predicted(not_strongly_convex: fl.Advice):
    found = not_strongly_convex
    run = {**found.options, "eval_every": 10, "progress": False}
    ends = [
        fl.simulate(found.problem, found.method, **run, seed=s).history["original_loss"].iloc[-1] for s in range(12)
    ]
    assert found.best.predicted is not None
    assert abs(np.log(found.best.predicted / (np.mean(ends) - found.estimate.optimum))) < np.log(2)
    curves: Any = found.curves()
    last = curves[(curves["method"] == found.best.family.name) & (curves["round"] == 10)]
    assert last["predicted_error"].iloc[0] == pytest.approx(found.best.predicted)


def test_a_pilot_measures_f_and_not_the_augmented_objective():
    start = {"weights": np.full(5, -0.3)}
    given: Any = {"rounds": 5, "local_steps": 4, "x0": start, "weights": "examples", "progress": False}
    found = fl.advise(logistic(l2=0.0, shared=False), pilot=True, **given)
    choices = [choice for choice in found.choices if choice.regularization and choice.measured is not None]
    assert choices
    for choice in choices[:1]:
        augmented = fl.problems.augmented(logistic(l2=0.0, shared=False), choice.regularization, start)
        result = fl.simulate(
            augmented, choice.method, rounds=5, local_steps=choice.parameters.local_steps, batch_size=1,
            weights="examples", progress=False, metrics=[fl.metrics.Loss(logistic(l2=0.0, shared=False), "F", "examples")],
        )  # fmt: skip
        assert choice.measured == pytest.approx(result.history["F"].iloc[-1] - found.estimate.optimum, rel=1e-3)


def test_a_regulariser_asks_for_composite_methods():
    psi = fl.regularizers.L1(0.05)
    found = fl.advise(logistic(), rounds=20, local_steps=8, regularizer=psi, progress=False)
    choices = {choice.family.name: choice for choice in found.choices}
    assert choices.keys() == {"FedDualAvg", "FedMiD", "FedMiD-OSP"}
    assert found.best.family.name == "FedDualAvg"
    assert choices["FedMiD"].predicted is None  # FedMiD applies psi twice, which the local model does not know
    assert choices["FedMiD"].bound is None  # nor has it a bound with a finite psi
    osp = choices["FedMiD-OSP"]
    assert osp.bound is not None
    assert osp.parameters.step_size == osp.bound.step_size  # of the clients, with a server step size of 1
    space: dict[str, Any] = {"fl": fl, "problem": logistic(), "regularizer": psi}
    exec(found.code().replace("batch_size=1", "batch_size=1, progress=False"), space)
    reached = space["result"].history["objective"].iloc[-1] - found.estimate.optimum
    assert found.estimate.constants.gap is not None
    assert reached < 0.5 * found.estimate.constants.gap


def test_a_regulariser_that_holds_everything_is_too_strong():
    found = fl.advise(logistic(), rounds=5, local_steps=2, regularizer=fl.regularizers.L1(10.0), progress=False)
    assert any("too strong" in warning for warning in found.warnings)


def test_the_start_belongs_to_the_advice():
    start = {"weights": np.full(5, 3.0)}
    far = fl.advise(logistic(), rounds=5, local_steps=2, x0=start, progress=False)
    near = fl.advise(logistic(), rounds=5, local_steps=2, progress=False)
    assert far.best.score > near.best.score
    assert "x0=x0" in far.code()
    assert far.estimate.constants.gap is not None
    run = fl.simulate(logistic(), far.method, **far.options, progress=False)
    assert run.history["loss"].iloc[0] == pytest.approx(far.estimate.optimum + far.estimate.constants.gap)


def test_sites_count_by_their_examples():
    rng = np.random.default_rng(3)
    sizes = (200, 20, 5)
    clients = [(rng.standard_normal((n, 3)) * (i + 1), np.sign(rng.standard_normal(n))) for i, n in enumerate(sizes)]
    problem = fl.problems.Logistic(fl.FederatedData.from_clients(clients), l2=0.1)
    found = fl.advise(problem, rounds=10, local_steps=4, weights="examples", progress=False)
    assert found.options["weights"] == "examples"
    assert found.model is not None
    assert found.model.share == pytest.approx(sum(n**2 for n in sizes) / sum(sizes) ** 2)
    ends = [
        fl.simulate(problem, found.method, **found.options, seed=s, eval_every=10, progress=False)
        .history["loss"]
        .iloc[-1]
        for s in range(30)
    ]
    assert found.best.predicted is not None
    assert abs(np.log(found.best.predicted / (np.mean(ends) - found.estimate.optimum))) < np.log(2)


def test_a_constraint_is_only_bounded_and_says_so():
    found = fl.advise(logistic(), rounds=10, local_steps=4, regularizer=fl.regularizers.L2Ball(1.0), progress=False)
    assert found.model is None
    choices = {choice.family.name: choice for choice in found.choices}
    assert choices["FedMiD-OSP"].bound is None  # its clients leave the ball
    mid, dual = choices["FedMiD"], choices["FedDualAvg"]
    assert mid.bound is not None
    assert mid.parameters.step_size == mid.bound.step_size  # of the clients, with a server step size of 1
    assert dual.bound is not None
    assert dual.bound.product  # that step size is the server's times the clients'
    assert dual.parameters.step_size == pytest.approx(1 / (4 * found.estimate.local.smoothness))
    assert any("product with the server's" in warning for warning in found.warnings)
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
    bounded = {choice.family.name for choice in everyone.choices if choice.bound is not None}
    assert bounded == {"FedAvg", "MB-SGD"}  # FedAc's theorems are about clients that are alike
    assert all(choice.bound is None for choice in found.choices)  # all let every client take part
    assert any("no theorem" in warning for warning in found.warnings)


def test_separable_classes_have_no_optimum_and_that_is_said():
    found = fl.advise(logistic(l2=0.0, separable=True), rounds=5, local_steps=2, progress=False)
    assert any("separa" in warning or "converge" in warning for warning in found.warnings)
    assert "High confidence" not in found.confidence


@pytest.mark.thorough
def test_a_network_is_not_convex_and_that_is_said():
    rng = np.random.default_rng(0)
    data = fl.FederatedData.shared(rng.standard_normal((40, 3)), rng.integers(0, 2, 40), num_clients=2)
    found = fl.advise(fl.problems.MLP(data, hidden=(4,)), rounds=5, local_steps=2, progress=False)
    assert any("not convex" in warning for warning in found.warnings)
    assert math.isfinite(found.best.parameters.step_size)


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
