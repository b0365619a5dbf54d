"""Experiments: the figures and tables of the text as commands. One configuration in `configs/` is one figure."""

from fedlocal.experiments.run import run, show
from fedlocal.experiments.schema import load, names

__all__ = ["load", "names", "run", "show"]
