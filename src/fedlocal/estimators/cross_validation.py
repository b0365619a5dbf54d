"""Strengths chosen by cross-validation, one site left out at a time where there are several."""

import warnings
from abc import abstractmethod
from dataclasses import field
from typing import Any, NamedTuple, Self

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
from fedlocal.solvers.newton.fitting import FittingProblem, Start
from fedlocal.util import checks
from fedlocal.util.progress import ProgressBar


class Fold(NamedTuple):
    """One split of the rows."""

    name: str  # for messages
    train: Any  # rows to fit
    test: Any  # rows to test


class ExampleRows(NamedTuple):
    """Examples, as `FederatedModel._fitting_problem` takes them."""

    X: Any  # (n, d)
    y: np.ndarray  # (n,) targets, or numbers of the classes
    codes: np.ndarray  # (n,) numbers of the sites
    weights: np.ndarray  # (n,)

    def take(self, some: Any) -> "ExampleRows":
        return ExampleRows(*(column[some] for column in self))


def folds(model: FederatedModel, cv: Any, rows: ExampleRows) -> list[Fold]:
    """The folds of `cv` as in scikit-learn with the sites as groups; None leaves one site out at a time, or takes 5 folds where
    there is one site only. Folds on whose rows there is no weight are left out."""
    X, y, codes, sample_weight = rows
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
        if all(sample_weight[part].sum() > 0 for part in (train, test))
    ]
    for fold in found:
        if classifier and len(np.unique(y[fold.train])) < len(np.unique(y)):
            advice = "give another cv, such as sklearn.model_selection.StratifiedKFold"
            text = f"{fold.name} has no example of some class to learn from; {advice}"
            raise ValueError(f"{type(model).__name__}: {text}")
    return found


def _fold_name(number: int, count: int, test: np.ndarray, codes: np.ndarray, sites: np.ndarray) -> str:
    """The site that a fold leaves out, where it tests all rows of one site and no others; else its number, from one."""
    own = np.unique(codes[test])
    if len(sites) > 1 and len(own) == 1 and len(test) == np.count_nonzero(codes == own[0]):
        return f"the fold that leaves out site {sites[own[0]]}"
    return f"fold {number + 1} of {count}"


def given(owner: str, name: str, wanted: Any, **limits: float) -> np.ndarray:
    """The numbers that are wanted, checked, from small to large."""
    if not len(wanted):
        raise ValueError(f"{owner}: {name} must have at least one number, got none")
    return np.sort([float(checks.number(owner, name, value, **limits)) for value in wanted])


def strengths(owner: str, name: str, wanted: Any, largest: float, eps: float) -> np.ndarray:
    """Strengths from large to small: those that are wanted, or that many from the largest to eps times it."""
    if np.ndim(wanted):
        return given(owner, name, np.asarray(wanted, float), at_least=0)[::-1]
    count = checks.whole(owner, name, wanted)
    smallest = checks.number(owner, "eps", eps, above=0, at_most=1) * largest
    if largest <= np.finfo(float).resolution:  # nothing to be explained: every strength gives no weights
        return np.full(count, np.finfo(float).resolution)
    return np.geomspace(largest, smallest, count)


@parameters
class CrossValidated(FederatedModel):
    """A model whose strength (alpha or C) is chosen by cross-validation."""

    eps: float = 1e-3
    cv: Any = None

    @abstractmethod
    def _psi(self, problem: FittingProblem, strength: float, total: float, /) -> Regularizer | Separable:
        """The penalty for a strength and a sum of the examples' weights."""

    @abstractmethod
    def _score(self, model: Start, test: ExampleRows, weighted: bool, fold: str) -> float:
        """The score of weights and intercepts on the rows that a fold tests."""

    def _scores(self, problem: FittingProblem, rows: ExampleRows, each: np.ndarray, weighted: bool) -> tuple[Any, Any]:
        """(strengths, folds) scores and (folds,) weights of folds; each fit starts where that of the strength before ended."""
        options = self._options(self._psi(problem, each[0], float(rows.weights.sum())))
        splits = folds(self, self.cv, rows)
        scores, sizes = np.empty((len(each), len(splits))), np.ones(len(splits))
        with ProgressBar(self._name, scores.size) as bar:
            for number, (fold, train, test) in enumerate(splits):
                part, total, missed = self._fitting_problem(*rows.take(train)), float(rows.weights[train].sum()), 0
                start = part.start()
                for i, strength in enumerate(each):
                    fit = part.fit(self._psi(part, strength, total), start, options, lambda *_: None)
                    start, missed = (fit.x, fit.b), missed + (not fit.converged)
                    scores[i, number] = self._score(part.in_units(fit), rows.take(test), weighted, fold)
                    bar.advance_to(number * len(each) + i + 1, fold)
                if missed:
                    stopped = f"{missed} of {len(each)} fits of {fold} stopped before tol"
                    advice = "try more max_iter or a larger tol"
                    warnings.warn(f"{self._name}: {stopped}; {advice}", ConvergenceWarning, stacklevel=3)
                sizes[number] = rows.weights[test].sum() if weighted else 1.0
        return scores, sizes


@parameters
class FederatedRegressorCV(FederatedRegressor, CrossValidated):
    """Regression with alpha chosen by cross-validation."""

    alphas: Any = 100
    positive: bool = False

    def _ratio(self) -> float:
        """The share of the l1 norm in the penalty."""
        return 1.0

    def fit(self, X: Any, y: Any, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Choose alpha, then fit to all examples; arguments as in `FederatedLasso.fit`."""
        X, y = self._validated(X, y)
        rows = ExampleRows(X, y, *self._sites_and_weights(X, sites, sample_weight))
        problem = self._fitting_problem(*rows)
        largest = problem.zero_strength(elastic_net(1.0, 0.0, self.positive)) / self._ratio()
        self.alphas_ = strengths(self._name, "alphas", self.alphas, largest, self.eps)
        self.mse_path_, sizes = self._scores(problem, rows, self.alphas_, sample_weight is not None)
        self.alpha_ = float(self.alphas_[np.argmin(np.average(self.mse_path_, axis=1, weights=sizes))])
        return self._fit(problem, self._psi(problem, self.alpha_, 1.0))

    def _psi(self, problem: FittingProblem, strength: float, total: float, /) -> Regularizer | Separable:
        alpha, ratio = float(strength), self._ratio()
        return elastic_net(alpha * ratio, alpha * (1 - ratio), self.positive)

    def _score(self, model: Start, test: ExampleRows, weighted: bool, fold: str) -> float:
        residuals = np.asarray(test.X @ model[0][:, 0]) + model[1] - test.y
        return np.average(residuals**2, weights=test.weights)


@parameters
class FederatedLassoCV(FederatedRegressorCV):
    r"""`FederatedLasso` with alpha chosen by cross-validation, as in scikit-learn's `LassoCV`.

    Args:
        alphas: numbers to choose from, or how many of them: from the one at which all weights are zero down to eps times it.
        eps: the smallest of these alphas over the largest, above 0 and at most 1.
        cv: None leaves one site out at a time (5 folds where there is one site); else as in scikit-learn, with sites as groups.
        positive, loss, fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    Attributes, beside those of `FederatedLasso`: `alpha_`, which has the least mean squared error, averaged over the
    folds; `alphas_` from large to small; `mse_path_` (alphas, folds).

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    >>> model = FederatedLassoCV(alphas=10).fit(X, X[:, 0] + 0.1 * rng.normal(size=60), sites=sites)
    >>> model.mse_path_.shape, round(float(model.coef_[0]), 1)
    ((10, 3), 1.0)
    """


@parameters
class FederatedElasticNetCV(FederatedRegressorCV):
    r"""`FederatedElasticNet` with alpha chosen by cross-validation. Attributes are those of `FederatedLassoCV`.

    Args:
        l1_ratio: share of the l1 norm in the penalty, above 0 and at most 1.
        alphas, eps, cv: as in `FederatedLassoCV`.
        positive, loss, fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

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
class FederatedLogisticRegressionCV(PenalizedClassifier, CrossValidated):
    r"""`FederatedLogisticRegression` with C chosen by cross-validation, as in scikit-learn's `LogisticRegressionCV`.

    Args:
        penalty: a name in `FederatedLogisticRegression`.
        Cs: numbers to choose from, or how many of them: from the one up to which all weights are zero to 1/eps times it; with
            penalty="l2", which leaves no weight at zero, from 1e-4 to 1e4.
        eps: the smallest of these Cs over the largest, above 0 and at most 1; not used with penalty="l2".
        cv: None leaves one site out at a time (5 folds where there is one site); else as in scikit-learn, with sites as groups.
        scoring: as in scikit-learn; None is accuracy.
        l1_ratio: above 0 and at most 1; for "elasticnet" only.
        groups, class_weight: as in `FederatedLogisticRegression`.
        fit_intercept, weights, standardize, method, local_steps, local_rounds: as in `FederatedLasso`.
        client_step_size, server_step_size, finish, tol, max_iter, warm_start: as in `FederatedLasso`.

    Attributes, beside those of `FederatedLogisticRegression`: `C_`, which has the best score, averaged over the folds;
    `Cs_` from small to large; `scores_` (Cs, folds).

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
        X, labels, each = self._validated(X, y, sample_weight)
        rows = ExampleRows(X, labels, *self._sites_and_weights(X, sites, each))
        problem, total = self._fitting_problem(*rows), float(rows.weights.sum())
        self.Cs_ = self._candidates(problem, total)
        self.scores_, _ = self._scores(problem, rows, self.Cs_, sample_weight is not None)
        self.C_ = float(self.Cs_[np.argmax(self.scores_.mean(axis=1))])
        return self._fit(problem, self._psi(problem, self.C_, total))

    def _candidates(self, problem: FittingProblem, total: float) -> np.ndarray:
        """Values of C, from small to large."""
        if self.penalty == "l2" and not np.ndim(self.Cs):
            return np.logspace(-4, 4, checks.whole(self._name, "Cs", self.Cs))
        norm = GroupL1(1.0, self._groups(problem)) if self.penalty == "group" else L1(1.0)
        ratio = 1.0
        if self.penalty == "elasticnet":
            ratio = checks.number(self._name, "l1_ratio", self.l1_ratio, above=0, at_most=1)
        if np.ndim(self.Cs):
            return given(self._name, "Cs", self.Cs, above=0)
        largest = problem.zero_strength(norm) / ratio
        return 1 / (strengths(self._name, "Cs", self.Cs, largest, self.eps) * total)

    def _score(self, model: Start, test: ExampleRows, weighted: bool, fold: str) -> float:
        fitted: Any = FederatedLogisticRegression()
        fitted.coef_, fitted.intercept_ = model[0].T, model[1]
        fitted.classes_, fitted.n_features_in_ = self.classes_, test.X.shape[1]
        scorer = get_scorer("accuracy" if self.scoring is None else self.scoring)
        weights = {"sample_weight": test.weights} if weighted else {}
        try:
            score = float(scorer(fitted, test.X, self.classes_[test.y], **weights))
        except ValueError as error:
            raise self._error(f"scoring={self.scoring!r} failed on {fold}: {error}") from error
        if np.isnan(score):
            raise self._error(f"scoring={self.scoring!r} is not defined on {fold}; try another scoring or cv")
        return score
