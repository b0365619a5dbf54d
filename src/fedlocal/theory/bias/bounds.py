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
    r"""The bias after k steps from the optimum of some convex instance.

        0.002 min{eta^2 k^(3/2) L sigma, eta^(1/2) L^(-1/2) sigma},   eta <= 1/(2 L),   or where Q is known
        0.005 eta^3 sigma^2 Q min{1/(eta L)^2, k (k - 1)},   eta <= 1/L,   if Q <= L^2/(16 sigma).

    The instances are those of the text, `piecewise_instance` and `log_cosh_instance` of
    `fedlocal.theory.constructions.lower_bound_instances`; the noise of the second is in [-sigma, sigma].
    Letters: L smoothness, Q third_order, sigma noise.

    Args:
        constants: those of F; third_order None: the second-order bound.
        step_size, steps: eta > 0 and k >= 1.

    Reference: dissertation, theorems thm:fedavg:2o:bias:lb:complete and thm:fedavg:3o:bias:lb:complete. Differs from
    it: the second-order one needs k >= 2, for one step has no bias. The third-order one is printed with (k - 1)/(eta L)
    for 1/(eta L)^2, which grows with k when the bias of its instance does not any more, and for k < K, Q <= L^2/(12 K
    sigma) and eta <= 1/(2 L) only.

    Why: let u_k(x) = E x^(k) from x^(0) = x, and q = 1 - eta L. Lemma lem:bias:3o:lb:enum (f) takes u_k' >= q, but (d)
    gives q^k only. Iterates from 0 stay within 2 sigma/L, since |x - eta F'(x)| <= (1 - eta L/2) |x|; this is within L/(8
    Q), so F''' >= Q/2 there. Hence, there, u_(k+1)'' <= q^2 sup u_k'' - (eta Q/2) q^k, thus u_k'' <= -(eta Q/2) q^(k-1)
    (1 - q^k)/(1 - q). The noise has the variance sigma^2/3, so the bias is at least the sum of -(eta^2 sigma^2/6) u_j''
    over j < k, which is eta Q sigma^2 (1 - q^(k-1)) (1 - q^k)/(12 L^2 (2 - eta L)). By 1 - q^k >= (1 - 1/e) min{1, eta L k}
    this is above what is stated, with 0.008 for 0.005.

    The inequality as printed holds for the log-cosh instance of the curvature 4 sqrt(sigma Q) <= L in place of L: there
    the first option is 1/(16 eta^2 sigma Q), which is at least (k - 1)/(eta L) if Q <= L^2/(12 K sigma).

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0)
    >>> round(iterate_bias_lower_bound(constants, step_size=0.01, steps=4).value, 12)
    1.6e-06
    """
    eta, k = _arguments("iterate_bias_lower_bound", step_size, steps)
    L, sigma, Q = constants.smoothness, constants.noise, constants.third_order
    conditions = {"steps >= 2": k >= 2}
    if Q is None:
        conditions["step_size <= 1/(2 L)"] = eta <= 1 / (2 * L)
        terms = {"second_order": 0.002 * min(eta**2 * k**1.5 * L * sigma, math.sqrt(eta / L) * sigma)}
        return Bound("thm:fedavg:2o:bias:lb:complete", "SGD", BIAS, terms, eta, conditions)
    terms = {"third_order": 0.005 * eta**3 * sigma**2 * Q * min(1 / (eta * L) ** 2, k * (k - 1))}
    conditions |= {"step_size <= 1/L": eta <= 1 / L, "Q <= L^2/(16 sigma)": 16 * sigma * Q <= L**2}
    return Bound("thm:fedavg:3o:bias:lb:complete", "SGD", BIAS, terms, eta, conditions)


def _arguments(owner: str, step_size: float, steps: int) -> tuple[float, int]:
    return checks.number(owner, "step_size", step_size, above=0), checks.whole(owner, "steps", steps)
