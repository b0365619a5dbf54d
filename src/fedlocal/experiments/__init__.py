"""Experiments: the figures and tables of the text as commands. One configuration in `configs/` is one figure."""

from fedlocal.experiments.loading import load, names
from fedlocal.experiments.run import run, show

__all__ = ["load", "names", "run", "show"]
