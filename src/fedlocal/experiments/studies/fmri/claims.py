"""Claims of the fMRI study about the scatter of accuracy against density."""

from typing import Any

import pandas as pd

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.studies.fmri.settings import RegionClaim

SLACK = 1e-9  # for products of step sizes such as 0.3 * 0.01 and for means of ones, which are rounded


def in_region(claim: RegionClaim, points: pd.DataFrame) -> Verdict:
    """Judge that more than half of the last points of each method are in the region."""
    last = points[points["round"] == points["round"].max()]
    inside = within(last["density"], claim.density) & within(last["validation_accuracy"], claim.accuracy)
    shares = {name: inside[last["method"] == name] for name in claim.methods}
    counts = ", ".join(f"{share.sum()} of {len(share)} ({name})" for name, share in shares.items())
    measured = f"density {_interval(claim.density)}, accuracy {_interval(claim.accuracy)}: {counts}"
    return Verdict.of(claim.text, measured, all(share.mean() > 0.5 for share in shares.values()))


def within(values: Any, limits: tuple[float, float]) -> Any:
    """Return a mask of the values that are between the limits, up to rounding."""
    return values.between(limits[0] - SLACK, limits[1] + SLACK)


def _interval(limits: tuple[float, float]) -> str:
    return f"{limits[0]:g} to {limits[1]:g}"
