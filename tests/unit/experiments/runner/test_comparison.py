"""Comparison with a published table, on tables made by hand."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedlocal.cli import app
from fedlocal.experiments.runner.comparison import compare, show_comparison
from fedlocal.experiments.runner.methods import PUBLISHED_NAMES, PUBLISHED_NUMBERS, PUBLISHED_TABLE
from fedlocal.experiments.runner.store import Store
from paths import ROOT

OPTIMUM, START = 0.3, 1.1
SEEDS = [0.04, 0.05, 0.06, 0.05, 0.05]  # suboptimalities: mean 0.05, standard deviation sqrt(2 / 4) / 100
SD = np.sqrt(0.5) / 100
Runs = dict[tuple[str, float, int, int], list[float]]


def directory(path: Path, runs: Runs, final: float | None = None) -> Path:
    """A finished run with these suboptimalities of each seed."""
    store = Store.create(path, {"name": "a9a-1e-3"}, "quick")
    rows = [
        (*cell, seed, OPTIMUM + v, final or OPTIMUM + v, v) for cell, vs in runs.items() for seed, v in enumerate(vs)
    ]
    columns = ["method", "step_size", "clients", "local_steps", "seed", "best_loss", "final_loss", "best_suboptimality"]
    store.write_csv("results.csv", pd.DataFrame(rows, columns=columns))
    store.write_json("report.json", {"numbers": {"optimum": OPTIMUM, "start_loss": START}})
    return store.directory


def published(path: Path, cells: dict[tuple[str, float, int, int], float], final: float = 1.0) -> Path:
    rows = [(*cell, OPTIMUM + v, final) for cell, v in cells.items()]
    pd.DataFrame(rows, columns=["method", "eta", "M", "K", "best_loss", "final_loss"]).to_csv(
        path / "table.csv", index=False
    )
    return path / "table.csv"


def one(path: Path, theirs: float, ours: list[float] = SEEDS, **more: Any) -> dict[str, Any]:
    """What is said about a single cell."""
    run = directory(path, {("FedAc-I", 0.1, 4, 8): ours}, more.get("our_final"))
    table = published(path, {("fed_ac_1", 0.1, 4, 8): theirs}, more.get("their_final", 1.0))
    (row,) = compare(run, table).cells.to_dict("records")
    return row


AWAY = SD * np.sqrt(1 + 1 / 5)  # one run against the mean of five


@pytest.mark.parametrize(("deviations", "agrees"), [(2.99, True), (3.01, False), (-2.99, True), (-3.01, False)])
def test_a_cell_agrees_within_three_deviations_of_one_run_from_a_mean(tmp_path: Path, deviations: float, agrees: bool):
    row = one(tmp_path, 0.05 - deviations * AWAY)
    assert row["compared"]
    assert row["agrees"] == agrees
    assert row["difference"] == pytest.approx(deviations)
    assert row["sd"] == pytest.approx(SD)
    assert (row["theirs"], row["ours"]) == (pytest.approx(0.05 - deviations * AWAY), pytest.approx(0.05))


@pytest.mark.parametrize(("theirs", "agrees"), [(0.05 / 1.049, True), (0.05 / 1.051, False)])
def test_five_percent_are_allowed_where_the_noise_is_smaller(tmp_path: Path, theirs: float, agrees: bool):
    assert one(tmp_path, theirs, [0.05, 0.05, 0.05])["agrees"] == agrees


@pytest.mark.parametrize(("theirs", "agrees"), [(0.05 / 1.049, True), (0.05 / 1.051, False)])
def test_with_one_seed_the_noise_is_unknown_and_five_percent_are_allowed(tmp_path: Path, theirs: float, agrees: bool):
    assert one(tmp_path, theirs, [0.05])["agrees"] == agrees
    found = compare(next(tmp_path.glob("a9a*")), tmp_path / "table.csv")
    assert any("the noise was not measured" in note for note in found.notes)


def test_the_share_that_chance_allows_is_said(tmp_path: Path):
    """Student's t with 4 degrees of freedom stays within 3 with probability 0.96006, with 1 (Cauchy) 0.79517."""
    for seeds, share in ((5, "96.0%"), (2, "79.5%")):
        run = directory(tmp_path / str(seeds), {("FedAc-I", 0.1, 4, 8): SEEDS[:seeds]})
        found = compare(run, published(tmp_path, {("fed_ac_1", 0.1, 4, 8): 0.05}))
        assert any(f"noise of {seeds} seeds, in which {share}" in note for note in found.notes)


def test_cells_above_a_tenth_are_not_compared(tmp_path: Path):
    assert not one(tmp_path, 0.11, [0.2, 0.21])["compared"]


@pytest.mark.parametrize(
    ("theirs", "their_final", "ours", "our_final", "diverged"),
    [
        (START - OPTIMUM, 3.0, [START - OPTIMUM] * 2, 5.0, (True, True)),  # never better than at the start
        (START - OPTIMUM - 1e-8, 3.0, [0.2, 0.2], 5.0, (True, False)),  # but for seven digits
        (np.nan, np.nan, [0.2, 0.2], np.inf, (True, True)),
        (0.2, np.inf, [0.2, 0.2], 5.0, (True, False)),
        (0.2, 3.0, [START - OPTIMUM, 0.2], 5.0, (False, True)),  # half of the seeds
        (0.2, 3.0, [START - OPTIMUM, 0.2, 0.2], 5.0, (False, False)),
    ],
)
def test_divergence(
    tmp_path: Path, theirs: float, their_final: float, ours: list[float], our_final: float, diverged: tuple[bool, bool]
):
    row = one(tmp_path, theirs, ours, their_final=their_final, our_final=our_final)
    assert (row["diverged_theirs"], row["diverged_ours"]) == diverged
    assert not row["compared"]


def test_the_summary_counts_by_method_and_the_worst_come_first(tmp_path: Path):
    best = START - OPTIMUM
    runs: Runs = {("FedAc-I", 0.1, 4, k): SEEDS for k in (1, 2, 4)}
    runs |= {("MB-SGD", 0.1, 4, 1): [best] * 5, ("MB-SGD", 0.2, 4, 1): [best] * 5, ("MB-SGD", 0.5, 4, 1): SEEDS}
    theirs = {("fed_ac_1", 0.1, 4, 1): 0.05, ("fed_ac_1", 0.1, 4, 2): 0.01, ("fed_ac_1", 0.1, 4, 4): 0.08}
    theirs |= {
        ("minibatch_sgd", 0.1, 4, 1): best,
        ("minibatch_sgd", 0.2, 4, 1): 0.3,
        ("minibatch_sgd", 0.5, 4, 1): best,
    }
    found = compare(directory(tmp_path, runs), published(tmp_path, theirs | {("fed_avg", 1.0, 4, 1): 0.05}))
    assert found.summary.to_numpy().tolist() == [
        ["FedAc-I", 3, 3, 1, 0, 0, 0],
        ["MB-SGD", 3, 0, 0, 2, 1, 1],
        ["all", 6, 3, 1, 2, 1, 1],
    ]
    assert found.worst["local_steps"].tolist() == [2, 4, 1]
    np.testing.assert_allclose(found.worst["sd_apart"], [0.04 / AWAY, -0.03 / AWAY, 0], atol=1e-9)
    text = io.StringIO()
    show_comparison(found, Console(file=text, width=100))
    assert "33.3% of 3 cells agree" in text.getvalue()
    assert "FedAc-I" in text.getvalue()


def test_all_names_of_the_published_table_are_known(tmp_path: Path):
    runs: Runs = {(name, 0.1, 4, 8): SEEDS for name in PUBLISHED_NAMES.values()}
    found = compare(
        directory(tmp_path, runs), published(tmp_path, {(name, 0.1, 4, 8): 0.05 for name in PUBLISHED_NAMES})
    )
    assert found.summary["agree"].tolist() == [1, 1, 1, 1, 1, 5]


def test_the_authors_own_file_is_a_table(tmp_path: Path):
    """Its methods are numbers; number 2 is a FedAc-II with another beta than the text's, which is left out."""
    names = list(PUBLISHED_NUMBERS.values())
    assert sorted(names) == sorted(PUBLISHED_NAMES.values())
    run = directory(tmp_path, {(name, 0.1, 4, 8): SEEDS for name in [*names, "FedAc-II"]})
    table = tmp_path / "summary.csv"
    columns = "runid,dataset,alg,lambd,eta,M,K,T,local_batch,seed,record_intvl,final_loss,best_loss"
    row = "0602T,a9a,{},0.001,0.1,4,8,4096,1,1,512,1.0,{}"
    losses = {number: OPTIMUM + 0.05 + number / 1000 for number in range(-1, 5)}
    table.write_text("\n".join([columns, *(row.format(*pair) for pair in losses.items())]))
    found = compare(run, table).cells
    assert dict(zip(found["method"], found["theirs"].round(12), strict=True)) == {
        name: pytest.approx(0.05 + number / 1000) for number, name in PUBLISHED_NUMBERS.items()
    }


def test_where_the_authors_table_is_is_said(tmp_path: Path):
    run = directory(tmp_path, {("FedAc-I", 0.1, 4, 8): SEEDS})
    place, file = PUBLISHED_TABLE.split(", file ")
    for arguments in (["--help"], [str(run), str(tmp_path / "nowhere.csv")]):
        said = CliRunner().invoke(app, ["compare", *arguments], env={"COLUMNS": "200"}).output
        assert place in said
        assert file in said
    assert place in (ROOT / "README.md").read_text()
    assert place in (ROOT / "docs" / "results" / "a9a.md").read_text()


def test_results_of_another_run_are_a_table_too_and_averaged_over_their_seeds(tmp_path: Path):
    first = directory(tmp_path / "a", {("FedAc-I", 0.1, 4, 8): SEEDS})
    second = directory(tmp_path / "b", {("FedAc-I", 0.1, 4, 8): [0.03, 0.05]})
    (row,) = compare(first, second / "results.csv").cells.to_dict("records")
    assert row["theirs"] == pytest.approx(0.04)
    assert row["difference"] == pytest.approx(0.01 / (SD * np.sqrt(1 / 5 + 1 / 2)))


def test_mistakes_are_one_sentence(tmp_path: Path):
    run = directory(tmp_path, {("FedAc-I", 0.1, 4, 8): SEEDS})
    unfinished = Store.create(tmp_path, {"name": "a9a-1e-3"}, "quick").directory
    other = Store.create(tmp_path, {"name": "lasso-1"}, "quick")
    other.write_json("report.json", {})
    good = published(tmp_path, {("fed_ac_1", 0.1, 4, 8): 0.05})
    files = {
        "columns.csv": "method,eta,M,best_loss,final_loss\n",
        "words.csv": "method,eta,M,K,best_loss,final_loss\nfed_ac_1,0.1,4,8,good,bad\n",
        "lower.csv": "method,eta,M,K,best_loss,final_loss\nfed_ac_1,0.1,4,8,0.29,0.29\n",
        "others.csv": "method,eta,M,K,best_loss,final_loss\nfed_ac_1,0.1,4,16,0.4,0.4\n",
        "empty.csv": "",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    mistakes = [
        (run, tmp_path / "nowhere.csv", "there is no file"),
        (run, tmp_path / "columns.csv", "has no column 'local_steps' (or 'K'); it has: method, step_size"),
        (run, tmp_path / "words.csv", "the column 'best_loss' of"),
        (run, tmp_path / "lower.csv", "they are about different problems"),
        (run, tmp_path / "others.csv", "have no method, step size, clients and local steps in common"),
        (run, tmp_path / "empty.csv", "is not a CSV file"),
        (tmp_path, good, "is not the directory of a run"),
        (unfinished, good, "is not finished"),
        (other.directory, good, "has no results.csv"),
    ]
    for place, table, sentence in mistakes:
        result = CliRunner().invoke(app, ["compare", str(place), str(table)])
        assert result.exit_code == 2
        assert sentence in " ".join(result.output.split())


def test_the_command_prints_the_comparison(tmp_path: Path):
    run = directory(tmp_path, {("FedAc-I", 0.1, 4, 8): SEEDS})
    result = CliRunner().invoke(app, ["compare", str(run), str(published(tmp_path, {("fed_ac_1", 0.1, 4, 8): 0.05}))])
    assert result.exit_code == 0
    assert "100.0% of 1 cells agree" in " ".join(result.output.split())
