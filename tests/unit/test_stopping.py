"""Rules that end a run: when, with which reason, and the same after a resumption."""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import federation
from fedlocal.simulation import driver
from fedlocal.stopping import StoppingPoint

S = fl.stopping
PROBLEM = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[0.0]])
HALVING: dict[str, Any] = {"local_steps": 1, "x0": np.array([1.0])}  # x = 2^-r, so that the loss is 4^-r / 2
RUNS = [fl.simulate, fl.loop]


def halving(stop_when: Any, run: Any = fl.simulate, **arguments: Any) -> fl.Result:
    return run(PROBLEM, fl.methods.FedAvg(0.5), **{"rounds": 20, "stop_when": stop_when, **HALVING, **arguments})


def reason(rule: fl.stopping.Rule, *values: float) -> str | None:
    """What a rule says to a history of the column `a`."""
    rows = [{"round": float(r), "a": value} for r, value in enumerate(values)]
    return rule.reason(StoppingPoint(rows, np.zeros(1), PROBLEM, fl.regularizers.Zero(), np.ones(1), 0.0))


@pytest.mark.parametrize("run", RUNS)
def test_below_ends_at_the_first_value_that_is_smaller(run: Any):
    result = halving(S.Below("loss", 0.5 / 4**3), run)
    assert result.history["round"].tolist() == [0, 1, 2, 3, 4]  # in round 3 the loss is the level itself
    assert result.stopped == "stopped in round 4: loss 0.00195312 is below 0.0078125"
    assert result.provenance["configuration"]["stopped"] == result.stopped
    assert repr(result) == f"Result(round 4, objective {result.history['objective'].iloc[-1]:.6g}, {result.stopped})"
    np.testing.assert_array_equal(result.x, [0.5**4])


def test_a_run_that_no_rule_ends_says_so():
    result = halving(S.Below("loss", 0.0), rounds=3)
    assert result.stopped is None
    assert "stopped" not in result.provenance["configuration"]
    assert "stopped" not in repr(result)


def test_above_ends_at_the_first_value_that_is_larger():
    assert [reason(S.Above("a", 0.5), value) for value in (0.4, 0.5, np.nan)] == [None] * 3
    assert reason(S.Above("a", 0.5), 0.75) == "a 0.75 is above 0.5"
    assert repr(S.Above("a", 0.5)) == "Above(metric='a', level=0.5)"


def test_nan_is_not_below():
    assert reason(S.Below("a", 1.0), np.nan) is None
    assert reason(S.Below("a", 1.0), -np.inf) == "a -inf is below 1"


@pytest.mark.parametrize("rule", [S.Below("f1", 0.5), S.NoImprovement("f1", 1)])
def test_an_unknown_column_is_told_with_those_that_there_are(rule: Any):
    name, seen = type(rule).__name__, []
    with pytest.raises(ValueError, match=rf"{name}: metric must be one of 'round', 'loss', 'objective', .*, got 'f1'"):
        halving(rule, callbacks=[lambda round, row, x: seen.append(round)])
    assert seen == [0]


@pytest.mark.parametrize("run", RUNS)
def test_a_function_may_return_its_reason(run: Any):
    result = halving(lambda row, x: "x is small" if x[0] < 0.3 else None, run)
    assert result.stopped == "stopped in round 2: x is small"
    assert halving(lambda row, x: np.bool_(row["round"] >= 3), run).stopped == "stopped by stop_when in round 3"
    assert halving(lambda row, x: "enough" if row["round"] >= 3 else "", run).stopped == "stopped in round 3: enough"


def test_of_several_rules_the_first_that_ends_the_run_is_named():
    rules = [S.Below("loss", 1e-4), lambda row, x: row["round"] >= 3, S.Below("objective", 0.01)]
    assert halving(rules).stopped == "stopped by stop_when in round 3"
    assert str(halving(rules[::-1]).stopped).startswith("stopped in round 3: objective")


def test_no_improvement_compares_the_last_values_with_those_before():
    rule = S.NoImprovement("a", evaluations=2)
    assert reason(rule, 3.0, 3.0) is None  # two values are not yet two evaluations after another one
    assert reason(rule, 3.0, 3.0, 3.0) == "a has not improved for 2 evaluations"
    assert reason(rule, 3.0, 4.0, 2.9) is None
    assert reason(rule, 3.0, 2.0, 2.5, 2.0) == "a has not improved for 2 evaluations"
    assert reason(rule, 3.0, np.nan, np.nan) == "a has not improved for 2 evaluations"
    assert reason(rule, np.nan, np.nan, 5.0) is None


def test_no_improvement_by_at_least_so_much():
    rule = S.NoImprovement("a", evaluations=2, at_least=0.5)
    assert reason(rule, 3.0, 2.75, 2.5) is None  # together they are one
    assert reason(rule, 3.0, 2.75, 2.625) == "a has not improved by at least 0.5 for 2 evaluations"


def test_no_improvement_of_what_is_better_the_larger_it_is():
    rule = S.NoImprovement("a", evaluations=1, largest=True)
    assert reason(rule, 0.5, 0.6) is None
    assert reason(rule, 0.5, 0.4) == reason(rule, 0.5, np.nan) == "a has not improved for 1 evaluation"


def test_of_accuracies_the_larger_are_better_without_being_told():
    rows = [{"round": float(r), "accuracy": value} for r, value in enumerate([0.5, 0.6, 0.7, 0.7])]
    points = [StoppingPoint(rows[:n], np.zeros(1), PROBLEM, fl.regularizers.Zero(), np.ones(1), 0.0) for n in (2, 3, 4)]
    said = [S.NoImprovement("accuracy", 1).reason(point) for point in points]
    assert said == [None, None, "accuracy has not improved for 1 evaluation"]
    assert S.NoImprovement("accuracy", 1, largest=False).reason(points[0]) is not None


def test_a_resumed_run_ends_where_the_whole_one_does(tmp_path: Path):
    """The values before the resumption count: the column falls until round 4 and the run is resumed at round 6."""
    rule = S.NoImprovement("level", evaluations=4)
    common: dict[str, Any] = {"metrics": [level]}
    whole = halving(rule, **common)
    assert whole.stopped == "stopped in round 8: level has not improved for 4 evaluations"
    checkpoint = tmp_path / "run.npz"
    halving(None, rounds=6, checkpoint=checkpoint, **common)
    resumed = halving(rule, checkpoint=checkpoint, **common)
    assert resumed.stopped == whole.stopped
    assert resumed.history.drop(columns="seconds").equals(whole.history.drop(columns="seconds"))
    again = halving(rule, checkpoint=checkpoint, **common)
    assert (again.stopped, len(again.history)) == (whole.stopped, 9)


def level(x: Any) -> float:
    return max(float(x[0]), 0.5**4)


@pytest.mark.parametrize("relative", [False, True])
def test_certified_ends_at_the_first_gap_that_is_small_enough(relative: bool):
    psi = fl.regularizers.L1(0.3)
    problem, method = federation(), fl.methods.FedDualAvg(0.02, 1.0, psi)
    points: list[Any] = []
    common: dict[str, Any] = {"rounds": 300, "local_steps": 1, "weights": "examples", "eval_every": 10}
    keep = lambda round, row, x: points.append(x)  # noqa: E731
    result = fl.simulate(problem, method, stop_when=S.Certified(1e-2, relative), callbacks=[keep], **common)
    found = [fl.certificate(problem, psi, x, "examples") for x in points]
    gaps = [float(c.duality_gap or np.inf) / (c.objective if relative else 1) for c in found]
    assert [gap < 1e-2 for gap in gaps] == [False] * (len(gaps) - 1) + [True]
    assert 1 < len(gaps) < 30
    share = " times the objective" if relative else ""
    ended = f"the duality gap {found[-1].duality_gap:.3g} is below 0.01{share}"
    assert result.stopped == f"stopped in round {10 * (len(gaps) - 1)}: {ended}"


def test_certified_says_where_no_gap_is_known():
    with pytest.raises(
        ValueError, match=r"Certified: no duality gap is known: Oracle has no conjugate here.*another rule"
    ):
        halving(S.Certified(1e-3))


def test_certified_leaves_a_diverged_run_to_the_warning():
    problem = fl.problems.LeastSquares(fl.FederatedData.from_clients([(np.eye(2), np.ones(2))]))
    method = fl.methods.FedMiD(1e80, 1.0, fl.regularizers.L1(0.1))
    with pytest.warns(fl.DivergenceWarning):
        result = fl.simulate(problem, method, rounds=9, local_steps=2, stop_when=S.Certified(1e-3))
    assert result.diverged is not None
    assert result.stopped is None


def slow(x: Any) -> float:
    time.sleep(0.05)
    return 0.0


def test_seconds_end_a_run_at_an_evaluation():
    result = halving(S.Seconds(0.12), rounds=1000, metrics=[slow])
    assert str(result.stopped).endswith("seconds have used up the budget of 0.12")
    assert len(result.history) <= 4
    assert result.history["seconds"].iloc[-1] >= 0.12


@pytest.mark.parametrize("run", RUNS)
def test_seconds_end_a_run_between_evaluations(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run is evaluated where it ends. Later it ends at once with the same budget, and goes on with a larger one."""
    monkeypatch.setattr(driver, "CALL_SECONDS", 1e-9)  # one round at a time
    saved: dict[str, Any] = {} if run is fl.loop else {"checkpoint": tmp_path / "run.npz"}
    common: dict[str, Any] = {"eval_every": 10**6, "x0": np.array([1.0]), "local_steps": 1, "progress": False, **saved}

    def slowly(rounds: int, stop_when: Any) -> fl.Result:
        return run(PROBLEM, fl.methods.FedAvg(1e-4), rounds=rounds, stop_when=stop_when, **common)

    result = slowly(10**6, S.Seconds(0.3))
    rounds = result.history["round"].tolist()
    assert len(rounds) == 2
    assert 0 < rounds[1] < 10**6
    np.testing.assert_allclose(result.x, (1 - 1e-4) ** rounds[1], rtol=1e-9)
    if saved:
        again = slowly(10**6, S.Seconds(0.3))
        assert again.history["round"].tolist() == rounds
        assert again.stopped is not None
        longer = slowly(rounds[1] + 5, S.Seconds(1000.0))
        assert longer.history["round"].tolist() == [0, rounds[1] + 5]
        assert longer.stopped is None


@pytest.mark.parametrize("engine", ["jax", "linear"])
@pytest.mark.parametrize("double", [True, False])
def test_nobody_can_change_the_point_that_others_see(engine: Any, double: bool):
    points = []

    def change(x: dict[str, np.ndarray]) -> float:
        points.append(x["weights"])
        with pytest.raises(ValueError, match="read-only"):
            x["weights"][:] = 7.0
        return 0.0

    with jax.enable_x64(double):
        data = fl.FederatedData.from_clients([(np.eye(2), np.ones(2))] * 2)
        problem, common = fl.problems.LeastSquares(data, intercept=False), {"local_steps": 1, "batch_size": 1}
        functions = {
            "metrics": [change],
            "stop_when": lambda row, x: change(x),
            "callbacks": [lambda r, row, x: change(x)],
        }
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=2, engine=engine, **common, **functions)
    assert len(points) == 9
    assert {point.dtype for point in points} == {np.dtype(np.float64)}
    assert len({point.tobytes() for point in points}) == 3  # those of earlier rounds stay as they were


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "number": (3, TypeError, r"stop_when must be a function of \(row, x\), got 3; a rule of fl.stopping or a list"),
    "number_in_list": ([S.Seconds(1.0), 3], TypeError, r"stop_when must be a function of \(row, x\), got 3"),
    "class": (S.Below, TypeError, r"stop_when holds the class Below; give Below\(...\)"),
    "other_arguments": (lambda x: True, TypeError, r"<lambda> must take \(row, x\), but its arguments are \(x\)"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("run", RUNS)
def test_bad_rules_are_told_before_the_run(case: str, run: Any):
    rule, kind, message = BAD[case]
    with pytest.raises(kind, match=rf"^{run.__name__}: .*{message}"):
        halving(rule, run, callbacks=[lambda round, row, x: pytest.fail("it ran")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: S.Below(3, 1.0), "Below: metric must be a str, got 3"),  # pyright: ignore[reportArgumentType]
        (lambda: S.Above(3, 1.0), "Above: metric must be a str, got 3"),  # pyright: ignore[reportArgumentType]
        (lambda: S.Below("loss", np.nan), "Below: level must be a finite number, got nan"),
        (lambda: S.Certified(0.0), "Certified: gap must be > 0, got 0.0"),
        (lambda: S.Seconds(-1), "Seconds: budget must be > 0, got -1"),
        (lambda: S.NoImprovement("loss", 0), "NoImprovement: evaluations must be a whole number >= 1, got 0"),
        (lambda: S.NoImprovement("loss", 1, -1.0), "NoImprovement: at_least must be >= 0, got -1.0"),
    ],
)
def test_bad_arguments_of_rules_are_told(make: Any, message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_processes_with_clocks_of_their_own_take_no_seconds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fedlocal.simulation.single_run.processes", lambda mesh: [0, 1])
    text = r"simulate: stop_when holds Seconds\(budget=1.0\), and the clocks of 2 processes differ; use another rule"
    with pytest.raises(ValueError, match=text):
        halving([S.Below("loss", 1.0), S.Seconds(1.0)])
    assert halving(S.Below("loss", 1.0)).stopped is not None


def test_only_public_names_are_listed():
    assert dir(S) == ["Above", "Below", "Certified", "NoImprovement", "Rule", "Seconds", "StoppingPoint"]
