"""Engines run a method on a problem: `simulate` fast, `loop` in plain Python."""

from fedlocal.engines.loop import loop
from fedlocal.engines.result import Result
from fedlocal.engines.run import DivergenceWarning
from fedlocal.engines.simulate import simulate

__all__ = ["DivergenceWarning", "Result", "loop", "simulate"]
