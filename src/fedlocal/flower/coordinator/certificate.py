r"""How far a deployed run is from the optimum: KKT residual and duality gap from means over sites.

As in `fedlocal.solvers.certificates`, every u with sum_i p_i u_i = 0 (where the intercept is free) bounds the minimum from below:
    D(u) = -sum_i p_i l_i^*(u_i) - Psi^*(-sum_i p_i u_i a_i),   Psi = lambda ||.||_1 + l2/2 ||.||^2.
The slopes l_i'(s_i) at the model nearly balance. For logistic losses those of the heavier sign are shrunk by a factor c, for
squares all are shifted, so that they balance exactly; by Cauchy and Schwarz this changes the gradient in column j by at most
(1 - c) sqrt(mean u^2 mean a_j^2), and the sites' moments give mean a_j^2. So two questions are enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import Params, Regularizer
from fedlocal.regularizers import L1, Zero
from fedlocal.solvers.certificates import kkt_residual

INSIDE = 1 - 1e-12  # a dual point scaled onto the boundary of a domain stays inside


@dataclass(frozen=True)
class Means:
    """Means over sites at the model x, with the weights of the objective."""

    loss: float  # F(x), without psi
    gradient: Params  # grad F(x)
    kind: str | None  # of the losses: "logistic" or "squares"; None where there is no gap
    positive: float = 0.0  # mean of max(u, 0) for slopes u
    squares: float = 0.0  # mean of u^2
    l2: float = 0.0  # strength of the penalty inside F
    second_moments: np.ndarray | None = None  # (d,) mean of a_j^2, where it is known


def residual(psi: Regularizer, x: Params, means: Means) -> float:
    """||x - prox_psi(x - grad F(x))||."""
    with jax.enable_x64(True):
        x, g = (jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), tree) for tree in (x, means.gradient))
        return float(kkt_residual(psi, x, g))


def dual_point(psi: Regularizer, x: Params, means: Means) -> tuple[dict[str, float], float] | str:
    """The factors that make slopes a dual point (positive, negative, shift) and at least Psi^* there, or why there is none."""
    strength = _strength(psi, x)
    if isinstance(strength, str):
        return strength
    if means.kind is None:
        return "the sites' losses have no conjugate here; Logistic and LeastSquares have one"
    if strength == 0 and means.l2 == 0:
        return "without a penalty there is no dual point; give l1 or l2"
    w = np.asarray(x["weights"], np.float64)
    y = np.asarray(means.gradient["weights"], np.float64) - means.l2 * w
    error = np.zeros_like(y)
    factors = {"positive": 1.0, "negative": 1.0, "shift": 0.0}
    if "intercept" in x:
        if means.second_moments is None:
            return "columns are not standardised, so that nothing is known of their size"
        balanced = _balanced(means, float(np.asarray(means.gradient["intercept"])))
        if balanced is None:
            return "all slopes have one sign: the labels are of one kind"
        factors, change = balanced
        error = change * np.sqrt(means.second_moments)
    size = np.abs(y) + error
    if means.l2 > 0:
        return factors, float(np.sum(np.maximum(size - strength, 0) ** 2)) / (2 * means.l2)
    scale = min(1.0, INSIDE * strength / size.max()) if size.max() > 0 else 1.0
    return {name: scale * value for name, value in factors.items()}, 0.0


def _balanced(means: Means, mean_slope: float) -> tuple[dict[str, float], float] | None:
    """Factors that make the mean slope zero, and the norm of what they take from the slopes."""
    if means.kind == "squares":
        return {"positive": 1.0, "negative": 1.0, "shift": mean_slope}, abs(mean_slope)
    up, down = means.positive, means.positive - mean_slope
    if up <= 0 or down <= 0:
        return None
    positive, negative = min(1.0, down / up), min(1.0, up / down)
    factors = {"positive": positive, "negative": negative, "shift": 0.0}
    return factors, (1 - min(positive, negative)) * float(np.sqrt(means.squares))


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
