"""Reference solvers: all data at one place, to many digits, with a certificate."""

from fedlocal.solvers.reference import ConvergenceWarning, Solution, centralized, local, path, zero_strength

__all__ = ["ConvergenceWarning", "Solution", "centralized", "local", "path", "zero_strength"]


def __dir__() -> list[str]:
    return sorted(__all__)
