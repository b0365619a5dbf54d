"""Settings of the study of client discrepancy."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from fedlocal.experiments.settings.shared import Common, Seed


class Discrepancy(Common):
    """How far clients drift apart inside a round, against the lemmas."""

    kind: Literal["discrepancy"]
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
