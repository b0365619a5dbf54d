"""Linear models: a score a'x + x0 of each example and a loss of the score."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Params, Scalar, static
from fedlocal.data.federated_data import FederatedData, SparseMatrix
from fedlocal.losses import LogisticLoss, ScoreLoss, SoftmaxLoss, SquaredLoss
from fedlocal.problems.data_problem import DataProblem
from fedlocal.util import checks
from fedlocal.util.placement import on_device


class LinearProblem(DataProblem):
    """Parameters {"weights": ..., "intercept": ...}; the intercept is optional, and never penalised."""

    data: eqx.AbstractVar[FederatedData]
    l2: eqx.AbstractVar[Scalar | None]  # None: no penalty, and none in the compiled program
    intercept: eqx.AbstractVar[bool]

    @property
    @abstractmethod
    def score_loss(self) -> ScoreLoss:
        """The loss of a score, with its derivatives and its conjugate."""

    def output_shape(self) -> tuple[int, ...]:
        """Shape of the scores of one example: () or (classes,)."""
        return ()

    def init(self, key: jax.Array) -> Params:
        features = self.data.arrays[0]
        dtype = _float_dtype(features)
        x: dict[str, jax.Array] = {"weights": jnp.zeros((*features.shape[1:], *self.output_shape()), dtype)}
        if self.intercept:
            x["intercept"] = jnp.zeros(self.output_shape(), dtype)
        return x

    def scores(self, x: Params, features: Any) -> jax.Array:
        """(B,) or (B, classes): a'x + x0."""
        axes = features.ndim - 1 if isinstance(features, jax.Array) else 1
        weights = x["weights"]
        scores = jnp.tensordot(features, weights, axes) if axes != 1 else features @ weights
        return scores + x["intercept"] if self.intercept else scores

    def losses_of_scores(self, scores: jax.Array, targets: jax.Array) -> jax.Array:
        """(B,) losses."""
        return self.score_loss.value(scores, targets)

    def slopes(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        """Derivatives of the examples' losses with respect to their scores."""
        features, targets = examples
        return self.score_loss.slope(self.scores(x, features), targets)

    def losses(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        features, targets = examples
        return self.losses_of_scores(self.scores(x, features), targets)

    def penalty(self, x: Params) -> jax.Array:
        if self.l2 is None:
            return jnp.zeros(())
        return self.l2 / 2 * jnp.sum(x["weights"] ** 2)


class SquaresProblem(LinearProblem):
    """What `LeastSquares` and `MatrixSensing` share: everything but the axes of an example's features."""

    feature_axes: ClassVar[int]

    data: FederatedData
    intercept: bool = static()
    l2: Scalar | None

    def __init__(self, data: FederatedData, intercept: bool = True, l2: Scalar = 0.0):
        owner = type(self).__name__
        self.data = _features_and_targets(owner, data, self.feature_axes + 1)
        self.intercept, self.l2 = intercept, _l2(owner, l2)

    @property
    def score_loss(self) -> SquaredLoss:
        return SquaredLoss()


class LeastSquares(SquaresProblem):
    r"""F_m(x) = mean_i (a_i'x + x0 - b_i)^2, without a half, as in the text.

    Args:
        data: features (n, d), dense or sparse, and targets (n,).
        intercept: True adds x0.
        l2: adds l2/2 ||x||^2, without the intercept, to each F_m; at least 0.

    Reference: dissertation, eq. flasso. Differs from it: the regulariser belongs to the method.

    >>> data = FederatedData.from_clients([(np.eye(2), np.ones(2))])
    >>> LeastSquares(data).full_gradient(LeastSquares(data).init(None), 0)["weights"].tolist()
    [-1.0, -1.0]
    """

    feature_axes = 1

    def __init__(self, data: FederatedData, intercept: bool = True, l2: Scalar = 0.0):
        super().__init__(data, intercept, l2)


class MatrixSensing(SquaresProblem):
    r"""F_m(X) = mean_i (<A_i, X> + x0 - b_i)^2 for matrices A_i.

    Args:
        data: matrices (n, rows, columns) and targets (n,).
        intercept, l2: as in `LeastSquares`.

    Reference: dissertation, eq. fed:matrix:estimation. Differs from it: the regulariser belongs to the method.

    >>> data = FederatedData.from_clients([(np.ones((3, 2, 2)), np.ones(3))])
    >>> MatrixSensing(data).init(None)["weights"].shape
    (2, 2)
    """

    feature_axes = 2

    def __init__(self, data: FederatedData, intercept: bool = True, l2: Scalar = 0.0):
        super().__init__(data, intercept, l2)


class Logistic(LinearProblem):
    r"""F_m(x) = mean_i log(1 + exp(-b_i (a_i'x + x0))) + l2/2 ||x||^2.

    Args:
        data: features (n, d), dense or sparse, and labels (n,), -1 and +1 or 0 and 1.
        l2: at least 0.
        intercept: True adds x0, which is not penalised.

    Reference: dissertation, experiments on a9a and epsilon. Differs from it: nothing.

    >>> data = FederatedData.from_clients([(np.eye(2), np.array([1, -1]))])
    >>> Logistic(data).full_gradient(Logistic(data).init(None), 0)["weights"].tolist()
    [-0.25, 0.25]
    """

    data: FederatedData
    l2: Scalar | None
    intercept: bool = static()

    def __init__(self, data: FederatedData, l2: Scalar = 0.0, intercept: bool = False):
        self.data = self.prepare(data)
        self.l2, self.intercept = _l2("Logistic", l2), intercept

    def prepare(self, data: FederatedData) -> FederatedData:
        data = _features_and_targets("Logistic", data)
        labels = np.unique(np.asarray(data.arrays[1])).tolist()
        if not (set(labels) <= {-1, 1} or set(labels) <= {0, 1}):
            raise ValueError(f"Logistic: labels must be -1/+1 or 0/1, got {labels[:5]}")
        signs = on_device(np.where(np.asarray(data.arrays[1]) > 0, 1, -1).astype(_float_dtype(data.arrays[0])))
        return eqx.tree_at(lambda d: d.arrays, data, (data.arrays[0], signs))

    @property
    def score_loss(self) -> LogisticLoss:
        return LogisticLoss()

    def correct(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        """Return True for each example whose label is +1 and its score above 0, or -1 and not above 0, as in scikit-learn."""
        features, targets = examples
        scores = self.scores(x, features)
        return jnp.where(targets > 0, scores > 0, scores <= 0)  # nan is never right


class Softmax(LinearProblem):
    r"""F_m(X) = mean_i -log softmax(X'a_i + x0)[b_i] + l2/2 ||X||^2; weights are (features, classes).

    Args:
        data: features (n, d), dense or sparse, and labels (n,) in 0..C-1.
        num_classes: C, at least 2; None takes the largest label plus one.
        l2: at least 0.
        intercept: True adds x0, which is not penalised.

    Reference: dissertation, task 4 (logistic regression on Federated EMNIST). Differs from it: nothing.

    >>> data = FederatedData.from_clients([(np.eye(3), np.arange(3))])
    >>> Softmax(data).init(None)["weights"].shape
    (3, 3)
    """

    data: FederatedData
    l2: Scalar | None
    num_classes: int = static()
    intercept: bool = static()

    def __init__(self, data: FederatedData, num_classes: int | None = None, l2: Scalar = 0.0, intercept: bool = True):
        self.num_classes = count_classes("Softmax", data, num_classes)
        self.data = self.prepare(data)
        self.l2, self.intercept = _l2("Softmax", l2), intercept

    def prepare(self, data: FederatedData) -> FederatedData:
        return class_labels("Softmax", _features_and_targets("Softmax", data), self.num_classes)

    def output_shape(self) -> tuple[int, ...]:
        return (self.num_classes,)

    @property
    def score_loss(self) -> SoftmaxLoss:
        return SoftmaxLoss(self.num_classes)

    def correct(self, x: Params, examples: tuple[Any, ...]) -> jax.Array:
        """Return True for each example whose own class has the largest score."""
        features, targets = examples
        return jnp.argmax(self.scores(x, features), axis=-1) == targets


def count_classes(owner: str, data: FederatedData, num_classes: int | None) -> int:
    """The number of classes: as given, or the largest label plus one."""
    _federated(owner, data)
    if num_classes is not None:
        return checks.whole(owner, "num_classes", num_classes, at_least=2)
    labels = np.asarray(data.arrays[-1])
    if labels.min() > 0:
        ways = f"subtract {labels.min():g}, or give num_classes"
        raise ValueError(f"{owner}: labels count from 0, and the smallest one is {labels.min():g}; {ways}")
    return max(2, int(labels.max()) + 1)


def class_labels(owner: str, data: FederatedData, num_classes: int) -> FederatedData:
    """The data with labels 0..num_classes - 1 as int32."""
    labels = np.asarray(data.arrays[1])
    if labels.ndim != 1:
        raise ValueError(f"{owner}: targets must have one number per example, got shape {labels.shape}")
    wrong = (labels < 0) | (labels != np.floor(labels)) | (labels >= num_classes)
    if wrong.any():
        raise ValueError(f"{owner}: labels must be whole numbers in 0..{num_classes - 1}, got {labels[wrong][0]}")
    return eqx.tree_at(lambda d: d.arrays, data, (data.arrays[0], on_device(labels.astype(np.int32))))


def _features_and_targets(owner: str, data: FederatedData, axes: int = 2) -> FederatedData:
    _federated(owner, data)
    if len(data.arrays) != 2:
        raise ValueError(f"{owner}: data must hold features and targets, got {len(data.arrays)} arrays")
    features, targets = data.arrays
    if len(features.shape) != axes:
        raise ValueError(f"{owner}: features must have {axes} axes (examples first), got shape {features.shape}")
    if 0 in features.shape[1:]:
        raise ValueError(f"{owner}: examples must have at least one feature, got features of shape {features.shape}")
    if len(targets.shape) != 1:
        raise ValueError(f"{owner}: targets must have one number per example, got shape {targets.shape}")
    return data


def _federated(owner: str, data: Any) -> None:
    if not isinstance(data, FederatedData):
        raise TypeError(f"{owner}: data must be FederatedData, got {type(data).__name__}")


def _l2(owner: str, l2: Scalar) -> Scalar | None:
    l2 = checks.number(owner, "l2", l2, at_least=0)
    return None if isinstance(l2, float) and l2 == 0 else l2


def _float_dtype(features: jax.Array | SparseMatrix) -> Any:
    return features.dtype if jnp.issubdtype(features.dtype, jnp.floating) else jnp.result_type(float)
