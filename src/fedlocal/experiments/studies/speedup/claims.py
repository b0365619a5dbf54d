"""Claims of the text about speed-up compared with measurements; those about settings that were not run are not judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments.runner.claims import UNMEASURED, Verdict
from fedlocal.experiments.studies.speedup.settings import SpeedupClaim, SpeedupGrid, SpeedupSettings

SPAN = 16  # the smallest ratio of clients from which an exponent is read


@dataclass(frozen=True)
class Speeds:
    """The tuned suboptimalities that claims are compared with."""

    tuned: pd.DataFrame  # one row per method, clients and local steps: the best step size and its suboptimality
    grid: SpeedupGrid
    text_step_sizes: list[float]  # the text's step sizes, which may differ from those that were run
    steps: int  # local steps * rounds

    @cached_property
    def methods(self) -> Mapping[str, pd.DataFrame]:
        """Suboptimalities of each method: local steps down, clients across."""
        return {
            str(name): own.pivot(index="local_steps", columns="clients", values="suboptimality")
            for name, own in self.tuned.groupby("method", sort=False)
        }

    def local_steps(self, claim: SpeedupClaim) -> list[int]:
        """Return the local steps of the grid that a claim is about."""
        least, most = claim.fewest_local_steps or 1, claim.most_local_steps or np.inf
        return [k for k in self.grid.local_steps if least <= k <= most]

    def exponent(self, method: str, local_steps: int) -> float:
        """Return e of the M^-e that fits suboptimality against clients best, in logarithms."""
        row: Any = self.methods[method].loc[local_steps]
        slope = np.polyfit(np.log(row.index.to_numpy(float)), np.log(row.to_numpy()), 1)[0]
        return -float(slope)


def verdicts(settings: SpeedupSettings, speeds: Speeds) -> list[Verdict]:
    """Judge all claims of the settings. Generated data cannot decide a claim about epsilon: the outcome is "not measured"."""
    judged = [judge(claim, speeds) for claim in settings.claims]
    if settings.data.name != "epsilon-like":
        return judged
    return [replace(v, measured=f"on generated data: {v.measured}", outcome=UNMEASURED) for v in judged]


def judge(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """Return the verdict on one claim."""
    missing = [name for name in claim.named if name not in speeds.methods]
    if missing:
        return Verdict.unmeasured(claim.text, f"{missing[0]} was not run")
    if claim.clients is not None and claim.clients not in speeds.grid.clients:
        return Verdict.unmeasured(claim.text, f"M = {claim.clients} was not run")
    if not speeds.local_steps(claim):
        return Verdict.unmeasured(
            claim.text, f"no K of the claim was run, only {', '.join(map(str, speeds.grid.local_steps))}"
        )
    return CHECKS[claim.check](claim, speeds)


def _rounds_needed(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """The level is reached in these rounds and not in half of them, up to the tolerance: the text reads it off a figure."""
    method, level, rounds, clients = (_given(claim, name) for name in ("method", "level", "rounds", "clients"))
    own: Any = speeds.methods[method][clients]
    k = speeds.steps // rounds
    for needed in (k, 2 * k):
        if needed not in own.index:
            return Verdict.unmeasured(
                claim.text, f"K = {needed}, which is {speeds.steps / needed:g} rounds, was not run"
            )
    strictly = own.index[own <= level]
    measured = f"{own[k]:.2e} after {rounds} rounds, {own[2 * k]:.2e} after {speeds.steps // (2 * k)}; "
    measured += (
        f"below {level:g} from {speeds.steps // strictly.max()} rounds on"
        if len(strictly)
        else f"never below {level:g}"
    )
    there = own <= level * (1 + claim.tolerance)
    return Verdict.of(claim.text, measured, bool(there[k] and not there[own.index > k].any()))


def _linear_speedup(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """For every method and K, suboptimality falls like M to an exponent that is at least this large; linear is 1."""
    return _exponents(claim, speeds, lambda e: e >= _given(claim, "exponent"))


def _no_linear_speedup(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """For every method and K, suboptimality falls like M to a smaller exponent than this."""
    return _exponents(claim, speeds, lambda e: e < _given(claim, "exponent"))


def _exponents(claim: SpeedupClaim, speeds: Speeds, holds: Callable[[float], bool]) -> Verdict:
    m = speeds.grid.clients
    if max(m) < SPAN * min(m):
        return Verdict.unmeasured(claim.text, f"M from {min(m)} to {max(m)} is too little for an exponent")
    every = speeds.local_steps(claim)
    exponents = {name: [speeds.exponent(name, k) for k in every] for name in claim.methods}
    measured = "; ".join(f"{name} {_list([round(e, 2) for e in values])}" for name, values in exponents.items())
    measured = f"exponents of 1/M for {_ks(every)}: {measured}; linear is 1, {_given(claim, 'exponent'):g} is the limit"
    return Verdict.of(claim.text, measured, all(holds(e) for values in exponents.values() for e in values))


def _deteriorates(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """For every K, with the most clients, suboptimality is this many times that of K = 1."""
    if 1 not in speeds.grid.local_steps:
        return Verdict.unmeasured(claim.text, "K = 1 was not run")
    every, m = speeds.local_steps(claim), claim.clients or max(speeds.grid.clients)
    own: Any = speeds.methods[_given(claim, "method")][m]
    ratios = [float(own[k] / own[1]) for k in every]
    measured = f"with {m} clients, {_list(ratios)} times the suboptimality of K = 1 for {_ks(every)}"
    return Verdict.of(claim.text, measured, min(ratios) >= _given(claim, "factor"))


def _better(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """For every K, the best of the others has this many times the suboptimality: geometric mean over M, or the claim's M."""
    leads, measured = _leads(claim, speeds)
    return Verdict.of(claim.text, measured, bool(min(leads) > _given(claim, "factor")))


def _similar(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """For every K, the best of the others has at most this many times the suboptimality and at least one over it."""
    leads, measured = _leads(claim, speeds)
    return Verdict.of(claim.text, measured, bool(max(np.abs(np.log(leads))) <= np.log(_given(claim, "factor"))))


def _leads(claim: SpeedupClaim, speeds: Speeds) -> tuple[list[float], str]:
    """Return for every K the factor by which a method is better than the best of others, as a number and in words.

    It is a geometric mean over M, or for the M of the claim.
    """
    every, most = speeds.local_steps(claim), claim.clients or max(speeds.grid.clients)
    own = speeds.methods[_given(claim, "method")].loc[every]
    others = np.min([speeds.methods[name].loc[every].to_numpy() for name in claim.than], axis=0)
    ratios: Any = pd.DataFrame(others / own.to_numpy(), index=own.index, columns=own.columns)
    averaged = ratios if claim.clients is None else ratios[[most]]
    leads = [float(value) for value in np.exp(np.log(averaged).mean(axis=1))]
    names = claim.than[0] if len(claim.than) == 1 else "the best other"
    measured = f"suboptimality of {names} over that of {claim.method} for {_ks(every)}: "
    measured += f"{_list(leads)} (mean over M), " if claim.clients is None else ""
    return leads, f"{measured}{_list(ratios[most].tolist())} (M = {most})"


def _inside_grid(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """Every best step size lies in the text's range: a wider grid shows it, or none is at an end of the text's grid."""
    best = speeds.tuned.groupby("method", sort=False)["step_size"].agg(["min", "max"])
    measured = "best " + ", ".join(f"{low:g} to {high:g} ({name})" for name, (low, high) in best.iterrows())
    text, tried = speeds.text_step_sizes, speeds.grid.step_size
    outside = bool((best["min"] < min(text)).any() or (best["max"] > max(text)).any())
    at_an_end = bool((best["min"] <= min(tried)).any() or (best["max"] >= max(tried)).any())
    if at_an_end and not outside:
        return Verdict.unmeasured(
            claim.text, f"{measured}; an end of the grid is among them, --grid wide looks beyond it"
        )
    return Verdict.of(claim.text, measured, not outside)


CHECKS: dict[str, Callable[[SpeedupClaim, Speeds], Verdict]] = {
    "rounds_needed": _rounds_needed,
    "linear_speedup": _linear_speedup,
    "no_linear_speedup": _no_linear_speedup,
    "deteriorates": _deteriorates,
    "better": _better,
    "similar": _similar,
    "inside_grid": _inside_grid,
}


def _given(claim: SpeedupClaim, name: str) -> Any:
    """Return a field that the settings have checked to be there."""
    return getattr(claim, name)


def _ks(local_steps: list[int]) -> str:
    return f"K = {', '.join(map(str, local_steps))}"


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.0f}" if value >= 99.5 else f"{value:.2g}" for value in values)
