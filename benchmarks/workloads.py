"""The three benchmark workloads as plain NumPy arrays: data, starting point and hyper-parameters, made from a seed."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, eq=False)
class Logistic:
    """W1: l2-regularised logistic regression on data of a9a's shape, which all clients share.

    Objective: mean log(1 + exp(-b a'w)) + l2/2 ||w||^2. All clients take part in each round; each takes
    `local_steps` steps on one example drawn with replacement from the whole data; FedAvg, uniform mean, w starts at 0.
    """

    features: np.ndarray  # (examples, 123) float32, 14 ones in each row
    labels: np.ndarray  # (examples,) float32, -1 or +1
    l2: float = 1e-3
    local_steps: int = 16
    batch_size: int = 1
    client_step_size: float = 0.1


@dataclass(frozen=True, eq=False)
class Network:
    """W2: ReLU network 784-200-200-10 with softmax cross-entropy, FedAvg, one shuffled epoch on each drawn client."""

    features: np.ndarray  # (clients, 100, 784) float32
    labels: np.ndarray  # (clients, 100) int32
    weights: tuple[np.ndarray, ...]  # He starting point, layer by layer, (inputs, outputs) float32
    biases: tuple[np.ndarray, ...]  # zeros, layer by layer
    clients_per_round: int = 10
    batch_size: int = 10
    client_step_size: float = 0.05
    server_step_size: float = 1.0


@dataclass(frozen=True, eq=False)
class Lasso:
    """W3: LASSO with an unpenalised intercept, FedDualAvg, one shuffled epoch whose last batch is short.

    Objective: mean (a'x + x0 - b)^2 + l1 ||x||_1. 128 examples in batches of 10 make 13 steps, the last one over 8
    examples. (x, x0) starts at 0.
    """

    features: np.ndarray  # (clients, 128, 1024) float32
    targets: np.ndarray  # (clients, 128) float32
    l1: float = 0.3
    clients_per_round: int = 10
    batch_size: int = 10
    client_step_size: float = 0.001
    server_step_size: float = 1.0


def w1(seed: int = 0, examples: int = 32_561, dimension: int = 123, ones: int = 14) -> Logistic:
    """Rows of `ones` ones at random places; labels drawn from a logistic model."""
    rng = np.random.default_rng(seed)
    places = np.argpartition(rng.random((examples, dimension)), ones, axis=1)[:, :ones]
    features = np.zeros((examples, dimension), np.float32)
    np.put_along_axis(features, places, 1.0, axis=1)
    scores = features @ rng.standard_normal(dimension)
    labels = np.where(rng.random(examples) < 1 / (1 + np.exp(-scores)), 1, -1).astype(np.float32)
    return Logistic(features, labels)


def w2(
    seed: int = 0, clients: int = 1000, examples: int = 100, sizes: tuple[int, ...] = (784, 200, 200, 10)
) -> Network:
    """Random inputs with random classes."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((clients, examples, sizes[0]), np.float32)
    labels = rng.integers(sizes[-1], size=(clients, examples), dtype=np.int32)
    shapes = list(pairwise(sizes))
    weights = tuple(rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / shape[0])) for shape in shapes)
    return Network(features, labels, weights, tuple(np.zeros(size, np.float32) for size in sizes[1:]))


def w3(seed: int = 0, clients: int = 64, examples: int = 128, dimension: int = 1024, nonzeros: int = 32) -> Lasso:
    """Gaussian features, a sparse truth with intercept 1, unit noise."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((clients, examples, dimension), np.float32)
    truth = np.zeros(dimension, np.float32)
    truth[rng.choice(dimension, nonzeros, replace=False)] = 1.0
    noise = rng.standard_normal((clients, examples), np.float32)
    return Lasso(features, features @ truth + np.float32(1.0) + noise)
