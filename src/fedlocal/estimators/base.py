"""What all estimators share: their parameters, sites and weights of examples, and what a fit leaves behind."""

import warnings
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight

from fedlocal.core import Regularizer, Separable
from fedlocal.core.types import WEIGHTS, Weights
from fedlocal.data.moments import UnitError
from fedlocal.losses import ScoreLoss
from fedlocal.methods.table import method_row
from fedlocal.solvers.certificates import Certificate
from fedlocal.solvers.newton.fitting import FitOptions, FittingProblem, Start
from fedlocal.solvers.newton.local_method import METHODS, SMOOTH, LocalOptions
from fedlocal.solvers.newton.stopping import FitResult
from fedlocal.solvers.newton.weighted_sums import LARGEST
from fedlocal.util import checks
from fedlocal.util.progress import ProgressBar

NEWTON = "prox_newton"
Model = TypeVar("Model")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def parameters(cls: type[Model]) -> type[Model]:
    """Write the constructor that scikit-learn asks for: it keeps its arguments as they are."""
    return dataclass(repr=False, eq=False, kw_only=True)(cls)


@parameters
class FederatedModel(BaseEstimator):
    """A linear model over sites; concrete ones say which loss and which penalty."""

    fit_intercept: bool = True  # never penalised
    weights: Weights = "examples"  # "examples": every example counts alike, the pooled fit; "uniform": every site
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

    def _fitting_problem(
        self, X: Any, targets: np.ndarray, sites: np.ndarray, sample_weight: np.ndarray, loss: ScoreLoss
    ) -> FittingProblem:
        """The examples, ready to be fitted; `sites` are numbers, `sample_weight` one number per example."""
        if self.weights == "sites":
            raise ValueError(
                f"{self._name}: weights='sites' is called 'uniform' now, as in simulate: use weights='uniform'"
            )
        checks.choice(self._name, "weights", self.weights, WEIGHTS)
        checks.number(self._name, "tol", self.tol, above=0)
        kept = np.flatnonzero(sample_weight > 0) if (sample_weight == 0).any() else slice(None)
        X, targets, sites, sample_weight = X[kept], targets[kept], sites[kept], sample_weight[kept]
        _, sites = np.unique(sites, return_inverse=True)
        share = sample_weight / sample_weight.sum()
        if self.weights == "uniform":
            own = np.bincount(sites, sample_weight)
            share = sample_weight / own[sites] / len(own)
        options: dict[str, Any] = {"intercept": bool(self.fit_intercept), "standardize": bool(self.standardize)}
        try:
            return FittingProblem.of(X, targets, share, sites, loss, **options, tol=self.tol)
        except UnitError as error:
            names = getattr(self, "feature_names_in_", None)
            name = None if names is None else str(names[error.column])
            raise UnitError(self._name, error.column, error.size, name) from None

    def _options(self, psi: Regularizer | Separable) -> FitOptions:
        """How to fit, checked."""
        name, work = self._name, None
        checks.choice(name, "method", self.method, (NEWTON, *METHODS))
        max_iter = checks.whole(name, "max_iter", self.max_iter)
        if self.method != NEWTON:
            steps = checks.whole(name, "local_steps", self.local_steps)
            rounds = checks.whole(name, "local_rounds", self.local_rounds)
            for step_size in ("client_step_size", "server_step_size"):
                if getattr(self, step_size) is not None:
                    checks.number(name, step_size, getattr(self, step_size), above=0)
            self._check_method(psi)
            if method_row(name, self.method).accelerated and self.server_step_size is not None:
                raise ValueError(f"{name}: method={self.method!r} has no server_step_size, got {self.server_step_size}")
            work = LocalOptions(self.method, self.weights, steps, rounds, self.client_step_size, self.server_step_size)
        return FitOptions(work, bool(self.finish), max_iter)

    def _check_method(self, psi: Regularizer | Separable) -> None:
        if isinstance(psi, Separable):
            raise ValueError(f"{self._name}: positive=True needs method={NEWTON!r}, got {self.method!r}")
        if self.method in SMOOTH and not psi.is_smooth():
            raise ValueError(
                f"{self._name}: method={self.method!r} has no regulariser and needs a smooth penalty (l2 or none); "
                "'fed_dual_avg', 'fed_mid' and 'prox_newton' have one"
            )
        if method_row(self._name, self.method).accelerated and psi.strong_convexity() == 0:
            raise ValueError(f"{self._name}: method={self.method!r} needs a strongly convex objective: an l2 penalty")

    @staticmethod
    def _canonical(X: Any) -> Any:
        """Sparse features with sorted columns, none of them twice; the user's matrix stays as it is."""
        if not scipy.sparse.issparse(X) or X.has_canonical_format:
            return X
        X = X.copy()
        X.sum_duplicates()
        return X

    def _sites_and_weights(self, X: Any, sites: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """The number of each example's site, and one weight per example; sets `sites_`."""
        n = X.shape[0]
        labels = np.zeros(n, int) if sites is None else np.asarray(sites)
        if labels.ndim != 1:
            raise ValueError(f"{self._name}: sites must have one axis, one label per example, got shape {labels.shape}")
        if len(labels) != n:
            raise ValueError(
                f"{self._name}: sites must have one label per example, got {len(labels)} labels for {n} examples"
            )
        if pd.isna(labels).any():
            raise ValueError(f"{self._name}: sites must be known for every example, got a missing label")
        odd = labels[~np.isfinite(labels) | (labels != np.floor(labels))] if labels.dtype.kind == "f" else labels[:0]
        if odd.size:
            raise ValueError(
                f"{self._name}: sites must name a site per row, as text or whole numbers, got {odd[0]:g}; "
                "did you mean sample_weight=?"
            )
        try:
            self.sites_, codes = np.unique(labels, return_inverse=True)
        except TypeError:
            raise ValueError(f"{self._name}: sites must be all numbers or all strings, got a mixture") from None
        checked = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if checked.max(initial=0.0) > LARGEST:
            raise ValueError(
                f"{self._name}: sample_weight must be at most {LARGEST:g}, so that the sum is finite, got {checked.max():g}"
            )
        if not checked.sum() > 0:
            raise ValueError(f"{self._name}: sample_weight must have at least one number above zero, got only zeros")
        return codes, checked

    def _fit(self, problem: FittingProblem, psi: Regularizer | Separable, shape: tuple[int, ...]) -> Start:
        """FitResult, warn, and keep what all estimators keep; the weights and intercepts in the user's units are returned."""
        options, sent = self._options(psi), problem.sums.sent
        history: list[dict[str, Any]] = []
        with ProgressBar(self._name, options.evaluations) as bar:

            def callback(phase: str, found: Certificate, x: np.ndarray) -> None:
                row: dict[str, Any] = {"round": sent.rounds, "phase": phase, "objective": found.objective}
                row |= {"kkt_residual": found.kkt_residual, "duality_gap": found.duality_gap}
                row |= {"nonzeros": int(np.count_nonzero(x)), "sent": sent.numbers_up + sent.numbers_down}
                history.append(row)
                bar.advance_to(len(history), f"objective {found.objective:.6g}")

            fit = problem.fit(psi, shape, self._start(problem), options, callback)
        if problem.has_no_optimum(psi, shape, fit):
            self._warn_of_separation()
        elif not fit.converged:
            self._warn(problem, fit)
        self.n_iter_, self.certificate_, self.communication_ = max(1, fit.iterations), fit.certificate, sent
        self.history_ = pd.DataFrame(history).astype({"duality_gap": float})
        return problem.in_units(fit)

    def _start(self, problem: FittingProblem) -> Start:
        """Where a fit begins: at the last one, if it is to be warm and there is one of this size."""
        coef, outputs = getattr(self, "coef_", None), problem.sums.loss.outputs
        if not self.warm_start or coef is None or np.size(coef) != problem.sums.width * outputs:
            return problem.start()
        return problem.start(np.reshape(coef, (outputs, -1)).T, np.atleast_1d(self.intercept_))  # pyright: ignore

    def _warn(self, problem: FittingProblem, fit: FitResult) -> None:
        found, allowed = fit.certificate, problem.rule.allowed(fit.certificate)
        gap = found.duality_gap
        is_at = f"a KKT residual of {found.kkt_residual:.3g}" if gap is None else f"a duality gap of {gap:.3g}"
        more = "max_iter" if self.method == NEWTON or self.finish else "local_rounds, or finish=True"
        warnings.warn(
            f"{self._name}: stopped after {fit.iterations} iterations at {is_at}, {allowed:.3g} asked for (tol={self.tol:g}); "
            f"try more {more}, a larger tol, or standardize=True",
            ConvergenceWarning,
            stacklevel=4,
        )

    def _warn_of_separation(self) -> None:
        warnings.warn(
            f"{self._name}: the classes are separable by a direction of the weights, so without a penalty no finite weights are "
            f"optimal: those returned only separate well enough for tol={self.tol:g}; use a penalty, such as penalty='l2'",
            ConvergenceWarning,
            stacklevel=5,
        )

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
