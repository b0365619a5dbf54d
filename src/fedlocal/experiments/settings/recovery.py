"""Settings of a recovery study."""

from typing import Literal

from pydantic import PositiveFloat, model_validator

from fedlocal.experiments.settings.shared import DataSettings
from fedlocal.experiments.settings.tuned import TunedStudy

MEASURED = {
    "synthetic_lasso": ("density", "precision", "recall", "f1"),
    "synthetic_low_rank": ("validation_error", "rank", "rank_error", "frobenius_error"),
}


class Recovery(TunedStudy):
    """Tuned federated composite methods on a synthetic truth, beside the centralised optimum."""

    kind: Literal["recovery"]
    data: DataSettings
    strength: PositiveFloat | Literal["recover"]  # lambda; "recover" finds it by the text's rule

    @model_validator(mode="after")
    def _measured(self) -> "Recovery":
        self.refuse_unmeasured(MEASURED[self.data.generator])
        return self
