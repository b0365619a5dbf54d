"""Settings of the lower-bound study."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fedlocal.experiments.runner.settings import StrictModel, StudySettings


class LowerBoundCase(StrictModel):
    """Numbers of clients, local steps and rounds, and the heterogeneity, of one run."""

    clients: PositiveInt
    local_steps: Annotated[int, Field(ge=2)]
    rounds: PositiveInt
    heterogeneity: NonNegativeFloat  # zeta_*


class LowerBoundLimit(StrictModel):
    """Infinitely many clients, with all combinations of these; rates are fitted at the first K of the fit and the last R."""

    local_steps: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=2)]
    rounds: Annotated[list[PositiveInt], Field(min_length=2)]
    fit_local_steps: PositiveInt  # one of local_steps: smaller ones are not fitted
    fit_rounds: PositiveInt  # one of rounds: smaller ones are not fitted
    paths: PositiveInt  # over which the SGD of one client is averaged


class LowerBoundSettings(StudySettings):
    """FedAvg on the text's hardest problem with every step size, beside minibatch SGD and SGD of one client."""

    smoothness: PositiveFloat  # L
    noise: PositiveFloat  # sigma
    distance: PositiveFloat  # B
    num_step_sizes: Annotated[int, Field(ge=2)]  # from 1e-6 to 10 over L; 0 is tried too
    cases: Annotated[list[LowerBoundCase], Field(min_length=1)]  # the last two get a panel in the figure
    limit: LowerBoundLimit
