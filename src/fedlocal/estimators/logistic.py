"""Classification over sites: logistic regression of two and of more classes."""

from dataclasses import field
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from fedlocal.core import Regularizer
from fedlocal.estimators.base import FederatedModel, parameters
from fedlocal.estimators.linear import elastic_net
from fedlocal.losses import LogisticLoss, ScoreLoss, SoftmaxLoss
from fedlocal.regularizers import GroupL1, Zero
from fedlocal.solvers.newton.fitting import FittingProblem
from fedlocal.util import checks

Penalty = Literal["l1", "l2", "elasticnet", "group"]
PENALTIES: tuple[str, ...] = get_args(Penalty)


@parameters
class FederatedClassifier(ClassifierMixin, FederatedModel):
    """Classes from scores that are linear in the features."""

    class_weight: Any = None

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) scores of the second class, or (n, classes)."""
        scores = np.asarray(self._features(X) @ self.coef_.T) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """(n,) classes."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes) probabilities."""
        scores = self.decision_function(X)
        return softmax(np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(n, classes) logarithms of the probabilities."""
        return np.log(self.predict_proba(X))

    def _validated(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, Any]:
        """Features, numbers of the classes, weights with those of the classes in them; sets `classes_`."""
        X, y = self._examples(X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise self._error(f"y must have at least two classes, got only one class, {self.classes_[0]!r}")
        if self.class_weight is not None:
            given = _check_sample_weight(sample_weight, X, dtype=np.float64)
            sample_weight = self._weights_of_classes(y, labels, given)[labels] * given
        return X, labels, sample_weight

    def _weights_of_classes(self, y: Any, labels: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
        """(classes,) weights; "balanced" gives all classes the same sum of weights, as in scikit-learn 1.9."""
        if not isinstance(self.class_weight, str) or self.class_weight != "balanced":
            return compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        sums = np.bincount(labels, sample_weight)
        return np.where(sums > 0, sums.sum() / (len(sums) * np.where(sums > 0, sums, 1)), 0.0)

    def _targets_and_loss(self, y: np.ndarray) -> tuple[np.ndarray, ScoreLoss]:
        return (2.0 * y - 1.0, LogisticLoss()) if len(self.classes_) == 2 else (y, SoftmaxLoss(len(self.classes_)))

    def _keep(self, x: np.ndarray, b: np.ndarray) -> None:
        # a number added to all intercepts of a softmax changes nothing: their mean is zero here
        self.coef_, self.intercept_ = np.ascontiguousarray(x.T), b if len(b) == 1 else b - b.mean()


@parameters
class PenalizedClassifier(FederatedClassifier):
    """Classes from scores, with a penalty of strength 1 / (C n)."""

    penalty: Penalty | Regularizer | None = field(default="l2", kw_only=False)
    l1_ratio: float = 0.5
    groups: Any = None

    def _psi(self, problem: FittingProblem, C: float, total: float) -> Regularizer:
        """The penalty for a C and a sum of the examples' weights."""
        if isinstance(self.penalty, Regularizer):
            return self.penalty
        if self.penalty is None:
            return Zero()
        checks.choice(self._name, "penalty", self.penalty, PENALTIES)
        strength = 1 / (checks.number(self._name, "C", C, above=0) * total)
        if self.penalty == "group":
            return GroupL1(strength, self._groups(problem))
        ratios = {"l1": 1.0, "l2": 0.0, "elasticnet": self.l1_ratio}
        ratio = checks.number(self._name, "l1_ratio", ratios[self.penalty], at_least=0, at_most=1)
        psi: Any = elastic_net(strength * ratio, strength * (1 - ratio), positive=False)
        return psi

    def _groups(self, problem: FittingProblem) -> np.ndarray:
        labels = np.asarray([] if self.groups is None else self.groups)
        width, outputs = problem.sums.width, problem.sums.loss.outputs
        if labels.shape != (width,):
            got = "None" if self.groups is None else f"shape {labels.shape}"
            raise self._error(f"groups must have one label per feature ({width}) for penalty='group', got {got}")
        _, numbers = np.unique(labels, return_inverse=True)
        return numbers if outputs == 1 else np.repeat(numbers[:, None], outputs, axis=1)


@parameters
class FederatedLogisticRegression(PenalizedClassifier):
    r"""Logistic regression over sites, softmax for more than two classes:
        min over x, b of sum_i w_i loss(a_i'x + b, y_i) + strength psi(x),   strength = 1 / (C n).

    That is scikit-learn's objective over C n, on the pooled data; with `sample_weight`, n is their sum.
    Attributes are those of `FederatedLasso`, and `classes_`.

    Args:
        penalty: psi, one of
            "l1": ||x||_1; "l2": ||x||^2 / 2; "elasticnet": l1_ratio ||x||_1 + (1 - l1_ratio) / 2 ||x||^2; None: none;
            "group": the sum of the norms of the groups of features, over all classes;
            a regulariser of `fl.regularizers` for the weights, (d,) or (d, classes), such as a constraint:
            NonNegative(), Box(-1, 1), L1Ball(3.0); it is taken as it is, and C is not used.
        C: inverse of the strength, above 0.
        l1_ratio: from 0 to 1; for "elasticnet" only.
        groups: (d,) labels of the features' groups, of any kind; for "group" only.
        class_weight: as in scikit-learn: None, "balanced" or {class: weight}.
        fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["well", "ill", "well", "ill"])
    >>> model = FederatedLogisticRegression("l1", C=10.0).fit(X, y, sites=["north", "north", "south", "south"])
    >>> model.predict([[0.0]]).tolist(), model.certificate_.duality_gap < 1e-7
    (['well'], True)
    """

    C: float = 1.0

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit to examples X (n, d) of classes y (n,) that belong to `sites` (n,), labels of any kind; None: one site."""
        sites, sample_weight = self._in_row_order(X, y, sites, sample_weight)
        X, labels, sample_weight = self._validated(X, y, sample_weight)
        codes, sample_weight = self._sites_and_weights(X, sites, sample_weight)
        problem = self._fitting_problem(X, labels, codes, sample_weight)
        return self._fit(problem, self._psi(problem, self.C, float(sample_weight.sum())))
