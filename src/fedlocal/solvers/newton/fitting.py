"""FittingProblem: the examples of all sites, ready to be fitted with any penalty, and the way back to the user's units."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from fedlocal.core import Regularizer, Separable
from fedlocal.data.moments import Moments, Scaling
from fedlocal.losses import ScoreLoss
from fedlocal.solvers.newton.iteration import prox_newton
from fedlocal.solvers.newton.local_method import NEWTON, FitOptions, local_rounds
from fedlocal.solvers.newton.penalties import penalty_of
from fedlocal.solvers.newton.separation import no_finite_optimum
from fedlocal.solvers.newton.stopping import Callback, FitResult, PenalizedSums, Start, StoppingRule
from fedlocal.solvers.newton.weighted_sums import WeightedSums


@dataclass
class FittingProblem:
    """The examples of all sites, ready to be fitted with any penalty."""

    sums: WeightedSums
    sites: np.ndarray  # (n,) number of each example's site
    scaling: Scaling | None
    rule: StoppingRule
    shape: tuple[int, ...]  # of the weights, as a penalty sees them: (d,) or (d, outputs) unless it is changed

    @classmethod
    def of(
        cls,
        features: Any,
        targets: np.ndarray,
        weights: np.ndarray,
        sites: np.ndarray,
        loss: ScoreLoss,
        *,
        intercept: bool,
        unit_weights: np.ndarray | None,
        tol: float,
    ) -> "FittingProblem":
        """Collect examples: features (n, d), an array or a CSR matrix; targets (n,) as the loss takes them; weights
        (n,) that sum to one; numbers (n,) of sites. Columns are first brought to variance one over all sites, with
        `unit_weights` (n,); None leaves them as they are."""
        scaling = None
        if unit_weights is not None:
            rows = [np.flatnonzero(sites == m) for m in np.unique(sites)]
            each = [Moments.of(features[some], at_least=1, weights=unit_weights[some]) for some in rows]
            scaling = Moments.merged(each).scaling()
            features = scaling.apply(features)
        sums = WeightedSums.of(features, targets, weights, loss, intercept)
        if scaling is not None:
            sums.sent.exchange(0, 3 * sums.width)
        shape = (sums.width, loss.outputs) if loss.outputs > 1 else (sums.width,)
        return cls(sums, sites, scaling, StoppingRule.of(sums, tol), shape)

    def start(self, coef: np.ndarray | None = None, intercept: np.ndarray | None = None) -> Start:
        """Zero, or a model in the user's units, as the optimiser sees it."""
        outputs = self.sums.loss.outputs
        if coef is None or intercept is None:
            return np.zeros((self.sums.width, outputs)), np.zeros(outputs)
        x, b = np.array(coef, float), np.array(intercept, float)
        if self.scaling is not None:
            b = b + np.nan_to_num(self.scaling.mean) @ x if self._centred else b
            x = x * self.scaling.scale[:, None]
        b = b if self.sums.center is None else b + self.sums.center @ x
        return x, b - self.sums.level

    def in_units(self, fit: FitResult) -> Start:
        """A fit's weights and intercepts, in the user's units."""
        x, b = fit.x, fit.b + self.sums.level
        b = b if self.sums.center is None else b - self.sums.center @ x
        return (x, b) if self.scaling is None else self.scaling.unscale(x, b, centred=self._centred)

    def fit(self, psi: Regularizer | Separable, start: Start, options: FitOptions, callback: Callback) -> FitResult:
        """Minimise the loss plus psi; each evaluation calls back with its phase, its certificate and the weights."""
        task = PenalizedSums(self.sums, penalty_of(psi, self.shape), self.rule, callback)
        if options.method != NEWTON and isinstance(psi, Regularizer):
            fit = local_rounds(task, self.sites, psi, self.shape, start, options)
            if fit.converged or not options.finish:
                return fit
            start = fit.x, fit.b
        return prox_newton(task, *start, options.max_iter)

    def zero_strength(self, norm: Regularizer | Separable) -> float:
        """Return the smallest strength at which strength * norm leaves no weights: the gauge of the gradient without weights.

        As `solvers.zero_strength`, in NumPy and with the sums that sites send. `norm` may be one of positive weights.
        """
        slopes = self.sums.weighted_slopes(self.sums.scores_without_weights())
        return penalty_of(norm, self.shape).gauge(-self.sums.gradient(slopes))

    def has_no_optimum(self, psi: Regularizer | Separable, fit: FitResult) -> bool:
        """True if a fit shows that no finite weights minimise the loss plus psi."""
        return no_finite_optimum(self.sums, penalty_of(psi, self.shape), fit, self.rule.tol)

    @property
    def _centred(self) -> bool:
        return not scipy.sparse.issparse(self.sums.features)
