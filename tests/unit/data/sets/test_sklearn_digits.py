"""scikit-learn's digits as a federation: nothing is lost or shown twice, and clients differ in their classes."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedlocal as fl


def test_both_splits_together_are_the_whole_set():
    images, labels = load_digits(return_X_y=True)
    parts = [fl.data.digits(7, seed=3, split=split) for split in ("train", "test")]
    assert [data.num_examples for data in parts] == [1437, 360]
    features = np.concatenate([np.asarray(data.arrays[0]) for data in parts])
    assert (features.min(), features.max(), features.dtype) == (0, 1, np.float32)
    found = np.column_stack([features * 16, np.concatenate([np.asarray(data.arrays[1]) for data in parts])])
    expected = np.column_stack([images, labels])
    assert np.array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def test_classes_are_unequal_and_more_equal_with_concentration():
    def imbalance(concentration: float) -> float:
        data = fl.data.digits(10, concentration=concentration)
        labels, starts = np.asarray(data.arrays[1]), np.asarray(data.client_starts)
        counts = [np.bincount(part, minlength=10) / len(part) for part in np.split(labels, starts[1:])]
        return float(np.std(counts, axis=0).mean())

    assert imbalance(0.1) > 2 * imbalance(1.0) > 4 * imbalance(100.0)


def test_the_seed_decides():
    first, again, other = (np.asarray(fl.data.digits(5, seed=seed).arrays[0]) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_wrong_arguments_are_told():
    with pytest.raises(ValueError, match="digits: num_clients must be a whole number >= 1 and <= 360, got 361"):
        fl.data.digits(361)
    with pytest.raises(ValueError, match="digits: split must be one of 'train', 'test', got 'all'"):
        fl.data.digits(split="all")  # pyright: ignore[reportArgumentType]
