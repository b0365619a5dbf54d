"""Settings of the study of client discrepancy."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from fedlocal.experiments.runner.settings import Seed, StudySettings


class DiscrepancySettings(StudySettings):
    """The discrepancy between clients inside a round, compared with the lemmas."""

    seeds: Annotated[list[Seed], Field(min_length=2)]  # verdicts need standard errors
    clients: PositiveInt
    rounds: PositiveInt
    local_steps: Annotated[list[PositiveInt], Field(min_length=1)]
    dimension: PositiveInt  # of the quadratics, whose smoothness is 1
    strong_convexity: PositiveFloat  # of the quadratics
    noise: PositiveFloat  # sigma of the quadratics
    spread: PositiveFloat  # zeta of the unequal quadratics
    examples: PositiveInt  # of a9a that are used, from its beginning
    l2: PositiveFloat  # of the logistic regression
