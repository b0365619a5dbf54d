"""Claims of the text about speed-up compared with measurements; those about settings that were not run are not judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments.runner.claims import UNMEASURED, Verdict, with_seeds
from fedlocal.experiments.studies.speedup.settings import SpeedupClaim, SpeedupGrid, SpeedupSettings

NAMED = 12  # settings with a step size outside the text's range that a verdict names
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


def verdicts(settings: SpeedupSettings, speeds: Speeds, of_seed: Mapping[int, Speeds]) -> list[Verdict]:
    """Judge all claims of the settings. Generated data cannot decide a claim about epsilon: the outcome is "not measured".

    Args:
        settings: settings of the study.
        speeds: means over the seeds.
        of_seed: of each seed alone, with its own best step sizes; verdicts say where seeds disagree.
    """
    judged = [
        with_seeds(judge(claim, speeds), {seed: judge(claim, alone) for seed, alone in of_seed.items()})
        for claim in settings.claims
    ]
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
        every = ", ".join(map(str, speeds.grid.local_steps))
        return Verdict.unmeasured(claim.text, f"no K of the claim was run, only {every}")
    return CHECKS[claim.check](claim, speeds)


def _rounds_needed(claim: Any, speeds: Speeds) -> Verdict:
    """The level is reached in these rounds and not in half of them, up to the tolerance: the text reads it off a figure."""
    own: Any = speeds.methods[claim.method][claim.clients]
    level, rounds = claim.level, claim.rounds
    k = speeds.steps // rounds
    for needed in (k, 2 * k):
        if needed not in own.index:
            why = f"K = {needed}, which is {speeds.steps / needed:g} rounds, was not run"
            return Verdict.unmeasured(claim.text, why)
    strictly = own.index[own <= level]
    below = f"below {level:g}"
    reached = f"{below} from {speeds.steps // strictly.max()} rounds on" if len(strictly) else f"never {below}"
    measured = f"{own[k]:.2e} after {rounds} rounds, {own[2 * k]:.2e} after {speeds.steps // (2 * k)}; {reached}"
    there = own <= level * (1 + claim.tolerance)
    return Verdict.of(claim.text, measured, bool(there[k] and not there[own.index > k].any()))


def _exponents(claim: Any, speeds: Speeds, linear: bool) -> Verdict:
    """For every method and K, suboptimality falls like M to an exponent that is at least (or below) this one; linear is 1."""
    m = speeds.grid.clients
    if max(m) < SPAN * min(m):
        return Verdict.unmeasured(claim.text, f"M from {min(m)} to {max(m)} is too little for an exponent")
    every = speeds.local_steps(claim)
    exponents = {name: [speeds.exponent(name, k) for k in every] for name in claim.methods}
    measured = "; ".join(f"{name} {_list([round(e, 2) for e in values])}" for name, values in exponents.items())
    measured = f"exponents of 1/M for {_ks(every)}: {measured}; linear is 1, {claim.exponent:g} is the limit"
    found = [e for values in exponents.values() for e in values]
    return Verdict.of(claim.text, measured, all(e >= claim.exponent if linear else e < claim.exponent for e in found))


def _deteriorates(claim: Any, speeds: Speeds) -> Verdict:
    """For every K, with the most clients, suboptimality is this many times that of K = 1."""
    if 1 not in speeds.grid.local_steps:
        return Verdict.unmeasured(claim.text, "K = 1 was not run")
    every, m = speeds.local_steps(claim), claim.clients or max(speeds.grid.clients)
    own: Any = speeds.methods[claim.method][m]
    ratios = [float(own[k] / own[1]) for k in every]
    measured = f"with {m} clients, {_list(ratios)} times the suboptimality of K = 1 for {_ks(every)}"
    return Verdict.of(claim.text, measured, min(ratios) >= claim.factor)


def _leads(claim: Any, speeds: Speeds, similar: bool) -> Verdict:
    """For every K, the best other has this many times the suboptimality, in the geometric mean over M or at one M."""
    every, most = speeds.local_steps(claim), claim.clients or max(speeds.grid.clients)
    own = speeds.methods[claim.method].loc[every]
    others = np.min([speeds.methods[name].loc[every].to_numpy() for name in claim.than], axis=0)
    ratios: Any = pd.DataFrame(others / own.to_numpy(), index=own.index, columns=own.columns)
    averaged = ratios if claim.clients is None else ratios[[most]]
    leads = [float(value) for value in np.exp(np.log(averaged).mean(axis=1))]
    names = claim.than[0] if len(claim.than) == 1 else "the best other"
    measured = f"suboptimality of {names} over that of {claim.method} for {_ks(every)}: "
    measured += f"{_list(leads)} (mean over M), " if claim.clients is None else ""
    measured += f"{_list(ratios[most].tolist())} (M = {most})"
    holds = max(np.abs(np.log(leads))) <= np.log(claim.factor) if similar else min(leads) > claim.factor
    return Verdict.of(claim.text, measured, bool(holds))


def _onset(claim: Any, speeds: Speeds) -> Verdict:
    """With every M (or this one) the first K that has `factor` times the suboptimality of K = 1 follows `passes`, the K that the
    text names, in the grid of powers of two: it is 2 `passes`, up to one doubling or halving."""
    for needed in (1, claim.passes, 2 * claim.passes):
        if needed not in speeds.grid.local_steps:
            return Verdict.unmeasured(claim.text, f"K = {needed} was not run")
    chosen, said, holds = [claim.clients] if claim.clients else speeds.grid.clients, [], True
    for name in claim.methods:
        found: dict[float, list[int]] = {}
        for m in chosen:
            own: Any = speeds.methods[name][m]
            worse = own.index[own >= claim.factor * own[1]]
            found.setdefault(float(worse.min()) if len(worse) else np.inf, []).append(m)
        holds = holds and all(claim.passes <= k <= 4 * claim.passes for k in found)
        each = (f"{f'K = {k:g}' if np.isfinite(k) else 'none'} (M = {_list(ms)})" for k, ms in sorted(found.items()))
        said.append(f"{name} {', '.join(each)}")
    measured = f"first K with {claim.factor:g} times the suboptimality of K = 1: {'; '.join(said)}"
    return Verdict.of(claim.text, measured, holds)


def _more_robust(claim: Any, speeds: Speeds) -> Verdict:
    """For every K, suboptimality grows less from K = 1 on than that of each other method, in the geometric mean over M."""
    if 1 not in speeds.grid.local_steps:
        return Verdict.unmeasured(claim.text, "K = 1 was not run")
    every = speeds.local_steps(claim)
    growth = {name: _growth(speeds.methods[name], every) for name in (claim.method, *claim.than)}
    own = growth[claim.method]
    measured = "; ".join(f"{name} {_list(values)}" for name, values in growth.items())
    measured = f"times the suboptimality of K = 1 for {_ks(every)}, mean over M: {measured}"
    less = all(a < b for name in claim.than for a, b in zip(own, growth[name], strict=True))
    return Verdict.of(claim.text, measured, less)


def _growth(suboptimality: Any, local_steps: list[int]) -> list[float]:
    """Return the geometric means over M of suboptimality over that of K = 1."""
    ratios = suboptimality.loc[local_steps] / suboptimality.loc[1]
    return [float(value) for value in np.exp(np.log(ratios).mean(axis=1))]


def _fewest_rounds(claim: Any, speeds: Speeds) -> Verdict:
    """The level is reached in fewer rounds than by every other method."""
    rounds = {}
    for name in (claim.method, *claim.than):
        own: Any = speeds.methods[name][claim.clients]
        reached = own.index[own <= claim.level * (1 + claim.tolerance)]
        rounds[name] = speeds.steps // reached.max() if len(reached) else None
    listed = ", ".join(f"{'never' if r is None else r} ({name})" for name, r in rounds.items())
    measured = f"rounds until suboptimality <= {claim.level:g} with {claim.clients} clients: {listed}"
    own = rounds[claim.method]
    fewer = own is not None and all(r is None or own < r for r in (rounds[name] for name in claim.than))
    return Verdict.of(claim.text, measured, fewer)


def _inside_grid(claim: SpeedupClaim, speeds: Speeds) -> Verdict:
    """Every best step size lies in the text's range: a wider grid shows it, or none is at an end of the text's grid."""
    best = speeds.tuned.groupby("method", sort=False)["step_size"].agg(["min", "max"])
    measured = "best " + ", ".join(f"{low:g} to {high:g} ({name})" for name, (low, high) in best.iterrows())
    text, tried = speeds.text_step_sizes, speeds.grid.step_size
    outside: Any = speeds.tuned[~speeds.tuned["step_size"].between(min(text), max(text))]
    at_an_end = bool((best["min"] <= min(tried)).any() or (best["max"] >= max(tried)).any())
    if at_an_end and outside.empty:
        beyond = "an end of the grid is among them, --grid wide looks beyond it"
        return Verdict.unmeasured(claim.text, f"{measured}; {beyond}")
    if len(outside):
        places = [f"{r.step_size:g} ({r.method}, K = {r.local_steps}, M = {r.clients})" for r in outside.itertuples()]
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        settings = f"outside in {len(places)} of {len(speeds.tuned)} settings"
        measured = f"{measured}; {settings}: {', '.join(places[:NAMED])}{more}"
    return Verdict.of(claim.text, measured, outside.empty)


# the settings have checked that a claim has the fields that its check needs
CHECKS: dict[str, Callable[[Any, Speeds], Verdict]] = {
    "rounds_needed": _rounds_needed,
    "linear_speedup": partial(_exponents, linear=True),
    "no_linear_speedup": partial(_exponents, linear=False),
    "deteriorates": _deteriorates,
    "better": partial(_leads, similar=False),
    "similar": partial(_leads, similar=True),
    "onset": _onset,
    "more_robust": _more_robust,
    "fewest_rounds": _fewest_rounds,
    "inside_grid": _inside_grid,
}


def _ks(local_steps: list[int]) -> str:
    return f"K = {', '.join(map(str, local_steps))}"


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" if value >= 99.5 else f"{value:.2g}" for value in values)
