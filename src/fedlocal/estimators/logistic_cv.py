"""Logistic regression with C chosen by cross-validation."""

from dataclasses import field
from typing import Any, Self

import numpy as np
from sklearn.metrics import get_scorer
from sklearn.utils.validation import _check_sample_weight

from fedlocal.core import Regularizer
from fedlocal.estimators.base import parameters
from fedlocal.estimators.cross_validation import CrossValidated, ExampleRows, chosen_place, given, strengths
from fedlocal.estimators.logistic import FederatedLogisticRegression, PenalizedClassifier, Penalty
from fedlocal.regularizers import L1, GroupL1
from fedlocal.solvers.newton.fitting import FittingProblem, Start
from fedlocal.util import checks


@parameters
class FederatedLogisticRegressionCV(PenalizedClassifier, CrossValidated):
    r"""`FederatedLogisticRegression` with C chosen by cross-validation, as in scikit-learn's `LogisticRegressionCV`.

    Args:
        penalty: a name in `FederatedLogisticRegression`.
        Cs: numbers to choose from, or how many of them: from the one up to which all weights are zero to 1/eps times it; with
            penalty="l2" (or l1_ratio=0), which leaves no weight at zero, from 1e-4 to 1e4.
        eps: the smallest of these Cs over the largest, above 0 and at most 1; not used with penalty="l2".
        cv: None leaves one site out at a time (5 folds where there is one site); else as in scikit-learn, with sites as groups.
        choose: "best": the best mean score over the folds; "1se": the smallest C whose score is at most a standard error over the
            folds worse, which gives a sparser model.
        scoring: as in scikit-learn; None is accuracy.
        l1_ratio: from 0 to 1; for "elasticnet" only.
        groups, class_weight: as in `FederatedLogisticRegression`.
        fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    Attributes, beside those of `FederatedLogisticRegression`: `C_`, which has the best score, averaged over the folds;
    `Cs_` from small to large; `scores_` (Cs, folds); `communication_`, `communication_by_fit_` as in `FederatedLassoCV`.

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    >>> model = FederatedLogisticRegressionCV("l1", Cs=5).fit(X, X[:, 0] > 0, sites=sites)
    >>> model.scores_.shape, int(np.argmax(np.abs(model.coef_)))
    ((5, 3), 0)
    """

    penalty: Penalty | Regularizer | None = field(default="l1", kw_only=False)
    Cs: Any = 10
    scoring: Any = None

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Choose C, then fit to all examples; arguments as in `FederatedLogisticRegression.fit`."""
        if not isinstance(self.penalty, str):
            wanted = "have a strength: 'l1', 'l2', 'elasticnet' or 'group'"
            raise self._error(f"penalty must {wanted}, got {self.penalty!r}")
        sites, sample_weight = self._in_row_order(X, y, sites, sample_weight)
        X, labels, each = self._validated(X, y, sample_weight)
        counts = _check_sample_weight(sample_weight, X, dtype=np.float64)
        rows = ExampleRows(X, labels, *self._sites_and_weights(X, sites, each), counts)
        problem, total = self._problem_of(rows), float(rows.weights.sum())
        self.Cs_ = self._candidates(problem, total)
        scores, spent = self._scores(problem, rows, [self.Cs_], sample_weight is not None)
        self.scores_, self.C_ = scores[0], float(self.Cs_[chosen_place(self._name, scores, self.choose)[1]])
        self._fit(problem, self._psi(problem, self.C_, total))
        return self._count([*spent, ("all rows", self.C_, self.communication_)], ["C"])

    def _candidates(self, problem: FittingProblem, total: float) -> np.ndarray:
        """Values of C, from small to large."""
        norm = GroupL1(1.0, self._groups(problem)) if self.penalty == "group" else L1(1.0)
        ratio = 0.0 if self.penalty == "l2" else 1.0
        if self.penalty == "elasticnet":
            ratio = checks.number(self._name, "l1_ratio", self.l1_ratio, at_least=0, at_most=1)
        if np.ndim(self.Cs):
            return given(self._name, "Cs", self.Cs, above=0)
        if ratio == 0:
            return np.logspace(-4, 4, checks.whole(self._name, "Cs", self.Cs))
        largest = problem.zero_strength(norm) / ratio
        return 1 / (strengths(self._name, "Cs", self.Cs, largest, self.eps) * total)

    def _score(self, model: Start, test: ExampleRows, weighted: bool, fold: str) -> float:
        fitted: Any = FederatedLogisticRegression()
        fitted.coef_, fitted.intercept_ = model[0].T, model[1]
        fitted.classes_, fitted.n_features_in_ = self.classes_, test.X.shape[1]
        scorer = get_scorer("accuracy" if self.scoring is None else self.scoring)
        weights = {"sample_weight": test.counts} if weighted else {}
        try:
            score = float(scorer(fitted, test.X, self.classes_[test.y], **weights))
        except ValueError as error:
            raise self._error(f"scoring={self.scoring!r} failed on {fold}: {error}") from error
        if np.isnan(score):
            raise self._error(f"scoring={self.scoring!r} is not defined on {fold}; try another scoring or cv")
        return score
