"""Verdicts, on curves made by hand."""

from typing import Any

import pandas as pd
import pytest

from fedlocal.experiments.runner.claims import (
    FAILS,
    HOLDS,
    TOO_SMALL,
    UNMEASURED,
    TunedMethod,
    TunedResults,
    Verdict,
    first_round,
    judge,
)
from fedlocal.experiments.runner.settings import Claim, StepSizeGrid

GRID = StepSizeGrid(client_step_size=[0.001, 0.01], server_step_size=[0.3, 1.0])
WIDE = StepSizeGrid(client_step_size=[0.0001, 0.001, 0.01], server_step_size=[0.3, 1.0])


def tuned(f1: list[float], pair: tuple[float, float] = (0.001, 1.0), diverged: float = 3.0) -> TunedMethod:
    curve = pd.DataFrame({"round": [10 * i for i in range(len(f1))], "f1": f1, "loss": [1 - v for v in f1]})
    late = {"f1": f1[-1], "loss": 1 - f1[-1]}
    return TunedMethod(*pair, curve, late, {(0.01, 1.0): diverged}, [(0.001, 0.3), pair])


FAST, SLOW = [0.0, 0.5, 1.0, 1.0, 1.0, 1.0], [0.0, 0.1, 0.2, 0.3, 0.6, 0.7]
THERE = TunedResults({"a": tuned([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])}, GRID, GRID, 50, 50, lambda _: None)


LARGER: Any = {"check": "larger_steps", "method": "a", "than": ["b"]}


def findings(
    grid: StepSizeGrid = GRID, best: tuple[float, float] = (0.001, 1.0), text_rounds: int = 50
) -> TunedResults:
    methods = {"a": tuned(FAST, best), "b": tuned(SLOW)}
    return TunedResults(methods, grid, GRID, 50, text_rounds, {"here-before": THERE}.get)


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "reached": ({"check": "reaches", "method": "a", "level": 0.99, "within": 30}, HOLDS, "F1 >= 0.99 from round 20"),
    "reached_late": ({"check": "reaches", "method": "a", "level": 0.99, "within": 20}, FAILS, "from round 20"),
    "never_reached": ({"check": "reaches", "method": "b", "level": 0.99, "within": 50}, FAILS, "never"),
    "too_short": ({"check": "reaches", "method": "b", "level": 0.99, "within": 100}, UNMEASURED, "50 rounds"),
    "never": (
        {"check": "never", "method": "b", "level": 0.9, "within": 50},
        HOLDS,
        "never for good, best 0.7 in 50 rounds",
    ),
    "not_never": ({"check": "never", "method": "a", "level": 0.9, "within": 50}, FAILS, "from round 20, best 1 in 50"),
    "never_too_short": ({"check": "never", "method": "b", "level": 0.9, "within": 500}, UNMEASURED, "only 50 rounds"),
    "ends": ({"check": "ends", "method": "b", "level": 0.7}, HOLDS, "F1 0.7 over the last rounds"),
    "does_not_end": ({"check": "ends", "method": "b", "level": 0.6, "largest": False}, FAILS, "F1 0.7"),
    "better": ({"check": "better", "method": "a", "than": ["b"], "margin": 0.29}, HOLDS, r"1 against 0.7 \(b\)"),
    "not_by_the_margin": ({"check": "better", "method": "a", "than": ["b"], "margin": 0.31}, FAILS, "against"),
    "less_is_better": (
        {"check": "better", "method": "a", "metric": "loss", "than": ["b"], "largest": False},
        HOLDS,
        "loss 0 against 0.3",
    ),
    "close": ({"check": "close", "method": "b", "than": ["a"], "margin": 0.31}, HOLDS, "0.7 against 1"),
    "not_close": ({"check": "close", "method": "b", "than": ["a"], "margin": 0.29}, FAILS, "0.7 against 1"),
    "fastest": ({"check": "fastest", "method": "a", "than": ["b"], "level": 0.6}, HOLDS, r"20 \(a\), 40 \(b\)"),
    "not_fastest": ({"check": "fastest", "method": "b", "than": ["a"], "level": 0.6}, FAILS, r"40 \(b\), 20 \(a\)"),
    "tuned": ({"check": "tuned", "method": "a", "step_sizes": (0.001, 1.0)}, HOLDS, r"best is \(0.001, 1\)"),
    "as_good": ({"check": "tuned", "method": "a", "step_sizes": (0.001, 0.3)}, HOLDS, r"as good are \(0.001, 0.3\)"),
    "tuned_elsewhere": (
        {"check": "tuned", "method": "a", "step_sizes": (0.01, 1.0)},
        FAILS,
        r"best is \(0.001, 1\), .*; \(0.01, 1\) diverged in round 3",
    ),
    "not_tried": ({"check": "tuned", "method": "a", "step_sizes": (0.5, 1.0)}, UNMEASURED, "not in the grid"),
    "border": ({"check": "inside_grid", "method": "a"}, UNMEASURED, "--grid wide"),
    "same_steps": (LARGER, FAILS, r"client times server step size 0.001 \(a\), 0.001 \(b\)"),
    "slower": ({"check": "faster_than_on", "method": "a", "level": 0.9, "other": "here-before"}, HOLDS, "20, on .* 30"),
    "not_slower": ({"check": "slower_than_on", "method": "a", "level": 0.9, "other": "here-before"}, FAILS, "20, on"),
    "not_run": ({"check": "better", "method": "a", "than": ["c"]}, UNMEASURED, "c was not run"),
    "nobody": ({"check": "fastest", "method": "b", "than": ["b"], "level": 0.9}, UNMEASURED, "never"),
    "not_there": (
        {"check": "slower_than_on", "method": "a", "level": 0.9, "other": "x"},
        UNMEASURED,
        "run x with the same options first",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_check_on_curves_made_by_hand(name: str):
    arguments, outcome, measured = CASES[name]
    verdict = judge(Claim(text="it is so", **{"metric": "f1", **arguments}), findings())
    assert verdict.outcome == outcome, verdict
    assert verdict.claim == "it is so"
    assert pd.Series([verdict.measured]).str.contains(measured).all(), verdict.measured


@pytest.mark.parametrize(("best", "outcome"), [((0.001, 1.0), HOLDS), ((0.0001, 1.0), FAILS)])
def test_the_wide_grid_shows_whether_the_best_pair_is_inside_the_texts(best: tuple[float, float], outcome: str):
    claim = Claim(text="t", check="inside_grid", method="a")
    assert judge(claim, findings(WIDE, best)).outcome == outcome


def test_larger_steps_are_larger_products():
    methods = {"a": tuned(FAST, (0.001, 10.0)), "b": tuned(SLOW, (0.003, 1.0))}
    results = TunedResults(methods, GRID, GRID, 50, 50, lambda _: None)
    assert judge(Claim(text="t", **LARGER), results).outcome == HOLDS
    assert judge(Claim(text="t", **LARGER | {"method": "b", "than": ["a"]}), results).outcome == FAILS


def test_passing_through_a_level_is_not_coming_to_it():
    curve = pd.DataFrame({"round": range(10), "rank": [0, 8, 16, 20, 24, 25, 25, 25, 25, 25]})
    error = curve.assign(error=(curve["rank"] - 16).abs())
    assert first_round(error, "error", 0, largest=False) is None
    assert first_round(error.assign(error=[9, 9, 0, 0, 0, 0, 0, 0, 0, 0]), "error", 0, largest=False) == 2
    flicker = error.assign(error=[9, 0, 0, 0, 0, 0, 0, 0, 1, 0])
    assert (
        first_round(flicker, "error", 0, largest=False) is None
    )  # eight of nine are not nine of ten, and one is too few
    long = pd.DataFrame({"round": range(30), "error": [9] + [0] * 20 + [1] + [0] * 8})
    assert first_round(long, "error", 0, largest=False) == 1


def test_a_claim_without_what_its_check_needs_is_told():
    with pytest.raises(ValueError, match="the claim 'it is so' needs 'level'"):
        judge(Claim(text="it is so", check="reaches", method="a", metric="f1", within=3), findings())


@pytest.mark.parametrize("outcome", [HOLDS, FAILS, UNMEASURED])
def test_that_a_small_run_does_not_show_a_claim_says_nothing(outcome: str):
    verdict = Verdict("FedAc is faster", "1.1 times", outcome)
    assert verdict.at_scale("paper") == verdict
    assert verdict.at_scale("quick").outcome == (TOO_SMALL if outcome == FAILS else outcome)
    said = Verdict("FedAc is faster", "1.1 times", TOO_SMALL).styled()
    assert said == "[yellow]not measured at this scale[/]: FedAc is faster (1.1 times)"


@pytest.mark.parametrize(
    "case", ["ends", "does_not_end", "better", "not_by_the_margin", "close", "not_close", "too_short"]
)
def test_a_run_shorter_than_the_texts_shows_neither_failures_nor_that_methods_are_close(case: str):
    """All methods are close before they have moved; that one is better by a margin is shown by a short run, too."""
    arguments, outcome, _ = CASES[case]
    claim = Claim(text="it is so", **{"metric": "f1", **arguments})
    assert judge(claim, findings()).outcome == outcome
    short = judge(claim, findings(text_rounds=500))
    assert short.outcome == (outcome if case in ("better", "too_short") else TOO_SMALL)
    assert ("50 of the text's 500 rounds" in short.measured) == (short.outcome == TOO_SMALL)
