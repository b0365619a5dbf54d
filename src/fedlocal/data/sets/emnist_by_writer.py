"""Federated EMNIST (FEMNIST) as TensorFlow Federated ships it: handwritten digits, or digits and letters, by writer."""

import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from fedlocal.data.catalogue import Folder, cache, obtain, replacing
from fedlocal.data.federated_data import FederatedData
from fedlocal.data.splits import TRAIN_OR_TEST, TrainOrTest
from fedlocal.data.subsample import Subsample
from fedlocal.util import checks

SHELF = "femnist"
STEMS = {True: "fed_emnist_digitsonly", False: "fed_emnist"}  # by digits_only
NAMES = {True: "femnist-digits", False: "femnist"}  # in the catalogue
CLASSES = {True: 10, False: 62}


def femnist(
    folder: Folder = None,
    *,
    digits_only: bool = True,
    split: TrainOrTest = "train",
    fraction: float = 1.0,
    seed: int = 0,
) -> FederatedData:
    """FEMNIST: a client is a writer, with 784 features as in the files and labels 0 to 9, or 0 to 61 with letters.

    Features are TensorFlow Federated's pixels, unchanged: float32 in [0, 1] on a bright background. Classes 10 to 35 are upper
    case, 36 to 61 lower case letters. Both splits have the same writers in the same order: 3,383 with 341,873 digits for
    training and 40,832 for testing, or 3,400 with 671,585 and 77,483 digits and letters.
    fraction: the part of each writer's examples that is kept, at least one; drawn with `seed`. The text trains logistic
    regression on a tenth.

    The file fed_emnist_digitsonly_train.h5 (or _test, or fed_emnist_train.h5) is looked for in `folder`, the cache
    (`$FEDLOCAL_DATA`, else `~/.cache/fedlocal`) and their subfolders femnist; else it is taken out of TensorFlow Federated's
    archive, found there or fetched, into the cache. Needs `pip install "fedlocal[femnist]"`.
    Source: LEAF (Caldas et al. 2018) from EMNIST (Cohen et al. 2017), which is NIST Special Database 19.

    >>> data = femnist()  # doctest: +SKIP
    >>> data.num_clients, data.num_examples  # doctest: +SKIP
    (3383, 341873)
    """
    checks.choice("femnist", "split", split, TRAIN_OR_TEST)
    subsample = Subsample("femnist", fraction, seed)
    _h5py()  # before anything is fetched
    return read_femnist(_file(folder, bool(digits_only), split), CLASSES[bool(digits_only)], subsample)


def read_femnist(
    path: str | os.PathLike[str], num_classes: int = 62, subsample: Subsample | None = None
) -> FederatedData:
    """The writers of an unpacked file in TensorFlow Federated's layout, by name.

    The group examples has a group per writer with the arrays pixels (n, 28, 28) and label (n,).
    """
    h5py, subsample = _h5py(), subsample or Subsample("femnist", 1.0, 0)
    try:
        with h5py.File(path, "r") as file:
            writers = file["examples"]
            clients = [_writer(writers[name], i, subsample) for i, name in enumerate(sorted(writers))]
    except (OSError, KeyError, AttributeError) as error:
        raise ValueError(f"femnist: {path} is not in TensorFlow Federated's layout: {error}") from None
    for i, (pixels, labels) in enumerate(clients):
        if len(pixels) != len(labels) or not ((labels >= 0) & (labels < num_classes)).all():
            got = f"{len(pixels)} images with labels {np.unique(labels).tolist()}"
            raise ValueError(f"femnist: {path}: writer {i} must have a label below {num_classes} per image, got {got}")
    return FederatedData.from_clients(clients)


def _writer(group: Any, number: int, subsample: Subsample) -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = np.asarray(group["pixels"], np.float32), np.asarray(group["label"], np.int32).reshape(-1)
    rows = subsample.rows(number, len(pixels))
    return pixels[rows].reshape(len(rows), -1), labels[rows] if len(labels) == len(pixels) else labels


def _file(folder: Folder, digits_only: bool, split: TrainOrTest) -> Path:
    """Where the examples are, taken out of the archive if need be."""
    name = f"{STEMS[digits_only]}_{split}.h5"
    for top in (folder, cache()):
        for place in () if top is None else (Path(top), Path(top) / SHELF):
            if (place / name).is_file():
                return place / name
    archive = obtain(NAMES[digits_only], folder, owner="femnist")
    target = cache() / SHELF / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as files, replacing(target) as part:
        inside = next((member for member in files if member.isfile() and Path(member.name).name == name), None)
        source = None if inside is None else files.extractfile(inside)
        if source is None:
            raise ValueError(f"femnist: {archive} has no file {name}")
        with part.open("wb") as file:
            shutil.copyfileobj(source, file)
    return target


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise ImportError(
            'femnist: files are read by h5py, which is missing: pip install "fedlocal[femnist]"'
        ) from None
    return h5py
