"""Settings of the instability study."""

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from fedlocal.experiments.runner.settings import StudySettings


class InstabilitySettings(StudySettings):
    """Two close runs of accelerated gradient descent on the objective of the instability theorem."""

    kappas: Annotated[list[Annotated[float, Field(gt=1)]], Field(min_length=1)]
    blocks: Annotated[int, Field(ge=2)]  # K: of three steps each
    shown_kappa: Annotated[float, Field(gt=1)]  # that of the figures
    further_steps: PositiveInt  # after the blocks, in which both runs converge
    worst_kappas: Annotated[list[Annotated[float, Field(gt=1)]], Field(min_length=1)]  # of the worst cases
    worst_local_steps: Annotated[list[PositiveInt], Field(min_length=2)]
    longest_agd: Annotated[int, Field(ge=6)]  # local steps of AGD's worst case, whose growth is that of the last five

    @model_validator(mode="after")
    def _covered(self) -> "InstabilitySettings":
        if max(self.kappas) < 25:
            raise ValueError(f"kappas must contain one of at least 25, which the theorem is about, got {self.kappas}")
        return self
