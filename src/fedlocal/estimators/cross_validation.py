"""Strengths chosen by cross-validation, one site left out at a time where there are several."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import pandas as pd
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import LeaveOneGroupOut, check_cv

from fedlocal.core import Regularizer, Separable
from fedlocal.estimators.base import FederatedModel, parameters
from fedlocal.solvers.newton.fitting import FittingProblem, Start
from fedlocal.solvers.newton.local_method import FitOptions
from fedlocal.solvers.newton.stopping import FitResult
from fedlocal.solvers.newton.weighted_sums import Communication
from fedlocal.util import checks
from fedlocal.util.progress import ProgressBar

Choice = Literal["best", "1se"]


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


def chosen_place(owner: str, scores: np.ndarray, choose: str) -> tuple[int, int]:
    """The path and the place on it that scores (paths, candidates, folds) choose, candidates from the strongest penalty on.

    "best": the best mean over the folds. "1se": on the path of the best, the strongest penalty whose mean is at most a standard
    error of the best one's mean over the folds below it (Breiman, Friedman, Olshen and Stone 1984; lambda.1se in glmnet).
    """
    means, count = scores.mean(axis=-1), scores.shape[-1]
    path, place = map(int, np.unravel_index(np.argmax(means), means.shape))
    if choose == "best":
        return path, place
    if count < 2:
        raise ValueError(
            f"{owner}: choose='1se' needs the standard error of at least two folds, got {count}; try another cv"
        )
    error = scores[path, place].std(ddof=1) / np.sqrt(count)
    return path, int(np.argmax(means[path] >= means[path, place] - error))


@parameters
class CrossValidated(FederatedModel):
    """A model whose strength (alpha or C) is chosen by cross-validation."""

    eps: float = 1e-3
    cv: Any = None
    choose: Choice = "best"

    @abstractmethod
    def _psi(self, problem: FittingProblem, candidate: Any, total: float, /) -> Regularizer | Separable:
        """The penalty of a candidate, for a sum of the examples' weights."""

    @abstractmethod
    def _score(self, model: Start, test: ExampleRows, weighted: bool, fold: str) -> float:
        """The score of weights and intercepts on the rows that a fold tests; the larger, the better."""

    def _problem_of(self, rows: ExampleRows) -> FittingProblem:
        return self._fitting_problem(rows.X, rows.y, rows.codes, rows.weights)

    def _scores(
        self, problem: FittingProblem, rows: ExampleRows, paths: Sequence[Sequence[Any] | np.ndarray], weighted: bool
    ) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
        """(paths, candidates, folds) scores; and what each fit sent: its fold, its candidate, and the numbers."""
        checks.choice(self._name, "choose", self.choose, get_args(Choice))
        total, each = float(rows.weights.sum()), len(paths) * len(paths[0])
        # all paths are checked, and their options are alike
        options, *_ = [self._options(self._psi(problem, path[0], total)) for path in paths]
        splits, spent = folds(self, self.cv, rows), []
        scores = np.empty((len(paths), len(paths[0]), len(splits)))
        with ProgressBar(self._name, scores.size) as bar:
            for number, (fold, train, test) in enumerate(splits):
                part, total, missed = self._problem_of(rows.take(train)), float(rows.weights[train].sum()), 0
                before, sent = Communication(), part.sums.sent
                for p, path in enumerate(paths):
                    for i, (candidate, fit) in enumerate(self._path(part, path, total, options)):
                        missed += not fit.converged
                        scores[p, i, number] = self._score(part.in_units(fit), rows.take(test), weighted, fold)
                        sent.exchange(fit.x.size + fit.b.size, 2)  # the model down; a score and its weight up
                        spent.append((fold, *np.atleast_1d(candidate), sent.since(before)))
                        before = sent.since(Communication())
                        bar.advance_to(number * each + p * len(path) + i + 1, fold)
                if missed:
                    stopped = f"{missed} of {each} fits of {fold} stopped before tol"
                    advice = "try more max_iter or a larger tol"
                    warnings.warn(f"{self._name}: {stopped}; {advice}", ConvergenceWarning, stacklevel=3)
        return scores, spent

    def _path(
        self, part: FittingProblem, path: Sequence[Any] | np.ndarray, total: float, options: FitOptions
    ) -> Iterator[tuple[Any, FitResult]]:
        """The candidates of a path and their fits, each of which starts where the one before ended."""
        start = part.start()
        for candidate in path:
            fit = part.fit(self._psi(part, candidate, total), start, options, lambda *_: None)
            start = fit.x, fit.b
            yield candidate, fit

    def _count(self, spent: list[tuple[Any, ...]], names: Sequence[str]) -> Self:
        """Set what all fits together sent, and a table of what each of them did; `names` are those of a candidate's parts."""
        counts = [(*labels, *astuple(sent), 8 * sent.numbers_down, 8 * sent.numbers_up) for *labels, sent in spent]
        columns = [field.name for field in fields(Communication)]
        sizes = ["bytes_down", "bytes_up"]
        self.communication_by_fit_ = pd.DataFrame(counts, columns=["fold", *names, *columns, *sizes])
        self.communication_ = Communication(*(int(total) for total in self.communication_by_fit_[columns].sum()))
        return self
