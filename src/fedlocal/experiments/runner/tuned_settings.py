"""Settings of studies that run methods with all pairs of step sizes and take the best pair of each."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, PositiveInt

from fedlocal.core.types import Weights
from fedlocal.experiments.runner.methods import CompositeLabel
from fedlocal.experiments.runner.settings import Claim, Panel, ScoreRule, StepSizeGrid, StudySettings


class TunedStudySettings(StudySettings):
    """The runs, the rule that chooses the best pair, and what is shown."""

    methods: Annotated[list[CompositeLabel], Field(min_length=1)]
    grid: StepSizeGrid
    rounds: PositiveInt
    eval_every: PositiveInt
    clients_per_round: PositiveInt
    batch_size: PositiveInt
    local_epochs: PositiveInt
    weights: Weights
    score: ScoreRule
    panels: list[Panel]
    columns: list[str]  # of the table
    claims: list[Claim]

    def refuse_unmeasured(self, measured: Sequence[str]) -> None:
        """Raise a ValueError if score, table, panels or claims name a column that the history does not have."""
        columns = ["loss", "objective", *measured]
        named = [self.score.metric, *self.columns, *(panel.column for panel in self.panels)]
        named += [claim.metric for claim in self.claims if claim.metric is not None]
        for name in named:
            if name not in columns:
                raise ValueError(f"{name!r} is not measured; there are: {', '.join(columns)}")
