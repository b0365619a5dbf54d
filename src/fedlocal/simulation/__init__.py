"""Engines run a method on a problem: `simulate` fast, `sweep` many at once, `loop` in plain Python."""

from fedlocal.simulation.plain_loop import loop
from fedlocal.simulation.result import DivergenceWarning, Result
from fedlocal.simulation.single_run import simulate
from fedlocal.simulation.sweeps.grid_run import sweep
from fedlocal.simulation.sweeps.result import SweepResult

__all__ = ["DivergenceWarning", "Result", "SweepResult", "loop", "simulate", "sweep"]
