"""A method that was made for another number of local steps than its run takes is warned of, once."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import fedlocal as fl
from conformance.federation import SIZES, federation, start
from fedlocal.flower import Strategy

NUMBERS: dict[str, Any] = {"step_size": 0.05, "strong_convexity": 0.1}
ONE = fl.methods.FedAc.one(local_steps=99, **NUMBERS)
SAID = "FedAc was made with local_steps=99, but clients take 2 local steps in a round"
WORK: dict[str, Any] = {"rounds": 1, "local_steps": 2, "progress": False}


def warned(call: Callable[[], Any]) -> list[str]:
    """The sentences of all warnings of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("engine", [fl.simulate, fl.loop])
def test_both_numbers_and_what_would_work_are_said(engine: Any):
    (said,) = warned(lambda: engine(federation(), ONE, **WORK))
    why = "its step sizes are computed from that number"
    assert said == f"{engine.__name__}: {SAID}; {why}; make it with local_steps=2"


def test_the_warning_shows_the_line_of_the_call():
    for engine in (
        fl.simulate,
        fl.loop,
        lambda problem, method, **k: fl.sweep(problem, method, {"step_size": [0.05]}, **k),
    ):
        with pytest.warns(UserWarning, match="was made with") as caught:
            engine(federation(), ONE, **WORK)
        assert caught[0].filename == __file__


def test_a_sweep_and_a_comparison_warn_once():
    grid = {"step_size": [0.05, 0.02, 0.01], "seed": [0, 1]}
    (said,) = warned(lambda: fl.sweep(federation(), ONE, grid, **WORK))
    assert said.startswith(f"sweep: {SAID} (so or similarly in 6 of 6 cells); ")
    (said,) = warned(
        lambda: fl.compare(federation(), {"FedAvg": fl.methods.FedAvg(0.01), "FedAc": ONE}, seeds=range(2), **WORK)
    )
    assert f"{SAID} (so or similarly in 2 of 4 cells); " in said


def test_a_sweep_over_local_steps_needs_a_method_for_each():
    work = {"rounds": 1, "progress": False}
    grid = {"local_steps": [1, 2, 4]}
    (said,) = warned(lambda: fl.sweep(federation(), fl.methods.FedAc.one(local_steps=2, **NUMBERS), grid, **work))
    assert "FedAc was made with local_steps=2, but clients take 1 local step in a round" in said
    assert said.endswith(
        "(so or similarly in 2 of 3 cells); its step sizes are computed from that number; give a function "
        "of local_steps that returns the method, or make each for its run"
    )
    each = lambda local_steps: fl.methods.FedAc.one(local_steps=local_steps, **NUMBERS)  # noqa: E731
    assert warned(lambda: fl.sweep(federation(), each, grid, **work)) == []


RIGHT: dict[str, tuple[fl.LocalMethod, dict[str, Any]]] = {
    "the same number": (fl.methods.FedAc.one(local_steps=2, **NUMBERS), {"local_steps": 2}),
    "FedAc-II": (fl.methods.FedAc.two(local_steps=2, **NUMBERS), {"local_steps": 2}),
    "a number among unequal ones": (
        fl.methods.FedAc.one(local_steps=2, **NUMBERS),
        {"local_steps": [1, 3, *[1] * (len(SIZES) - 2)]},
    ),
    # clients of 1 to 12 examples take 1 to 6 steps in an epoch
    "steps of epochs": (fl.methods.FedAc.one(local_steps=5, **NUMBERS), {"local_epochs": 1, "batch_size": 2}),
    "vanilla": (fl.methods.FedAc.vanilla(**NUMBERS), {"local_steps": 2}),
    "four numbers": (fl.methods.GeneralFedAc(alpha=2.0, beta=3.0, eta=0.05, gamma=0.1), {"local_steps": 2}),
    "another method": (fl.methods.FedAvg(0.05), {"local_steps": 2}),
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_is_not_warned_of(what: str):
    method, work = RIGHT[what]
    assert warned(lambda: fl.simulate(federation(), method, rounds=0, progress=False, **work)) == []


@pytest.mark.parametrize(
    ("work", "taken"),
    [({"local_steps": [2, 3, *[2] * (len(SIZES) - 2)]}, "2 to 3"), ({"local_epochs": 1, "batch_size": 2}, "1 to 6")],
)
def test_a_number_outside_of_unequal_ones_is_warned_of(work: dict[str, Any], taken: str):
    (said,) = warned(lambda: fl.simulate(federation(), ONE, rounds=0, progress=False, **work))
    assert f"but clients take {taken} local steps in a round" in said
    assert said.endswith("make it with a number among these")


def test_a_coordinator_warns_before_any_site_is_asked():
    arguments: dict[str, Any] = {"rounds": 1, "sites": ["a", "b"], "x0": start(False)}
    (said,) = warned(lambda: Strategy(ONE, local_steps=2, **arguments))
    assert said.startswith(f"Strategy: {SAID}; ")
    assert warned(lambda: Strategy(ONE, local_steps=[2, 120], **arguments)) == []
    assert warned(lambda: Strategy(ONE, local_epochs=1, batch_size=2, **arguments)) == []


class Halving(fl.methods.FedAvg):
    """A user's method that tells what it was made for."""

    def made_for_steps(self) -> int | None:
        return 8


def test_any_method_may_say_what_it_was_made_for():
    (said,) = warned(lambda: fl.simulate(federation(), Halving(0.05, 1.0), rounds=0, local_steps=4, progress=False))
    assert said.startswith("simulate: Halving was made with local_steps=8, but clients take 4 local steps in a round; ")
