"""Experiments: the figures and tables of the text as commands. One TOML file in `studies/<kind>/` is one experiment."""

from fedlocal.experiments.runner.configuration import load, names
from fedlocal.experiments.runner.methods import composite_method, smooth_method
from fedlocal.experiments.runner.problems import problem_of, regularizer_of, start_of
from fedlocal.experiments.runner.run_study import run, show

__all__ = [
    "composite_method",
    "load",
    "names",
    "problem_of",
    "regularizer_of",
    "run",
    "show",
    "smooth_method",
    "start_of",
]
