"""Second and fourth moments of the noise of stochastic gradients."""

import math

import numpy as np


def batch_moments(variance: float, fourth: float, batch_size: int | None) -> tuple[float, float]:
    r"""Return sigma of E||.||^2 <= sigma^2 and of E||.||^4 <= sigma^4, for the mean of B independent draws n_i of mean zero.

    E||sum n_i||^4 = B E||n||^4 + B (B - 1) ((E||n||^2)^2 + 2 tr(C^2)), since all terms with a lone n_i vanish; C is the
    covariance of n, and tr(C^2) <= (tr C)^2 = (E||n||^2)^2. Hence E||mean||^4 <= (E||n||^4 + 3 (B - 1) (E||n||^2)^2) / B^3.
    `batch_size` None means a full gradient.

    >>> batch_moments(4.0, 16.0, 1)
    (2.0, 2.0)
    """
    if batch_size is None:
        return 0.0, 0.0
    b = batch_size
    return math.sqrt(variance / b), ((fourth + 3 * (b - 1) * variance**2) / b**3) ** 0.25


def fourth_moment(reach: np.ndarray, variance: float) -> float:
    r"""Return a bound of E||g - Eg||^4 for g uniform over vectors with ||g_i|| <= reach_i and E||g - Eg||^2 <= variance.

    The smallest of three, with q_k = mean reach^k, R = max reach and m = ||Eg||:
        (R + q_1)^2 variance;
        27/16 R^4, because ||g - Eg||^2 <= R^2 + m^2 - 2 <g, Eg> has mean R^2 - m^2, and (R + m)^2 (R^2 - m^2) is largest at R/2;
        q_4 + 4 q_1 q_3 + 6 q_1^2 q_2 - 3 q_1^4, from the expansion, which grows in m <= q_1.

    >>> fourth_moment(np.ones(3), 1.0)
    1.6875
    """
    q1, q2, q3, q4 = (float(np.mean(reach**k)) for k in (1, 2, 3, 4))
    top = float(np.max(reach))
    return min((top + q1) ** 2 * variance, 27 / 16 * top**4, q4 + 4 * q1 * q3 + 6 * q1**2 * q2 - 3 * q1**4)
