"""The largest step size that a method's theorems allow, for those who know no more of a problem than its smoothness."""

from fedlocal import checks

LARGEST = {  # times 1/L, with the theorems that ask for it
    "fed_avg": 1 / 4,  # thm:fedavg:2o:ub, thm:fedavg:3o:ub
    "fed_mid": 1 / 4,  # as for FedDualAvg; small_lr, its only theorem, is about the limit of small steps
    "fed_dual_avg": 1 / 4,  # thm:1, thm:2
    "fed_ac": 1.0,  # fedaci:full, fedacii:a1:full, fedacii:a2
}


def largest_step_size(method: str, smoothness: float) -> float:
    """The largest client step size for which the theorems of a method hold, for losses of clients that are L-smooth.

    `method` is "fed_avg", "fed_mid", "fed_dual_avg" or "fed_ac". With stochastic gradients smaller ones may do better: see
    `advise`.

    >>> largest_step_size("fed_dual_avg", smoothness=2.0)
    0.125
    """
    checks.choice("largest_step_size", "method", method, tuple(LARGEST))
    return LARGEST[method] / float(checks.number("largest_step_size", "smoothness", smoothness, above=0))
