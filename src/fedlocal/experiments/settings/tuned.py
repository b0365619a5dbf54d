"""Settings of studies that run methods over all pairs of step sizes and take the best pair of each."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from fedlocal.experiments.settings.shared import Claim, Common, Grid, Panel, Score


class TunedStudy(Common):
    """What is run, how the best pair is chosen, and what is shown."""

    methods: Annotated[
        list[Literal["FedDualAvg", "FedDualAvg-OSP", "FedMiD", "FedMiD-OSP", "SubgradientFedAvg"]], Field(min_length=1)
    ]
    grid: Grid
    rounds: PositiveInt
    eval_every: PositiveInt
    clients_per_round: PositiveInt
    batch_size: PositiveInt
    local_epochs: PositiveInt
    weights: Literal["uniform", "examples"]
    score: Score
    panels: list[Panel]
    columns: list[str]  # of the table
    claims: list[Claim]

    def refuse_unmeasured(self, measured: Sequence[str]) -> None:
        """Complain of columns that are named by score, table, panels or claims and are not in the history."""
        there = ["loss", "objective", *measured]
        named = [self.score.metric, *self.columns, *(panel.column for panel in self.panels)]
        named += [claim.metric for claim in self.claims if claim.metric is not None]
        for name in named:
            if name not in there:
                raise ValueError(f"{name!r} is not measured; there are: {', '.join(there)}")
