"""What all estimators share: their parameters, sites and weights of examples, and what a fit leaves behind."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedlocal.core import Regularizer, Separable
from fedlocal.core.types import WEIGHTS, WeightsName
from fedlocal.data.moments import UnitError
from fedlocal.estimators.tables import check_names, in_row_order
from fedlocal.losses import ScoreLoss
from fedlocal.methods.table import method_row
from fedlocal.solvers.certificates import Certificate
from fedlocal.solvers.newton.fitting import FittingProblem, Start
from fedlocal.solvers.newton.local_method import EVALUATIONS, METHODS, NEWTON, SMOOTH, FitOptions
from fedlocal.solvers.newton.stopping import FitResult
from fedlocal.solvers.newton.weighted_sums import LARGEST
from fedlocal.util import checks
from fedlocal.util.progress import ProgressBar

HISTORY = ["round", "phase", "objective", "kkt_residual", "duality_gap", "nonzeros", "sent"]
TINY = float(np.finfo(np.float64).tiny)
NOT_FINITE = (
    "the classes are separable by a direction of the weights, so without a penalty no finite weights are optimal: those returned "
    "only separate well enough for tol={:g}; use a penalty, such as penalty='l2'"
)
Model = TypeVar("Model")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def parameters(cls: type[Model]) -> type[Model]:
    """Write the constructor that scikit-learn asks for: it keeps its arguments as they are."""
    return dataclass(repr=False, eq=False, kw_only=True)(cls)


@parameters
class FederatedModel(BaseEstimator, ABC):
    """A linear model over sites; concrete ones say which loss and which penalty."""

    fit_intercept: bool = True  # never penalised
    weights: WeightsName = "examples"  # "examples": every example counts alike, the pooled fit; "uniform": every site
    standardize: bool = False  # columns by means and variances over all sites; dense ones are centred, too
    method: str = NEWTON  # or a local method, which comes first: "fed_dual_avg", "fed_mid", "fed_avg", "fed_ac_one"
    local_steps: int = 10  # full local gradients in a round of the local method
    local_rounds: int = 100  # at most
    client_step_size: float | None = None  # None: the largest that the local method's theorems allow
    server_step_size: float | None = None  # None: 1
    finish: bool = True  # True if Newton iterations follow the local rounds until tol is reached
    tol: float = 1e-10  # duality gap relative to the objective; KKT residual where there is no gap
    max_iter: int = 100  # Newton iterations
    warm_start: bool = False  # from the last fit

    _problem_class: ClassVar[type[FittingProblem]] = FittingProblem

    @abstractmethod
    def _targets_and_loss(self, y: np.ndarray) -> tuple[np.ndarray, ScoreLoss]:
        """Validated y in the form that the loss takes, and the loss."""

    @abstractmethod
    def _keep(self, x: np.ndarray, b: np.ndarray) -> None:
        """Set `coef_` and `intercept_` from weights (d, outputs) and intercepts (outputs,) in the user's units."""

    def _fitting_problem(self, X: Any, y: np.ndarray, sites: np.ndarray, sample_weight: np.ndarray) -> FittingProblem:
        """The examples, ready to be fitted; `sites` are numbers, `sample_weight` one number per example."""
        targets, loss = self._targets_and_loss(y)
        if self.weights == "sites":
            raise self._error("weights='sites' is called 'uniform' now, as in simulate: use weights='uniform'")
        checks.choice(self._name, "weights", self.weights, WEIGHTS)
        checks.number(self._name, "tol", self.tol, above=0)
        kept = np.flatnonzero(sample_weight > 0) if (sample_weight == 0).any() else slice(None)
        X, targets, sites, sample_weight = X[kept], targets[kept], sites[kept], sample_weight[kept]
        _, sites = np.unique(sites, return_inverse=True)
        share = sample_weight / sample_weight.sum()
        if self.weights == "uniform":
            own = np.bincount(sites, sample_weight)
            share = sample_weight / own[sites] / len(own)
        units = np.maximum(sample_weight / sample_weight.mean(), TINY) if self.standardize else None
        try:
            intercept = bool(self.fit_intercept)
            return self._problem_class.of(
                X, targets, share, sites, loss, intercept=intercept, unit_weights=units, tol=self.tol
            )
        except UnitError as error:
            names = getattr(self, "feature_names_in_", None)
            name = None if names is None else str(names[error.column])
            raise UnitError(self._name, error.column, error.size, name) from None

    def _options(self, psi: Regularizer | Separable) -> FitOptions:
        """How to fit, checked."""
        name = self._name
        checks.choice(name, "method", self.method, (NEWTON, *METHODS))
        max_iter = checks.whole(name, "max_iter", self.max_iter)
        if self.method != NEWTON:
            for count in ("local_steps", "local_rounds"):
                checks.whole(name, count, getattr(self, count))
            for step_size in ("client_step_size", "server_step_size"):
                if getattr(self, step_size) is not None:
                    checks.number(name, step_size, getattr(self, step_size), above=0)
            if isinstance(psi, Separable):
                raise self._error(f"positive=True needs method={NEWTON!r}, got {self.method!r}")
            if self.method in SMOOTH and not psi.is_smooth():
                needed = "a smooth penalty (l2 or none); 'fed_dual_avg', 'fed_mid' and 'prox_newton' have one"
                raise self._error(f"method={self.method!r} has no regulariser and needs {needed}")
            accelerated = method_row(name, self.method).accelerated
            if accelerated and psi.strong_convexity() == 0:
                raise self._error(f"method={self.method!r} needs a strongly convex objective: an l2 penalty")
            if accelerated and self.server_step_size is not None:
                raise self._error(f"method={self.method!r} has no server_step_size, got {self.server_step_size}")
        steps, sizes = (self.local_steps, self.local_rounds), (self.client_step_size, self.server_step_size)
        return FitOptions(self.method, self.weights, *steps, *sizes, bool(self.finish), max_iter)

    def _examples(self, X: Any, y: Any, y_numeric: bool = False) -> tuple[Any, Any]:
        """X and y, checked; sparse features have sorted columns, none of them twice, and the user's matrix stays as it is."""
        check_names(self._name, X)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=y_numeric)
        if scipy.sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _features(self, X: Any) -> Any:
        """The features of examples to predict, checked."""
        check_is_fitted(self)
        check_names(self._name, X)
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)

    def _in_row_order(self, X: Any, y: Any, sites: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Sites and weights of the examples as they are given, in the order of the rows."""
        each = {"sites": sites, "sample_weight": sample_weight}
        ordered = [in_row_order(self._name, name, given, X, y) for name, given in each.items()]
        return ordered[0], ordered[1]

    def _sites_and_weights(self, X: Any, sites: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """The number of each example's site, and one weight per example; sets `sites_`."""
        n = X.shape[0]
        labels = np.zeros(n, int) if sites is None else np.asarray(sites)
        if labels.ndim != 1:
            raise self._error(f"sites must have one axis, one label per example, got shape {labels.shape}")
        if len(labels) != n:
            raise self._error(f"sites must have one label per example, got {len(labels)} labels for {n} examples")
        if pd.isna(labels).any():
            raise self._error("sites must be known for every example, got a missing label")
        odd = labels[~np.isfinite(labels) | (labels != np.floor(labels))] if labels.dtype.kind == "f" else labels[:0]
        if odd.size:
            got = f"{odd[0]:g}; did you mean sample_weight=?"
            raise self._error(f"sites must name a site per row, as text or whole numbers, got {got}")
        try:
            self.sites_, codes = np.unique(labels, return_inverse=True)
        except TypeError:
            raise self._error("sites must be all numbers or all strings, got a mixture") from None
        checked = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        most = checked.max(initial=0.0)
        if most > LARGEST:
            raise self._error(f"sample_weight must be at most {LARGEST:g}, so that the sum is finite, got {most:g}")
        if not checked.sum() > 0:
            raise self._error("sample_weight must have at least one number above zero, got only zeros")
        return codes, checked

    def _fit(self, problem: FittingProblem, psi: Regularizer | Separable) -> Self:
        """Fit, warn, and keep what all estimators keep."""
        options, sent = self._options(psi), problem.sums.sent
        history: list[tuple[Any, ...]] = []
        local, newton = options.method != NEWTON, options.method == NEWTON or options.finish
        with ProgressBar(self._name, local * (EVALUATIONS + 1) + newton * (options.max_iter + 1)) as bar:

            def callback(phase: str, found: Certificate, x: np.ndarray) -> None:
                numbers = found.objective, found.kkt_residual, found.duality_gap, int(np.count_nonzero(x))
                history.append((sent.rounds, phase, *numbers, sent.numbers_up + sent.numbers_down))
                bar.advance_to(len(history), f"objective {found.objective:.6g}")

            fit = problem.fit(psi, self._start(problem), options, callback)
        separable = problem.has_no_optimum(psi, fit)
        if separable or not fit.converged:
            trouble = NOT_FINITE.format(self.tol) if separable else self._why_not_converged(problem, fit)
            warnings.warn(f"{self._name}: {trouble}", ConvergenceWarning, stacklevel=3)
        self.n_iter_, self.certificate_, self.communication_ = max(1, fit.iterations), fit.certificate, sent
        self.history_ = pd.DataFrame(history, columns=HISTORY).astype({"duality_gap": float})
        self._keep(*problem.in_units(fit))
        return self

    def _start(self, problem: FittingProblem) -> Start:
        """Where a fit begins: at the last one, if it is to be warm and there is one of this size."""
        coef, outputs = getattr(self, "coef_", None), problem.sums.loss.outputs
        if not self.warm_start or coef is None or np.size(coef) != problem.sums.width * outputs:
            return problem.start()
        return problem.start(np.reshape(coef, (outputs, -1)).T, np.atleast_1d(self.intercept_))  # pyright: ignore

    def _why_not_converged(self, problem: FittingProblem, fit: FitResult) -> str:
        found, rule = fit.certificate, problem.rule
        kind = "relative KKT residual" if found.relative_residual is not None else "KKT residual"
        is_at = f"a {kind if found.duality_gap is None else 'duality gap'} of {rule.left(found):.3g}"
        more = "max_iter" if self.method == NEWTON or self.finish else "local_rounds, or finish=True"
        stopped = f"stopped after {fit.iterations} iterations at {is_at}, {rule.allowed(found):.3g} asked for (tol={self.tol:g})"
        return f"{stopped}; try more {more}, a larger tol, or standardize=True"

    def _error(self, sentence: str) -> ValueError:
        return ValueError(f"{self._name}: {sentence}")

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
