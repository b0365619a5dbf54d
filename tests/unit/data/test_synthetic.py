"""The synthetic sets have the shape and the statistics of the text (sections fco:expr:lasso and fco:expr:nuclear)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedlocal import FederatedData
from fedlocal.data import synthetic_lasso, synthetic_low_rank

# of the text: d1 or rank, clients, examples of each client
LASSO = {"I": (512, 64, 128), "II": (64, 64, 128), "III": (8, 64, 128), "IV": (512, 256, 32)}
LOW_RANK = {"I": (16, 64, 128), "II": (4, 64, 128), "III": (1, 64, 128), "IV": (16, 256, 32)}
over = pytest.mark.parametrize


@cache
def small(kind: str) -> FederatedData:
    """Configuration III in few dimensions, which leaves everything else as in the text."""
    return synthetic_lasso("III", seed=5, dimension=12) if kind == "lasso" else synthetic_low_rank("III", 5, 4)


def by_client(data: FederatedData) -> tuple[np.ndarray, np.ndarray]:
    """Features (M, n, d) and targets (M, n)."""
    features, targets = (np.asarray(a) for a in data.arrays)
    clients = data.num_clients
    return features.reshape(clients, data.num_examples // clients, -1), targets.reshape(clients, -1)


def within_four_standard_errors(sample: np.ndarray, expected: float) -> bool:
    return bool(abs(np.mean(sample) - expected) < 4 * np.std(sample, ddof=1) / np.sqrt(np.size(sample)))


@over("config", LASSO)
def test_lasso_has_the_shape_of_the_text(config: Any):
    ones, clients, examples = LASSO[config]
    data = synthetic_lasso(config)
    assert data.arrays[0].shape == (8192, 1024)
    assert data.arrays[1].shape == (8192,)
    assert data.client_sizes.tolist() == [examples] * clients
    np.testing.assert_array_equal(data.truth["weights"], np.repeat([1.0, 0.0], [ones, 1024 - ones]))


@over("config", LOW_RANK)
def test_low_rank_has_the_shape_of_the_text(config: Any):
    rank, clients, examples = LOW_RANK[config]
    data = synthetic_low_rank(config)
    assert data.arrays[0].shape == (8192, 32, 32)
    assert data.client_sizes.tolist() == [examples] * clients
    expected = np.zeros((32, 32))
    expected[:rank, :rank] = np.eye(rank)
    np.testing.assert_array_equal(data.truth["weights"], expected)


@over("kind", ["lasso", "low_rank"])
def test_clients_own_consecutive_rows(kind: str):
    assert small(kind).client_starts.tolist() == [128 * m for m in range(64)]


@over("kind", ["lasso", "low_rank"])
def test_residuals_of_the_truth_are_standard_normal_noise(kind: str):
    features, targets = by_client(small(kind))
    truth = small(kind).truth
    noise = targets - features @ truth["weights"].ravel() - truth["intercept"]
    assert within_four_standard_errors(noise, 0)
    assert within_four_standard_errors(noise**2, 1)
    assert within_four_standard_errors(noise**4, 3)


@over("kind", ["lasso", "low_rank"])
def test_features_vary_around_the_mean_of_their_client_with_variance_one(kind: str):
    features, _ = by_client(small(kind))
    assert within_four_standard_errors(features.var(axis=1, ddof=1), 1)


@over("kind", ["lasso", "low_rank"])
def test_means_of_clients_are_normal_with_variance_one(kind: str):
    """The mean of 128 examples varies by 1 + 1/128 from client to client."""
    means = by_client(small(kind))[0].mean(axis=1)
    assert within_four_standard_errors(means, 0)
    assert within_four_standard_errors(means**2, 1 + 1 / 128)


@over("kind", ["lasso", "low_rank"])
def test_coordinates_are_independent(kind: str):
    features, _ = by_client(small(kind))
    centred = (features - features.mean(axis=1, keepdims=True)).reshape(-1, features.shape[-1])
    assert within_four_standard_errors(centred[:, 0] * centred[:, 1], 0)


def test_the_intercept_is_standard_normal_over_seeds():
    drawn = np.array([synthetic_lasso("III", seed, dimension=8).truth["intercept"] for seed in range(30)])
    assert within_four_standard_errors(drawn, 0)
    assert within_four_standard_errors(drawn**2, 1)


@over("make", [synthetic_lasso, synthetic_low_rank])
def test_the_same_seed_gives_the_same_data(make: Callable[..., FederatedData]):
    first, second = make("III", seed=1, dimension=8), make("III", seed=1, dimension=8)
    assert all(np.array_equal(a, b) for a, b in zip(first.arrays, second.arrays, strict=True))


@over("make", [synthetic_lasso, synthetic_low_rank])
def test_another_seed_gives_other_data(make: Callable[..., FederatedData]):
    first, second = make("III", seed=1, dimension=8), make("III", seed=2, dimension=8)
    assert not any(np.array_equal(a, b) for a, b in zip(first.arrays, second.arrays, strict=True))


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown_config": (
        lambda: synthetic_lasso("V"),  # pyright: ignore[reportArgumentType]
        "^synthetic_lasso: config must be one of 'I', 'II', 'III', 'IV', got 'V'$",
    ),
    "number_for_config": (lambda: synthetic_low_rank(1), "^synthetic_low_rank: config must be one of .* got 1$"),  # pyright: ignore[reportArgumentType]
    "dimension_below_the_ones": (
        lambda: synthetic_lasso("II", dimension=63),
        "^synthetic_lasso: dimension must be a whole number >= 64, got 63$",
    ),
    "dimension_below_the_rank": (
        lambda: synthetic_low_rank("I", dimension=15),
        "^synthetic_low_rank: dimension must be a whole number >= 16, got 15$",
    ),
    "negative_seed": (
        lambda: synthetic_lasso("III", seed=-1, dimension=8),
        "^synthetic.*: seed must be a whole number >= 0, got -1$",
    ),
    "fractional_seed": (
        lambda: synthetic_low_rank("III", seed=1.5, dimension=8),  # pyright: ignore[reportArgumentType]
        "^synthetic.*: seed must be a whole number >= 0, got 1.5$",
    ),
}


@over("name", ERRORS)
def test_a_bad_argument_is_told_in_one_sentence(name: str):
    call, sentence = ERRORS[name]
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()


@over("kind", ["lasso", "low_rank"])
def test_validation_examples_are_others_of_the_same_clients(kind: str):
    make = synthetic_lasso if kind == "lasso" else synthetic_low_rank
    dimension = 12 if kind == "lasso" else 4
    train, validation = (by_client(make("III", 5, dimension, split=split)) for split in ("train", "validation"))
    assert train[0].shape == validation[0].shape
    assert np.abs(train[0] - validation[0]).min() > 0
    difference = train[0].mean(axis=1) - validation[0].mean(axis=1)  # the means of a client cancel; 2/128 is left
    np.testing.assert_allclose(np.mean(difference**2), 2 / 128, rtol=0.3)
    truths = [make("III", 5, dimension, split=split).truth for split in ("train", "validation")]
    assert truths[0]["intercept"] == truths[1]["intercept"]


def test_a_split_that_does_not_exist_is_told():
    with pytest.raises(ValueError, match="split must be one of 'train', 'validation', got 'test'"):
        synthetic_lasso("III", split="test")  # pyright: ignore[reportArgumentType]
