"""Iterate bias: how far the mean of SGD's iterates is from gradient descent's, at most and, somewhere, at least."""

import math

from fedlocal.theory.bounds.bound import Bound, Constants
from fedlocal.util import checks

BIAS = "||E x_sgd^(k) - z_gd^(k)||"


def iterate_bias_upper_bound(constants: Constants, step_size: float, steps: int) -> Bound:
    r"""The bias after k steps from any point, for a convex F and eta <= 1/L.

        min{4 eta^2 k^(3/2) L sigma, eta k^(1/2) sigma},   and eta^3 k^2 Q sigma^2/4 beside them where Q is known.

    The one term is the smallest: "second_order", "diffusion" or "third_order".
    Letters: L smoothness, Q third_order, sigma noise.

    Args:
        constants: those of F; third_order None: the second-order bound.
        step_size, steps: eta > 0 and k >= 1.

    Reference: dissertation, theorems thm:fedavg:2o:bias:ub:complete and thm:fedavg:3o:bias:ub:complete. Differs from
    it: the proof of the third-order one asks every f(.; xi) to be convex and third-order smooth, its statement only F.
    The statement is right: the variance v of the iterate is at most k eta^2 sigma^2, ||E grad F(x) - grad F(E x)|| <= Q
    v/2, and a gradient step brings two points no further apart, so step k adds at most eta^3 k Q sigma^2/2. The fourth
    moment is not needed.

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0)
    >>> dict(iterate_bias_upper_bound(constants, step_size=0.01, steps=4).terms)
    {'second_order': 0.0032}
    """
    eta, k = _arguments("iterate_bias_upper_bound", step_size, steps)
    L, sigma, Q = constants.smoothness, constants.noise, constants.third_order
    options = {"second_order": 4 * eta**2 * k**1.5 * L * sigma, "diffusion": eta * math.sqrt(k) * sigma}
    label = "thm:fedavg:2o:bias:ub:complete"
    if Q is not None:
        options["third_order"] = eta**3 * k**2 * Q * sigma**2 / 4
        label = "thm:fedavg:3o:bias:ub:complete"
    name = min(options, key=options.__getitem__)
    return Bound(label, "SGD", BIAS, {name: options[name]}, eta, {"step_size <= 1/L": eta <= 1 / L})


def iterate_bias_lower_bound(constants: Constants, step_size: float, steps: int) -> Bound:
    r"""The bias after k steps from the optimum of some convex instance, for eta <= 1/(2 L).

        0.002 min{eta^2 k^(3/2) L sigma, eta^(1/2) L^(-1/2) sigma},   or where Q is known
        0.005 eta^3 sigma^2 Q min{(k - 1)/(eta L), k (k - 1)},   if Q <= L^2/(12 (k + 1) sigma).

    Letters: L smoothness, Q third_order, sigma noise.

    Args:
        constants: those of F; third_order None: the second-order bound.
        step_size, steps: eta > 0 and k >= 1.

    Reference: dissertation, theorems thm:fedavg:2o:bias:lb:complete and thm:fedavg:3o:bias:lb:complete. Differs from
    it: the second-order one needs k >= 2, for one step has no bias. The K > k of the condition on Q is its smallest,
    k + 1. The proof counts k (k - 1) summands, which are k (k - 1)/2; its 1/e^2 leaves room for that, and 0.005 holds.

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0)
    >>> round(iterate_bias_lower_bound(constants, step_size=0.01, steps=4).value, 12)
    1.6e-06
    """
    eta, k = _arguments("iterate_bias_lower_bound", step_size, steps)
    L, sigma, Q = constants.smoothness, constants.noise, constants.third_order
    conditions = {"step_size <= 1/(2 L)": eta <= 1 / (2 * L), "steps >= 2": k >= 2}
    if Q is None:
        terms = {"second_order": 0.002 * min(eta**2 * k**1.5 * L * sigma, math.sqrt(eta / L) * sigma)}
        return Bound("thm:fedavg:2o:bias:lb:complete", "SGD", BIAS, terms, eta, conditions)
    terms = {"third_order": 0.005 * eta**3 * sigma**2 * Q * (k - 1) * min(1 / (eta * L), k)}
    conditions["Q <= L^2/(12 (k + 1) sigma)"] = 12 * (k + 1) * sigma * Q <= L**2
    return Bound("thm:fedavg:3o:bias:lb:complete", "SGD", BIAS, terms, eta, conditions)


def _arguments(owner: str, step_size: float, steps: int) -> tuple[float, int]:
    return checks.number(owner, "step_size", step_size, above=0), checks.whole(owner, "steps", steps)
