"""Handwriting: scikit-learn's digits, MNIST by writer and Federated EMNIST, which hold images that belong to clients."""

import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedlocal.data import partition
from fedlocal.data.catalogue import Folder, cache, first_file, obtain
from fedlocal.data.federated_data import FederatedData
from fedlocal.data.splits import TRAIN_OR_TEST, TrainOrTest
from fedlocal.util import checks
from fedlocal.util.files import AnyPath, replacing
from fedlocal.util.optional import optional_import

TEST_SHARE = 5  # one in so many images is for testing
SHELF = "femnist"
STEMS = {True: "fed_emnist_digitsonly", False: "fed_emnist"}  # by digits_only
NAMES = {True: "femnist-digits", False: "femnist"}  # in the catalogue
CLASSES = {True: 10, False: 62}


class Subsample:
    """Draws a fraction of each client's rows, rounded, but at least one; the draws follow from a seed and the client's number.

    >>> subsample = Subsample("mine", fraction=0.1, seed=0)
    >>> len(subsample.rows(0, 42)), len(subsample.rows(1, 3))
    (4, 1)
    """

    def __init__(self, owner: str, fraction: float, seed: int):
        self.fraction = checks.number(owner, "fraction", fraction, above=0)
        if self.fraction > 1:
            raise ValueError(f"{owner}: fraction must be > 0 and <= 1, got {fraction}")
        self.seed = checks.whole(owner, "seed", seed, at_least=0)

    def rows(self, client: int, size: int) -> np.ndarray:
        """Return which of a client's `size` rows are kept, in ascending order."""
        if self.fraction == 1:
            return np.arange(size)
        count = max(1, round(self.fraction * size))
        return np.sort(np.random.default_rng([self.seed, client]).choice(size, count, replace=False))


def mnist_by_writer(
    folder: Folder = None, *, split: TrainOrTest = "train", fraction: float = 1.0, seed: int = 0
) -> FederatedData:
    """MNIST by writer: a client is a writer, with 784 features in [0, 1] (the ink is bright) and labels 0 to 9.

    The file mnist_by_writer.npz is MNIST with the writers that QMNIST found (Yadav and Bottou, NeurIPS 2019); there is
    no address to fetch it from.

    Args:
        folder: where to look for it before the cache (`$FEDLOCAL_DATA`, else `~/.cache/fedlocal`); None: only there.
        split: "train", 60,000 digits by 539 writers (19 to 131 each), or "test", 10,000 by 297 others (8 to 130 each).
        fraction: the part of each writer's digits that is kept, in (0, 1], but at least one digit.
        seed: of the draw of this part.

    >>> data = mnist_by_writer()  # doctest: +SKIP
    >>> data.num_clients, data.num_examples  # doctest: +SKIP
    (539, 60000)
    """
    checks.choice("mnist_by_writer", "split", split, TRAIN_OR_TEST)
    subsample = Subsample("mnist_by_writer", fraction, seed)
    return read_mnist_by_writer(obtain("mnist-by-writer", folder, owner="mnist_by_writer"), split, subsample)


def read_mnist_by_writer(path: AnyPath, split: TrainOrTest, subsample: Subsample | None = None) -> FederatedData:
    """The writers of a file like that of `mnist_by_writer`, by ascending number.

    Args:
        path: an npz file with arrays x_SPLIT (n, 28, 28) of bytes, y_SPLIT (n,) and writer_SPLIT (n,).
        split: "train" or "test".
        subsample: which rows of each writer are kept; None: all.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels, writers = (file[f"{name}_{split}"] for name in ("x", "y", "writer"))
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        wanted = f"an npz file with x_{split}, y_{split} and writer_{split}"
        raise ValueError(f"mnist_by_writer: {path} must be {wanted}: {error}") from None
    if images.dtype != np.uint8 or images.ndim != 3 or not len(images) == len(labels) == len(writers):
        got = f"{images.dtype} of shape {images.shape}, {len(labels)} labels and {len(writers)} writers"
        raise ValueError(f"mnist_by_writer: {path} must hold images of bytes with a label and a writer each, got {got}")
    subsample = subsample or Subsample("mnist_by_writer", 1.0, 0)
    clients = []
    for number, writer in enumerate(np.unique(writers)):
        own = np.flatnonzero(writers == writer)
        own = own[subsample.rows(number, len(own))]
        pixels = images[own].reshape(len(own), -1).astype(np.float32) / np.float32(255)
        clients.append((pixels, labels[own].astype(np.int32)))
    return FederatedData.from_clients(clients)


def digits(
    num_clients: int = 50, seed: int = 0, split: TrainOrTest = "train", concentration: float = 1.0
) -> FederatedData:
    """scikit-learn's digits, 8 x 8 pixels in [0, 1], with labels 0 to 9, dealt to clients that see classes unequally often.

    Both splits are dealt by `partition.dirichlet`, each on its own. The clients are made up; for real ones see
    `mnist_by_writer`.

    Args:
        num_clients: at most 360.
        seed: of the split and of the dealing.
        split: "train" or "test", one image in five (360 of 1,797).
        concentration: > 0; the smaller, the fewer classes a client sees.

    Source: Alpaydin and Kaynak, UCI Optical Recognition of Handwritten Digits, CC BY 4.0, as in scikit-learn.

    >>> data = digits()
    >>> data.num_clients, data.num_examples, data.arrays[0].shape[1]
    (50, 1437, 64)
    """
    from sklearn.datasets import load_digits

    checks.choice("digits", "split", split, TRAIN_OR_TEST)
    seed = checks.whole("digits", "seed", seed, at_least=0)
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    tests = -(-len(images) // TEST_SHARE)
    rows = order[:tests] if split == "test" else order[tests:]
    num_clients = checks.whole("digits", "num_clients", num_clients, at_most=tests)
    groups = partition.dirichlet(labels[rows], num_clients, concentration, seed)
    return FederatedData.from_groups(((images[rows] / 16).astype(np.float32), labels[rows].astype(np.int32)), groups)


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
    The file fed_emnist_digitsonly_train.h5 (or _test, or fed_emnist_train.h5) is looked for in `folder`, the cache
    (`$FEDLOCAL_DATA`, else `~/.cache/fedlocal`) and their subfolders femnist; else it is taken out of TensorFlow Federated's
    archive, found there or fetched, into the cache. Needs `pip install "fedlocal[femnist]"`.

    Args:
        folder: where to look first; None: only in the cache.
        digits_only: without letters.
        split: "train" or "test".
        fraction, seed: as for `mnist_by_writer`. The text trains logistic regression on a tenth.

    Source: LEAF (Caldas et al. 2018) from EMNIST (Cohen et al. 2017), which is NIST Special Database 19.

    >>> data = femnist()  # doctest: +SKIP
    >>> data.num_clients, data.num_examples  # doctest: +SKIP
    (3383, 341873)
    """
    checks.choice("femnist", "split", split, TRAIN_OR_TEST)
    subsample = Subsample("femnist", fraction, seed)
    optional_import("femnist", "h5py", "femnist")  # before anything is fetched
    return read_femnist(_file(folder, bool(digits_only), split), CLASSES[bool(digits_only)], subsample)


def read_femnist(path: AnyPath, num_classes: int = 62, subsample: Subsample | None = None) -> FederatedData:
    """The writers of an unpacked file in TensorFlow Federated's layout, by name.

    Args:
        path: an HDF5 file; its group examples has a group per writer with the arrays pixels (n, 28, 28) and label (n,).
        num_classes: labels must be below it.
        subsample: which rows of each writer are kept; None: all.
    """
    h5py = optional_import("femnist", "h5py", "femnist")
    subsample = subsample or Subsample("femnist", 1.0, 0)
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
    if found := first_file(folder, SHELF, name):
        return found
    archive = obtain(NAMES[digits_only], folder, owner="femnist")
    target = cache() / SHELF / name
    with tarfile.open(archive) as files, replacing(target) as part:
        inside = next((member for member in files if member.isfile() and Path(member.name).name == name), None)
        source = None if inside is None else files.extractfile(inside)
        if source is None:
            raise ValueError(f"femnist: {archive} has no file {name}")
        with part.open("wb") as file:
            shutil.copyfileobj(source, file)
    return target
