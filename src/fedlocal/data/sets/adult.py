"""a9a: the UCI Adult data in LIBSVM's 123 binary features, embedded in the package."""

from importlib.resources import files

import numpy as np
import scipy.sparse

from fedlocal.data.splits import TRAIN_OR_TEST, TrainOrTest
from fedlocal.util import checks

FEATURES = 123


def a9a(split: TrainOrTest = "train") -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Features (n x 123; sparse, all ones) and labels -1/+1 (income above 50,000).

    Args:
        split: "train", 32,561 examples, or "test", 16,281.

    Source: Becker & Kohavi, UCI Adult, CC BY 4.0.

    >>> X, y = a9a()
    >>> X.shape, X.nnz, sorted(set(y.tolist()))
    ((32561, 123), 451592, [-1.0, 1.0])
    """
    checks.choice("a9a", "split", split, TRAIN_OR_TEST)
    with (
        (files("fedlocal.data.sets") / "files" / "a9a.npz").open("rb") as stream,
        np.load(stream, allow_pickle=False) as file,
    ):
        codes = file[f"{split}_features"].T  # (n, 14): the feature, from 1, of each attribute; 0 where it is unknown
        positive = np.unpackbits(file[f"{split}_positive"], count=len(codes))
    known = codes > 0
    starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    columns = codes[known].astype(np.int32) - 1
    matrix = scipy.sparse.csr_array((np.ones(len(columns)), columns, starts), shape=(len(codes), FEATURES))
    return matrix, np.where(positive == 1, 1.0, -1.0)
