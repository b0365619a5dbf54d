"""Successive halving over pairs of step sizes: its stages, what it drops, and that it resumes to the same frames."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal import experiments
from fedlocal.cli import app
from fedlocal.experiments.runner import halving
from fedlocal.experiments.runner.claims import UNMEASURED, TunedMethod, TunedResults, judge
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.runner.halving import Stage, stages, survivors
from fedlocal.experiments.runner.pair_sweeps import PAIR, CompositeObjective
from fedlocal.experiments.runner.settings import Claim
from fedlocal.experiments.runner.store import Store
from fedlocal.experiments.runner.tuning import _title, sweep_methods, table, tune

SMALL = ["rounds=18", "eval_every=2", "score.window=9", "batch_size=4", "clients_per_round=2", 'methods=["FedDualAvg"]']
SMALL += ["grid.client_step_size=[0.001, 0.01, 0.03, 1e30]", "grid.server_step_size=[0.1, 1.0]"]
SMALL += ['score.metric="loss"', "score.largest=false", "tuning.stages=3", "tuning.final_pairs=1"]
SEEDS = [0, 1]


def settings(*changes: str, tuning: Any = "halving") -> Any:
    return load("lasso-3", overrides=[*SMALL, *changes], tuning=tuning, seeds=SEEDS)


def objective(seed: int) -> CompositeObjective:
    random = np.random.default_rng(seed)
    X = random.standard_normal((12, 5))
    data = fl.FederatedData.shared(X, X @ np.arange(5.0) + random.standard_normal(12), num_clients=3)
    return CompositeObjective(fl.problems.LeastSquares(data), fl.regularizers.L1(0.1), [])


OBJECTIVES = {seed: objective(seed) for seed in SEEDS}


def run(directory: Path, **tuning: Any) -> pd.DataFrame:
    """Return the histories of all seeds; their parts are in the directory."""
    directory.mkdir(exist_ok=True)
    return pd.concat(sweep_methods(OBJECTIVES, settings(**tuning), Store(directory))).drop(columns="seconds")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("halved")


@pytest.fixture(scope="module")
def halved(directory: Path) -> Any:
    return run(directory)


def test_stages_of_the_text_grids():
    lasso: Any = load("lasso-1", "paper", tuning="halving")
    assert stages(lasso) == [Stage(19, 49), Stage(56, 17), Stage(167, 6), Stage(500, 4)]
    femnist: Any = load(
        "femnist-l1", "paper", tuning="halving"
    )  # evaluated every 100 rounds; two stages lead to four pairs
    assert stages(femnist) == [Stage(600, 25), Stage(1700, 9), Stage(5000, 4)]


def test_stages_where_there_is_little_to_drop_or_to_evaluate():
    assert stages(settings()) == [Stage(2, 8), Stage(6, 3), Stage(18, 1)]
    assert stages(settings("tuning.stages=2")) == [
        Stage(6, 8),
        Stage(18, 1),
    ]  # just the final pairs go to the last stage
    assert stages(settings("tuning.final_pairs=8")) == [Stage(18, 8)]
    assert stages(settings("eval_every=6")) == [Stage(6, 8), Stage(18, 1)]  # stages of the same rounds are one
    assert stages(settings("eval_every=18")) == [Stage(18, 8)]


def test_the_winner_is_that_of_all_pairs_with_the_same_numbers(halved: Any, tmp_path: Path):
    """The order of these losses is the same from the first stage on; what goes on goes on from where it was."""
    every: Any = run(tmp_path, tuning="all")
    winner = halved[halved["round"] == 18][PAIR].drop_duplicates()
    last = every[(every["round"] == 18) & every["diverged"].isna()].groupby(PAIR)["loss"].mean()
    assert [last.idxmin()] == [tuple(pair) for pair in winner.to_numpy()]
    assert tune(settings(), halved).pair == tune(settings(tuning="all"), every).pair
    keys = ["method", "seed", *PAIR, "round"]
    both = halved.merge(every, on=keys, suffixes=("", "_all"))
    assert len(both) == len(halved)
    np.testing.assert_array_equal(both["loss"], both["loss_all"])


def test_each_stage_runs_the_pairs_of_the_plan_and_diverged_ones_drop_out(halved: Any, directory: Path):
    for _, own in halved.groupby("seed"):
        last = own[own["client_step_size"] < 1].groupby(PAIR)["round"].max()
        assert sorted(last) == [2, 2, 2, 6, 6, 18]  # of six that stay finite three, and of these one, go on
        assert own[own["client_step_size"] > 1]["diverged"].notna().all()
    ended = halved["dropped"].notna()
    assert not (ended & halved["diverged"].notna()).any()
    assert (halved[ended]["round"] <= halved[ended]["dropped"]).all()
    assert not list(directory.rglob("*.npz"))


def test_notes_and_table_count_the_pairs_and_the_rounds(halved: Any):
    (note,) = halving.reached_rounds(settings(), halved)
    assert "of 8 pairs of step sizes 2 diverged, 3 ran 2 rounds, 2 ran 6 rounds, 1 all 18" in note
    ran = halved.groupby(["seed", *PAIR])["round"].max().sum()
    assert f"; {ran / (ran + 2 * (3 * 16 + 2 * 12)):.0%} of the rounds" in note
    assert halving.reached_rounds(settings(tuning="all"), halved) == []
    shown = table(settings('columns=["loss"]'), {"FedDualAvg": tune(settings(), halved)}, {})
    assert shown["dropped"].tolist() == ["3 at 2, 2 at 6"]


@pytest.mark.parametrize("calls", [2, 3, 5])
def test_an_interrupted_halving_resumes_to_the_same_frames(
    calls: int, halved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """After a sweep and before its part is written; a lost checkpoint costs time only."""
    real, made = halving.sweep_history, []

    def stopped(*args: Any, **kwargs: Any) -> Any:
        made.append(1)
        found = real(*args, **kwargs)
        if len(made) == calls:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(halving, "sweep_history", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    if calls == 3:
        (tmp_path / "parts" / "FedDualAvg-1.npz").unlink()
    pd.testing.assert_frame_equal(run(tmp_path), halved)
    assert len(made) == 3 * len(SEEDS) + 1  # the interrupted one twice


def test_an_experiment_by_halving_says_so(tmp_path: Path):
    overrides = ["strength=0.5", "rounds=4", "score.window=2", "tuning.stages=2", "tuning.final_pairs=1", "claims=[]"]
    overrides += ['methods=["FedMiD"]', "grid.client_step_size=[0.0003]", "grid.server_step_size=[0.1, 1.0]"]
    text = io.StringIO()
    console = Console(file=text, width=300)
    made = experiments.run("lasso-3", overrides=overrides, root=tmp_path, console=console, tuning="halving")
    assert made.name.startswith("lasso-3-quick-halving-")
    assert "of 2 pairs of step sizes 0 diverged, 2 all 4" in text.getvalue()  # the first evaluation is after round 4


def rows(curves: dict[float, list[float]], diverged: dict[float, int]) -> pd.DataFrame:
    found = [
        {
            "client_step_size": c,
            "server_step_size": 1.0,
            "seed": 0,
            "round": 2 * i,
            "loss": loss,
            "diverged": diverged.get(c),
        }
        for c, losses in curves.items()
        for i, loss in enumerate(losses)
    ]
    return pd.DataFrame(found)


def test_survivors_have_the_best_scores_over_the_scaled_window():
    curves = {0.1: [9, 3.0, 3.0], 0.2: [9, 0.0, 4.0], 0.3: [9, 1.0, 2.0], 0.4: [9, 0.1, 0.1], 0.5: [9, np.nan, 1.0]}
    history = rows(curves, {0.4: 4})
    order = [pair[0] for pair in survivors(settings(), history, 4, 3)]
    assert order == [0.5, 0.3, 0.1]  # over 9 of 18 rounds: 2 of 4, which is the last evaluation alone
    order = [pair[0] for pair in survivors(settings("score.window=18"), history, 4, 9)]
    assert order == [0.3, 0.2, 0.1, 0.5]  # over all but the start; one that is not finite has no score and is the last


def test_verdicts_say_what_halving_leaves_open():
    best, other = (0.001, 1.0), (0.01, 0.3)
    tuned = TunedMethod(*best, pd.DataFrame(), {}, {}, [best], dropped={other: 6})
    grid: Any = load("lasso-1", "paper", "wide").grid  # pyright: ignore[reportAttributeAccessIssue]
    results = TunedResults({"a": tuned}, grid, load("lasso-1", "paper").grid, 500, 500, lambda _: None)  # pyright: ignore
    claim = {"text": "t", "method": "a", "check": "tuned"}
    dropped = judge(Claim(**claim, step_sizes=other), results)  # pyright: ignore[reportArgumentType]
    assert dropped.outcome == UNMEASURED
    assert "halving dropped (0.01, 0.3) after round 6" in dropped.measured
    assert "1 that halving dropped" in judge(Claim(**claim, step_sizes=best), results).measured  # pyright: ignore
    assert "1 that halving dropped" in judge(Claim(text="t", method="a", check="inside_grid"), results).measured


def test_halving_is_for_studies_that_tune_pairs():
    with pytest.raises(ValueError, match="a9a-1e-3 does not tune pairs of step sizes; --tuning is for studies of"):
        load("a9a-1e-3", tuning="halving")
    with pytest.raises(ValueError, match=r"tuning.search must be 'all'"):
        load("fedmid-lasso-1", tuning="halving")
    said = CliRunner().invoke(app, ["run", "--help"]).output
    assert "--tuning halving" in " ".join(said.split())


def test_the_figure_says_how_many_pairs_ran_all_rounds():
    tuned = TunedMethod(0.1, 1.0, pd.DataFrame(), {}, {(1.0, 1.0): 2, (1.0, 0.1): 2}, [], dropped={(0.1, 0.1): 6})
    title = _title(settings(), {"FedDualAvg": tuned})
    assert "mean of 2 seeds, bands are 95 % t intervals; step sizes by halving: 5 of 8 pairs ran all 18 rounds" in title
