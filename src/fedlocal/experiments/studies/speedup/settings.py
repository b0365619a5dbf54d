"""Settings of a speed-up study."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator, model_validator

from fedlocal.experiments.runner.methods import SmoothLabel
from fedlocal.experiments.runner.settings import Seed, StrictModel, StudySettings


class LogisticData(StrictModel):
    """A set of examples with two classes. The last three fields are for epsilon-like; without them it has epsilon's size."""

    name: Literal["a9a", "epsilon", "epsilon-like"]
    num_examples: PositiveInt | None = None
    num_features: PositiveInt | None = None
    seed: Seed | None = None

    @model_validator(mode="after")
    def _generated(self) -> "LogisticData":
        for name, value in self.generator.items():
            if self.name != "epsilon-like":
                raise ValueError(f"data.{name} is for epsilon-like, got {value!r} for {self.name}")
        return self

    @property
    def generator(self) -> dict[str, Any]:
        """Arguments of the generator."""
        return self.model_dump(exclude={"name"}, exclude_none=True)


class SpeedupGrid(StrictModel):
    """All combinations are run; the best step size is taken for each number of clients and of local steps."""

    step_size: Annotated[list[PositiveFloat], Field(min_length=1)]
    clients: Annotated[list[PositiveInt], Field(min_length=1)]
    local_steps: Annotated[list[PositiveInt], Field(min_length=1)]

    @field_validator("*")
    @classmethod
    def _ascending(cls, values: list[float]) -> list[float]:
        if values != sorted(set(values)):
            raise ValueError(f"values of a grid must ascend, got {values}")
        return values


class SpeedupPanels(StrictModel):
    """Which local steps and which clients get a panel in the figures; those that are not in the grid are left out."""

    local_steps: list[PositiveInt]
    clients: list[PositiveInt]


NEEDED = {  # fields that the checks of `claims.py` need
    "rounds_needed": ("method", "level", "rounds", "clients"),
    "linear_speedup": ("methods", "exponent"),
    "no_linear_speedup": ("methods", "exponent"),
    "deteriorates": ("method", "factor"),
    "better": ("method", "than", "factor"),
    "similar": ("method", "than", "factor"),
    "onset": ("methods", "factor", "passes"),
    "more_robust": ("method", "than", "fewest_local_steps"),
    "fewest_rounds": ("method", "than", "level", "clients"),
    "inside_grid": (),
}


class SpeedupClaim(StrictModel):
    """A claim of the text about speed-up, and how it is checked; `claims.py` describes the checks."""

    text: str
    check: str  # one of NEEDED
    method: str | None = None
    methods: list[str] = Field(default_factory=list)
    than: list[str] = Field(default_factory=list)  # other methods
    fewest_local_steps: PositiveInt | None = None  # the claim is about these and more
    most_local_steps: PositiveInt | None = None  # and these and less
    clients: PositiveInt | None = None
    level: PositiveFloat | None = None  # of suboptimality
    rounds: PositiveInt | None = None  # in which the level is reached
    tolerance: NonNegativeFloat = 0.0  # relative, about the level
    exponent: PositiveFloat | None = None  # e where suboptimality goes like M^-e
    factor: Annotated[float, Field(ge=1)] | None = None
    passes: PositiveInt | None = None  # local steps up to which a method does not deteriorate

    @model_validator(mode="after")
    def _complete(self) -> "SpeedupClaim":
        if self.check not in NEEDED:
            raise ValueError(f"check must be one of {', '.join(map(repr, NEEDED))}, got {self.check!r}")
        missing = [name for name in NEEDED[self.check] if getattr(self, name) in (None, [])]
        if missing:
            raise ValueError(f"the claim {self.text!r} needs {missing[0]!r}")
        return self

    @property
    def named(self) -> list[str]:
        """The methods that the claim names."""
        return [*([self.method] if self.method else []), *self.methods, *self.than]


class SpeedupSettings(StudySettings):
    """Suboptimality against numbers of clients and of local steps, with the same gradients for every client."""

    claims_need_scale = True

    data: LogisticData
    l2: PositiveFloat  # lambda, which is also the mu of accelerated methods
    methods: Annotated[list[SmoothLabel], Field(min_length=1)]
    grid: SpeedupGrid
    steps: PositiveInt  # T = local steps * rounds: the gradients of a client
    eval_steps: PositiveInt  # steps from one evaluation to the next
    start_seed: Seed  # of the standard normal vector from which every run starts, whatever its own seed
    levels: Annotated[list[PositiveFloat], Field(min_length=1)]  # suboptimalities of the table
    panels: SpeedupPanels
    claims: list[SpeedupClaim]

    @model_validator(mode="after")
    def _whole_rounds(self) -> "SpeedupSettings":
        for k in self.grid.local_steps:
            if self.steps % k:
                raise ValueError(f"steps must be a multiple of every one of grid.local_steps, got {self.steps} and {k}")
        if len(set(self.methods)) < len(self.methods):
            raise ValueError("methods must differ from each other")
        return self
