"""epsilon: converted once, never half; and its stand-in: as documented, reproducible, about as hard."""

import bz2
import importlib
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.special
from sklearn.linear_model import LogisticRegression

import fedlocal as fl
from fedlocal.data import catalogue

over = pytest.mark.parametrize
module = importlib.import_module("fedlocal.data.sets.pascal_epsilon")
CONVERTED = ["epsilon.features.npy", "epsilon.json", "epsilon.labels.npy"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def refuse(name: str) -> Path:
        raise ConnectionError(f"the internet was asked for {name}")

    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "fetch", refuse)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def examples(rows: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 2000))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.where(rng.random(rows) < 0.5, 1.0, -1.0)


def text(X: np.ndarray, y: np.ndarray) -> bytes:
    """As in the real file: `-1 1:-0.0108282 2:-0.0196004 ...`."""
    lines = [
        f"{label:.0f} " + " ".join(f"{j}:{value:.6g}" for j, value in enumerate(row, 1))
        for row, label in zip(X, y, strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()


def everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@over("file", ["epsilon_normalized", "epsilon_normalized.bz2"])
def test_the_text_becomes_a_memory_map(file: str, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fedlocal.data.libsvm.CHUNK", 50_000)  # about two rows
    X, y = examples()
    (folder / file).write_bytes(bz2.compress(text(X, y)) if file.endswith("bz2") else text(X, y))
    features, labels = fl.data.epsilon(folder)
    assert isinstance(features, np.memmap)
    assert features.dtype == np.float32
    assert not features.flags.writeable
    np.testing.assert_allclose(features, X, rtol=1e-5)
    np.testing.assert_array_equal(labels, y)
    assert everything(cache) == CONVERTED
    np.testing.assert_array_equal(np.load(cache / "epsilon.features.npy", allow_pickle=False), features)
    assert catalogue.whereabouts("epsilon") == str(cache / "epsilon.features.npy")


def test_load_gives_the_memory_map(folder: Path):
    (folder / "epsilon_normalized").write_bytes(text(*examples()))
    assert isinstance(fl.data.load("epsilon", folder)[0], np.memmap)


def test_it_is_converted_once_and_then_the_text_is_not_needed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "epsilon_normalized").write_bytes(text(*examples()))
    before = fl.data.epsilon(folder)
    monkeypatch.setattr(module, "read_pieces", None)
    again = fl.data.epsilon(folder)
    (folder / "epsilon_normalized").unlink()
    for arrays in (again, fl.data.epsilon(folder), fl.data.epsilon()):
        np.testing.assert_array_equal(arrays[0], before[0])
        np.testing.assert_array_equal(arrays[1], before[1])


def test_a_changed_text_is_converted_again(folder: Path):
    path = folder / "epsilon_normalized"
    path.write_bytes(text(*examples()))
    fl.data.epsilon(folder)
    X, y = examples(rows=5, seed=1)
    path.write_bytes(text(X, y))
    features, labels = fl.data.epsilon(folder)
    np.testing.assert_allclose(features, X, rtol=1e-5)
    np.testing.assert_array_equal(labels, y)


def test_a_killed_conversion_leaves_nothing_that_looks_complete(folder: Path, cache: Path):
    (folder / "epsilon_normalized").write_bytes(text(*examples()))
    script = """
import importlib, os, signal
module = importlib.import_module("fedlocal.data.sets.pascal_epsilon")
read = module.read_pieces
def killed(*arguments):
    yield next(read(*arguments))
    os.kill(os.getpid(), signal.SIGKILL)
module.read_pieces = killed
module.epsilon(os.environ["FOLDER"])
"""
    environment = os.environ | {"FOLDER": str(folder), "FEDLOCAL_DATA": str(cache)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert result.returncode == -signal.SIGKILL
    left = everything(cache)
    assert len(left) == 1
    assert left[0].endswith(".part")
    assert catalogue.whereabouts("epsilon") == ""
    assert fl.data.epsilon(folder)[0].shape == (12, 2000)


def test_a_failed_conversion_leaves_nothing_and_keeps_what_was_there(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    path = folder / "epsilon_normalized"
    path.write_bytes(text(*examples()) + b"1 2001:1\n")
    with pytest.raises(ValueError, match=r"line 13: an index must be from 1 to 2000, got 2001$"):
        fl.data.epsilon(folder)
    path.write_bytes(b"# nothing yet\n")
    with pytest.raises(ValueError, match="epsilon_normalized holds no examples"):
        fl.data.epsilon(folder)
    assert everything(cache) == []
    path.write_bytes(text(*examples()))
    before = np.array(fl.data.epsilon(folder)[0])
    path.write_bytes(b"broken")
    with pytest.raises(ValueError, match="line 1: the label must be a number"):
        fl.data.epsilon(folder)
    path.unlink()
    np.testing.assert_array_equal(fl.data.epsilon()[0], before)


def test_files_that_do_not_belong_together_are_not_used(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Stopped when the new features have taken the place of the old, and the new labels have not."""

    def stopped(part: Path, path: Path) -> None:
        if path.name == "epsilon.labels.npy":
            raise KeyboardInterrupt
        rename(part, path)

    rename, path = os.replace, folder / "epsilon_normalized"
    path.write_bytes(text(*examples()))
    fl.data.epsilon(folder)
    path.write_bytes(text(*examples(rows=5)))
    with monkeypatch.context() as patch:
        patch.setattr(catalogue.os, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            fl.data.epsilon(folder)
    assert np.load(cache / "epsilon.features.npy", allow_pickle=False).shape == (5, 2000)
    path.unlink()
    assert catalogue.whereabouts("epsilon") == ""
    with pytest.raises(ConnectionError, match="the internet was asked for epsilon"):
        fl.data.epsilon()


def test_epsilon_like_has_unit_rows_and_balanced_labels():
    X, y = fl.data.epsilon_like(num_examples=2 * module.ROWS + 7, num_features=16)
    assert X.shape == (2 * module.ROWS + 7, 16)
    assert X.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1, rtol=1e-5)
    assert sorted(set(y)) == [-1, 1]
    assert y.sum() == -1
    assert abs(y[: module.ROWS].sum()) < 4 * np.sqrt(module.ROWS)  # in no order
    assert len(np.unique(X, axis=0)) == len(X)


def test_epsilon_like_has_the_spectrum_it_says():
    """Second moments in the cosine basis fall as k^-0.75; unit length takes a little from the largest."""
    X, _ = fl.data.epsilon_like(num_examples=8000, num_features=300)
    z = np.asarray(scipy.fft.idct(X, norm="ortho", axis=1))
    k = np.arange(1, 301)
    slope = np.polyfit(np.log(k[5:]), np.log(np.mean(z**2, axis=0)[5:]), 1)[0]
    assert slope == pytest.approx(-0.75, abs=0.02)
    assert abs(np.corrcoef(z[:, :20], rowvar=False) - np.eye(20)).max() < 5 / np.sqrt(8000)


def test_labels_follow_the_logistic_model_with_margins_of_five():
    """w is 5 in every cosine direction, up to signs. E label x_k has the sign of w_k, so the signs can be read off."""
    X, y = fl.data.epsilon_like(num_examples=40_000, num_features=4)
    z = np.asarray(scipy.fft.idct(X, norm="ortho", axis=1)).astype(float)
    margins = z @ (5 * np.sign(y @ z))
    expected, noise = np.tanh(margins / 2), 1 / np.sqrt(len(y))  # E label = tanh(margin / 2)
    assert np.mean(margins**2) == pytest.approx(25, rel=4 * np.std(margins**2) * noise / 25)
    for low, high in ((-6, -3), (-3, -1), (-1, 1), (1, 3), (3, 6)):
        inside = (margins >= low) & (margins < high)
        gap = y[inside] - expected[inside]
        assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(inside.sum())


def test_the_optimum_is_near_that_of_epsilon():
    """0.4713 is epsilon's own. The loss of an example has a deviation of about 0.4: 4 standard errors of 20,000 are 0.011."""
    X, y = fl.data.epsilon_like()
    fitted = LogisticRegression(C=1 / (1e-4 * len(y)), fit_intercept=False, tol=1e-5).fit(X, y)
    w = fitted.coef_[0].astype(float)
    margins = y * (X @ w)
    gradient = 1e-4 * w - X.T @ (y * scipy.special.expit(-margins)) / len(y)
    assert gradient @ gradient / (2 * 1e-4) < 1e-3  # how far from the optimum it can be
    assert np.mean(np.logaddexp(0, -margins)) + 1e-4 / 2 * w @ w == pytest.approx(0.4713, abs=0.011)


def test_epsilon_like_is_a_function_of_its_seed():
    small: dict[str, Any] = {"num_examples": 50, "num_features": 10}
    X, y = fl.data.epsilon_like(**small, seed=3)
    again, other = fl.data.epsilon_like(**small, seed=3), fl.data.epsilon_like(**small, seed=4)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert (other[0] != X).all()


def test_epsilon_like_is_kept_in_a_folder_for_the_same_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch):
    small: dict[str, Any] = {"num_examples": 50, "num_features": 10, "folder": folder}
    X, y = fl.data.epsilon_like(**small)
    assert isinstance(X, np.memmap)
    expected_X, expected_y = fl.data.epsilon_like(50, 10)
    np.testing.assert_array_equal(X, expected_X)
    np.testing.assert_array_equal(y, expected_y)
    assert everything(folder) == ["epsilon_like.features.npy", "epsilon_like.json", "epsilon_like.labels.npy"]

    def drawn(*_: int) -> Iterator[Any]:
        raise RuntimeError("drawn again")
        yield

    monkeypatch.setattr(module, "_draw", drawn)
    np.testing.assert_array_equal(fl.data.epsilon_like(**small)[0], X)
    for change in ({"seed": 1}, {"num_examples": 51}, {"num_features": 11}):
        with pytest.raises(RuntimeError, match="drawn again"):
            fl.data.epsilon_like(**{**small, **change})


def test_in_a_folder_only_some_rows_are_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ROWS", 500)
    tracemalloc.start()
    X, _ = fl.data.epsilon_like(20_000, 500, folder=folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert X.nbytes == 40_000_000
    assert peak < X.nbytes / 4


ERRORS = {"num_examples": (0, ">= 1"), "num_features": (2.5, ">= 1"), "seed": (-1, ">= 0")}


@over("name", ERRORS)
def test_a_bad_argument_is_told_in_one_sentence(name: str):
    value, limit = ERRORS[name]
    with pytest.raises(
        (ValueError, TypeError), match=f"^epsilon_like: {name} must be a whole number {limit}, got {value}$"
    ):
        fl.data.epsilon_like(**{name: value})
