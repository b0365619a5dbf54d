"""Configurations: all of them load, and what is misspelt or out of range is told."""

import itertools
from typing import Any

import pytest

from fedlocal.experiments.runner.configuration import Scale, load, names
from fedlocal.experiments.runner.settings import StepSizeGrid
from fedlocal.experiments.studies.recovery.settings import RecoverySettings
from fedlocal.experiments.studies.speedup.settings import SpeedupSettings

over = pytest.mark.parametrize
RECOVERY = [name for name in names() if type(load(name)) is RecoverySettings]
SPEEDUP = [name for name in names() if isinstance(load(name), SpeedupSettings)]


@over(("name", "scale"), list(itertools.product(names(), ["quick", "paper"])))
def test_every_configuration_loads_at_every_scale(name: str, scale: Scale):
    settings = load(name, scale)
    assert settings.name == name
    assert len(settings.reference.split(", ")) > 1  # a text, and the place in it


@over("name", RECOVERY)
def test_the_paper_scale_is_the_texts(name: str):
    settings: Any = load(name, "paper")
    grid = settings.grid
    assert len(grid.client_step_size) * len(grid.server_step_size) == 49
    assert (settings.rounds, settings.clients_per_round, settings.batch_size, settings.local_epochs) == (500, 10, 10, 1)
    assert (settings.score.rule, settings.score.window) == ("mean", 100)
    assert len(settings.methods) == len(settings.panels) == 4


@over("name", RECOVERY)
def test_the_wide_grid_reaches_down_to_1e_4_and_keeps_the_texts_pairs(name: str):
    text: Any = load(name, "paper", "text")
    wide: Any = load(name, "paper", "wide")
    assert min(wide.grid.client_step_size) == 1e-4
    assert set(text.grid.client_step_size) < set(wide.grid.client_step_size)
    assert text.grid.server_step_size == wide.grid.server_step_size


@over("name", RECOVERY)
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
    assert isinstance(settings, RecoverySettings)
    assert (settings.rounds, settings.score.window, settings.strength, settings.weights) == (7, 3, 0.2, "examples")
    assert settings.grid.client_step_size == [0.5, 0.25]
    assert settings.score.metric == "f1"
    assert settings.seeds == [3, 4]


MISTAKES = {
    "unknown": ("lasso-1", ["learning_rate=1"], "lasso-1: unknown key 'learning_rate'; there are: title, .*rounds, "),
    "unknown_inside": (
        "lasso-1",
        ["score.windows=1"],
        "unknown key 'score.windows'; there are: metric, rule, window, largest$",
    ),
    "unknown_in_a_list": ("lasso-1", ['figure=[{column="loss", titel="a"}]'], "unknown key|figure"),
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
    "experiment": ("lasso-9", [], "there is no experiment 'lasso-9'; there are: a9a-1e-2, a9a-1e-3"),
}


@over("name", MISTAKES)
def test_mistakes_are_told_in_one_sentence(name: str):
    experiment, overrides, sentence = MISTAKES[name]
    with pytest.raises(ValueError, match=sentence):
        load(experiment, overrides=overrides)


def test_a_scale_or_grid_that_is_not_there_is_told():
    with pytest.raises(ValueError, match="lasso-1 has no scale 'huge'; it has: paper, quick"):
        load("lasso-1", "huge")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="curse has no grid 'wide'; it has: text"):
        load("curse", "paper", "wide")


@over("name", SPEEDUP)
def test_the_paper_scale_of_speedup_is_the_texts(name: str):
    settings: Any = load(name, "paper")
    grid, epsilon = settings.grid, name == "epsilon-1e-4"
    assert (settings.steps, settings.eval_steps) == (4096, 512)
    assert grid.local_steps == [2**i for i in range(9)]
    assert grid.clients == [2**i for i in range(2, 12 if epsilon else 14)]
    assert len(grid.step_size) == 13
    assert (grid.step_size[0], grid.step_size[-1]) == ((0.005, 50) if epsilon else (0.001, 10))
    assert settings.l2 == {"a9a-1e-2": 1e-2, "a9a-vanilla": 1e-4, "epsilon-1e-4": 1e-4}.get(name, 1e-3)
    assert settings.data.name == ("epsilon" if epsilon else "a9a")


@over("name", SPEEDUP)
def test_the_wide_grid_of_speedup_reaches_beyond_the_texts_at_both_ends(name: str):
    text: Any = load(name, "paper", "text")
    wide: Any = load(name, "paper", "wide")
    assert set(text.grid.step_size) < set(wide.grid.step_size)
    assert min(wide.grid.step_size) < min(text.grid.step_size)
    assert max(wide.grid.step_size) > max(text.grid.step_size)


@over(("name", "scale"), list(itertools.product(SPEEDUP, ["quick", "paper"])))
def test_claims_and_panels_of_speedup_name_what_is_there(name: str, scale: Scale):
    settings: Any = load(name, scale)
    assert set(settings.panels.clients) <= set(settings.grid.clients)
    assert set(settings.panels.local_steps) <= set(settings.grid.local_steps)
    for claim in settings.claims:
        assert set(claim.named) <= set(settings.methods)
        assert claim.clients is None or claim.clients in load(name, "paper").grid.clients  # pyright: ignore
    assert ("generated" in settings.title) == (settings.data.name == "epsilon-like")


SPEEDUP_MISTAKES = {
    "rounds": (
        ["grid.local_steps=[1, 3]"],
        "steps must be a multiple of every one of grid.local_steps, got 4096 and 3",
    ),
    "order": (["grid.clients=[8, 4]"], r"values of a grid must ascend, got \[8, 4\]"),
    "twice": (['methods=["FedAc-I", "FedAc-I"]'], "methods must differ from each other"),
    "method": (['methods=["Adam"]'], "methods must be among FedAvg, .*, got 'Adam'"),
    "generator": (["data.num_examples=5"], "data.num_examples is for epsilon-like, got 5 for a9a"),
    "claim": (['claims=[{text="a", check="better", method="FedAc-I"}]'], "the claim 'a' needs 'than'"),
}


@over("name", SPEEDUP_MISTAKES)
def test_mistakes_about_speedup_are_told_in_one_sentence(name: str):
    overrides, sentence = SPEEDUP_MISTAKES[name]
    with pytest.raises(ValueError, match=sentence):
        load("a9a-1e-3", overrides=overrides)


def test_a_grid_has_all_pairs_or_those_whose_product_is_within_limits():
    sizes: Any = {"client_step_size": [3e-5, 1e-4, 1e-3], "server_step_size": [1.0, 3.0, 10.0]}
    assert len(StepSizeGrid(**sizes).pairs()) == 9
    grid = StepSizeGrid(**sizes, products=(9e-5, 1e-3))  # 3e-5 * 3 in floating point is not 9e-5
    pairs = [(pair["client_step_size"], pair["server_step_size"]) for pair in grid.pairs()]
    assert pairs == [(3e-5, 3.0), (3e-5, 10.0), (1e-4, 1.0), (1e-4, 3.0), (1e-4, 10.0), (1e-3, 1.0)]
    assert [grid.is_at_edge(*pair) for pair in pairs] == [True, True, True, False, True, True]
    with pytest.raises(ValueError, match=r"products must leave a pair of step sizes, got \(1\.0, 2\.0\)"):
        StepSizeGrid(**sizes, products=(1.0, 2.0))
