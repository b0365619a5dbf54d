"""MNIST by writer: writers become clients, pixels lie in [0, 1], and what is not the known file is told."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedlocal as fl
import paths
from fedlocal.data import registry

SHARED = paths.SHARED / "data"
needs_shared = pytest.mark.skipif(not (SHARED / "mnist_by_writer.npz").is_file(), reason=f"no real data in {SHARED}")
WRITERS = [7, 3, 7, 7, 3]
LABELS = [0, 1, 2, 3, 4]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with five digits by two writers for training, and one by a third for testing, which stands for the real one."""
    images = np.zeros((5, 28, 28), np.uint8)
    images[:, 0, 1] = [255, 51, 102, 153, 204]
    arrays = {"x_train": images, "y_train": np.array(LABELS, np.uint8), "writer_train": np.array(WRITERS, np.int16)}
    tests = {"x_test": images[:1], "y_test": np.array([9], np.uint8), "writer_test": np.array([5], np.int16)}
    path = tmp_path / "mnist_by_writer.npz"
    np.savez_compressed(path, **arrays, **tests)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = replace(registry.HANDWRITING["mnist-by-writer"], sha256=digest)
    monkeypatch.setitem(registry.HANDWRITING, "mnist-by-writer", entry)
    return path


def test_clients_are_writers_by_number(small: Path):
    data = fl.data.mnist_by_writer(small.parent)
    features, labels = (np.asarray(a) for a in data.arrays)
    assert data.client_sizes.tolist() == [2, 3]
    assert labels.tolist() == [1, 4, 0, 2, 3]  # those of writer 3, then those of writer 7, in the order of the file
    assert features.shape == (5, 784)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features[:, 1], np.array([51, 204, 255, 102, 153]) / 255, rtol=1e-6)
    assert (np.delete(features, 1, axis=1) == 0).all()
    test = fl.data.mnist_by_writer(small.parent, split="test")
    assert (test.client_sizes.tolist(), test.arrays[1].tolist()) == ([1], [9])


def test_a_fraction_is_drawn_from_each_writer(small: Path):
    drawn = [fl.data.mnist_by_writer(small.parent, fraction=0.5, seed=seed) for seed in range(8)]
    assert all(data.client_sizes.tolist() == [1, 2] for data in drawn)
    for data in drawn:
        labels = data.arrays[1].tolist()
        assert labels[0] in (1, 4)
        assert set(labels[1:]) < {0, 2, 3}
    assert len({tuple(data.arrays[1].tolist()) for data in drawn}) > 1  # seeds matter
    again = fl.data.mnist_by_writer(small.parent, fraction=0.5, seed=3)
    assert again.arrays[1].tolist() == drawn[3].arrays[1].tolist()
    assert fl.data.mnist_by_writer(small.parent, fraction=0.01).client_sizes.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"fraction": 1.5}, "mnist_by_writer: fraction must be > 0 and <= 1, got 1.5"),
        ({"fraction": 0}, "mnist_by_writer: fraction must be > 0, got 0"),
        ({"seed": -1}, "mnist_by_writer: seed must be a whole number >= 0, got -1"),
        ({"split": "validation"}, "mnist_by_writer: split must be one of 'train', 'test', got 'validation'"),
    ],
)
def test_wrong_arguments_are_told(small: Path, arguments: dict[str, object], said: str):
    with pytest.raises(ValueError, match=said):
        fl.data.mnist_by_writer(small.parent, **arguments)  # pyright: ignore[reportArgumentType]


def test_a_changed_file_is_refused_and_can_be_read_on_purpose(small: Path, cache: Path):
    with np.load(small, allow_pickle=False) as file:
        arrays = dict(file)
    np.savez(small, **(arrays | {"y_train": arrays["y_train"][::-1]}))
    with pytest.raises(ValueError, match=r"was changed or damaged.*read it as it is with fl.data.read_mnist_by_writer"):
        fl.data.mnist_by_writer(small.parent)
    assert fl.data.read_mnist_by_writer(small, "train").arrays[1].tolist() == [3, 0, 4, 2, 1]


def test_other_files_are_told(tmp_path: Path):
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=np.zeros((2, 28, 28), np.uint8), y_train=[1, 2])
    with pytest.raises(ValueError, match="must be an npz file with x_train, y_train and writer_train"):
        fl.data.read_mnist_by_writer(path, "train")
    np.savez(path, x_train=np.zeros((2, 28, 28), np.uint8), y_train=[1, 2], writer_train=[0])
    with pytest.raises(ValueError, match=r"with a label and a writer each, got uint8 .* 2 labels and 1 writers"):
        fl.data.read_mnist_by_writer(path, "train")
    path.write_bytes(b"PK no archive")
    with pytest.raises(ValueError, match="must be an npz file"):
        fl.data.read_mnist_by_writer(path, "train")


def test_without_the_file_it_says_what_to_do(cache: Path):
    with pytest.raises(FileNotFoundError, match=rf"put it into {cache}, or use fl.data.digits, which needs no file"):
        fl.data.mnist_by_writer()


@needs_shared
def test_the_real_file_has_the_documented_writers():
    entry = registry.HANDWRITING["mnist-by-writer"]
    assert f"{entry.sha256}  ./{entry.file}" in (SHARED / "SHA256SUMS").read_text().splitlines()
    assert (SHARED / entry.file).stat().st_size == entry.size
    with np.load(SHARED / entry.file, allow_pickle=False) as file:
        writers = {split: np.unique(file[f"writer_{split}"], return_counts=True) for split in ("train", "test")}
    assert not set(writers["train"][0].tolist()) & set(writers["test"][0].tolist())
    counts = {split: (len(sizes), sizes.sum(), sizes.min(), sizes.max()) for split, (_, sizes) in writers.items()}
    assert counts == {"train": (539, 60_000, 19, 131), "test": (297, 10_000, 8, 130)}
    test = fl.data.mnist_by_writer(SHARED, split="test")
    features, labels = (np.asarray(a) for a in test.arrays)
    assert (features.min(), features.max(), features.shape) == (0, 1, (10_000, 784))
    assert test.client_sizes.tolist() == writers["test"][1].tolist()
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]  # as published
    tenth = fl.data.mnist_by_writer(SHARED, fraction=0.1)
    assert tenth.client_sizes.tolist() == [round(0.1 * size) for size in writers["train"][1].tolist()]
