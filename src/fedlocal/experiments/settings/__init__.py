"""What the configuration of an experiment may say: one file for each kind of study."""

from typing import Annotated

from pydantic import Field

from fedlocal.experiments.settings.curse import Curse
from fedlocal.experiments.settings.discrepancy import Discrepancy
from fedlocal.experiments.settings.femnist import Femnist
from fedlocal.experiments.settings.fmri import Fmri
from fedlocal.experiments.settings.instability import Instability
from fedlocal.experiments.settings.iterate_bias import IterateBias
from fedlocal.experiments.settings.lower_bound import LowerBound
from fedlocal.experiments.settings.rates import Rates
from fedlocal.experiments.settings.recovery import Recovery
from fedlocal.experiments.settings.speedup import Speedup

Settings = Annotated[
    Recovery | Femnist | Curse | Speedup | Discrepancy | IterateBias | LowerBound | Instability | Rates | Fmri,
    Field(discriminator="kind"),
]

__all__ = ["Settings"]
