"""MNIST by writer: the digits of MNIST, each with the person who wrote it."""

import os
import zipfile

import numpy as np

from fedlocal.data.catalogue import Folder, obtain
from fedlocal.data.federated_data import FederatedData
from fedlocal.data.splits import TRAIN_OR_TEST, TrainOrTest
from fedlocal.data.subsample import Subsample
from fedlocal.util import checks


def mnist_by_writer(
    folder: Folder = None, *, split: TrainOrTest = "train", fraction: float = 1.0, seed: int = 0
) -> FederatedData:
    """MNIST by writer: a client is a writer, with 784 features in [0, 1] (the ink is bright) and labels 0 to 9.

    split: "train", 60,000 digits by 539 writers with 19 to 131 each, or "test", 10,000 digits by 297 others with 8 to 130 each.
    fraction: the part of each writer's digits that is kept, at least one; drawn with `seed`.

    The file mnist_by_writer.npz is looked for in `folder` and the cache (`$FEDLOCAL_DATA`, else `~/.cache/fedlocal`); there is
    no address to fetch it from. It is MNIST with the writers that QMNIST found (Yadav and Bottou, NeurIPS 2019).

    >>> data = mnist_by_writer()  # doctest: +SKIP
    >>> data.num_clients, data.num_examples  # doctest: +SKIP
    (539, 60000)
    """
    checks.choice("mnist_by_writer", "split", split, TRAIN_OR_TEST)
    subsample = Subsample("mnist_by_writer", fraction, seed)
    return read_mnist_by_writer(obtain("mnist-by-writer", folder, owner="mnist_by_writer"), split, subsample)


def read_mnist_by_writer(
    path: str | os.PathLike[str], split: TrainOrTest, subsample: Subsample | None = None
) -> FederatedData:
    """The writers of a file with arrays x_SPLIT (n, 28, 28) of bytes, y_SPLIT (n,) and writer_SPLIT (n,), by ascending number."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels, writers = (file[f"{name}_{split}"] for name in ("x", "y", "writer"))
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"mnist_by_writer: {path} must be an npz file with x_{split}, y_{split} and writer_{split}: {error}"
        ) from None
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
