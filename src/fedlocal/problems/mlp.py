"""MLP: a small neural network for classification."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Params, static
from fedlocal.data.federated_data import FederatedData
from fedlocal.losses import SoftmaxLoss
from fedlocal.problems.data_problem import DataProblem, dense
from fedlocal.problems.linear import class_labels, count_classes
from fedlocal.util import checks


class MLP(DataProblem):
    r"""Fully connected ReLU network with softmax cross-entropy; parameters are a list of {"weights", "bias"} per layer.

    Args:
        data: features (n, ...), each example flattened, and labels (n,) in 0..C-1.
        hidden: widths of the hidden layers, from the first to the last; () for none.
        num_classes: C, at least 2; None takes the largest label plus one.

    Reference: dissertation, task 4 (2NN on Federated EMNIST: hidden=(200, 200)). Differs from it: nothing.

    >>> data = FederatedData.from_clients([(np.ones((4, 8)), np.arange(4))])
    >>> [layer["weights"].shape for layer in MLP(data, hidden=(5,)).init(jax.random.key(0))]
    [(8, 5), (5, 4)]
    """

    data: FederatedData
    hidden: tuple[int, ...] = static()
    num_classes: int = static()

    def __init__(self, data: FederatedData, hidden: Sequence[int] = (200, 200), num_classes: int | None = None):
        self.num_classes = count_classes("MLP", data, num_classes)
        self.data = self.prepare(data)
        if np.ndim(hidden) != 1:
            raise TypeError(f"MLP: hidden must be a list of widths, one per hidden layer, got {hidden!r}")
        self.hidden = tuple(checks.whole("MLP", "hidden", width) for width in hidden)

    def prepare(self, data: FederatedData) -> FederatedData:
        if len(data.arrays) != 2:
            raise ValueError(f"MLP: data must hold features and labels, got {len(data.arrays)} arrays")
        return class_labels("MLP", data, self.num_classes)

    def init(self, key: jax.Array) -> Params:
        features = self.data.arrays[0]
        widths = (int(np.prod(features.shape[1:])), *self.hidden, self.num_classes)
        keys = jax.random.split(key, len(widths) - 1)
        he = jax.nn.initializers.he_normal()
        return [
            {"weights": he(k, (fan_in, fan_out), jnp.result_type(float)), "bias": jnp.zeros(fan_out)}
            for k, (fan_in, fan_out) in zip(keys, pairwise(widths), strict=True)
        ]

    def scores(self, x: Params, features: Any) -> jax.Array:
        """(B, classes)."""
        z = dense(features)
        z = z.reshape(z.shape[0], -1)
        for layer in x[:-1]:
            z = jax.nn.relu(z @ layer["weights"] + layer["bias"])
        return z @ x[-1]["weights"] + x[-1]["bias"]

    def losses(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        features, targets = examples
        return SoftmaxLoss(self.num_classes).value(self.scores(x, features), targets)

    def correct(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        """Return True for each example whose own class has the largest score."""
        features, targets = examples
        return jnp.argmax(self.scores(x, features), axis=-1) == targets
