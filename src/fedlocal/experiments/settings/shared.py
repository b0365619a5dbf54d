"""Settings that several kinds of studies share. Unknown keys are errors, so a misspelt override never passes silently."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Strict(BaseModel):
    """Frozen, and closed to keys that it does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(Strict):
    """A synthetic data set of the text."""

    generator: Literal["synthetic_lasso", "synthetic_low_rank"]
    config: Literal["I", "II", "III", "IV"]


class Grid(Strict):
    """Step sizes that are tried, all combinations."""

    client_step_size: Annotated[list[PositiveFloat], Field(min_length=1)]
    server_step_size: Annotated[list[PositiveFloat], Field(min_length=1)]


class Score(Strict):
    """The rule by which a method's best cell is chosen: mean, last or best of a column."""

    metric: str
    rule: Literal["mean", "last", "best"]
    window: PositiveInt
    largest: bool


class Panel(Strict):
    """One panel of the figure: a column of the history against rounds."""

    column: str
    title: str
    log: bool = False


class Claim(Strict):
    """A claim of the text, and how it is checked; `claims.py` says what each check does."""

    text: str
    check: Literal[
        "reaches",
        "never",
        "ends",
        "better",
        "close",
        "fastest",
        "tuned",
        "inside_grid",
        "slower_than_on",
        "faster_than_on",
    ]
    method: str
    metric: str | None = None
    level: float | None = None  # what the metric must come to
    within: PositiveInt | None = None  # rounds
    than: list[str] = []  # other methods
    margin: NonNegativeFloat = 0.0
    largest: bool = True  # whether more is better
    step_sizes: tuple[PositiveFloat, PositiveFloat] | None = None  # the text's client and server step size
    other: str | None = None  # another experiment


class Common(Strict):
    """What every experiment has."""

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
