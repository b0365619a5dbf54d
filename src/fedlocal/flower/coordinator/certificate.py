r"""How far a deployed run is from the optimum: KKT residual and duality gap from mean losses and gradients of sites.

As in `fedlocal.solvers.certificates`, every u with sum_i p_i u_i = 0 (where the intercept is free) bounds the minimum from below:
    D(u) = -sum_i p_i l_i^*(u_i) - Psi^*(-sum_i p_i u_i a_i),   Psi = lambda ||.||_1 + l2/2 ||.||^2.
We take the slopes u_i = l_i'(s_i) at the model, balanced and scaled. Sites send their loss and gradient only: any other sum, such
as that of the positive slopes, would tell second moments of the rows with one label. The rest is bounded by what is known:
- l_i^*(u_i) = u_i s_i - l_i, so that its mean T follows from loss and gradient;
- logistic: slopes of the heavier sign are shrunk by c = 1 - |mean u| / (their mean size), and l^* is convex with l^*(0) = 0, so
  that the mean conjugate is at most c T. With the entropy H(|u|) = -l^*(u), the mean of |u| is at least H^{-1}(-T) by Jensen's
  inequality. A scale s of all slopes gives s c T likewise;
- squares: all slopes are shifted by their mean and scaled by s, and the mean conjugate is quadratic in s;
- balancing changes the gradient in column j by at most ||change of u|| sqrt(mean a_j^2), by Cauchy and Schwarz.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import entr

from fedlocal.core import Params, Regularizer
from fedlocal.regularizers import L1, Zero
from fedlocal.solvers.certificates import kkt_residual

INSIDE = 1 - 1e-12  # a dual point scaled onto the boundary of a domain stays inside
SQUARED_SLOPE = 0.4073  # at least u^2 / l for logistic losses, l = -log(1 - |u|)


@dataclass(frozen=True)
class Means:
    """Means over sites at the model x, with the weights of the objective."""

    loss: float  # F(x), without psi
    gradient: Params  # grad F(x)
    kind: str | None  # of the losses: "logistic" or "squares"; None where there is no gap
    l2: float = 0.0  # strength of the penalty inside F
    second_moments: np.ndarray | None = None  # (d,) mean of a_j^2, where it is known


def residual(psi: Regularizer, x: Params, means: Means) -> float:
    """||x - prox_psi(x - grad F(x))||."""
    with jax.enable_x64(True):
        x, g = (jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), tree) for tree in (x, means.gradient))
        return float(kkt_residual(psi, x, g))


def duality_gap(psi: Regularizer, x: Params, means: Means) -> float | str:
    """At least F(x) + psi(x) - min (F + psi), or why no such number is known."""
    strength = _strength(psi, x)
    if isinstance(strength, str):
        return strength
    if means.kind is None:
        return "the sites' losses have no conjugate here; Logistic and LeastSquares have one"
    if strength == 0 and means.l2 == 0:
        return "without a penalty there is no dual point; give l1 or l2"
    if "intercept" in x and means.second_moments is None:
        return "columns are not standardised, so that nothing is known of their size"
    w = np.asarray(x["weights"], np.float64)
    size = np.zeros_like(w) if means.second_moments is None else np.sqrt(means.second_moments)
    slope = float(np.asarray(means.gradient["intercept"])) if "intercept" in x else 0.0
    y = np.asarray(means.gradient["weights"], np.float64) - means.l2 * w
    loss = means.loss - means.l2 / 2 * float(w @ w)
    if means.kind == "squares":
        change, quadratic, linear = _shifted(loss, float(y @ w), slope, float(np.abs(w) @ size))
    else:
        change, linear = _balanced(loss, float(y @ w) + slope * float(np.asarray(x.get("intercept", 0.0))), slope)
        quadratic = 0.0
    size = np.abs(y) + change * size
    objective = means.loss + strength * float(np.abs(w).sum())
    if means.l2 > 0:
        return objective + quadratic + linear + float(np.sum(np.maximum(size - strength, 0) ** 2)) / (2 * means.l2)
    largest = INSIDE * strength / size.max() if size.max() > 0 else 1.0
    best = min(largest, -linear / (2 * quadratic)) if quadratic > 0 else min(largest, 1.0)
    scale = max(best, 0.0)
    return float(objective + quadratic * scale**2 + linear * scale)


def _balanced(loss: float, product: float, slope: float) -> tuple[float, float]:
    """For logistic losses: the norm of what balancing takes from the slopes, and at least their mean conjugate.

    Args:
        loss: the mean of l.
        product: the mean of u s.
        slope: the mean of u.
    """
    conjugate = min(product - loss, 0.0)
    if slope == 0:
        return 0.0, conjugate
    heavier = (max(_least_mean_slope(-conjugate), abs(slope)) + abs(slope)) / 2
    taken = abs(slope) / heavier  # 1 - c
    return taken * float(np.sqrt(SQUARED_SLOPE * max(loss, 0.0))), (1 - taken) * conjugate


def _least_mean_slope(entropy: float) -> float:
    """The v up to 1/2 with H(v) = entropy, rounded down."""
    if entropy >= np.log(2):
        return 0.5
    tiny = 1e-300
    if entropy <= _entropy(tiny):
        return 0.0
    return float(np.asarray(brentq(lambda v: _entropy(v) - entropy, tiny, 0.5, xtol=1e-300))) * INSIDE


def _entropy(v: float) -> float:
    return float(entr(v) + entr(1 - v))


def _shifted(loss: float, product: float, slope: float, spread: float) -> tuple[float, float, float]:
    """For squares: the norm of the shift, and a, b for which a s^2 + b s is at least the mean conjugate of slopes scaled by s.

    With v = u - mean u and l^*(v) = v^2/4 + v b_i, the means of u^2 and of u b_i follow from those of l and u s_i; only the mean
    of the features is not known, which is at most the root of their mean squares.

    Args:
        loss: the mean of l.
        product: <w, mean u a>.
        slope: the mean of u; zero without an intercept, where slopes need no balance.
        spread: sum_j |w_j| sqrt(mean a_j^2).
    """
    quadratic = max(loss - slope**2 / 4, 0.0)
    return abs(slope), quadratic, product - 2 * quadratic + abs(slope) * spread


def _strength(psi: Regularizer, x: Any) -> float | str:
    """lambda of psi = lambda ||weights||_1."""
    if not isinstance(x, Mapping) or not set(x) <= {"weights", "intercept"} or np.ndim(x["weights"]) != 1:
        return "the model is not a linear one"
    parts = jax.tree.unflatten(jax.tree.structure(x), psi.parts(x))
    weights, intercept = parts["weights"], parts.get("intercept", Zero())
    if not isinstance(intercept, Zero) or type(weights) not in (L1, Zero):
        return f"there is no formula for {type(psi).__name__} between sites; for L1 there is"
    strength = np.asarray(weights.strength if isinstance(weights, L1) else 0.0)
    return float(strength) if strength.ndim == 0 else "the strength of L1 differs from weight to weight"
