"""Engines run a method on a problem: `simulate` fast, `sweep` many at once, `loop` in plain Python."""

from fedlocal.engines.loop import loop
from fedlocal.engines.result import Result
from fedlocal.engines.run import DivergenceWarning
from fedlocal.engines.simulate import simulate
from fedlocal.engines.sweep import sweep
from fedlocal.engines.sweep_result import SweepResult

__all__ = ["DivergenceWarning", "Result", "SweepResult", "loop", "simulate", "sweep"]
