"""Outcome: what a study found, ready to be stored and shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from fedlocal.experiments.claims import Verdict


@dataclass(frozen=True)
class Outcome:
    """Everything measured, the table, a verdict per claim, and the figures."""

    history: pd.DataFrame
    table: pd.DataFrame
    verdicts: list[Verdict]
    figures: Mapping[str, Callable[[Path], None]]  # what draws each figure into a file, by the name of the file
    notes: list[str] = field(default_factory=list)  # lines above the table
    numbers: Mapping[str, float] = field(default_factory=dict)  # such as the optimum, for those who read the report
    results: pd.DataFrame | None = None  # one row per run, for results.csv
    extra: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # further tables to keep, by name
