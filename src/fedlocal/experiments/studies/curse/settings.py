"""Settings of the study of primal averaging."""

from pydantic import PositiveFloat, PositiveInt

from fedlocal.experiments.runner.settings import DataSettings, StudySettings


class CurseSettings(StudySettings):
    """The models of the clients at the end of a round, and their average, for FedMiD and FedDualAvg."""

    data: DataSettings
    strength: PositiveFloat
    client_step_size: PositiveFloat
    rounds: PositiveInt
    local_steps: PositiveInt
    batch_size: PositiveInt | None = None  # None: full local gradients
    clients_per_round: PositiveInt
    shown_features: PositiveInt
