"""FEMNIST in TensorFlow Federated's layout: unpacked files, archives, a fraction of each writer, and what is wrong is told."""

import hashlib
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedlocal as fl
from fedlocal.data import registry

h5py = pytest.importorskip("h5py", reason="the extra femnist is not installed")
WRITERS = {"f1000_45": [7, 1, 4], "f0005_26": [3, 3], "f0000_14": [0]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, writers: dict[str, list[int]] = WRITERS) -> Path:
    """A file in the layout of the real ones; a pixel tells its writer's place by name, and the example."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        group = file.create_group("examples")
        for place, (name, labels) in enumerate(sorted(writers.items())):
            pixels = np.ones((len(labels), 28, 28), np.float32)
            pixels[:, 2, 3] = [0.1 * place + 0.01 * i for i in range(len(labels))]
            group.create_group(name)
            group[name]["pixels"] = pixels
            group[name]["label"] = np.array(labels, np.int32)
    return path


def archive(folder: Path, stem: str, monkeypatch: pytest.MonkeyPatch, name: str, inside: str | None = None) -> Path:
    """TensorFlow Federated's archive of both splits, whose checksum counts as right."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.tar.bz2"
    with tarfile.open(path, "w:bz2") as files:
        for split, writers in (("train", WRITERS), ("test", {"f0000_14": [5]})):
            files.add(write(folder / "made.h5", writers), f"{inside or stem}_{split}.h5")
    (folder / "made.h5").unlink()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = replace(registry.HANDWRITING[name], sha256=digest, address=path.as_uri())
    monkeypatch.setitem(registry.HANDWRITING, name, entry)
    return path


def test_writers_are_clients_by_name_and_pixels_are_as_in_the_file(tmp_path: Path):
    write(tmp_path / "fed_emnist_digitsonly_train.h5")
    data = fl.data.femnist(tmp_path)
    features, labels = (np.asarray(a) for a in data.arrays)
    assert data.client_sizes.tolist() == [1, 2, 3]
    assert labels.tolist() == [0, 3, 3, 7, 1, 4]
    assert (features.shape, features.dtype) == ((6, 784), np.float32)
    np.testing.assert_allclose(features[:, 2 * 28 + 3], [0, 0.1, 0.11, 0.2, 0.21, 0.22], atol=1e-7)
    assert (np.delete(features, 2 * 28 + 3, axis=1) == 1).all()  # a bright background stays bright


def test_files_with_letters_have_62_classes(tmp_path: Path):
    write(tmp_path / "femnist" / "fed_emnist_test.h5", {"a": [61], "b": [10]})
    assert fl.data.femnist(tmp_path, digits_only=False, split="test").arrays[1].tolist() == [61, 10]
    write(tmp_path / "femnist" / "fed_emnist_digitsonly_test.h5", {"a": [9], "b": [10]})
    with pytest.raises(
        ValueError, match=r"writer 1 must have a label below 10 per image, got 1 images with labels \[10"
    ):
        fl.data.femnist(tmp_path, split="test")


def test_a_fraction_is_drawn_from_each_writer(tmp_path: Path):
    path = write(tmp_path / "fed_emnist_digitsonly_train.h5", {"a": list(range(10)) * 4, "b": [1] * 3})
    data = fl.data.femnist(path.parent, fraction=0.1, seed=1)
    assert data.client_sizes.tolist() == [4, 1]
    whole = fl.data.femnist(path.parent)
    rows = {(float(x[59]), int(y)) for x, y in zip(*map(np.asarray, whole.arrays), strict=True)}
    assert all((float(x[59]), int(y)) in rows for x, y in zip(*map(np.asarray, data.arrays), strict=True))
    other = fl.data.femnist(path.parent, fraction=0.1, seed=2)
    assert not np.array_equal(np.asarray(data.arrays[0]), np.asarray(other.arrays[0]))


def test_archives_are_unpacked_into_the_cache_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    path = archive(tmp_path / "mine", "fed_emnist_digitsonly", monkeypatch, "femnist-digits")
    assert fl.data.femnist(tmp_path / "mine").arrays[1].tolist() == [0, 3, 3, 7, 1, 4]
    assert [file.name for file in (cache / "femnist").iterdir()] == ["fed_emnist_digitsonly_train.h5"]
    path.unlink()
    assert fl.data.femnist().num_clients == 3


def test_archives_are_fetched(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    archive(tmp_path / "internet", "fed_emnist", monkeypatch, "femnist")
    assert fl.data.femnist(digits_only=False, split="test").arrays[1].tolist() == [5]
    assert (cache / "fed_emnist.tar.bz2").is_file()


def test_damaged_and_incomplete_archives_are_refused(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    path = archive(tmp_path / "mine", "fed_emnist_digitsonly", monkeypatch, "femnist-digits", inside="other")
    with pytest.raises(
        ValueError, match=r"fed_emnist_digitsonly\.tar\.bz2 has no file fed_emnist_digitsonly_train\.h5"
    ):
        fl.data.femnist(tmp_path / "mine")
    assert list((cache / "femnist").iterdir()) == []
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="was changed or damaged"):
        fl.data.femnist(tmp_path / "mine")


def test_other_files_are_told(tmp_path: Path):
    path = tmp_path / "fed_emnist_digitsonly_train.h5"
    path.write_bytes(b"no HDF5")
    with pytest.raises(ValueError, match=r"fed_emnist_digitsonly_train\.h5 is not in TensorFlow Federated's layout"):
        fl.data.femnist(tmp_path)
    with h5py.File(path, "w") as file:
        file.create_group("examples").create_group("a")["pixels"] = np.ones((1, 28, 28), np.float32)
    with pytest.raises(ValueError, match="not in TensorFlow Federated's layout"):
        fl.data.femnist(tmp_path)
    with h5py.File(path, "w") as file:
        group = file.create_group("examples").create_group("a")
        group["pixels"], group["label"] = np.ones((1, 28, 28), np.float32), np.array([1, 2], np.int32)
    with pytest.raises(ValueError, match="writer 0 must have a label below 10 per image, got 1 images with labels"):
        fl.data.femnist(tmp_path)


def test_without_h5py_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "fed_emnist_digitsonly_train.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r'pip install "fedlocal\[femnist\]"'):
        fl.data.femnist(tmp_path)


def test_a_file_is_read_by_its_name(tmp_path: Path):
    assert fl.data.read_femnist(write(tmp_path / "mine.h5")).num_examples == 6
