"""StudyOutcome: what a study measured, ready to be stored and shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from fedlocal.experiments.runner.claims import Verdict


@dataclass(frozen=True)
class StudyOutcome:
    """All measurements, the table, a verdict per claim, and functions that draw the figures."""

    history: pd.DataFrame
    table: pd.DataFrame
    verdicts: list[Verdict]
    figures: Mapping[str, Callable[[Path], None]]  # file name without suffix -> function that draws into a file
    notes: list[str] = field(default_factory=list)  # lines above the table
    numbers: Mapping[str, float] = field(default_factory=dict)  # single numbers of the report, such as the optimum
    results: pd.DataFrame | None = None  # one row per run, for results.csv
    extra: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # further tables to keep, by name
