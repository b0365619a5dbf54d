"""The dissertation's synthetic data sets: sparse and low-rank truths seen through clients with shifted features."""

from typing import Literal, NamedTuple

import numpy as np

from fedlocal.data.federated_data import FederatedData
from fedlocal.data.splits import TRAIN_OR_VALIDATION, TrainOrValidation
from fedlocal.util import checks


class SyntheticSize(NamedTuple):
    """Size of a synthetic data set."""

    truth: int  # non-zero weights, or rank
    clients: int
    examples: int  # per client


Config = Literal["I", "II", "III", "IV"]
CLIENTS = {"I": (64, 128), "II": (64, 128), "III": (64, 128), "IV": (256, 32)}  # and the examples of each
LASSO = {name: SyntheticSize(n, *CLIENTS[name]) for name, n in zip(CLIENTS, (512, 64, 8, 512), strict=True)}
LOW_RANK = {name: SyntheticSize(n, *CLIENTS[name]) for name, n in zip(CLIENTS, (16, 4, 1, 16), strict=True)}


def synthetic_lasso(
    config: Config = "I", seed: int = 0, dimension: int = 1024, split: TrainOrValidation = "train"
) -> FederatedData:
    """Observations b = a'x + x0 + noise of a sparse x: d1 ones, then zeros; a = client mean + standard normal.

    Args:
        config: as in the text, "I", "II", "III": 512, 64, 8 ones on 64 clients of 128 examples; "IV": 512 on 256 of 32.
        seed: everything random is a function of this integer.
        dimension: numbers in x, at least as many as there are ones.
        split: "train"; "validation" draws as many other examples of the same clients.

    Reference: dissertation, section fco:expr:lasso. Differs from it: nothing.

    >>> data = synthetic_lasso("III", seed=0)
    >>> data.num_clients, data.num_examples, float(data.truth["weights"].sum())
    (64, 8192, 8.0)
    """
    setting = LASSO[checks.choice("synthetic_lasso", "config", config, LASSO)]
    checks.whole("synthetic_lasso", "dimension", dimension, at_least=setting.truth)
    weights = np.zeros(dimension)
    weights[: setting.truth] = 1
    return _observe(weights, setting, seed, split)


def synthetic_low_rank(
    config: Config = "I", seed: int = 0, dimension: int = 32, split: TrainOrValidation = "train"
) -> FederatedData:
    """Observations b = <A, X> + x0 + noise of a matrix X = diag(1, ..., 1, 0, ..., 0); A = client mean + standard normal.

    Args:
        config: as in the text, "I", "II", "III": rank 16, 4, 1 on 64 clients of 128 examples; "IV": 16 on 256 of 32.
        seed, split: as for `synthetic_lasso`.
        dimension: rows and columns of X, at least its rank.

    Reference: dissertation, section fco:expr:nuclear. Differs from it: nothing.

    >>> data = synthetic_low_rank("II", seed=0)
    >>> data.arrays[0].shape, int(np.linalg.matrix_rank(data.truth["weights"]))
    ((8192, 32, 32), 4)
    """
    setting = LOW_RANK[checks.choice("synthetic_low_rank", "config", config, LOW_RANK)]
    checks.whole("synthetic_low_rank", "dimension", dimension, at_least=setting.truth)
    weights = np.diag((np.arange(dimension) < setting.truth).astype(float))
    return _observe(weights, setting, seed, split)


def _observe(weights: np.ndarray, setting: SyntheticSize, seed: int, split: TrainOrValidation) -> FederatedData:
    checks.choice("synthetic data", "split", split, TRAIN_OR_VALIDATION)
    rng = np.random.default_rng(checks.whole("synthetic data", "seed", seed, at_least=0))
    intercept = rng.standard_normal()
    clients, examples = setting.clients, setting.examples
    means = rng.standard_normal((clients, 1, *weights.shape))
    if split == "validation":
        rng = rng.spawn(1)[0]  # other examples of the same clients
    features = means + rng.standard_normal((clients, examples, *weights.shape))
    noise = rng.standard_normal((clients, examples))
    targets = np.tensordot(features, weights, weights.ndim) + intercept + noise
    arrays = (features.reshape(-1, *weights.shape), targets.reshape(-1))
    truth = {"weights": weights, "intercept": np.asarray(intercept)}
    return FederatedData(arrays, np.arange(clients) * examples, np.full(clients, examples), truth)
