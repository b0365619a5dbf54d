"""The theorems of the dissertation as functions, what they are about as objects, and what they advise."""

from fedlocal.theory.bound import Bound, Constants, Setting, tightest

__all__ = ["Bound", "Constants", "Setting", "tightest"]
