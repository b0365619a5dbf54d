"""Settings of the study of primal averaging."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from fedlocal.experiments.settings.shared import Common, DataSettings


class Curse(Common):
    """One round of FedMiD looked at from inside: what the clients hold and what their average is."""

    kind: Literal["curse"]
    data: DataSettings
    strength: PositiveFloat
    client_step_size: PositiveFloat
    rounds: PositiveInt
    local_steps: PositiveInt
    batch_size: PositiveInt | None = None  # None: full local gradients
    clients_per_round: PositiveInt
    shown_features: PositiveInt
