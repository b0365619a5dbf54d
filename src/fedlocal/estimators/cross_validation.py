"""Strengths chosen by cross-validation, one site left out at a time where there are several."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import LeaveOneGroupOut, check_cv

from fedlocal.core import Regularizer, Separable
from fedlocal.estimators.base import FederatedModel, parameters
from fedlocal.solvers.newton.fitting import FittingProblem, Start
from fedlocal.util import checks
from fedlocal.util.progress import ProgressBar


class Fold(NamedTuple):
    """One split of the rows."""

    name: str  # for messages
    train: Any  # rows to fit
    test: Any  # rows to test


class ExampleRows(NamedTuple):
    """Examples with their sites and weights."""

    X: Any  # (n, d)
    y: np.ndarray  # (n,) targets, or numbers of the classes
    codes: np.ndarray  # (n,) numbers of the sites
    weights: np.ndarray  # (n,) in the objective
    counts: np.ndarray  # (n,) weights in scores, without those of the classes

    def take(self, some: Any) -> "ExampleRows":
        return ExampleRows(*(column[some] for column in self))


def folds(model: FederatedModel, cv: Any, rows: ExampleRows) -> list[Fold]:
    """The folds of `cv` as in scikit-learn with the sites as groups; None leaves one site out at a time, or takes 5 folds where
    there is one site only. Folds on whose rows there is no weight are left out."""
    X, y, codes, sample_weight, _ = rows
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
    def _psi(self, problem: FittingProblem, candidate: Any, total: float, /) -> Regularizer | Separable:
        """The penalty of a candidate, for a sum of the examples' weights."""

    @abstractmethod
    def _score(self, model: Start, test: ExampleRows, weighted: bool, fold: str) -> float:
        """The score of weights and intercepts on the rows that a fold tests."""

    def _problem_of(self, rows: ExampleRows) -> FittingProblem:
        return self._fitting_problem(rows.X, rows.y, rows.codes, rows.weights)

    def _scores(
        self, problem: FittingProblem, rows: ExampleRows, paths: Sequence[Sequence[Any] | np.ndarray], weighted: bool
    ) -> np.ndarray:
        """(paths, candidates, folds) scores; on a path each fit starts where that of the candidate before ended."""
        total = float(rows.weights.sum())
        options, *_ = [
            self._options(self._psi(problem, path[0], total)) for path in paths
        ]  # all are checked, and alike
        splits = folds(self, self.cv, rows)
        scores = np.empty((len(paths), len(paths[0]), len(splits)))
        with ProgressBar(self._name, scores.size) as bar:
            for number, (fold, train, test) in enumerate(splits):
                part, total, missed = self._problem_of(rows.take(train)), float(rows.weights[train].sum()), 0
                for p, path in enumerate(paths):
                    start = part.start()
                    for i, candidate in enumerate(path):
                        fit = part.fit(self._psi(part, candidate, total), start, options, lambda *_: None)
                        start, missed = (fit.x, fit.b), missed + (not fit.converged)
                        scores[p, i, number] = self._score(part.in_units(fit), rows.take(test), weighted, fold)
                        bar.advance_to(number * scores[..., 0].size + p * len(path) + i + 1, fold)
                if missed:
                    stopped = f"{missed} of {scores[..., 0].size} fits of {fold} stopped before tol"
                    advice = "try more max_iter or a larger tol"
                    warnings.warn(f"{self._name}: {stopped}; {advice}", ConvergenceWarning, stacklevel=3)
        return scores
