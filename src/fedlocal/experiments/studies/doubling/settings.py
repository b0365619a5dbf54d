"""Settings of a doubling study."""

from pydantic import model_validator

from fedlocal.experiments.studies.recovery.settings import RecoverySettings

BOX, DUAL = "FedMiD", "FedDualAvg"


class DoublingSettings(RecoverySettings):
    """FedMiD as boxed, variants that count psi once, and FedDualAvg, beside the minimisers of F + psi and of F + 2 psi."""

    def measured(self) -> tuple[str, ...]:
        return (*super().measured(), "suboptimality", "distance", "distance_doubled")

    @model_validator(mode="after")
    def _compares(self) -> "DoublingSettings":
        others = [name for name in self.methods if name not in (BOX, DUAL)]
        if BOX not in self.methods or DUAL not in self.methods or not others:
            raise ValueError(f"methods must hold {BOX}, {DUAL} and a variant such as 'FedMiD-half', got {self.methods}")
        if self.tuning.search != "all":
            raise ValueError("tuning.search must be 'all': the pairs are tuned by two scores, and halving goes by one")
        return self
