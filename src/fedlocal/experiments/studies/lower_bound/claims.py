"""Claims of the lower-bound study: no step size makes FedAvg better than a constant times mu B^2."""

from typing import Any

import numpy as np

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.studies.lower_bound.settings import LowerBoundSettings

RUN = ["clients", "local_steps", "rounds", "heterogeneity"]  # columns that identify a run


def verdicts(settings: LowerBoundSettings, best: Any, slopes: dict[str, float]) -> list[Verdict]:
    """Judge the lower bound, its exponents, and the rates of the baselines."""
    fed, at_limit = rows_of(best, "FedAvg"), rows_of(best, "FedAvg", limit=True).set_index(RUN)["error"]
    batch = rows_of(best, "MB-SGD", limit=True).set_index(RUN)["error"]
    alone = rows_of(best, "one client", limit=True).set_index(RUN)["error"]
    lead = at_limit / np.minimum(batch, alone)
    behind = lead[lead < 1]
    by_rounds = lead.reset_index().pivot(index="local_steps", columns="rounds", values="error").sort_index(axis=1)
    widens = bool((by_rounds.diff(axis=1).iloc[:, 1:] > 0).all(axis=None) and by_rounds.iloc[:, -1].min() > 1)
    lowest = fed.loc[fed["constant"].idxmin()]
    late = (
        rows_of(best, "FedAvg", limit=True)
        .pivot(index="local_steps", columns="rounds", values="constant")
        .sort_index(axis=1)
    )
    kept = (late.iloc[:, -1] / late.iloc[:, -2]).min()
    return [
        Verdict.of(
            "with any step size FedAvg's error is at least a constant times mu B^2",
            f"the constant is between {lowest['constant']:.3g} (K = {lowest['local_steps']:g}, R = {lowest['rounds']:g}) and "
            f"{fed['constant'].max():.3g} in {len(fed)} settings; "
            f"from the last but one R to the last it changes by a factor of {kept:.3f} or more",
            bool(kept > 0.95),
        ),
        Verdict.of(
            "the error of FedAvg goes like R^(-2/3)",
            f"exponent {slopes['rounds']:.3f} in R at K = {settings.limit.fit_local_steps}",
            abs(slopes["rounds"] + 2 / 3) < 0.05,
        ),
        Verdict.of(
            "the error of FedAvg goes like K^(-1/3)",
            f"exponent {slopes['local_steps']:.3f} in K at R = {settings.limit.rounds[-1]}",
            abs(slopes["local_steps"] + 1 / 3) < 0.05,
        ),
        Verdict.of(
            "the better of minibatch SGD and SGD of one client has the better rate in R, with many clients",
            f"FedAvg's error over theirs {'grows' if widens else 'does not grow'} with R for every K, from {lead.min():.3g} to "
            f"{lead.max():.3g}; below 1 in {len(behind)} of {len(lead)} settings",
            widens,
        ),
    ]


def rows_of(best: Any, method: str, limit: bool | None = None) -> Any:
    """Return the rows of a method; `limit` selects infinitely (True) or finitely (False) many clients."""
    own = best[best["method"] == method]
    return own if limit is None else own[np.isinf(own["clients"]) == limit]
