"""Outcome: what a study found, ready to be stored and shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from fedlocal.experiments.claims import Verdict


@dataclass(frozen=True)
class Outcome:
    """Everything measured, the table, a verdict per claim, and the figure."""

    history: pd.DataFrame
    table: pd.DataFrame
    verdicts: list[Verdict]
    draw: Callable[[Path], None]  # makes the figure
    notes: list[str] = field(default_factory=list)  # lines above the table
    extra: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # further tables to keep, by name
