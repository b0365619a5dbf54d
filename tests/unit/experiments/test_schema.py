"""Configurations: all of them load, and what is misspelt or out of range is told."""

import itertools
from typing import Any

import pytest

from fedlocal.experiments.schema import Recovery, load, names

over = pytest.mark.parametrize


@over(("name", "scale"), list(itertools.product(names(), ["quick", "paper"])))
def test_every_configuration_loads_at_every_scale(name: str, scale: str):
    settings = load(name, scale)
    assert settings.name == name
    assert settings.reference.startswith("dissertation, ")


@over("name", [name for name in names() if name != "curse"])
def test_the_paper_scale_is_the_texts(name: str):
    settings: Any = load(name, "paper")
    grid = settings.grid
    assert len(grid.client_step_size) * len(grid.server_step_size) == 49
    assert (settings.rounds, settings.clients_per_round, settings.batch_size, settings.local_epochs) == (500, 10, 10, 1)
    assert (settings.score.rule, settings.score.window) == ("mean", 100)
    assert len(settings.methods) == len(settings.panels) == 4


@over("name", [name for name in names() if name != "curse"])
def test_the_wide_grid_reaches_down_to_1e_4_and_keeps_the_texts_pairs(name: str):
    text: Any = load(name, "paper", "text")
    wide: Any = load(name, "paper", "wide")
    assert min(wide.grid.client_step_size) == 1e-4
    assert set(text.grid.client_step_size) < set(wide.grid.client_step_size)
    assert text.grid.server_step_size == wide.grid.server_step_size


@over("name", [name for name in names() if name != "curse"])
def test_claims_name_methods_and_columns_that_are_there(name: str):
    settings: Any = load(name, "paper")
    measured = {"objective", "density", "precision", "recall", "f1", "rank", "rank_error", "frobenius_error"}
    for claim in settings.claims:
        assert {claim.method, *claim.than} <= set(settings.methods)
        assert claim.metric is None or claim.metric in measured
        assert claim.other is None or claim.other in names()


def test_overrides_replace_numbers_lists_and_inner_keys():
    changes = ["rounds=7", "score.window=3", "grid.client_step_size=[0.5, 0.25]", "strength=0.2", "weights=examples"]
    settings = load("lasso-1", "paper", overrides=changes, seeds=[3, 4])
    assert isinstance(settings, Recovery)
    assert (settings.rounds, settings.score.window, settings.strength, settings.weights) == (7, 3, 0.2, "examples")
    assert settings.grid.client_step_size == [0.5, 0.25]
    assert settings.score.metric == "f1"
    assert settings.seeds == [3, 4]


MISTAKES = {
    "unknown": ("lasso-1", ["learning_rate=1"], "lasso-1: unknown key 'learning_rate'"),
    "unknown_inside": ("lasso-1", ["score.windows=1"], "unknown key 'score.windows'"),
    "unknown_of_claims": ("lasso-1", ['claims=[{text="a", chek="b"}]'], "claims.0"),
    "negative": ("lasso-1", ["rounds=-1"], "rounds: input should be greater than 0, got -1"),
    "kind": ("lasso-1", ["batch_size=many"], "batch_size: .*, got 'many'"),
    "choice": ("nuclear-1", ["data.config=V"], "data.config: input should be 'I', 'II', 'III' or 'IV', got 'V'"),
    "assignment": ("lasso-1", ["rounds"], "an override must be name=value, e.g. rounds=100, got 'rounds'"),
    "column": ("lasso-1", ["score.metric=rank"], "'rank' is not measured; there are: loss, objective, density"),
    "table": ("lasso-1", ['columns=["nope"]'], "'nope' is not measured"),
    "name": ("lasso-1", ["name=../elsewhere"], "name and kind of an experiment cannot be overridden"),
    "seeds": ("lasso-1", ["seeds=[1, 1]"], "seeds must differ from each other"),
    "seed": ("lasso-1", ["seeds=[-1]"], "seeds.0: input should be greater than or equal to 0, got -1"),
    "experiment": ("lasso-9", [], "there is no experiment 'lasso-9'; there are: curse, lasso-1"),
}


@over("name", MISTAKES)
def test_mistakes_are_told_in_one_sentence(name: str):
    experiment, overrides, sentence = MISTAKES[name]
    with pytest.raises(ValueError, match=sentence):
        load(experiment, overrides=overrides)


def test_a_scale_or_grid_that_is_not_there_is_told():
    with pytest.raises(ValueError, match="lasso-1 has no scale 'huge'; it has: paper, quick"):
        load("lasso-1", "huge")
    with pytest.raises(ValueError, match="curse has no grid 'wide'; it has: text"):
        load("curse", "paper", "wide")
