"""The iterate bias of SGD: how far the mean of its iterates is from gradient descent.

`bounds` has the theorems; `monte_carlo`, `quadrature` and `sde` compute the bias by samples, by integration of the exact law and
in continuous time; `expansion` has its leading terms.
"""
