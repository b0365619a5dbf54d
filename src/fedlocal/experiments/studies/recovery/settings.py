"""Settings of a recovery study."""

from typing import Literal

from pydantic import PositiveFloat, model_validator

from fedlocal.experiments.runner.settings import DataSettings, TunedStudySettings

MEASURED = {
    "synthetic_lasso": ("density", "precision", "recall", "f1"),
    "synthetic_low_rank": ("validation_error", "rank", "rank_error", "frobenius_error"),
}


class RecoverySettings(TunedStudySettings):
    """Tuned federated composite methods on a synthetic truth, beside the centralised optimum."""

    data: DataSettings
    strength: PositiveFloat | Literal["recover"]  # lambda; "recover": chosen by the text's rule

    def measured(self) -> tuple[str, ...]:
        """The columns of the history besides loss and objective."""
        return MEASURED[self.data.generator]

    @model_validator(mode="after")
    def _refuse_unmeasured(self) -> "RecoverySettings":
        self.refuse_unmeasured(self.measured())
        return self
