"""epsilon: 400,000 dense examples of the PASCAL challenge 2008 as a memory map; and a synthetic set of the same shape."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import scipy.special

from fedlocal.data.catalogue import Folder, cache, find, obtain
from fedlocal.data.libsvm import read_pieces
from fedlocal.data.registry import CATALOGUE
from fedlocal.util import checks
from fedlocal.util.files import replacing
from fedlocal.util.progress import ProgressBar

Arrays = tuple[np.ndarray, np.ndarray]
FEATURES = CATALOGUE["epsilon"].features
ROWS = 4096  # of `epsilon_like`, made at a time
DECAY = 0.75  # of its spectrum
MARGIN = 5.0  # root mean square of its true margins


def epsilon(folder: Folder = None) -> Arrays:
    """Features (400,000 x 2,000; float32; rows of unit length) as a read-only memory map, and labels -1/+1.

    The text, packed or not, is fetched when it is not found. It is converted once, piece by piece, to the files
    epsilon.features.npy (3.2 GB) and epsilon.labels.npy in the cache; after that it is no longer needed. That takes
    about a quarter of an hour. A text that has changed since is converted again.

    Args:
        folder: where to look for the text before the cache; None: only in the cache.

    >>> X, y = epsilon("/data")  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (400000, 2000)
    """
    path = find("epsilon", folder)
    if kept := _kept(cache(), "epsilon", None if path is None else _state(path)):
        return kept
    path = obtain("epsilon", folder)
    pieces = ((features.toarray(), labels) for features, labels in read_pieces(path, FEATURES))
    return _keep(cache(), "epsilon", _state(path), pieces, FEATURES)


def epsilon_like(num_examples: int = 20_000, num_features: int = 2_000, seed: int = 0, folder: Folder = None) -> Arrays:
    r"""A synthetic set of epsilon's kind, which is not the epsilon set: dense float32 rows of unit length, labels -1/+1.

    x = C z / ||z||, z_k independent normal with variance k^-0.75, C the orthogonal cosine transform;
    P(label = 1 | x) = 1 / (1 + exp(-w'x)), w = 5 C s with random signs s, so that E (w'x)^2 = 25.
    Exactly half of the labels are +1 (one fewer of an odd number); about one in ten is on the wrong side of the true w. At the
    default size the optimum of logistic regression with l2 = 1e-4 is near epsilon's own, 0.4713.

    Args:
        num_examples, num_features: rows and columns.
        seed: everything random is a function of this integer.
        folder: where the arrays are kept as epsilon_like.features.npy and epsilon_like.labels.npy, memory-mapped, and
            used again for the same arguments; a few thousand rows are in memory at a time. None: all are in memory.

    >>> X, y = epsilon_like(num_examples=100, num_features=20)
    >>> X.shape, X.dtype.name, y.sum().item()
    ((100, 20), 'float32', 0.0)
    """
    num_examples = checks.whole("epsilon_like", "num_examples", num_examples)
    num_features = checks.whole("epsilon_like", "num_features", num_features)
    seed = checks.whole("epsilon_like", "seed", seed, at_least=0)
    pieces = _draw(num_examples, num_features, seed)
    if folder is None:
        features, start = np.empty((num_examples, num_features), np.float32), 0
        labels = np.empty(num_examples)
        for rows, signs in pieces:
            stop = start + len(rows)
            features[start:stop], labels[start:stop], start = rows, signs, stop
        return features, labels
    made_of = {"num_examples": num_examples, "num_features": num_features, "seed": seed}
    made_of |= {"decay": DECAY, "margin": MARGIN}
    where = Path(folder), "epsilon_like", made_of
    return _kept(*where) or _keep(*where, pieces, num_features)


def _draw(num_examples: int, num_features: int, seed: int) -> Iterator[Arrays]:
    rng = np.random.default_rng(seed)
    deviations = np.arange(1, num_features + 1) ** (-DECAY / 2)
    deviations = (deviations / np.linalg.norm(deviations)).astype(np.float32)
    truth = MARGIN * rng.choice(np.array([-1, 1], np.float32), num_features)
    labels = rng.permutation(np.where(np.arange(num_examples) % 2, 1.0, -1.0))
    with ProgressBar("epsilon_like, rows", num_examples) as bar:
        bar.advance_to(0)
        for start in range(0, num_examples, ROWS):
            wanted = labels[start : start + ROWS]
            z = rng.standard_normal((len(wanted), num_features), np.float32) * deviations
            z /= np.linalg.norm(z, axis=1, keepdims=True)
            positive = rng.random(len(wanted)) < scipy.special.expit(z @ truth)
            z[positive != (wanted > 0)] *= -1  # (z, label) and (-z, -label) are as likely
            yield np.asarray(scipy.fft.dct(z, norm="ortho", axis=1)), wanted
            bar.advance_to(start + len(wanted))


def _state(path: Path) -> dict[str, int]:
    """Return size and time of a file, which show without reading it that it has changed."""
    return {"bytes": path.stat().st_size, "changed": path.stat().st_mtime_ns}


def _files(folder: Path, stem: str) -> tuple[Path, Path, Path]:
    """Return the files of features and labels, and the mark that exists only if both are complete and belong together."""
    return folder / f"{stem}.features.npy", folder / f"{stem}.labels.npy", folder / f"{stem}.json"


def _kept(folder: Path, stem: str, made_of: dict[str, Any] | None) -> Arrays | None:
    """Return what `_keep` wrote if its source was `made_of` (None: any source), else None."""
    features, labels, mark = _files(folder, stem)
    if not mark.exists() or made_of not in (None, json.loads(mark.read_text())):
        return None
    return np.load(features, mmap_mode="r", allow_pickle=False), np.load(labels, allow_pickle=False)


def _keep(folder: Path, stem: str, made_of: dict[str, Any], pieces: Iterator[Arrays], width: int) -> Arrays:
    """Write the pieces one after the other, as files that appear only when they are complete, and open those."""
    features, labels, mark = _files(folder, stem)
    collected: list[np.ndarray] = []
    with replacing(labels) as labels_part, replacing(features) as features_part:
        with features_part.open("wb") as file:
            _write_header(file, 0, width)
            for rows, some_labels in pieces:
                file.write(np.ascontiguousarray(rows, "<f4").data)
                collected.append(some_labels)
            file.seek(0)
            _write_header(file, sum(map(len, collected)), width)
            file.flush()
            os.fsync(file.fileno())
        with labels_part.open("wb") as file:
            np.save(file, np.concatenate(collected), allow_pickle=False)
        mark.unlink(missing_ok=True)
    with replacing(mark) as part:
        part.write_text(json.dumps(made_of))
    return np.load(features, mmap_mode="r", allow_pickle=False), np.load(labels, allow_pickle=False)


def _write_header(file: Any, rows: int, width: int) -> None:
    """The head of an .npy file; NumPy leaves room in it for the number of rows, which is known only at the end."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
