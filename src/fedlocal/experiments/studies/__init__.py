"""The registry of studies: one folder per kind, with settings, study, figures, claims, and experiments as TOML files.

To add a kind: copy a folder and add its row to `KINDS`. A folder holds

- `settings.py`: a subclass of `StudySettings`;
- `study.py`: `run_study(settings, store) -> StudyOutcome`;
- `figures.py` and `claims.py`: what draws its figures and judges its claims, where that is too long for `study.py`;
- `problem.py`: `make_problem(settings, *, seed, clients) -> AbstractProblem`, and if needed `make_regularizer(settings, *, seed)`
  and `make_start(settings)`, if all its runs share one problem;
- one TOML file per experiment.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlocal.experiments.runner.settings import StudySettings
from fedlocal.experiments.studies.curse.settings import CurseSettings
from fedlocal.experiments.studies.discrepancy.settings import DiscrepancySettings
from fedlocal.experiments.studies.doubling.settings import DoublingSettings
from fedlocal.experiments.studies.femnist.settings import FemnistSettings
from fedlocal.experiments.studies.fmri.settings import FmriSettings
from fedlocal.experiments.studies.instability.settings import InstabilitySettings
from fedlocal.experiments.studies.iterate_bias.settings import IterateBiasSettings
from fedlocal.experiments.studies.lower_bound.settings import LowerBoundSettings
from fedlocal.experiments.studies.rates.settings import RatesSettings
from fedlocal.experiments.studies.recovery.settings import RecoverySettings
from fedlocal.experiments.studies.speedup.settings import SpeedupSettings

if TYPE_CHECKING:
    from fedlocal.experiments.runner.store import Store, StudyOutcome

KINDS: dict[str, type[StudySettings]] = {
    "curse": CurseSettings,
    "discrepancy": DiscrepancySettings,
    "doubling": DoublingSettings,
    "femnist": FemnistSettings,
    "fmri": FmriSettings,
    "instability": InstabilitySettings,
    "iterate_bias": IterateBiasSettings,
    "lower_bound": LowerBoundSettings,
    "rates": RatesSettings,
    "recovery": RecoverySettings,
    "speedup": SpeedupSettings,
}


def study_of(kind: str) -> "Callable[[Any, Store], StudyOutcome]":
    """Return the function that runs a kind of study, given the kind's own settings. Only its module is imported."""
    return import_module(f"{__name__}.{kind}.study").run_study
