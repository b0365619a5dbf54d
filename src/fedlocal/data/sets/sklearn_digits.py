"""Handwritten digits that need no file: scikit-learn's 1,797 images, dealt to clients."""

import numpy as np

from fedlocal.data import partition
from fedlocal.data.federated_data import FederatedData
from fedlocal.data.splits import TRAIN_OR_TEST, TrainOrTest
from fedlocal.util import checks

TEST_SHARE = 5  # one in so many images is for testing


def digits(
    num_clients: int = 50, seed: int = 0, split: TrainOrTest = "train", concentration: float = 1.0
) -> FederatedData:
    """scikit-learn's digits, 8 x 8 pixels in [0, 1], with labels 0 to 9, dealt to clients that see classes unequally often.

    One image in five, drawn with `seed`, is for testing (360 of 1,797). Both splits are dealt by `partition.dirichlet` with
    this concentration, each on its own. The clients are made up; for real ones see `mnist_by_writer`.
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
