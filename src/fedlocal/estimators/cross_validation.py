"""Strengths chosen by cross-validation, one site left out at a time where there are several."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import LeaveOneGroupOut, check_cv

from fedlocal.core import Regularizer, Separable
from fedlocal.estimators.base import FederatedModel, parameters
from fedlocal.estimators.linear import FederatedRegressor, elastic_net
from fedlocal.estimators.logistic import FederatedLogisticRegression, PenalizedClassifier, Penalty
from fedlocal.regularizers import L1, GroupL1
from fedlocal.solvers.newton.fitting import FitOptions, FittingProblem, Start
from fedlocal.util import checks
from fedlocal.util.progress import ProgressBar


class Fold(NamedTuple):
    """One split of the rows."""

    name: str  # for messages
    train: Any  # rows to fit
    test: Any  # rows to test


def folds(
    model: FederatedModel, cv: Any, X: Any, y: np.ndarray, codes: np.ndarray, sample_weight: np.ndarray
) -> list[Fold]:
    """The folds of `cv` as in scikit-learn with the sites as groups; None leaves one site out at a time, or takes 5 folds where
    there is one site only. Folds on whose rows there is no weight are left out."""
    if cv is None and len(np.unique(codes)) > 1:
        cv = LeaveOneGroupOut()
    classifier = is_classifier(model)
    splitter: Any = check_cv(cv, y, classifier=classifier)  # pyright: ignore[reportArgumentType]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The groups parameter is ignored")  # some splitters have no use for the sites
        splits = list(splitter.split(X, y, codes))
    found = [
        Fold(_fold_name(number, len(splits), np.arange(len(y))[test], codes, model.sites_), train, test)
        for number, (train, test) in enumerate(splits)
        if all(sample_weight[rows].sum() > 0 for rows in (train, test))
    ]
    for fold in found:
        if classifier and len(np.unique(y[fold.train])) < len(np.unique(y)):
            raise ValueError(
                f"{type(model).__name__}: {fold.name} has no example of some class to learn from; give another cv, such as "
                "sklearn.model_selection.StratifiedKFold"
            )
    return found


def _fold_name(number: int, count: int, test: np.ndarray, codes: np.ndarray, sites: np.ndarray) -> str:
    """The site that a fold leaves out, where it tests all rows of one site and no others; else its number, from one."""
    own = np.unique(codes[test])
    if len(sites) > 1 and len(own) == 1 and len(test) == np.count_nonzero(codes == own[0]):
        return f"the fold that leaves out site {sites[own[0]]}"
    return f"fold {number + 1} of {count}"


def along_path(
    problem: FittingProblem,
    penalties: Sequence[Regularizer | Separable],
    shape: tuple[int, ...],
    options: FitOptions,
    owner: str,
    fold: str,
) -> Iterator[Start]:
    """The model of each penalty, from the strongest to the weakest, each fit started where the one before ended."""
    start, missed = problem.start(), 0
    for psi in penalties:
        fit = problem.fit(psi, shape, start, options, lambda *_: None)
        start, missed = (fit.x, fit.b), missed + (not fit.converged)
        yield problem.in_units(fit)
    if missed:
        warnings.warn(
            f"{owner}: {missed} of {len(penalties)} fits of {fold} stopped before tol; try more max_iter or a larger tol",
            ConvergenceWarning,
            stacklevel=3,
        )


def strengths(owner: str, name: str, wanted: Any, largest: float, eps: float) -> np.ndarray:
    """Strengths from large to small: those that are wanted, or that many from the largest to eps times it."""
    if np.ndim(wanted):
        if not len(wanted):
            raise ValueError(f"{owner}: {name} must have at least one number, got none")
        each = [float(checks.number(owner, name, value, at_least=0)) for value in np.asarray(wanted, float)]
        return np.sort(each)[::-1]
    count = checks.whole(owner, name, wanted)
    smallest = checks.number(owner, "eps", eps, above=0, at_most=1) * largest
    if largest <= np.finfo(float).resolution:  # nothing to be explained: every strength gives no weights
        return np.full(count, np.finfo(float).resolution)
    return np.geomspace(largest, smallest, count)


@parameters
class FederatedRegressorCV(FederatedRegressor, ABC):
    """Regression with alpha chosen by cross-validation."""

    eps: float = 1e-3
    alphas: Any = 100
    cv: Any = None
    positive: bool = False

    @abstractmethod
    def _ratio(self) -> float:
        """The share of the l1 norm in the penalty."""

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> "FederatedRegressorCV":
        """Choose alpha, then fit to all examples; arguments as in `FederatedLasso.fit`."""
        weighted = sample_weight is not None
        X, y = self._validated(X, y)
        codes, sample_weight = self._sites_and_weights(X, sites, sample_weight)
        problem, ratio = self._numbers_fitting_problem(X, y, codes, sample_weight), self._ratio()
        largest = problem.zero_strength(elastic_net(1.0, 0.0, self.positive), (X.shape[1],)) / ratio
        self.alphas_ = strengths(self._name, "alphas", self.alphas, largest, self.eps)
        penalties = [elastic_net(float(a) * ratio, float(a) * (1 - ratio), self.positive) for a in self.alphas_]
        options, shape = self._options(penalties[0]), (X.shape[1],)
        splits = folds(self, self.cv, X, y, codes, sample_weight)
        errors, sizes = np.empty((len(self.alphas_), len(splits))), np.ones(len(splits))
        with ProgressBar(self._name, errors.size) as bar:
            for number, (fold, train, test) in enumerate(splits):
                part = self._numbers_fitting_problem(X[train], y[train], codes[train], sample_weight[train])
                for i, (x, b) in enumerate(along_path(part, penalties, shape, options, self._name, fold)):
                    residuals = np.asarray(X[test] @ x[:, 0]) + b - y[test]
                    errors[i, number] = np.average(residuals**2, weights=sample_weight[test])
                    bar.advance_to(number * len(penalties) + i + 1, fold)
                sizes[number] = sample_weight[test].sum() if weighted else 1.0
        self.mse_path_ = errors
        best = int(np.argmin(np.average(errors, axis=1, weights=sizes)))
        self.alpha_ = float(self.alphas_[best])
        self._fit_psi(problem, penalties[best])
        return self


@parameters
class FederatedLassoCV(FederatedRegressorCV):
    r"""`FederatedLasso` with alpha chosen by cross-validation, as in scikit-learn's `LassoCV`.

    Args:
        alphas: numbers to choose from, or how many of them: from the one at which all weights are zero down to eps times it.
        cv: None leaves one site out at a time (5 folds where there is one site); else as in scikit-learn, with sites as groups.
    All others are those of `FederatedLasso`. Attributes, beside its own: `alpha_`, which has the least mean squared error,
    averaged over the folds; `alphas_` from large to small; `mse_path_` (alphas, folds).

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    >>> model = FederatedLassoCV(alphas=10).fit(X, X[:, 0] + 0.1 * rng.normal(size=60), sites=sites)
    >>> model.mse_path_.shape, round(float(model.coef_[0]), 1)
    ((10, 3), 1.0)
    """

    def _ratio(self) -> float:
        return 1.0


@parameters
class FederatedElasticNetCV(FederatedRegressorCV):
    r"""`FederatedElasticNet` with alpha chosen by cross-validation; all else as in `FederatedLassoCV`.

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    >>> model = FederatedElasticNetCV(alphas=[0.01, 10.0]).fit(X, X[:, 0] + 0.1 * rng.normal(size=60), sites=sites)
    >>> model.alpha_
    0.01
    """

    l1_ratio: float = 0.5

    def _ratio(self) -> float:
        return checks.number(self._name, "l1_ratio", self.l1_ratio, above=0, at_most=1)


@parameters
class FederatedLogisticRegressionCV(PenalizedClassifier):
    r"""`FederatedLogisticRegression` with C chosen by cross-validation, as in scikit-learn's `LogisticRegressionCV`.

    Args:
        Cs: numbers to choose from, or how many of them: from the one up to which all weights are zero to 1/eps times it; with
            penalty="l2", which leaves no weight at zero, from 1e-4 to 1e4.
        cv: None leaves one site out at a time (5 folds where there is one site); else as in scikit-learn, with sites as groups.
        scoring: as in scikit-learn; None is accuracy.
    All others are those of `FederatedLogisticRegression`. Attributes, beside its own: `C_`, which has the
    best score, averaged over the folds; `Cs_` from small to large; `scores_` (Cs, folds).

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    >>> model = FederatedLogisticRegressionCV("l1", Cs=5).fit(X, X[:, 0] > 0, sites=sites)
    >>> model.scores_.shape, int(np.argmax(np.abs(model.coef_)))
    ((5, 3), 0)
    """

    penalty: Penalty | Regularizer | None = field(default="l1", kw_only=False)
    Cs: Any = 10
    eps: float = 1e-3
    cv: Any = None
    scoring: Any = None

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> "FederatedLogisticRegressionCV":
        """Choose C, then fit to all examples; arguments as in `FederatedLogisticRegression.fit`."""
        if not isinstance(self.penalty, str):
            raise ValueError(
                f"{self._name}: penalty must have a strength: 'l1', 'l2', 'elasticnet' or 'group', got {self.penalty!r}"
            )
        weighted = sample_weight is not None
        X, labels, sample_weight = self._validated(X, y, sample_weight)
        codes, sample_weight = self._sites_and_weights(X, sites, sample_weight)
        total = float(sample_weight.sum())
        problem = self._classes_fitting_problem(X, labels, codes, sample_weight)
        self.Cs_ = self._candidates(problem, total)
        psi = self._psi(problem, self.Cs_[0], total)
        options, splits = self._options(psi), folds(self, self.cv, X, labels, codes, sample_weight)
        self.scores_ = np.empty((len(self.Cs_), len(splits)))
        with ProgressBar(self._name, self.scores_.size) as bar:
            for number, (fold, train, test) in enumerate(splits):
                part = self._classes_fitting_problem(X[train], labels[train], codes[train], sample_weight[train])
                own = float(sample_weight[train].sum())
                penalties = [self._psi(part, C, own) for C in self.Cs_]
                path = along_path(part, penalties, self._shape(part), options, self._name, fold)
                for i, model in enumerate(path):
                    tested = None if not weighted else sample_weight[test]
                    self.scores_[i, number] = self._scored(model, X[test], labels[test], tested, fold)
                    bar.advance_to(number * len(penalties) + i + 1, fold)
        self.C_ = float(self.Cs_[np.argmax(self.scores_.mean(axis=1))])
        self._fit_psi(problem, self._psi(problem, self.C_, total))
        return self

    def _candidates(self, problem: FittingProblem, total: float) -> np.ndarray:
        """Values of C, from small to large."""
        if self.penalty == "l2" and not np.ndim(self.Cs):
            return np.logspace(-4, 4, checks.whole(self._name, "Cs", self.Cs))
        norm = GroupL1(1.0, self._groups(problem)) if self.penalty == "group" else L1(1.0)
        ratio = 1.0
        if self.penalty == "elasticnet":
            ratio = checks.number(self._name, "l1_ratio", self.l1_ratio, above=0, at_most=1)
        if np.ndim(self.Cs):
            if not len(self.Cs):
                raise ValueError(f"{self._name}: Cs must have at least one number, got none")
            return np.sort([checks.number(self._name, "Cs", C, above=0) for C in self.Cs])
        return 1 / (
            strengths(self._name, "Cs", self.Cs, problem.zero_strength(norm, self._shape(problem)) / ratio, self.eps)
            * total
        )

    def _scored(self, model: Start, X: Any, labels: np.ndarray, sample_weight: np.ndarray | None, fold: str) -> float:
        """The score of weights and intercepts on the rows that a fold tests."""
        fitted: Any = FederatedLogisticRegression()
        fitted.coef_, fitted.intercept_ = model[0].T, model[1]
        fitted.classes_, fitted.n_features_in_ = self.classes_, X.shape[1]
        scorer = get_scorer("accuracy" if self.scoring is None else self.scoring)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        try:
            score = float(scorer(fitted, X, self.classes_[labels], **weights))
        except ValueError as error:
            raise ValueError(f"{self._name}: scoring={self.scoring!r} failed on {fold}: {error}") from error
        if np.isnan(score):
            raise ValueError(
                f"{self._name}: scoring={self.scoring!r} is not defined on {fold}; try another scoring or cv"
            )
        return score
