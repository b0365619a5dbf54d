"""Settings of the study of rates."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fedlocal.experiments.runner.settings import StrictModel, StudySettings


class RatesSpeedup(StrictModel):
    """The rounds that linear speed-up takes: T steps of M clients, divided into rounds in all ways."""

    strong_convexity: PositiveFloat
    steps: Annotated[int, Field(ge=8)]  # T, a power of two
    clients: Annotated[list[PositiveInt], Field(min_length=3)]
    draws: PositiveInt  # clients times repeats
    num_step_sizes: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _consistent(self) -> "RatesSpeedup":
        if self.steps & (self.steps - 1):
            raise ValueError(f"speedup.steps must be a power of two, got {self.steps}")
        if self.draws < max(self.clients):
            least = max(self.clients)
            raise ValueError(f"speedup.draws must be at least {least}, as many as clients, got {self.draws}")
        return self


class RatesSettings(StudySettings):
    """Exponents of M, K and R in tuned errors, against the text's table of rates."""

    smoothness: PositiveFloat  # L
    strong_convexity: PositiveFloat  # mu, where it is not 0
    noise: PositiveFloat  # sigma
    third_order: PositiveFloat  # Q
    distance: PositiveFloat  # B of overheads with mu = 0; 1 elsewhere
    lower_bound_smoothness: PositiveFloat  # L of the lower bound's problem, whose kink has curvatures L/12 and L/24
    clients: Annotated[list[PositiveInt], Field(min_length=2)]  # for the statistical terms; else infinitely many
    local_steps: Annotated[list[PositiveInt], Field(min_length=2)]
    rounds: Annotated[list[PositiveInt], Field(min_length=2)]
    num_step_sizes: Annotated[int, Field(ge=3)]
    num_strengths: PositiveInt  # of the l2 term, with which FedAc is run where mu = 0
    pairs: PositiveInt  # of clients that stand for infinitely many
    speedup: RatesSpeedup
