"""The two arguments of all bounds, in the wrong order."""

import copy
import dataclasses
import inspect
from typing import Any

import pytest

from fedlocal import theory
from fedlocal.theory import Constants, Setting

CONSTANTS = Constants(1.0, 0.5, 2.0, 0.01, fourth_moment=1.0, third_order=1.0, gradient_bound=1.0, gap=0.3)
SETTING = Setting(clients=4, rounds=50, local_steps=16)
PUBLIC = {
    name: inspect.signature(value).parameters for name, value in vars(theory).items() if inspect.isfunction(value)
}
BOUNDS = {name: taken for name, taken in PUBLIC.items() if list(taken)[:2] == ["constants", "setting"]}


def test_there_are_bounds():
    assert len(BOUNDS) > 25
    assert {"fed_ac_one_bound", "best_of_two", "rates", "minibatch_sgd_bound", "shadow_bound"} <= set(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_swapped_arguments_are_told(name: str):
    more: dict[str, Any] = {n: 0.01 for n, p in list(BOUNDS[name].items())[2:] if p.default is p.empty}
    bound = getattr(theory, name)
    bound(CONSTANTS, SETTING, **more)
    with pytest.raises(
        TypeError, match=r"bounds take \(constants, setting\), got (Setting|Constants) in the place of the "
    ):
        bound(SETTING, CONSTANTS, **more)


def test_swapped_arguments_of_the_best_step_size_are_told():
    with pytest.raises(
        TypeError, match=r"bounds take \(constants, setting\), got Setting in the place of the constants"
    ):
        theory.tightest(theory.fed_ac_one_bound, SETTING, CONSTANTS, largest=1.0)  # pyright: ignore[reportArgumentType]


def test_both_are_ordinary_objects_otherwise():
    for thing in (CONSTANTS, SETTING):
        assert copy.deepcopy(thing) == dataclasses.replace(thing) == thing
        with pytest.raises(AttributeError, match=r"has no attribute 'lenght'"):
            thing.lenght  # noqa: B018
