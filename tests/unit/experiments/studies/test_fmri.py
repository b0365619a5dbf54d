"""The study of fMRI scans, small: made files in the formats of the real ones."""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal import experiments
from fedlocal.cli import app
from fedlocal.data import registry
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.studies.fmri import figures, study
from fedlocal.experiments.studies.fmri.problem import FmriTask, RegularizedLoss
from fedlocal.experiments.studies.fmri.settings import FmriSettings, RegionClaim
from fedlocal.experiments.studies.fmri.study import about_regions, in_region

SMALL = ["rounds=6", "eval_every=2", "scatter.rounds=[2, 6]", "strength=0.05", 'methods=["FedDualAvg", "FedMiD"]']
SMALL += ["grid.client_step_size=[0.1]", "grid.server_step_size=[0.5, 1.0]", "baseline_step_sizes=[0.1, 1.0]"]
SMALL += ["claims=[]", "scatter.claims=[]", 'scatter.methods=["FedMiD"]']
STRENGTH, VOXELS, TRAIN, SHAPE = 0.05, 8, 2, (4, 3, 2)


def settings(*changes: str) -> FmriSettings:
    loaded = load("fmri", overrides=[*SMALL, *changes])
    assert isinstance(loaded, FmriSettings)
    return loaded


def made_scans(runs: int, seed: int) -> tuple[np.ndarray, list[str], list[int]]:
    """Four scans each of faces and of houses in a run; the first two voxels tell them apart, but for much noise."""
    labels = (["face"] * 4 + ["house"] * 4) * runs
    scans = np.random.default_rng(seed).normal(1000, 30, (len(labels), VOXELS))
    scans[:, :2] += np.where(np.array(labels) == "face", 40, -40)[:, None]
    return scans.astype(np.int16), labels, [run for run in range(runs) for _ in range(8)]


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    scans, labels, runs = made_scans(TRAIN + 3, seed=0)
    index = np.arange(3, 3 + VOXELS)
    return {
        "X": scans,
        "label": np.array(labels),
        "run": np.array(runs),
        "mask_idx": index,
        "mask_dim": np.array(SHAPE),
    }


@pytest.fixture(scope="module")
def finished(arrays: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("haxby")
    path = folder / "haxby2001_subj1_vt.npz"
    np.savez(path, **arrays)
    entry = replace(registry.HAXBY["haxby-vt"], sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLOCAL_DATA", str(folder))
        patch.setitem(registry.HAXBY, "haxby-vt", entry)
        yield run(folder / "runs")


def run(root: Path, *changes: str) -> Path:
    return experiments.run("fmri", overrides=[*SMALL, *changes], root=root, console=Console(file=io.StringIO()))


def standardised(arrays: dict[str, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """The features of every run, and the targets of each."""
    runs = [arrays["X"][arrays["run"] == r].astype(float) for r in range(TRAIN + 3)]
    return [(x - x.mean(0)) / x.std(0) for x in runs], np.array([1.0] * 4 + [-1.0] * 4)


def loss(w: np.ndarray, runs: list[np.ndarray], targets: np.ndarray) -> float:
    losses = [np.mean(np.log1p(np.exp(-targets * (x @ w)))) for x in runs]
    return float(np.mean(losses) + STRENGTH * np.abs(w).sum())


def descent(runs: list[np.ndarray], targets: np.ndarray, eta: float, epochs: int) -> np.ndarray:
    """Proximal gradient descent by hand."""
    x, b, w = np.concatenate(runs), np.tile(targets, len(runs)), np.zeros(VOXELS)
    for _ in range(epochs):
        g = -(x * (b / (1 + np.exp(b * (x @ w))))[:, None]).mean(0)
        z = w - eta * g
        w = np.sign(z) * np.maximum(np.abs(z) - eta * STRENGTH, 0)
    return w


def test_a_run_leaves_table_scatter_voxels_and_three_figures(finished: Path):
    there = {path.name for path in finished.iterdir()}
    assert {"table.parquet", "scatter.parquet", "voxels.parquet", "history.parquet"} <= there
    assert {"figure.png", "figure-scatter.png", "figure-brain.png"} <= there
    table = pd.read_parquet(finished / "table.parquet")
    assert table["method"].tolist() == ["FedDualAvg", "FedMiD", "centralized", "local", "optimum"]
    notes = json.loads((finished / "report.json").read_text())["notes"]
    assert notes[0] == "one subject, 5 runs: 2 to train, 3 to validate; 8 voxels; face against house"
    assert notes[1] == "20 clients a round are asked for, all 2 take part"


def test_baselines_are_proximal_gradient_descent(finished: Path, arrays: dict[str, np.ndarray]):
    """On all training scans, and on those of each training run; measured on validation scans."""
    runs, targets = standardised(arrays)
    history = pd.read_parquet(finished / "history.parquet")
    last: Any = history[history["round"] == 6]
    for eta in (0.1, 1.0):
        for name, m, own in (("centralized", 0, runs[:TRAIN]), ("local", 0, runs[:1]), ("local", 1, runs[1:2])):
            wanted = (last["method"] == name) & (last["seed"] == m) & (last["client_step_size"] == eta)
            (row,) = last[wanted].to_dict("records")
            w = descent(own, targets, eta, epochs=6)
            assert row["validation_objective"] == pytest.approx(loss(w, runs[TRAIN:], targets), rel=1e-5)
            assert row["objective"] == pytest.approx(loss(w, own, targets), rel=1e-5)
            assert row["density"] == np.mean(np.abs(w) > 1e-4)
            right = np.mean([targets * (x @ w) > 0 for x in runs[TRAIN:]])
            assert row["validation_accuracy"] == pytest.approx(right)


def test_local_is_the_mean_over_training_runs_with_the_step_size_that_is_best_on_average(finished: Path):
    history, table = pd.read_parquet(finished / "history.parquet"), pd.read_parquet(finished / "table.parquet")
    last: Any = history[(history["method"] == "local") & (history["round"] == 6)]
    means = last.groupby("client_step_size")["validation_objective"].mean()
    row = table.set_index("method").loc["local"]
    assert row["step_sizes"] == f"{means.idxmin():g}"
    assert row["validation_objective"] == pytest.approx(means.min())


def test_the_tuned_pair_has_the_lowest_validation_objective_and_its_weights_are_kept(
    finished: Path, arrays: dict[str, np.ndarray]
):
    runs, targets = standardised(arrays)
    history, table = pd.read_parquet(finished / "history.parquet"), pd.read_parquet(finished / "table.parquet")
    voxels, rows = pd.read_parquet(finished / "voxels.parquet"), table.set_index("method")
    for name in ("FedDualAvg", "FedMiD"):
        best = history[(history["method"] == name) & (history["round"] == 6)]["validation_objective"].min()
        assert rows.loc[name, "validation_objective"] == pytest.approx(best)
        kept = loss(voxels[name].to_numpy(), runs[TRAIN:], targets)
        assert kept == pytest.approx(best, rel=1e-5)
    assert rows.loc["optimum", "objective"] == pytest.approx(
        loss(voxels["optimum"].to_numpy(), runs[:TRAIN], targets), rel=1e-6
    )
    assert rows.loc["optimum", "objective"] <= table["objective"][table["method"] != "local"].min()
    index = voxels["axis_0"] + 4 * voxels["axis_1"] + 12 * voxels["axis_2"]
    assert index.tolist() == list(range(3, 3 + VOXELS))


def test_dots_are_pairs_whose_product_is_in_the_range():
    """0.3 * 0.01 is a little less than 0.003, and still counts; a pair that diverged has no dots from then on."""
    pairs = [(0.3, 0.01), (1.0, 0.3), (0.001, 1.0), (1.0, 1.0)]
    rows = [
        {"method": "FedMiD", "seed": seed, "round": r, "client_step_size": c, "server_step_size": s}
        | {"density": 0.1 + 0.2 * seed, "validation_accuracy": 1.0, "diverged": 4 if (c, s) == (1.0, 0.3) else None}
        for c, s in pairs
        for seed in (0, 1)
        for r in (0, 2, 6)
    ]
    dots = study.scatter_of(settings(), pd.DataFrame(rows))
    there = [(r, c, s) for r, c, s in dots[["round", "client_step_size", "server_step_size"]].itertuples(index=False)]
    assert there == [(2, 0.3, 0.01), (6, 0.3, 0.01), (2, 1.0, 0.3)]
    np.testing.assert_allclose(dots["density"], 0.2)


@pytest.mark.parametrize(("densities", "holds"), [([0.1, 0.2, 0.9], True), ([0.1, 0.2, 0.6, 0.9], False)])
def test_more_than_half_of_the_last_dots_must_be_in_the_region(densities: list[float], holds: bool):
    late = [{"method": "A", "round": 6, "density": d, "validation_accuracy": 1 + 1e-15} for d in densities]
    early = [{"method": "A", "round": 2, "density": 0.9 - d, "validation_accuracy": 0.0} for d in densities]
    other = [{"method": "B", "round": 6, "density": 0.9, "validation_accuracy": 0.0}]
    claim = RegionClaim(text="most", methods=["A"], density=(0, 0.5), accuracy=(0.75, 1))
    verdict = in_region(claim, pd.DataFrame(late + early + other))
    assert verdict.outcome == ("holds" if holds else "does not hold")
    assert f"2 of {len(densities)} (A)" in verdict.measured
    both = RegionClaim(text="most", methods=["A", "B"], density=(0, 0.5), accuracy=(0.75, 1))
    assert in_region(both, pd.DataFrame(late + early + other)).outcome == "does not hold"
    robust = RegionClaim(text="more of A", methods=["A"], than=["B"], density=(0, 0.5), accuracy=(0.75, 1))
    assert in_region(robust, pd.DataFrame(late + early + other)).outcome == "holds"
    more = [row | {"method": "B"} for row in late if row["density"] < 0.5]
    assert in_region(robust, pd.DataFrame(late + early + more)).outcome == "does not hold"


def test_halving_leaves_claims_about_all_step_sizes_open():
    halving: Any = load("fmri", tuning="halving")
    found = about_regions(halving, pd.DataFrame())
    assert [verdict.outcome for verdict in found] == ["not measured"] * len(halving.scatter.claims)
    assert len(found) > 0


def write_images(folder: Path, subjects: int) -> np.ndarray:
    """Subjects as nilearn lays them out, with one mask of the whole brain."""
    mask = np.zeros(SHAPE, np.int8)
    mask.ravel()[2 : 2 + VOXELS] = 1
    for subject in range(1, subjects + 1):
        scans, labels, runs = made_scans(2, seed=subject)
        volume = np.zeros((*SHAPE, len(scans)), np.int16)
        volume[mask > 0] = scans.T
        own = folder / f"subj{subject}"
        own.mkdir(parents=True)
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), own / "bold.nii.gz")
        lines = "".join(f"{label} {r}\n" for label, r in zip(labels, runs, strict=True))
        (own / "labels.txt").write_text("labels chunks\n" + lines)
    nibabel.save(nibabel.Nifti1Image(mask, np.eye(4)), folder / "mask.nii.gz")
    return mask


IMAGES = ["data.source=images", "data.subjects=[1, 2]", 'methods=["FedMiD"]', "baseline_step_sizes=[0.1]"]


def test_images_of_several_subjects_have_the_places_of_the_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path))
    mask = write_images(tmp_path / "haxby2001", subjects=2)
    task = FmriTask(settings(*IMAGES))
    np.testing.assert_array_equal(task.positions, np.argwhere(mask))
    assert (task.num_subjects, task.num_clients, task.validation.num_clients, task.shape) == (2, 2, 2, SHAPE)


def test_the_brain_shows_the_largest_weight_along_each_line_of_sight():
    places = np.array([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 1]])
    weights = np.array([0.5, -2.0, 0.25, 0.0])
    views = [figures.largest_along(places, weights, (2, 2, 2), along) for along in range(3)]
    np.testing.assert_array_equal(views[0], [[0.5, -2.0], [np.nan, 0.0]])
    np.testing.assert_array_equal(views[1], [[0.5, -2.0], [0.25, 0.0]])
    np.testing.assert_array_equal(views[2], [[-2.0, np.nan], [0.25, 0.0]])


@pytest.mark.thorough
def test_images_of_several_subjects_are_studied_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path))
    mask = write_images(tmp_path / "haxby2001", subjects=2)
    directory = run(tmp_path / "runs", *IMAGES)
    voxels = pd.read_parquet(directory / "voxels.parquet")
    np.testing.assert_array_equal(voxels[["axis_0", "axis_1", "axis_2"]], np.argwhere(mask))
    notes = json.loads((directory / "report.json").read_text())["notes"]
    assert notes[0] == "2 subjects, 4 runs: 2 to train, 2 to validate; 8 voxels; face against house"


def test_without_the_file_the_command_says_where_to_put_it(tmp_path: Path):
    command = ["run", "fmri", "--directory", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, command, env={"FEDLOCAL_DATA": str(tmp_path)})
    assert result.exit_code == 2
    assert "haxby2001_subj1_vt.npz cannot be fetched" in " ".join(result.output.split())


def test_the_text_s_setting():
    text: Any = load("fmri", "paper")
    assert len(text.grid.client_step_size) * len(text.grid.server_step_size) == 49
    assert (text.strength, text.threshold, text.rounds, text.clients_per_round) == (1e-3, 1e-4, 300, 20)
    assert (text.batch_size, text.local_epochs, len(text.baseline_step_sizes)) == (1, 1, 9)
    assert (text.scatter.rounds, text.scatter.product) == ([10, 30, 100, 300], (0.003, 0.3))
    assert (text.score.metric, text.score.rule, text.score.largest) == ("validation_objective", "last", False)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("scatter.rounds=[3]", "scatter.rounds must be evaluated, got 3 of 6, every 2"),
        ("scatter.rounds=[8]", "scatter.rounds must be evaluated, got 8 of 6, every 2"),
        ('scatter.methods=["FedMiD-OSP"]', "scatter: FedMiD-OSP is not run; methods are: FedDualAvg, FedMiD"),
        ('columns=["f1"]', "'f1' is not measured; there are: loss, objective, validation_objective"),
        ("data.subjects=[7]", "data.subjects.0: input should be less than or equal to 6, got 7"),
    ],
)
def test_mistakes_in_settings_are_one_sentence(change: str, sentence: str):
    with pytest.raises(ValueError, match=f"^run: fmri: .*{sentence}"):
        settings(change)


def test_the_regularised_loss_is_loss_and_norm():
    data = fl.FederatedData.from_clients([(np.array([[1.0, 2.0]]), np.array([1.0]))])
    problem = fl.problems.Logistic(data)
    metric = RegularizedLoss(problem, fl.regularizers.L1(0.1), "there")
    seen: Any = fl.metrics.Evaluation({"weights": np.array([1.0, -2.0])}, 0.0, 0.0, problem, None, np.ones(1), {})  # pyright: ignore[reportArgumentType]
    assert metric.measure(seen)["there"] == pytest.approx(np.log1p(np.exp(3.0)) + 0.3, rel=1e-12)
