"""Settings that several kinds of studies share. Unknown keys are errors, so a misspelt override is refused."""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from fedlocal.core.types import WeightsName
from fedlocal.data.synthetic import Config
from fedlocal.experiments.runner.methods import CompositeLabel

Seed = Annotated[int, Field(ge=0, lt=2**31)]
TuningName = Literal["all", "halving"]
ROUNDING = 1e-9  # relative, of products of step sizes
CrossCheck = Literal["slower_than_on", "faster_than_on"]  # checks of claims that look at another experiment


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(StrictModel):
    """A synthetic data set of the text."""

    generator: Literal["synthetic_lasso", "synthetic_low_rank"]
    config: Config


class StepSizeGrid(StrictModel):
    """Step sizes; all pairs are run, or those whose product is within limits."""

    client_step_size: Annotated[list[PositiveFloat], Field(min_length=1)]
    server_step_size: Annotated[list[PositiveFloat], Field(min_length=1)]
    products: tuple[PositiveFloat, PositiveFloat] | None = None  # the smallest and the largest; None: all pairs

    def pairs(self) -> list[dict[str, float]]:
        """The pairs that are run, as cells of a sweep."""
        smallest, largest = self.products or (0.0, math.inf)
        return [
            {"client_step_size": client, "server_step_size": server}
            for client in self.client_step_size
            for server in self.server_step_size
            if smallest * (1 - ROUNDING) <= client * server <= largest * (1 + ROUNDING)
        ]

    def is_at_edge(self, client_step_size: float, server_step_size: float) -> bool:
        """Return True if a pair has the smallest or largest step size of the clients, or of the server for these clients."""
        beside = [pair["server_step_size"] for pair in self.pairs() if pair["client_step_size"] == client_step_size]
        clients = [pair["client_step_size"] for pair in self.pairs()]
        ends = (min(clients), max(clients))
        return client_step_size in ends or server_step_size in (min(beside), max(beside))

    @model_validator(mode="after")
    def _has_pairs(self) -> "StepSizeGrid":
        if not self.pairs():
            raise ValueError(f"products must leave a pair of step sizes, got {self.products}")
        return self


class ScoreRule(StrictModel):
    """The rule by which a method's best cell is chosen: mean, last or best of a column."""

    metric: str
    rule: Literal["mean", "last", "best"]
    window: PositiveInt
    largest: bool


class TuningRule(StrictModel):
    """Which pairs of step sizes run all rounds: all of them, or the few that successive halving leaves; see `halving.py`."""

    search: TuningName = "all"
    stages: Annotated[int, Field(ge=2)] = 4  # of halving; the last one runs all rounds
    factor: Annotated[int, Field(ge=2)] = 3  # rounds of a stage over those before it, and pairs over those after it
    final_pairs: PositiveInt = 4  # that run all rounds


class Panel(StrictModel):
    """One panel of the figure: a column of the history against rounds."""

    column: str
    title: str
    log: bool = False


class Claim(StrictModel):
    """A claim of the text and its check; `runner/claims.py` describes the checks."""

    text: str
    check: Literal[
        "reaches", "never", "ends", "better", "close", "fastest", "tuned", "larger_steps", "inside_grid", CrossCheck
    ]
    method: str
    metric: str | None = None
    level: float | None = None  # that the metric must reach
    within: PositiveInt | None = None  # rounds
    than: list[str] = []  # other methods
    margin: NonNegativeFloat = 0.0
    largest: bool = True  # True: larger values of the metric are better
    step_sizes: tuple[PositiveFloat, PositiveFloat] | None = None  # the text's client and server step size
    other: str | None = None  # another experiment


class StudySettings(StrictModel):
    """Settings that every experiment has."""

    # whether its claims are about runs as long as the text's, so that a small one which does not show them says nothing
    claims_need_scale: ClassVar[bool] = False

    kind: str  # one of `studies.KINDS`, which selects the class of the settings
    name: str
    title: str
    reference: str  # where in the text
    seeds: Annotated[list[Seed], Field(min_length=1)]

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("seeds must differ from each other")
        return seeds


class TunedStudySettings(StudySettings):
    """The runs, the rule that chooses the best pair, and what is shown."""

    claims_need_scale = True

    methods: Annotated[list[CompositeLabel], Field(min_length=1)]
    grid: StepSizeGrid
    rounds: PositiveInt
    eval_every: PositiveInt
    clients_per_round: PositiveInt
    batch_size: PositiveInt
    local_epochs: PositiveInt
    weights: WeightsName
    score: ScoreRule
    tuning: TuningRule = TuningRule()
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
