"""Claims of the constrained study that need more than the tuned curves."""

from typing import Any

from fedlocal.core.gauges import FEASIBILITY
from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.studies.femnist.settings import FemnistSettings


def feasible(settings: FemnistSettings, history: Any) -> Verdict:
    """Judge that every evaluated point of every run that stayed finite is in the ball, up to rounding."""
    worst = float(history[history["diverged"].isna()]["constraint_violation"].max()) / settings.radius
    measured = f"at most {worst:.1g} of the radius outside, over all pairs, methods and evaluations"
    return Verdict.of("the constraints are always satisfied", measured, worst <= FEASIBILITY)
