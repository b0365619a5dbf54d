"""Haxby's scans: small files in the real formats, and the real array where it is at hand."""

import builtins
import gzip
import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

import fedlocal as fl
import paths
from fedlocal.data import read_haxby_array, read_haxby_images, registry
from fedlocal.data.sets.fmri_scans import CATEGORIES
from fedlocal.data.splits import TrainOrValidation

SHARED = paths.SHARED / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
SHAPE = (4, 3, 2)
BLOCKS = ["rest", "face", "rest", "cat", "house", "rest"]  # of three scans each


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def labels_of(runs: int) -> list[tuple[str, int]]:
    return [(label, run) for run in range(runs) for label in BLOCKS for _ in range(3)]


def write_array(path: Path, monkeypatch: pytest.MonkeyPatch, runs: int = 5, **changes: Any) -> dict[str, np.ndarray]:
    """A file like haxby2001_subj1_vt.npz, which the catalogue then takes for it."""
    seen = [pair for pair in labels_of(runs) if pair[0] != "rest"]
    arrays = {
        "X": np.random.default_rng(0).integers(300, 2800, (len(seen), 4)).astype(np.int16),
        "label": np.array([label for label, _ in seen]),
        "run": np.array([run for _, run in seen], np.uint8),
        "block": np.zeros(len(seen), np.uint8),
        "mask_idx": np.array([1, 4, 13, 17], np.int32),
        "mask_dim": np.array(SHAPE, np.int32),
    } | changes
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    entry = replace(registry.HAXBY["haxby-vt"], sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(registry.HAXBY, "haxby-vt", entry)
    return arrays


def write_subject(folder: Path, subject: int, runs: int = 4, unlabelled: int | None = None) -> np.ndarray:
    """A subject's files as nilearn's fetch_haxby lays them out; the scans are returned."""
    pairs = [("rest" if run == unlabelled else label, run) for label, run in labels_of(runs)]
    scans = np.random.default_rng(subject).integers(0, 3000, (*SHAPE, len(pairs))).astype(np.int16)
    own = folder / f"subj{subject}"
    own.mkdir(parents=True)
    nibabel.save(nibabel.Nifti1Image(scans, np.eye(4)), own / "bold.nii.gz")
    nibabel.save(nibabel.Nifti1Image(mask_of(3 + subject), np.eye(4)), own / "mask4_vt.nii.gz")
    (own / "labels.txt").write_text("labels chunks\n" + "".join(f"{label} {run}\n" for label, run in pairs))
    return scans


def mask_of(voxels: int) -> np.ndarray:
    mask = np.zeros(SHAPE, np.int8)
    mask.ravel()[np.linspace(0, mask.size - 1, voxels).astype(int)] = 1
    return mask


def write_brain(folder: Path, voxels: int = 10) -> np.ndarray:
    nibabel.save(nibabel.Nifti1Image(mask_of(voxels), np.eye(4)), folder / "mask.nii.gz")
    return mask_of(voxels) > 0


def standardised(scans: np.ndarray) -> np.ndarray:
    """One run by loops over its voxels."""
    columns = [[(v - np.mean(c)) / np.sqrt(np.mean((c - np.mean(c)) ** 2)) for v in c] for c in scans.T.astype(float)]
    return np.array(columns).T


def client(data: fl.FederatedData, m: int) -> tuple[np.ndarray, np.ndarray]:
    start, size = int(data.client_starts[m]), int(data.client_sizes[m])
    return np.asarray(data.arrays[0])[start : start + size], np.asarray(data.arrays[1])[start : start + size]


def test_runs_of_the_array_are_clients_and_the_last_three_are_for_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    arrays = write_array(tmp_path / "haxby2001_subj1_vt.npz", monkeypatch)
    wanted: dict[TrainOrValidation, list[int]] = {"train": [0, 1], "validation": [2, 3, 4]}
    for split, runs in wanted.items():
        data = fl.data.haxby(tmp_path, split=split)
        assert data.client_sizes.tolist() == [6] * len(runs)
        for m, run in enumerate(runs):
            features, targets = client(data, m)
            expected = standardised(arrays["X"][arrays["run"] == run])
            labels = arrays["label"][arrays["run"] == run]
            np.testing.assert_allclose(features, expected[labels != "cat"], rtol=1e-6)
            assert targets.tolist() == [1.0] * 3 + [-1.0] * 3


def test_faces_may_be_told_from_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arrays = write_array(tmp_path / "haxby2001_subj1_vt.npz", monkeypatch)
    features, targets = client(fl.data.haxby(tmp_path, against="cat"), 0)
    np.testing.assert_allclose(features, standardised(arrays["X"][:9])[:6], rtol=1e-6)
    assert targets.tolist() == [1.0] * 3 + [-1.0] * 3
    with pytest.raises(ValueError, match=r"^haxby: against must be one of 'bottle', .*'house', .* got 'horse'$"):
        fl.data.haxby(tmp_path, against="horse")  # pyright: ignore[reportArgumentType]


def test_places_of_the_array_count_the_first_axis_fastest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_array(tmp_path / "haxby2001_subj1_vt.npz", monkeypatch)
    (scans,) = fl.data.haxby_scans(tmp_path)
    assert scans.shape == SHAPE
    assert [i + 4 * j + 12 * k for i, j, k in scans.positions.tolist()] == [1, 4, 13, 17]


def test_a_voxel_that_never_changes_is_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scans = np.random.default_rng(0).integers(0, 9, (45, 4))
    scans[:9, 2] = 7
    write_array(tmp_path / "haxby2001_subj1_vt.npz", monkeypatch, X=scans)
    features, _ = client(fl.data.haxby(tmp_path), 0)
    assert (features[:, 2] == 0).all()
    assert (features[:, 1] != 0).any()


def test_without_the_file_it_is_said_where_to_put_it(cache: Path):
    with pytest.raises(
        FileNotFoundError, match=rf"haxby2001_subj1_vt.npz cannot be fetched, .* put it into {cache}, or"
    ):
        fl.data.haxby()
    with pytest.raises(
        FileNotFoundError, match=r"verify: haxby-vt is not here; put the file haxby2001_subj1_vt.npz into"
    ):
        fl.data.verify("haxby-vt")


def test_a_changed_array_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "haxby2001_subj1_vt.npz"
    write_array(path, monkeypatch)
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(ValueError, match=r"^haxby: .* was changed or damaged: .*fl.data.read_haxby_array$"):
        fl.data.haxby(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"label": np.array(["face"])}, "45 scans of 4 voxels, but 1 labels"),
        ({"label": np.array(["face", None] * 20, object)}, "cannot be read: Object arrays cannot be loaded"),
        ({"mask_idx": np.array([1, 2])}, "and 2 places"),
    ],
)
def test_strange_arrays_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], sentence: str
):
    write_array(tmp_path / "haxby2001_subj1_vt.npz", monkeypatch, **changes)
    with pytest.raises(ValueError, match=sentence):
        fl.data.haxby(tmp_path)
    np.savez(tmp_path / "other.npz", X=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"must have the arrays X, label, run, mask_idx, mask_dim: .*label"):
        read_haxby_array(tmp_path / "other.npz")


def test_of_several_subjects_the_last_is_for_validation(tmp_path: Path):
    """The mask of the whole brain is one for all, rest counts in the standardisation, a run without labels is left out."""
    folder = tmp_path / "haxby2001"
    write_subject(folder, 1, runs=2)
    scans = {2: write_subject(folder, 2, unlabelled=1), 3: write_subject(folder, 3)}
    inside = write_brain(folder)
    train, validation = (
        fl.data.haxby(tmp_path, source="images", subjects=(1, 2, 3), split=split) for split in ("train", "validation")
    )
    assert train.client_sizes.tolist() == [6] * (2 + 3)
    assert validation.client_sizes.tolist() == [6] * 4
    for data, place, subject, run in ((train, 3, 2, 2), (validation, 1, 3, 1)):
        here = np.array([scans[subject][..., t][inside] for t in range(18 * run, 18 * (run + 1))])
        wanted = [3, 4, 5, 12, 13, 14]  # of the blocks: face and house
        features, targets = client(data, place)
        np.testing.assert_allclose(features, standardised(here)[wanted], rtol=1e-6)
        assert targets.tolist() == [1.0] * 3 + [-1.0] * 3


def test_the_mask_of_one_subject_gives_places(tmp_path: Path):
    scans = write_subject(tmp_path, 2)
    (read,) = fl.data.haxby_scans(tmp_path, source="images", subjects=[2], mask="vt")
    assert read.shape == SHAPE
    assert len(read.positions) == 5
    for column, (i, j, k) in enumerate(read.positions):
        np.testing.assert_array_equal(read.features[:, column], scans[i, j, k])
    assert fl.data.haxby(tmp_path, source="images", subjects=[2], mask="vt").num_clients == 1


def test_archives_are_fetched_and_read_like_folders(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    write_subject(tmp_path / "made", 1)
    archive = tmp_path / "site" / "subj1-2010.01.14.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as files:
        files.add(tmp_path / "made" / "subj1", "subj1")
    write_brain(archive.parent)
    for name, file in {"haxby-1": archive, "haxby-mask": archive.parent / "mask.nii.gz"}.items():
        monkeypatch.setitem(registry.HAXBY, name, replace(registry.HAXBY[name], address=file.as_uri()))
    fetched = fl.data.haxby(source="images", subjects=[1])
    assert {"subj1-2010.01.14.tar.gz", "mask.nii.gz"} <= {path.name for path in cache.iterdir()}
    write_brain(tmp_path / "made")
    unpacked = fl.data.haxby(tmp_path / "made", source="images", subjects=[1])
    np.testing.assert_array_equal(fetched.arrays[0], unpacked.arrays[0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"source": "nifti"}, "source must be one of 'array', 'images', got 'nifti'"),
        ({"split": "test"}, "split must be one of 'train', 'validation', got 'test'"),
        ({"source": "images", "mask": "v1"}, "mask must be one of 'brain', 'vt', got 'v1'"),
        ({"source": "images", "subjects": [0, 1]}, r"subjects must be different numbers from 1 to 6, got \[0, 1\]"),
        ({"source": "images", "mask": "vt"}, "mask 'vt' has other voxels for every subject"),
    ],
)
def test_mistakes_are_told(arguments: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=f"^haxby: {sentence}"):
        fl.data.haxby(**arguments)


def test_strange_images_are_refused(tmp_path: Path):
    write_subject(tmp_path, 1)
    own = tmp_path / "subj1"
    bold, labels, mask = (own / name for name in ("bold.nii.gz", "labels.txt", "mask4_vt.nii.gz"))
    good = (bold.read_bytes(), labels.read_text(), mask.read_bytes())
    with pytest.raises(ValueError, match=r"scans \(4, 3, 2\) must be four-dimensional"):
        read_haxby_images(good[2], good[1], good[2])
    with pytest.raises(ValueError, match=r"must have the columns 'labels chunks', got 'face 0'"):
        read_haxby_images(good[0], "face 0\n", good[2])
    with pytest.raises(ValueError, match="72 scans of 4 voxels, but 1 labels"):
        read_haxby_images(good[0], "labels chunks\nface 0\n", good[2])
    for broken in (b"no image", gzip.compress(b"no image"), good[0][:100]):
        with pytest.raises(ValueError, match="the scans of images is not an image in NIfTI format"):
            read_haxby_images(broken, *good[1:])
    assert read_haxby_images(gzip.decompress(good[0]), *good[1:]).features.shape == (72, 4)


def test_too_few_runs_cannot_be_split(tmp_path: Path):
    write_subject(tmp_path, 1, runs=3)
    with pytest.raises(ValueError, match="in 3 runs cannot be split"):
        fl.data.haxby(tmp_path, source="images", subjects=[1], mask="vt")


def test_a_missing_nibabel_is_told_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_subject(tmp_path, 1)
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("nibabel"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'pip install "fedlocal\[fmri\]"'):
        fl.data.haxby(tmp_path, source="images", subjects=[1], mask="vt")


@needs_shared
def test_the_real_array_is_as_documented():
    train, validation = (fl.data.haxby(SHARED, split=split) for split in ("train", "validation"))
    assert train.client_sizes.tolist() == [18] * 9
    assert validation.client_sizes.tolist() == [18] * 3
    assert np.asarray(train.arrays[0]).shape == (162, 577)
    assert [float(np.sum(client(train, m)[1])) for m in range(9)] == [0.0] * 9  # nine of each
    (scans,) = fl.data.haxby_scans(SHARED)
    assert tuple(np.unique(scans.labels)) == CATEGORIES
    assert np.unique(scans.runs, return_counts=True)[1].tolist() == [72] * 12
    entry, path = registry.HAXBY["haxby-vt"], fl.data.verify("haxby-vt", SHARED)
    assert (path.stat().st_size, *scans.features.shape) == (entry.size, entry.rows, entry.features)


@needs_shared
def test_voxels_of_the_real_array_lie_together():
    """Counted with the last axis fastest, mask_idx would scatter them: then few have a neighbour on each side."""
    (scans,) = fl.data.haxby_scans(SHARED)
    index = np.ravel_multi_index(scans.positions.T, scans.shape, order="F")
    scattered = np.stack(np.unravel_index(index, scans.shape), axis=1)

    def neighbours(positions: np.ndarray) -> float:
        there = set(map(tuple, positions.tolist()))
        steps = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
        return float(np.mean([tuple(np.add(p, s)) in there for p in positions.tolist() for s in steps]))

    assert neighbours(scans.positions) > 0.5 > 0.3 > neighbours(scattered)
