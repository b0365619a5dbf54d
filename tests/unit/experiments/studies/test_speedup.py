"""The speed-up study: from the command line to its files, small; tables and verdicts on frames made by hand."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from rich.console import Console

import fedlocal as fl
from fedlocal import experiments
from fedlocal.experiments import demonstration
from fedlocal.experiments.runner.claims import FAILS, HOLDS, UNMEASURED
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.runner.methods import SMOOTH, smooth_method
from fedlocal.experiments.studies.speedup import study
from fedlocal.experiments.studies.speedup.claims import Speeds, judge, verdicts
from fedlocal.experiments.studies.speedup.settings import SpeedupClaim, SpeedupGrid, SpeedupSettings
from fedlocal.report.figures import COLORS, MARKERS, panels, powers_of_two

METHODS = SMOOTH
SMALL = [
    "grid.clients=[4, 8]",
    "grid.local_steps=[1, 8]",
    "grid.step_size=[0.01, 0.1, 1.0]",
    "steps=64",
    "eval_steps=16",
]
SMALL += ['methods=["FedAc-I", "MB-SGD"]', "panels.clients=[4]"]
FILES = {
    "provenance.json",
    "history.parquet",
    "table.parquet",
    "tuned.parquet",
    "optimum.parquet",
    "results.csv",
    "parts",
}
FILES |= {"figure-clients.png", "figure-clients.pdf", "figure-local-steps.png", "figure-local-steps.pdf", "report.json"}
COLUMNS = ["method", "step_size", "clients", "local_steps", "seed", "best_loss", "final_loss", "best_suboptimality"]
START = 1.1451013886530377  # the largest best_loss of the author's table: the loss at the start of the published runs


def run(root: Path, overrides: list[str] = SMALL, **arguments: Any) -> Path:
    console = arguments.pop("console", Console(file=io.StringIO()))
    return experiments.run("a9a-1e-3", overrides=overrides, root=root, console=console, **arguments)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs"), seeds=[0, 1])


def test_a_run_leaves_results_figures_and_what_is_needed_to_cite_it(finished: Path):
    assert {path.name for path in finished.iterdir()} == FILES
    results: Any = pd.read_csv(finished / "results.csv")
    assert list(results) == COLUMNS
    assert len(results) == 2 * 3 * 2 * 2 * 2  # methods, step sizes, clients, local steps, seeds
    assert not results.duplicated(COLUMNS[:5]).any()
    assert set(results["method"]) == {"FedAc-I", "MB-SGD"}
    assert len(list((finished / "parts").glob("*.parquet"))) == 2 * 2 * 2 * 2 + 1  # sweeps, and the optimum


def test_a_row_of_the_results_is_the_run_of_that_cell(finished: Path):
    results: Any = pd.read_csv(finished / "results.csv").set_index(COLUMNS[:5])
    X, y = fl.data.a9a()
    problem = fl.problems.Logistic(fl.FederatedData.shared(X, y, num_clients=4), l2=1e-3)
    method = fl.methods.FedAc.one(step_size=0.1, strong_convexity=1e-3, local_steps=8)
    x0 = {"weights": np.random.RandomState(1).randn(123)}
    sampling: dict[str, Any] = {"rounds": 8, "local_steps": 8, "batch_size": 1, "seed": 1, "eval_every": 2}
    losses = fl.simulate(problem, method, x0=x0, engine="jax", **sampling).history["loss"]
    row = results.loc[("FedAc-I", 0.1, 4, 8, 1)]
    np.testing.assert_allclose([row["best_loss"], row["final_loss"]], [losses.min(), losses.iloc[-1]], rtol=1e-6)
    np.testing.assert_allclose(row["best_suboptimality"], losses.min() - demonstration.OPTIMUM, rtol=1e-5)


def test_every_run_starts_where_the_published_ones_do(finished: Path):
    history: Any = pd.read_parquet(finished / "history.parquet")
    np.testing.assert_allclose(history[history["round"] == 0]["loss"], START, rtol=1e-7)
    assert (history.groupby(COLUMNS[:5]).size() == 5).all()  # after 0, 16, 32, 48, 64 steps
    results: Any = pd.read_csv(finished / "results.csv")
    assert results["best_loss"].max() <= START * (1 + 1e-7)  # the start is among the evaluations


def test_the_optimum_is_exact_and_in_the_report(finished: Path):
    numbers = json.loads((finished / "report.json").read_text())["numbers"]
    assert numbers["optimum"] == pytest.approx(demonstration.OPTIMUM, abs=1e-12)
    assert numbers["start_loss"] == pytest.approx(START, rel=1e-7)


def test_the_seed_chooses_the_examples(finished: Path):
    results: Any = pd.read_csv(finished / "results.csv").set_index(["seed", *COLUMNS[:4]])["best_loss"]
    assert (results[0] != results[1]).mean() > 0.8  # but for runs that are best at the start


def test_show_lists_both_figures(finished: Path):
    text = io.StringIO()
    experiments.show(finished, Console(file=text, width=200))
    assert "figure-clients.png" in text.getvalue()
    assert "figure-local-steps.png" in text.getvalue()
    assert "F* = 0.3333407520687" in text.getvalue()


@pytest.mark.thorough
def test_a_killed_run_resumes_to_the_same_results(tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch):
    """SIGKILL after some sweeps; those that are finished are not run again, and the results have the same bytes."""
    command = [sys.executable, "-m", "fedlocal.cli", "run", "a9a-1e-3", "--directory", str(tmp_path), "--seeds", "0,1"]
    command += [part for change in SMALL for part in ("--set", change)]
    double = os.environ | {"JAX_ENABLE_X64": "1"}  # as in these tests
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=double)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/parts/FedAc-I-4-1-0.parquet")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (stopped,) = tmp_path.glob("a9a-1e-3-*")
    before = len(list((stopped / "parts").glob("*.parquet"))) - 1
    assert 0 < before < 16
    assert not (stopped / "report.json").exists()
    swept, real = [], study.sweep_history
    monkeypatch.setattr(study, "sweep_history", lambda *a, **k: swept.append(1) or real(*a, **k))
    monkeypatch.setattr(study, "centralized", lambda *_: pytest.fail("the optimum was in the store"))
    assert run(tmp_path, seeds=[0, 1], resume=True) == stopped
    assert len(swept) == 16 - before
    assert (stopped / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()
    resumed, whole = (pd.read_parquet(directory / "history.parquet") for directory in (stopped, finished))
    pd.testing.assert_frame_equal(resumed, whole)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run on generated data with a step size that diverges, and what it says; pytest makes errors of warnings."""
    text = io.StringIO()
    overrides = [*SMALL, "data.num_examples=60", "data.num_features=5", 'methods=["MB-SGD"]']
    overrides += ["grid.step_size=[0.1, 1e30]", "grid.clients=[4]", "grid.local_steps=[8]"]
    root, console = tmp_path_factory.mktemp("generated"), Console(file=text, width=200)
    return experiments.run("epsilon-1e-4", overrides=overrides, root=root, console=console), text.getvalue()


def generated_problem() -> fl.problems.Logistic:
    X, y = fl.data.epsilon_like(num_examples=60, num_features=5)
    return fl.problems.Logistic(fl.FederatedData.shared(X, y, num_clients=1), l2=1e-4)


def test_a_run_that_diverges_is_a_row_and_not_a_warning(generated: tuple[Path, str]):
    results: Any = pd.read_csv(generated[0] / "results.csv").set_index("step_size")
    X, y = fl.data.epsilon_like(num_examples=60, num_features=5)
    x0 = np.random.RandomState(1).standard_normal(5)
    start = np.mean(np.logaddexp(0, -y * (X @ x0))) + 1e-4 / 2 * x0 @ x0
    assert (results.loc[[1e30], "final_loss"] == np.inf).all()
    np.testing.assert_allclose(results.loc[[1e30], "best_loss"], start, rtol=1e-7)
    assert np.isfinite(results.loc[[0.1], "final_loss"]).all()


def test_generated_data_are_called_that(generated: tuple[Path, str]):
    directory, text = generated
    assert "generated data like epsilon" in text
    assert "they are not epsilon" in text
    best = fl.solvers.centralized(generated_problem(), progress=False).objective
    assert json.loads((directory / "report.json").read_text())["numbers"]["optimum"] == pytest.approx(best, rel=1e-12)


def test_where_epsilon_is_not_at_hand_another_way_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def absent() -> Any:
        raise OSError("epsilon is not here")

    monkeypatch.setattr(fl.data, "epsilon", absent)
    with pytest.raises(ValueError, match=r"not here; --set data.name=epsilon-like runs with generated data"):
        experiments.run("epsilon-1e-4", scale="paper", root=tmp_path, console=Console(file=io.StringIO()))


def test_names_are_the_methods_of_the_text():
    made = {name: smooth_method(name, 0.1, 0.01, 4) for name in METHODS}
    assert {type(made[name]).__name__ for name in ("FedAc-I", "FedAc-vanilla")} == {"FedAc"}
    assert made["FedAc-I"].gamma == pytest.approx((0.1 / (0.01 * 4)) ** 0.5)  # pyright: ignore[reportAttributeAccessIssue]
    assert made["FedAc-vanilla"].gamma == pytest.approx((0.1 / 0.01) ** 0.5)  # pyright: ignore[reportAttributeAccessIssue]
    assert type(made["FedAvg"]) is fl.methods.FedAvg
    assert type(made["MB-SGD"]) is fl.methods.MinibatchSGD
    assert made["MB-AC-SGD"].strong_convexity == 0.01  # pyright: ignore[reportAttributeAccessIssue]


def test_panels_go_on_in_the_next_row_and_ticks_are_written_out(tmp_path: Path):
    sizes = []
    for columns in (None, 3):
        with panels(5, tmp_path / "a.png", "five", columns=columns, share_y=True) as axes:
            powers_of_two(axes[4], [2**i for i in range(2, 14)])
            ticks = [label.get_text() for label in axes[4].get_xticklabels()]
        assert len(axes) == 5
        assert ticks == ["4", "16", "64", "256", "1024", "4096"]
        sizes.append(image.imread(tmp_path / "a.png").shape[:2])
    (low, wide), (high, narrow) = sizes
    assert (high, 5 * narrow) == (pytest.approx(2 * low, abs=2), pytest.approx(3 * wide, abs=9))


def test_every_method_has_a_colour_and_a_marker():
    assert set(METHODS) <= set(COLORS)
    assert len({MARKERS[name] for name in METHODS}) == len({COLORS[name] for name in METHODS}) == len(METHODS)


def history(*runs: tuple[float, list[float], int | None]) -> pd.DataFrame:
    rows = [
        {
            "method": "FedAc-I",
            "step_size": eta,
            "clients": 4,
            "local_steps": 2,
            "seed": 0,
            "round": r,
            "loss": loss,
            "diverged": when,
        }
        for eta, losses, when in runs
        for r, loss in enumerate(losses)
    ]
    return pd.DataFrame(rows).astype({"diverged": "Int64"})


def test_the_best_is_that_of_finite_evaluations_and_the_last_is_inf_after_divergence():
    nan, inf = np.nan, np.inf
    frame = history((1, [3, 1, 2], None), (2, [3, 2.5, nan], 2), (3, [nan], 0), (4, [3, inf], 1))
    summary = study.summary(frame, 0.5)
    assert list(summary) == COLUMNS
    assert summary["best_loss"].tolist() == [1, 2.5, inf, 3]
    assert summary["final_loss"].tolist() == [2, inf, inf, inf]
    assert summary["best_suboptimality"].tolist() == [0.5, 2.0, inf, 2.5]


def results(rows: list[tuple[str, float, int, int, list[float]]]) -> pd.DataFrame:
    """Rows of (method, step size, clients, local steps, suboptimality of each seed)."""
    cells = [(*cell, seed, value) for *cell, values in rows for seed, value in enumerate(values)]
    return pd.DataFrame(cells, columns=["method", "step_size", "clients", "local_steps", "seed", "best_suboptimality"])


def test_the_best_step_size_is_best_on_average_over_seeds():
    tuned = study.tune(results([("FedAc-I", 0.1, 4, 1, [3.0, 5.0]), ("FedAc-I", 0.2, 4, 1, [1.0, 9.0])]))
    (row,) = tuned.to_dict("records")
    assert (row["step_size"], row["suboptimality"], row["smallest"], row["largest"]) == (0.1, 4.0, 3.0, 5.0)


def test_rounds_needed_are_the_fewest_that_reach_the_level():
    rows = [("FedAc-I", 0.1, 4, k, [value]) for k, value in {1: 1e-5, 2: 2e-3, 4: 1e-3, 8: 1.1e-3}.items()]
    tuned = study.tune(results([*rows, ("FedAc-I", 0.1, 8, 1, [1.0])]))
    needed = study.rounds_needed(tuned, 16, 1e-3)
    assert needed.to_dict() == {("FedAc-I", 4): 4}
    assert study.rounds_needed(tuned, 16, 1e-4).to_dict() == {("FedAc-I", 4): 16}
    assert study.rounds_needed(tuned, 16, 1e-6).empty


def test_the_table_is_blank_where_no_rounds_are_enough():
    settings = load("a9a-1e-3", overrides=[*SMALL, "levels=[0.01]", "steps=8"])
    assert isinstance(settings, SpeedupSettings)
    values = {
        ("FedAc-I", 4): [0.001, 0.02],
        ("FedAc-I", 8): [0.001, 0.001],
        ("MB-SGD", 4): [1, 1],
        ("MB-SGD", 8): [1, 1],
    }
    rows = [(name, 0.1, m, k, [v]) for (name, m), vs in values.items() for k, v in zip([1, 8], vs, strict=True)]
    table: Any = study.table(settings, study.tune(results(rows)))
    assert table["clients"].tolist() == [4, 8]  # the one that is wanted, and the largest
    assert table["FedAc-I"].tolist() == [8, 1]
    assert table["MB-SGD"].isna().all()


GRID = SpeedupGrid(step_size=[0.1, 1.0, 10.0], clients=[4, 16, 64], local_steps=[1, 2, 4, 8])


def speeds(
    value: Callable[[str, int, int], float],
    best: float = 1.0,
    grid: SpeedupGrid = GRID,
    text: list[float] | None = None,
) -> Speeds:
    cells = [(name, m, k) for name in ("a", "b") for m in grid.clients for k in grid.local_steps]
    rows = [{"method": n, "clients": m, "local_steps": k, "suboptimality": value(n, m, k)} for n, m, k in cells]
    return Speeds(pd.DataFrame(rows).assign(step_size=best), grid, text or GRID.step_size, 32)


LINEAR = speeds(lambda name, m, k: 1 / m)
FLAT = speeds(lambda name, m, k: m**-0.2 * k)
LEAD = speeds(lambda name, m, k: {"a": 1.0, "b": {4: 1.0, 16: 2.0, 64: 8.0}[m]}[name] / m)  # 2.52 in the geometric mean
ROUNDS = speeds(lambda name, m, k: {1: 0.5, 2: 0.8, 4: 1.05, 8: 3.0}[k])
NEEDED = {"check": "rounds_needed", "method": "a", "level": 1.0, "clients": 64}
WIDER = SpeedupGrid(step_size=[0.01, 0.1, 1.0, 10.0, 100.0], clients=[4], local_steps=[1])
SPEEDUP = {"check": "linear_speedup", "methods": ["a", "b"], "exponent": 0.75}
LOSES = {"check": "no_linear_speedup", "methods": ["a", "b"], "exponent": 0.5}
BETTER = {"check": "better", "method": "a", "than": ["b"]}
SIMILAR = {"check": "similar", "method": "a", "than": ["b"]}
WORSENS = {"check": "deteriorates", "method": "a", "fewest_local_steps": 4}
INSIDE = {"check": "inside_grid"}
ONSET = {"check": "onset", "methods": ["a"], "factor": 1.5}
LATER = speeds(lambda name, m, k: 1.0 if k == 1 or (k == 2 and m == 4) else 2.0)
ROBUST = {"check": "more_robust", "method": "a", "than": ["b"], "fewest_local_steps": 4}
ROBUSTER = speeds(lambda name, m, k: m * {"a": k**0.5, "b": k}[name])
FEWEST = {"check": "fewest_rounds", "method": "a", "than": ["b"], "level": 4.0, "clients": 64}
FEWER = speeds(lambda name, m, k: {"a": 0.5 * k, "b": k}[name])

CASES: dict[str, tuple[dict[str, Any], Speeds, str, str]] = {
    "rounds": (
        NEEDED | {"rounds": 16},
        ROUNDS,
        HOLDS,
        "8.00e-01 after 16 rounds, 1.05e.00 after 8; below 1 from 16 rounds",
    ),
    "rounds_by_the_tolerance": (NEEDED | {"rounds": 8, "tolerance": 0.1}, ROUNDS, HOLDS, "1.05e.00 after 8 rounds"),
    "rounds_not_enough": (NEEDED | {"rounds": 8}, ROUNDS, FAILS, "1.05e.00 after 8 rounds"),
    "rounds_more_than_needed": (NEEDED | {"rounds": 32}, ROUNDS, FAILS, "from 16 rounds on"),
    "rounds_never": (NEEDED | {"rounds": 8, "level": 0.1}, ROUNDS, FAILS, "never below 0.1"),
    "rounds_half_unknown": (NEEDED | {"rounds": 4}, ROUNDS, UNMEASURED, "K = 16, which is 2 rounds, was not run"),
    "rounds_unknown": (NEEDED | {"rounds": 2}, ROUNDS, UNMEASURED, "K = 16, which is 2 rounds, was not run"),
    "clients_unknown": (NEEDED | {"rounds": 16, "clients": 8192}, ROUNDS, UNMEASURED, "M = 8192 was not run"),
    "linear": (SPEEDUP, LINEAR, HOLDS, "exponents of 1/M for K = 1, 2, 4, 8: a 1, 1, 1, 1; b 1"),
    "not_linear": (SPEEDUP, FLAT, FAILS, "0.2"),
    "linear_for_some": (SPEEDUP, speeds(lambda n, m, k: 1 / m if n == "a" else 1), FAILS, "a 1, .*; b -?0"),
    "lost": (LOSES, FLAT, HOLDS, "a 0.2"),
    "not_lost": (LOSES, LINEAR, FAILS, "a 1"),
    "lost_later": (
        LOSES | {"fewest_local_steps": 4},
        speeds(lambda n, m, k: 1 / m if k < 4 else 1),
        HOLDS,
        "for K = 4, 8: a",
    ),
    "no_such_local_steps": (LOSES | {"fewest_local_steps": 64}, FLAT, UNMEASURED, "no K of the claim was run"),
    "too_few_clients": (
        SPEEDUP,
        speeds(lambda n, m, k: 1 / m, grid=GRID.model_copy(update={"clients": [4, 8]})),
        UNMEASURED,
        "M from 4 to 8 is too little",
    ),
    "worsens": (
        WORSENS | {"factor": 4},
        FLAT,
        HOLDS,
        "with 64 clients, 4, 8 times the suboptimality of K = 1 for K = 4, 8",
    ),
    "does_not_worsen": (WORSENS | {"factor": 4.1}, FLAT, FAILS, "4, 8 times"),
    "better": (BETTER | {"factor": 2.5}, LEAD, HOLDS, r"2.5, .* \(mean over M\), 8, 8, 8, 8 \(M = 64\)"),
    "better_for_some_clients": (
        BETTER | {"factor": 7.9, "clients": 64},
        LEAD,
        HOLDS,
        r"for K = 1, 2, 4, 8: 8, 8, 8, 8 \(M = 64\)",
    ),
    "not_better_for_few_clients": (BETTER | {"factor": 1, "clients": 4}, LEAD, FAILS, r"1, 1, 1, 1 \(M = 4\)"),
    "not_better": (BETTER | {"factor": 2.6}, LEAD, FAILS, "suboptimality of b over that of a"),
    "worse": (BETTER | {"method": "b", "than": ["a"], "factor": 1}, LEAD, FAILS, "a over that of b"),
    "similar": (SIMILAR | {"factor": 2.6}, LEAD, HOLDS, "2.5"),
    "not_similar": (SIMILAR | {"factor": 2.4}, LEAD, FAILS, "2.5"),
    "not_similar_the_other_way": (SIMILAR | {"method": "b", "than": ["a"], "factor": 2.4}, LEAD, FAILS, "0.4"),
    "not_run": (BETTER | {"than": ["c"], "factor": 1}, LEAD, UNMEASURED, "c was not run"),
    "onset": (ONSET | {"passes": 2}, LATER, HOLDS, r"a K = 2 \(M = 16, 64\), K = 4 \(M = 4\)"),
    "onset_with_some_clients": (ONSET | {"passes": 4, "clients": 4}, LATER, HOLDS, r"a K = 4 \(M = 4\)"),
    "onset_too_early": (ONSET | {"passes": 4}, LATER, FAILS, "first K with 1.5 times the suboptimality of K = 1"),
    "no_onset": (ONSET | {"passes": 2}, LINEAR, FAILS, r"a none \(M = 4, 16, 64\)"),
    "onset_beyond_the_grid": (ONSET | {"passes": 8}, LATER, UNMEASURED, "K = 16 was not run"),
    "more_robust": (ROBUST, ROBUSTER, HOLDS, "for K = 4, 8, mean over M: a 2, 2.8; b 4, 8"),
    "less_robust": (ROBUST | {"method": "b", "than": ["a"]}, ROBUSTER, FAILS, "b 4, 8; a 2, 2.8"),
    "fewest_rounds": (FEWEST, FEWER, HOLDS, r"with 64 clients: 4 \(a\), 8 \(b\)"),
    "not_fewest": (FEWEST | {"method": "b", "than": ["a"]}, FEWER, FAILS, r"8 \(b\), 4 \(a\)"),
    "never_there": (FEWEST | {"level": 0.1}, FEWER, FAILS, r"never \(a\), never \(b\)"),
    "only_one_gets_there": (FEWEST | {"level": 0.5}, FEWER, HOLDS, r"32 \(a\), never \(b\)"),
    "inside": (INSIDE, LINEAR, HOLDS, r"best 1 to 1 \(a\)"),
    "at_an_end": (INSIDE, speeds(lambda n, m, k: 1.0, best=0.1), UNMEASURED, "--grid wide"),
    "at_an_end_of_the_text_only": (INSIDE, speeds(lambda n, m, k: 1.0, 0.1, WIDER), HOLDS, "best 0.1 to 0.1"),
    "outside": (
        INSIDE,
        speeds(lambda n, m, k: 1.0, 0.01, WIDER),
        FAILS,
        r"best 0.01 to 0.01.*outside in 2 of 2 settings: 0.01 \(a, K = 1, M = 4\), 0.01 \(b, K = 1, M = 4\)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str):
    claim, found, outcome, measured = CASES[name]
    verdict = judge(SpeedupClaim(text="it is so", **claim), found)
    assert verdict.outcome == outcome
    assert re.search(measured, verdict.measured)


def test_the_verdict_says_with_how_many_seeds_alone_it_holds():
    settings: Any = load(
        "a9a-1e-3", overrides=["claims=[{text='t', check='better', method='a', than=['b'], factor=1}]"]
    )
    lead, behind = LEAD, speeds(lambda name, m, k: {"a": 2.0, "b": 1.0}[name])
    (verdict,) = verdicts(settings, lead, {0: lead, 1: behind, 2: lead})
    assert verdict.outcome == HOLDS
    assert verdict.measured.endswith("; alone it holds with 2 of 3 seeds")
    (verdict,) = verdicts(settings, lead, {0: lead, 1: lead})
    assert "seeds" not in verdict.measured


def test_fedac_ii_has_the_beta_of_the_text():
    method: Any = smooth_method("FedAc-II", 0.1, 1e-3, 8)
    alpha = 3 / (2 * method.gamma * 1e-3) - 0.5
    assert method.beta == pytest.approx((2 * alpha**2 - 1) / (alpha - 1))
    assert load("a9a-fedac-ii").model_dump()["methods"] == ["FedAc-I", "FedAc-II"]
